"""What is made from the tables: the manual, the C header, register maps in SystemRDL and SVD."""
