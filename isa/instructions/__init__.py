"""The instruction set: its table, the checks of an operation, text to words and back."""
