"""Which fields of a TFLite file are offsets, from the format's schema; the others are numbers."""

from __future__ import annotations

from ai_edge_litert import schema_py_generated as schema

from dovetail.sw.frontend.tflite.flatbuffer import Schema

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
