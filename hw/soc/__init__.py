"""A processor beside the accelerator: one chip that runs an inference from reset to result."""
