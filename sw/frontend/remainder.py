"""Networks that end in operators which neither accelerator nor runtime knows: the part before these, and the rest.

Custom operators, control flow and operators newer than the runtimes are such. Dovetail does all that depends on none of
them; the tensors that go over are outputs of its part and inputs of the rest, which `dovetail export` writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dovetail.sw.frontend.tflite.file import TfliteFile, is_tflite
from dovetail.sw.network.layout import Shape

Forms = Mapping[str, tuple[str, Shape]]
"""Element type and shape of tensors, by name."""


@dataclass(frozen=True)
class Remainder:
    """A network file in two.

    Parameters
    ----------
    head: the file of what Dovetail does.
    left: the operators of the rest, in order, as "name (operator)".
    reason: why the first one of them is left.
    """

    head: bytes
    left: tuple[str, ...]
    reason: str

    @property
    def text(self) -> str:
        """What is left and why, for people."""
        more = f" and {len(self.left) - 1} behind it" if len(self.left) > 1 else ""
        return f"{self.left[0]}{more}: {self.reason}"


def remainder_of(data: bytes) -> Remainder | None:
    """A network file in two; None if all of its operators are known.

    Raises
    ------
    NetworkError: nothing is left before the first unknown operator, or a variable goes over to it.
    """
    if is_tflite(data):
        from dovetail.sw.frontend.tflite.remainder import split

        return split(TfliteFile(data))
    # Imported late: reading a TFLite file should not wait for protobuf.
    from dovetail.sw.frontend.onnx.remainder import split as split_onnx

    return split_onnx(data)


def known_part(data: bytes) -> bytes:
    """The file of what Dovetail does: the whole one if all operators are known. Raises as `remainder_of`."""
    found = remainder_of(data)
    return data if found is None else found.head


def rest_of(data: bytes, forms: Forms) -> bytes:
    """The file of the rest; ``forms``: of the tensors that go over. Raises as `remainder_of`."""
    if is_tflite(data):
        from dovetail.sw.frontend.tflite.remainder import rest

        return rest(TfliteFile(data))
    from dovetail.sw.frontend.onnx.remainder import rest as rest_onnx

    return rest_onnx(data, forms)
