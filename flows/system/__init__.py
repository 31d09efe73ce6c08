"""What commands do with a network on a system of several accelerators."""
