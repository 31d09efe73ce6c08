"""Points of a sweep on the RTL."""
