"""Runnable benches, a module per kind of block; see docs/cocotb.md. Each names the options that it takes."""
