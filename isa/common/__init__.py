"""What all layers need beside the contract: files written whole, sizes, TOML in bounds, names that were meant."""
