"""What all layers need beside the contract: files written whole, TOML in bounds, names that were meant."""
