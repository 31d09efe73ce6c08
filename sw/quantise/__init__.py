"""Post-training quantisation: float ONNX and calibration inputs become a QDQ ONNX network."""

from dovetail.sw.quantise.automatic import Goal, Search, search
from dovetail.sw.quantise.calibration.ranges import Calibration
from dovetail.sw.quantise.float_graph import FloatGraph
from dovetail.sw.quantise.quality import Quality, quality
from dovetail.sw.quantise.quantiser import quantise
from dovetail.sw.quantise.scheme import Scheme

__all__ = ["Calibration", "FloatGraph", "Goal", "Quality", "Scheme", "Search", "quality", "quantise", "search"]
