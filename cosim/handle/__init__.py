"""A design as an interactive object, and PyVerilator's interface to it."""
