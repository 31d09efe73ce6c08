"""Places of multipliers and block RAMs, chosen between Yosys and nextpnr."""
