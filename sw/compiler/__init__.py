"""The compiler: from a graph and a configuration to instruction words."""

from dovetail.sw.compiler.compile import Code, Layer, SegmentCode, generate
from dovetail.sw.compiler.options import Options

__all__ = ["Code", "Layer", "Options", "SegmentCode", "generate"]
