"""The contract: configuration, instructions, numerics, timing rules, programs."""
