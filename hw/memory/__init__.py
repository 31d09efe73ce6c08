"""The on-chip memory, the block RAM under it, and the reads of windows over it."""
