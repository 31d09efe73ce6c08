"""Compiled networks: engines to run them on, reports, saved programs, reference runtimes."""
