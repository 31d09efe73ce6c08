"""Networks on several accelerators: which computes what, and the programs that do."""
