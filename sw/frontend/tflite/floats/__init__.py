"""Float TFLite networks become float ONNX networks."""
