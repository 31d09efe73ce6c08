"""How operators of 8-bit TFLite files become nodes of the graph: a file for each family."""
