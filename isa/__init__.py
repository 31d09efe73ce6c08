"""The contract between hardware and software: configuration, instructions, numerics, timing, programs."""
