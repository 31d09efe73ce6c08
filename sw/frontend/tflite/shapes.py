"""Shapes that a TFLite file leaves open: what it says of such tensors is a placeholder, LiteRT knows better."""

from __future__ import annotations

from dataclasses import replace

from dovetail.sw.errors import NetworkError, first_line
from dovetail.sw.frontend.tflite.file import TfliteFile


def settle(file: TfliteFile) -> None:
    """Replace the shapes of computed tensors by those that follow from the inputs' shapes, if the file leaves some
    open behind the batch.

    Raises
    ------
    NetworkError: LiteRT cannot take the network.
    """
    computed = {index for op in file.operators for index in op.outputs}
    if not any(index in computed and -1 in info.signature[1:] for index, info in enumerate(file.infos)):
        return
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    try:
        interpreter = Interpreter(
            model_content=file.data, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        )
        interpreter.allocate_tensors()
    except (ValueError, RuntimeError) as error:
        raise NetworkError(
            f"shapes of computed tensors must follow from the inputs', as LiteRT finds them: {first_line(error)}"
        ) from error
    for detail in interpreter.get_tensor_details():
        index = int(detail["index"])
        if index in computed and index < len(file.infos):
            info, shape = file.infos[index], tuple(int(size) for size in detail["shape"])
            file.infos[index] = replace(info, tensor=replace(info.tensor, shape=shape))
