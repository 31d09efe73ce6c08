"""Post-training quantisation: float ONNX and calibration inputs become a QDQ ONNX network."""
