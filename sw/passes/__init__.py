"""Rewrites of networks: of integer graphs, and of float ONNX networks before they are quantised."""
