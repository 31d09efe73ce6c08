"""What leaves Dovetail: networks in parts, C code, the C99 driver."""
