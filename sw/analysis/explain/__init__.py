"""Explains where the cycles of a compiled network go, exactly.

Every event of a run follows from exactly one earlier one, so a critical path leads from the last cycle back to the
first (`events`). An operation's cycles on it are split by its timing rule (`parts`), into `causes`. One at a time,
`resources` are made free, to see what would be next; `compare` takes two configurations.
"""

from dovetail.sw.analysis.explain.causes import BOUNDS, CAUSES, Cause
from dovetail.sw.analysis.explain.compare import compare
from dovetail.sw.analysis.explain.comparison import Comparison, LayerDifference
from dovetail.sw.analysis.explain.explainer import explain
from dovetail.sw.analysis.explain.explanation import Explanation, LayerExplanation, WhatIf

__all__ = [
    "BOUNDS",
    "CAUSES",
    "Cause",
    "Comparison",
    "Explanation",
    "LayerDifference",
    "LayerExplanation",
    "WhatIf",
    "compare",
    "explain",
]
