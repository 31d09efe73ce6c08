"""Dovetail: hardware/software co-design for int8 neural-network accelerators."""

__version__ = "0.1.0"
