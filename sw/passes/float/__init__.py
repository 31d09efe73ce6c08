"""Graph passes on float ONNX networks: from what exporters write to what a quantiser and the front end take well."""
