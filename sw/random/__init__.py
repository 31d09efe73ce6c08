"""Random networks and random programs."""
