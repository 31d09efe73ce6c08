"""What runs on the host: kernels of nodes, recurrent layers, sessions of ONNX Runtime, and what it takes."""
