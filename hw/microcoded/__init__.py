"""The microcoded accelerator: one data path that carries out the whole instruction set, a word at a time."""
