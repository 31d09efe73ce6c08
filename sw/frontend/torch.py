"""PyTorch modules and exported programs become ONNX networks in memory, by PyTorch's own exporter.

`torch.export` captures a module with its example inputs, `torch.onnx` translates what was captured. What torchao's PT2E
has quantised holds `quantized_decomposed` operators: these become QuantizeLinear and DequantizeLinear.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from typing import Any

import numpy as np
import onnx
import onnx_ir
from onnx import helper

from dovetail.sw.errors import NetworkError, first_line
from dovetail.sw.frontend.parsed_file import NetworkFile

INSTALL = 'pip install "dovetail[torch]"'
_EXAMPLE = "example_inputs=(torch.zeros(1, 3, 32, 32),)"
_MODES = ("train", "training")
"""How PyTorch's operators call the argument that says whether they train."""
_NO_FORM = re.compile(r"No ONNX function found for <OpOverload\(op='([^']+)'")


def from_torch(network: Any, example_inputs: Any = None) -> NetworkFile:
    """A PyTorch network as an ONNX file in memory.

    Parameters
    ----------
    network: a `torch.nn.Module` in evaluation mode, float or quantised by PT2E, or a `torch.export.ExportedProgram`.
    example_inputs: what the module takes: a tensor, a tuple of its arguments, or a mapping of these by name. Their
        shapes become the network's. An exported program has its own.

    Raises
    ------
    NetworkError: PyTorch is missing, the network trains or cannot be captured, or an operator has no form in ONNX; one
        line that says what to do.
    """
    try:
        import torch
    except ImportError:
        raise NetworkError(f"a PyTorch network must have PyTorch to be read; {INSTALL}") from None
    if not isinstance(network, torch.nn.Module | torch.export.ExportedProgram):
        found = type(network).__name__
        raise NetworkError(f"network must be a torch.nn.Module or a torch.export.ExportedProgram, not {found}")
    captured = isinstance(network, torch.export.ExportedProgram | torch.fx.GraphModule)
    name = "network" if captured else type(network).__name__
    with _quiet():
        program = _captured(network, example_inputs, name)
        _check_mode(program, name)
        model = _translated(program, name)
    try:
        return NetworkFile(name, bytes(model.SerializeToString(deterministic=True)))
    except Exception as error:  # protobuf raises several classes, none of them public
        raise NetworkError(f"{name}: weights must be below 2 GB, not: {first_line(error)}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what PyTorch prints: deprecations, packages that it does not find, graphs that it gives up."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


# Capture ---------------------------------------------------------------------------------------


def _captured(network: Any, example_inputs: Any, name: str) -> Any:
    """The exported program of a network."""
    import torch

    if isinstance(network, torch.export.ExportedProgram):
        if example_inputs is not None:
            raise NetworkError(f"{name}: example_inputs must be left out with an ExportedProgram, which has its own")
        return network
    # What PT2E makes says that it trains, whether it does or not; its operators say the truth.
    if network.training and not isinstance(network, torch.fx.GraphModule):
        raise NetworkError(f"{name}: module must be in evaluation mode, not training; call its eval() first")
    args, kwargs = _arguments(example_inputs, name)
    try:
        return torch.export.export(network, args, kwargs)
    except Exception as error:  # of many classes: PyTorch's own, and all that a module may raise
        raise NetworkError(f"{name}: {_refusal(error)}") from error


def _arguments(example_inputs: Any, name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of a module, by place and by name."""
    import torch

    if example_inputs is None:
        raise NetworkError(f"{name}: example_inputs must be given with a module, such as {_EXAMPLE}")
    if isinstance(example_inputs, torch.Tensor):
        example_inputs = (example_inputs,)
    by_name = isinstance(example_inputs, Mapping)
    if not by_name and not isinstance(example_inputs, tuple | list):
        found = type(example_inputs).__name__
        raise NetworkError(f"{name}: example_inputs must be tensors, such as {_EXAMPLE}, not {found}")
    for each in _leaves(example_inputs):
        if not isinstance(each, torch.Tensor | bool | int | float | str | None):
            found = type(each).__name__
            raise NetworkError(f"{name}: example_inputs must be torch.Tensors, not {found}; torch.as_tensor makes them")
    return ((), dict(example_inputs)) if by_name else (tuple(example_inputs), {})


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, tuple | list):
        for each in value:
            yield from _leaves(each)
    else:
        yield value


def _refusal(error: Exception) -> str:
    """Why `torch.export` does not capture a module."""
    text = first_line(error)
    if "data-dependent" in str(error) or "data dependent" in str(error):
        return f"control flow and shapes must not depend on values of tensors: {text}"
    return f"torch.export must capture the module with these example inputs, not: {text}"


def _check_mode(program: Any, name: str) -> None:
    """Raises NetworkError for an operator that trains: dropout, or a norm of the batch."""
    for node in program.graph.nodes:
        arguments = getattr(getattr(node.target, "_schema", None), "arguments", ())
        for place, argument in enumerate(arguments):
            if argument.name in _MODES:
                given = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
                if given is True:
                    raise NetworkError(
                        f"{name}: {node.target} {node.name!r} must be in evaluation mode, not training; call eval()"
                        " before torch.export, or torchao's move_exported_model_to_eval on what PT2E made"
                    )


# Translation -----------------------------------------------------------------------------------


def _translated(program: Any, name: str) -> onnx.ModelProto:
    """An exported program in ONNX."""
    import torch

    try:
        exported = torch.onnx.export(
            program, dynamo=True, verbose=False, custom_translation_table=_table(program)
        ).model_proto
    except Exception as error:  # PyTorch's own classes around those of many others
        found = _NO_FORM.search("\n".join(str(each) for each in _causes(error)))
        if found:
            raise NetworkError(f"{name}: operator {found[1]} has no form in ONNX; replace it in the module") from error
        reason = first_line(list(_causes(error))[-1])
        raise NetworkError(f"{name}: torch.onnx must translate the module, not: {reason}") from error
    _forget_origin(exported.graph)
    return exported


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _forget_origin(graph: onnx.GraphProto) -> None:
    """Drop where in whose files each node comes from, which is most of a small network."""
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")


def _table(program: Any) -> dict[Any, Any]:
    """Operators that are translated here: onnxscript's form leaves out the bounds of integers."""
    targets = {node.target for node in program.graph.nodes if node.op == "call_function"}
    return {
        target: _quantize for target in targets if str(target) == "quantized_decomposed.quantize_per_tensor.default"
    }


def _quantize(input: Any, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: int) -> Any:
    """QuantizeLinear; reals that lie outside of narrower bounds are clipped before, which gives the same integers."""
    from onnxscript import opset18 as op

    kind = helper.tensor_dtype_to_np_dtype(dtype)
    whole = np.iinfo(kind)
    if (quant_min, quant_max) != (whole.min, whole.max):
        low, high = (np.float32((bound - zero_point) * scale) for bound in (quant_min, quant_max))
        input = op.Clip(input, _constant(op, low), _constant(op, high))
    return op.QuantizeLinear(input, _constant(op, np.float32(scale)), _constant(op, np.asarray(zero_point, kind)))


def _constant(op: Any, value: Any) -> Any:
    return op.Constant(value=onnx_ir.tensor(np.asarray(value)))
