"""Whether a flatbuffer is sound: every offset that a reader may follow leads into the file.

Readers in C++ take that for granted; readers in Python loop or copy as often as a damaged length says. `TFLITE` tells
which fields of a TFLite file are offsets.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from ai_edge_litert import schema_py_generated as schema

Field = int | str | Mapping[int, str]
"""What an offset of a table leads to: a vector of numbers (bytes of one), "text", a table by its name, a vector of
tables ("[name]"), or a union: the table's name by the number in the field before."""
Schema = Mapping[str, Mapping[int, Field]]
"""By the name of a table: its fields that are offsets, by their number. All other fields are numbers in the table."""

MOST_READ = 8
"""How often a file's bytes may be read. Writers share few bytes; damaged files may share so many that memory fills."""


class FlatbufferError(ValueError):
    """An offset leads out of the file, or the same bytes are used too often; the text names the table."""


def verify(data: bytes, schema: Schema, root: str) -> None:
    """Follow every offset from the root table on. Raises FlatbufferError."""
    _Walk(data, schema).run(root)


class _Walk:
    def __init__(self, data: bytes, schema: Schema) -> None:
        self.data = data
        self.schema = schema
        self.left = MOST_READ * len(data)
        self.waiting: list[tuple[str, int]] = []
        self.layouts: dict[int, tuple[int, ...]] = {}

    def run(self, root: str) -> None:
        self.waiting.append((root, self._number(root, "<I", 0)))
        while self.waiting:
            self._table(*self.waiting.pop())

    def _table(self, name: str, at: int) -> None:
        inline, *places = self._layout(name, at - self._number(name, "<i", at))
        self._take(name, at, inline)
        if any(place and not 4 <= place < inline for place in places):
            raise FlatbufferError(f"{name} at {at:#x} has a field outside of itself")
        for number, field in self.schema.get(name, {}).items():
            place = places[number] if number < len(places) else 0
            if not place:
                continue
            if place + 4 > inline:
                raise FlatbufferError(f"{name} at {at:#x} has a field outside of itself")
            if isinstance(field, Mapping):
                before = places[number - 1]
                kind = self.data[at + before] if before else 0
                if kind:
                    self._follow(name, at + place, field.get(kind, f"{name}'s options {kind}"))
            else:
                self._follow(name, at + place, field)

    def _layout(self, name: str, at: int) -> tuple[int, ...]:
        """Bytes of a table, and the place of each field in it; 0 for those that it does not have."""
        if at not in self.layouts:
            size = self._number(name, "<H", at)
            if size < 4 or size % 2:
                raise FlatbufferError(f"{name} must have a list of fields, not {size} bytes at {at:#x}")
            self._take(name, at, size)
            self.layouts[at] = struct.unpack_from(f"<{size // 2 - 1}H", self.data, at + 2)
        return self.layouts[at]

    def _follow(self, name: str, at: int, field: int | str) -> None:
        """What the offset at a place of table ``name`` leads to."""
        distance = self._number(name, "<I", at)
        start = at + distance
        if not distance:
            raise FlatbufferError(f"{name} has an offset to itself at {at:#x}")
        if isinstance(field, str) and field != "text" and field[0] != "[":
            self.waiting.append((field, start))
            return
        count = self._number(name, "<I", start)
        size = field if isinstance(field, int) else 1 if field == "text" else 4
        self._take(name, start + 4, count * size)
        if field == "text":
            self._number(name, "<B", start + 4 + count)  # the 0 that C readers look for
            if self.data[start + 4 + count]:
                raise FlatbufferError(f"{name} has a text without an end at {start:#x}")
        elif isinstance(field, str):
            for index in range(count):
                self._follow(name, start + 4 + 4 * index, field[1:-1])

    def _number(self, name: str, kind: str, at: int) -> int:
        if not 0 <= at <= len(self.data) - struct.calcsize(kind):
            raise FlatbufferError(f"{name} leads to {at:#x}, outside of {len(self.data):#x} bytes")
        return int(struct.unpack_from(kind, self.data, at)[0])

    def _take(self, name: str, at: int, size: int) -> None:
        if not 0 <= at <= at + size <= len(self.data):
            raise FlatbufferError(f"{name} has {size} bytes at {at:#x}, outside of {len(self.data):#x} bytes")
        self.left -= size
        if self.left < 0:
            raise FlatbufferError(f"its bytes must not be used more than {MOST_READ} times (`dovetail docs limits`)")


# The schema ------------------------------------------------------------------------------------

_VECTORS = {1: "Int32Vector", 2: "Uint16Vector", 3: "Uint8Vector"}
_OPTIONS = {
    getattr(schema.BuiltinOptions, name): name
    for name in ("ConcatEmbeddingsOptions", "FullyConnectedOptions", "ReshapeOptions", "SqueezeOptions",
                 "VarHandleOptions", "BucketizeOptions")
}  # fmt: skip
"""Options with offsets; those of all other operators are numbers."""
_OPTIONS_2 = {
    2: "StablehloBroadcastInDimOptions", 3: "StablehloSliceOptions", 4: "StablehloConvolutionOptions",
    5: "StablehloCustomCallOptions", 6: "StablehloReduceOptions", 7: "StablehloScatterOptions",
    9: "StablehloDynamicSliceOptions", 10: "StablehloPadOptions", 12: "StablehloDotGeneralOptions",
    13: "StablehloReduceWindowOptions", 16: "StablehloGatherOptions", 17: "StablehloTransposeOptions",
    21: "StableHLOCompositeOptions", 23: "StablehloCaseOptions",
}  # fmt: skip

TFLITE: Schema = {
    "Model": {
        1: "[OperatorCode]", 2: "[SubGraph]", 3: "text", 4: "[Buffer]", 5: 4, 6: "[Metadata]", 7: "[SignatureDef]",
        8: "[ExternalBufferGroup]", 9: "[ExternalBuffer]",
    },
    "OperatorCode": {1: "text"},
    "SubGraph": {0: "[Tensor]", 1: 4, 2: 4, 3: "[Operator]", 4: "text"},
    "Buffer": {0: 1},
    "Metadata": {0: "text"},
    "SignatureDef": {0: "[TensorMap]", 1: "[TensorMap]", 2: "text"},
    "TensorMap": {0: "text"},
    "ExternalBufferGroup": {0: "text"},
    "ExternalBuffer": {4: "text"},
    "Tensor": {
        0: 4, 3: "text", 4: "QuantizationParameters", 6: "SparsityParameters", 7: 4, 9: "[VariantSubType]",
    },
    "VariantSubType": {0: 4},
    "QuantizationParameters": {
        0: 4, 1: 4, 2: 4, 3: 8, 5: {1: "CustomQuantization", 2: "BlockwiseQuantization", 3: "MultiAxisQuantization"},
    },
    "CustomQuantization": {0: 1},
    "BlockwiseQuantization": {3: 4},
    "MultiAxisQuantization": {3: 4},
    "SparsityParameters": {0: 4, 1: 4, 2: "[DimensionMetadata]"},
    "DimensionMetadata": {3: _VECTORS, 5: _VECTORS},
    "Int32Vector": {0: 4},
    "Uint16Vector": {0: 2},
    "Uint8Vector": {0: 1},
    "Operator": {1: 4, 2: 4, 4: _OPTIONS, 5: 1, 7: 1, 8: 4, 12: _OPTIONS_2},
    "ConcatEmbeddingsOptions": {1: 4, 2: 4},
    "FullyConnectedOptions": {5: 1},
    "ReshapeOptions": {0: 4},
    "SqueezeOptions": {0: 4},
    "VarHandleOptions": {0: "text", 1: "text"},
    "BucketizeOptions": {0: 4},
    "StablehloBroadcastInDimOptions": {0: 8},
    "StablehloSliceOptions": {0: 8, 1: 8, 2: 8},
    "StablehloConvolutionOptions": {0: 8, 1: 8, 2: 8, 3: 8, 4: 1, 7: 8, 10: 8, 13: 8, 16: 4},
    "StablehloCustomCallOptions": {0: "text", 2: "text", 4: 4, 5: 1},
    "StablehloReduceOptions": {0: 8},
    "StablehloScatterOptions": {1: 8, 2: 8, 3: 8},
    "StablehloDynamicSliceOptions": {0: 8},
    "StablehloPadOptions": {0: 8, 1: 8, 2: 8},
    "StablehloDotGeneralOptions": {0: 8, 1: 8, 2: 8, 3: 8, 4: 4},
    "StablehloReduceWindowOptions": {0: 8, 1: 8, 2: 8, 3: 8, 4: 8},
    "StablehloGatherOptions": {0: 8, 1: 8, 2: 8, 4: 8},
    "StablehloTransposeOptions": {0: 8},
    "StableHLOCompositeOptions": {0: "text", 2: 1},
    "StablehloCaseOptions": {0: 4},
}  # fmt: skip
