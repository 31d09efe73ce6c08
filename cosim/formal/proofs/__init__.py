"""The proofs: a file per block."""
