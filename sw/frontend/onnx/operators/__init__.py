"""How ONNX operators become nodes of the graph: a file for each family, both dialects of quantisation in it."""
