"""The built-in networks: quantised ONNX files made on the spot, with seeded weights."""

from dovetail.sw.errors import NetworkError


def model_bytes(name: str) -> bytes:
    """The ONNX file of `name?parameter=value&...`."""
    raise NetworkError(f"zoo:{name}: network must be in the zoo, not unknown")
