"""The accelerator in Amaranth HDL."""
