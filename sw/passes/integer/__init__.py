"""Graph passes on quantised networks: the same bytes from less work."""
