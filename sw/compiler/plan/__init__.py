"""What the compiler chooses: residents of SRAM, tiles, order of loops; by estimates and exact prices."""
