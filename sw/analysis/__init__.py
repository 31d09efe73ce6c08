"""Analyses of a network or a run: explanations, costs, differences, histories."""
