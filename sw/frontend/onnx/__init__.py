"""ONNX files become graphs."""
