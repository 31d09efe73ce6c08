"""The functional model's units, one file each; `accelerator` runs them in order of time."""
