"""Malformed ONNX networks: what one edit makes of a small quantised one, and of a small float one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dovetail.sw.zoo import catalogue

Edit = Callable[[Any], object]
HUGE = (2**31 - 1, 2**31, 2**40, 2**62)


def quantised() -> Any:
    """Two convolutions, one depthwise, and a residual sum."""
    return onnx.load_model_from_string(catalogue.model_bytes("mobilenet_v2_block?channels=4&resolution=6"))


def real() -> Any:
    """Convolution, batch norm, ReLU, pool, and a dense layer in float."""
    random = np.random.default_rng(0)
    shapes = {"w": (4, 3, 3, 3), "g": (4,), "b": (4,), "m": (4,), "v": (4,), "d": (4, 5), "e": (5,)}
    constants = [
        numpy_helper.from_array(np.abs(random.standard_normal(shape)).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node(
            "Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1], strides=[2, 2], kernel_shape=[3, 3]
        ),
        helper.make_node("BatchNormalization", ["c", "g", "b", "m", "v"], ["n"], name="norm"),
        helper.make_node("Relu", ["n"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "d", "e"], ["y"], name="dense"),
    ]
    ends = [helper.make_tensor_value_info(*end) for end in (("x", 1, [1, 3, 6, 6]), ("y", 1, [1, 5]))]
    graph = helper.make_graph(nodes, "real", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def cases() -> Iterator[tuple[str, bytes]]:
    """(name, file)"""
    for name, edit in EDITS.items():
        for base, make in (("quantised", quantised), ("float", real)):
            model = make()
            if edit(model) is not SKIP:
                yield f"{base}-{name}", bytes(model.SerializeToString())


# Finding things --------------------------------------------------------------------------------

SKIP = object()
"""What an edit returns that does not apply."""


def node(model: Any, op: str) -> Any:
    return next((node for node in model.graph.node if node.op_type == op), None)


def constant(model: Any, end: str) -> Any:
    return next((tensor for tensor in model.graph.initializer if tensor.name.endswith(end)), None)


def value(model: Any, end: str, array: Any) -> object:
    """Replace a constant, by the end of its name."""
    tensor = constant(model, end)
    return SKIP if tensor is None else tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def attribute(model: Any, op: str, **values: Any) -> object:
    """Set attributes of the first node of an operator."""
    found = node(model, op)
    if found is None:
        return SKIP
    kept = [a for a in found.attribute if a.name not in values]
    del found.attribute[:]
    found.attribute.extend([*kept, *(helper.make_attribute(name, data) for name, data in values.items())])
    return None


def shape(model: Any, *sizes: int | str) -> None:
    ends = model.graph.input[0].type.tensor_type
    ends.CopyFrom(helper.make_tensor_type_proto(ends.elem_type, sizes).tensor_type)


def square(model: Any, size: int) -> None:
    shape(model, 1, 3, size, size)


def operator_set(model: Any, version: int) -> None:
    opset(model, ("", version))


def file_version(model: Any, version: int) -> None:
    model.ir_version = version


def append(model: Any, op: str, constants: list[Any], domain: str = "", **attributes: Any) -> None:
    """A node behind the network, its further operands constants; the network's output is its result."""
    names = []
    for index, array in enumerate(constants):
        names.append(f"extra{index}")
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), names[-1]))
    last = model.graph.output[0].name
    model.graph.node.append(helper.make_node(op, [last, *names], ["end"], name="extra", domain=domain, **attributes))
    output(model, "end")


def output(model: Any, name: str) -> None:
    kind = model.graph.output[0].type.tensor_type.elem_type
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info(name, kind, None))


def computed(model: Any, op: str, *arrays: Any, **attributes: Any) -> None:
    """A node of constants alone, in front, whose result the output is."""
    names = [f"operand{index}" for index in range(len(arrays))]
    for name, array in zip(names, arrays, strict=True):
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    model.graph.node.insert(0, helper.make_node(op, names, ["computed"], name="constants", **attributes))
    append(model, "Reshape", [np.array([-1])])
    model.graph.node[-1].input[1] = "computed"


def field(model: Any, end: str, **fields: Any) -> object:
    """Overwrite fields of a constant's record as they are, without care."""
    tensor = constant(model, end)
    if tensor is None:
        return SKIP
    for name, data in fields.items():
        if name == "dims":
            del tensor.dims[:]
            tensor.dims.extend(data)
        else:
            setattr(tensor, name, data)
    return None


# Edits of several steps ------------------------------------------------------------------------


def drop(model: Any, index: int) -> None:
    del model.graph.initializer[index % len(model.graph.initializer)]


def cycle(model: Any) -> None:
    model.graph.node[0].input[0] = model.graph.node[-1].output[0]


def loop(model: Any) -> None:
    middle = model.graph.node[len(model.graph.node) // 2]
    middle.input[0] = middle.output[0]


def reverse(model: Any) -> None:
    nodes = list(model.graph.node)[::-1]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)


def chain(model: Any, op: str, count: int) -> None:
    last = model.graph.output[0].name
    for index in range(count):
        model.graph.node.append(helper.make_node(op, [last], [f"link{index}"], name=f"link{index}"))
        last = f"link{index}"
    output(model, last)


def requantised(model: Any, count: int) -> object:
    """A chain of dequantisation and quantisation."""
    if node(model, "QuantizeLinear") is None:
        return SKIP
    last = model.graph.output[0].name
    for name, data in (("chain_scale", np.float32(0.03)), ("chain_zero", np.int8(3))):
        model.graph.initializer.append(numpy_helper.from_array(np.array(data), name))
    for index in range(count):
        names = [f"real{index}", f"level{index}"]
        for op, source, result in (("DequantizeLinear", last, names[0]), ("QuantizeLinear", *names)):
            inputs = [source, "chain_scale", "chain_zero"]
            model.graph.node.append(helper.make_node(op, inputs, [result], name=f"{op}{index}"))
        last = names[1]
    output(model, last)
    return None


def nested(model: Any, depth: int) -> None:
    """If in If in If."""
    graph = helper.make_graph([helper.make_node("Identity", ["deep"], ["out"])], "leaf", [], [])
    for _ in range(depth):
        inner = helper.make_node("If", ["condition"], ["out"], then_branch=graph, else_branch=graph)
        graph = helper.make_graph([inner], "branch", [], [])
        if graph.ByteSize() > 1 << 20:
            break
    model.graph.node.append(helper.make_node("If", ["condition"], ["end"], then_branch=graph, else_branch=graph))
    output(model, "end")


def functions(model: Any, calls: tuple[tuple[str, str], ...]) -> None:
    """Local functions that call each other."""
    for name, called in calls:
        body = [helper.make_node(called, ["a"], ["b"], domain="local")]
        opsets = [helper.make_opsetid("local", 1), helper.make_opsetid("", 17)]
        model.functions.append(helper.make_function("local", name, ["a"], ["b"], body, opsets))
    model.opset_import.append(helper.make_opsetid("local", 1))
    append(model, calls[0][0], [], domain="local")


def opset(model: Any, *versions: tuple[str, int]) -> None:
    del model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid(*version) for version in versions)


def renamed(model: Any, text: str) -> None:
    for each in model.graph.node:
        each.name = text


def external(model: Any, location: str, **entries: str) -> object:
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, data in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=data)
    return None


def sparse(model: Any) -> None:
    values = helper.make_tensor("sparse", TensorProto.FLOAT, [1], [1.0])
    indices = helper.make_tensor("indices", TensorProto.INT64, [1], [2**40])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2**31, 2**31]))


def wide(model: Any, count: int) -> None:
    last = model.graph.output[0].name
    model.graph.node.append(helper.make_node("Concat", [last] * count, ["end"], name="wide", axis=1))
    output(model, "end")


def input_type(model: Any, kind: int) -> None:
    model.graph.input[0].type.tensor_type.elem_type = kind


def input_kind(model: Any) -> None:
    model.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = 1


def repeat(parts: Any) -> None:
    parts.append(parts[0])


def swapped(model: Any) -> None:
    for each in model.graph.node:
        if len(each.input) > 1:
            each.input[0], each.input[1] = each.input[1], each.input[0]


def no_inputs(model: Any) -> None:
    for each in model.graph.node:
        del each.input[:]


def no_outputs(model: Any) -> None:
    for each in model.graph.node:
        del each.output[:]


def clear(model: Any, field: str) -> None:
    model.graph.ClearField(field)


def scale(model: Any, data: Any) -> object:
    return value(model, "expand_out_scale", np.asarray(data))


def zero(model: Any, data: Any) -> object:
    return value(model, "expand_out_zero", np.asarray(data))


def steps(model: Any, data: Any) -> object:
    return value(model, "expand_weights_scale", np.asarray(data))


def weights(model: Any, data: Any) -> object:
    return SKIP if value(model, "expand_weights", data) is SKIP and value(model, "w", data) is SKIP else None


def record(model: Any, **fields: Any) -> object:
    return SKIP if field(model, "expand_weights", **fields) is SKIP and field(model, "w", **fields) is SKIP else None


F32 = np.float32
EDITS: dict[str, Edit] = {
    **{f"constant {k} missing": partial(drop, index=k) for k in range(5)},
    "constant twice": lambda m: repeat(m.graph.initializer),
    "node twice": lambda m: repeat(m.graph.node),
    "input twice": lambda m: repeat(m.graph.input),
    "output twice": lambda m: repeat(m.graph.output),
    "cycle": cycle,
    "loop": loop,
    "reversed": reverse,
    "operands swapped": swapped,
    "no operands": no_inputs,
    "no results": no_outputs,
    "no nodes": partial(clear, field="node"),
    "no constants": partial(clear, field="initializer"),
    "no inputs": partial(clear, field="input"),
    "no outputs": partial(clear, field="output"),
    "no graph": lambda m: m.ClearField("graph"),
    "output of nothing": lambda m: output(m, "nothing"),
    "output is input": lambda m: output(m, m.graph.input[0].name),
    "output is constant": lambda m: output(m, m.graph.initializer[0].name),
    "input unnamed": lambda m: setattr(m.graph.input[0], "name", ""),
    "input of no type": lambda m: m.graph.input[0].ClearField("type"),
    "input a sequence": input_kind,
    **{f"input of type {kind}": partial(input_type, kind=kind) for kind in (0, 7, 8, 9, 10, 11, 14, 16, 23, 99)},
    **{f"input of size {n}": partial(square, size=n) for n in (*HUGE, -1, 0, 3, 10**5)},
    "input of many channels": lambda m: shape(m, 1, 2**31, 6, 6),
    "input of rank 0": shape,
    "input of rank 1": lambda m: shape(m, 5),
    "input of rank 9": lambda m: shape(m, 1, 1, 1, 1, 1, 1, 1, 1, 4),
    "input of batch 4": lambda m: shape(m, 4, 3, 6, 6),
    "input open": lambda m: shape(m, "n", "c", "h", "w"),
    **{f"operator set {n}": partial(operator_set, version=n) for n in (0, 1, 5, 9, 999, -1, 2**40)},
    "operator set missing": opset,
    "operator set twice": lambda m: opset(m, ("", 13), ("", 7)),
    "operator set of others": lambda m: opset(m, ("somewhere", 13)),
    **{f"file version {n}": partial(file_version, version=n) for n in (0, 1, 99, 2**50)},
    "operator unknown": lambda m: append(m, "Frobnicate", []),
    "operator of nobody": lambda m: append(m, "Conv", [], domain="com.nobody"),
    "operator empty": lambda m: append(m, "", []),
    "operator in capitals": lambda m: append(m, "RELU", []),
    "control flow": partial(nested, depth=1),
    "control flow nested": partial(nested, depth=11),
    "function calls itself": partial(functions, calls=(("F", "F"),)),
    "functions call each other": partial(functions, calls=(("F", "G"), ("G", "F"))),
    "function calls nothing": partial(functions, calls=(("F", "Nothing"),)),
    **{
        f"{name} {data}": partial(attribute, op="Conv", **{name: data})
        for name, choices in {
            "strides": ([0, 0], [-1, -1], [2**31, 2**31], [2**62, 1], [1], [1, 1, 1], 2.0, "two"),
            "dilations": ([0, 0], [-2, -2], [2**31, 1], [2**62, 2**62]),
            "pads": ([-1] * 4, [2**31] * 4, [2**62] * 4, [1, 1], [300] * 4, 1.5),
            "kernel_shape": ([0, 0], [5, 5], [2**31, 2**31], [-3, -3], [1]),
            "group": (0, -1, 3, 2**31, 2**62, 2.5, "two"),
            "auto_pad": ("FOO", "SAME_UPPER", 7),
        }.items()
        for data in choices
    },
    "attribute twice": lambda m: repeat(node(m, "Conv").attribute),
    "attribute of a function": lambda m: setattr(node(m, "Conv").attribute[0], "ref_attr_name", "f"),
    "attribute of no type": lambda m: setattr(node(m, "Conv").attribute[0], "type", 0),
    **{f"scale {data}": partial(scale, data=F32(data)) for data in (0, -1, np.nan, np.inf, 1e-45, 3e38)},
    "scale of doubles": partial(scale, data=np.float64(0.1)),
    "scale of integers": partial(scale, data=np.int32(1)),
    "scale of many": partial(scale, data=np.full(7, 0.1, F32)),
    "scale of none": partial(scale, data=np.zeros(0, F32)),
    "scale of a matrix": partial(scale, data=np.full((2, 2), 0.1, F32)),
    **{f"zero point of {data.dtype}": partial(zero, data=data) for data in (np.int32(300), np.uint8(3), np.int16(-9))},
    "zero point in float": partial(zero, data=F32(3)),
    "zero points": partial(zero, data=np.zeros(24, np.int8)),
    **{f"weight scales {data}": partial(steps, data=np.full(24, data, F32)) for data in (0, -1, np.nan, np.inf, 3e38)},
    "weight scales of few": partial(steps, data=np.full(3, 0.1, F32)),
    "weights of rank 1": partial(weights, data=np.ones(7, np.int8)),
    "weights of none": partial(weights, data=np.zeros((0, 4, 1, 1), np.int8)),
    "weights of doubles": partial(weights, data=np.ones((24, 4, 1, 1))),
    "weights of other channels": partial(weights, data=np.ones((24, 5, 1, 1), np.int8)),
    "weights of text": partial(record, data_type=TensorProto.STRING),
    "weights of no type": partial(record, data_type=0),
    "weights of type 77": partial(record, data_type=77),
    "weights too short": partial(record, raw_data=b"abc"),
    "weights too long": partial(record, raw_data=bytes(9999)),
    **{f"weights of {n} rows": partial(record, dims=(n, 4, 1, 1)) for n in (*HUGE, -1, 0)},
    "weights of 2**80 elements": partial(record, dims=(2**40, 2**40)),
    "weights not numbers": lambda m: weights(m, np.full((4, 3, 3, 3), np.nan, F32)),
    "constant sparse": sparse,
    **{
        f"external data {place!r} {entries}": partial(external, location=place, **entries)
        for place, entries in (
            ("none.bin", {}),
            ("../../../../etc/passwd", {}),
            ("/etc/passwd", {}),
            ("", {}),
            (".", {}),
            ("none.bin", {"offset": "-5", "length": str(2**62)}),
            ("none.bin", {"offset": "x"}),
        )
    },
    **{
        f"reshape to {target}": partial(append, op="Reshape", constants=[np.array(target)])
        for target in ([7], [-2], [-1, -1], [0], [2**62, 2**62], [])
    },
    "transpose by what is none": lambda m: append(m, "Transpose", [], perm=[0, 0, 1, 9]),
    "flatten at 9": lambda m: append(m, "Flatten", [], axis=9),
    "concat at 9": lambda m: append(m, "Concat", [], axis=9),
    "slice by steps of 0": lambda m: append(m, "Slice", [np.array([v]) for v in (0, 1, 0, 0)]),
    "slice of nothing": lambda m: append(m, "Slice", [np.array([v]) for v in (5, 5, 1, 1)]),
    "slice far away": lambda m: append(m, "Slice", [np.array([v]) for v in (2**62, -(2**62), 1, -(2**62))]),
    "split too large": lambda m: append(m, "Split", [np.array([2**40, 1])], axis=1),
    "gather outside": lambda m: append(m, "Gather", [np.array([2**40])], axis=1),
    "expanded": lambda m: append(m, "Expand", [np.array([2**20, 2**12, 1, 1])]),
    "tiled": lambda m: append(m, "Tile", [np.array([2**20, 2**12, 1, 1])]),
    "padded": lambda m: append(m, "Pad", [np.array([0, 0, 2**20, 2**20, 0, 0, 0, 0])]),
    "padded below nothing": lambda m: append(m, "Pad", [np.array([0, 0, -50, -50, 0, 0, 0, 0])]),
    "resized": lambda m: append(m, "Resize", [np.zeros(0, F32), np.array([1, 1, 1e6, 1e6], F32)], mode="nearest"),
    "cast to text": lambda m: append(m, "Cast", [], to=TensorProto.STRING),
    "cast to nothing": lambda m: append(m, "Cast", [], to=99),
    "constant of a large shape": lambda m: computed(m, "ConstantOfShape", np.array([2**20, 2**20])),
    "constant of a huge shape": lambda m: computed(m, "ConstantOfShape", np.array([2**40, 2**40])),
    "range": lambda m: computed(m, "Range", np.int64(0), np.int64(2**40), np.int64(1)),
    "range by 0": lambda m: computed(m, "Range", np.int64(0), np.int64(5), np.int64(0)),
    "expanded constant": lambda m: computed(m, "Expand", np.int64(1), np.array([2**20, 2**16])),
    "tiled constant": lambda m: computed(m, "Tile", np.array([1, 2]), np.array([2**36])),
    "hot ones": lambda m: computed(m, "OneHot", np.arange(9999), np.int64(2**30), np.array([0, 1])),
    "divided by 0": lambda m: computed(m, "Div", np.array([1, 2]), np.array([0, 0])),
    "constant without a value": lambda m: computed(m, "Constant"),
    "500 identities": partial(chain, op="Identity", count=500),
    "500 ReLUs": partial(chain, op="Relu", count=500),
    "60 exponentials": partial(chain, op="Exp", count=60),
    "300 requantisations": partial(requantised, count=300),
    "concat of 1000": partial(wide, count=1000),
    "names empty": partial(renamed, text=""),
    "names equal": partial(renamed, text="same"),
    "names of lines": partial(renamed, text="one\ntwo\r\nthree\0"),
    "names long": partial(renamed, text="long" * 50_000),
    "metadata": lambda m: m.metadata_props.add(key="dovetail.scheme", value="x" * 99_999),
    "training": lambda m: m.training_info.add(),
}
