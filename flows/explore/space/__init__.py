"""Spaces: their files, expressions, metrics, scenarios and networks."""
