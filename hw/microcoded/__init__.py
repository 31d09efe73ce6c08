"""The serial engine: one microprogrammed data path that carries out the whole instruction set, a word at a time."""
