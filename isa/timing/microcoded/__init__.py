"""Timing of the microcoded implementation: one word after the other."""
