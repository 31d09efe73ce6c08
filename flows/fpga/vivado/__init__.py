"""The accelerator for Vivado, with assertions."""
