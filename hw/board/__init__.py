"""What a board holds around the accelerator: host link, system memory and the top level."""
