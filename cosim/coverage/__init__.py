"""What runs have covered: of the instruction set, and of the RTL's lines and signals."""
