"""Pricing of points, in processes of this machine or of a cluster."""
