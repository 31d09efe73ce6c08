"""Which nodes run on the accelerator, in which segments, and what the host takes for the others."""
