"""Replications in the place of equal parts of a concatenation, in Verilog as Amaranth and Yosys write it.

They write a sign that is extended by 30 bits as ``{ x[7], x[7], ... }``. Verilator makes an operation of each part, and
one of ``{ {30{x[7]}} }``.
"""

import re

PART = r"\\\S+ (?:\[[\d:]+\])?|\w+(?:\[[\d:]+\])?"
REPEATED = re.compile(rf"(?<=[{{,] )({PART})((?:, \1)+)(?=[ ,])")
"""(part, the same again and again)"""


def replicated(text: str) -> str:
    """Verilog of modules, with each run of equal parts as a replication."""
    return REPEATED.sub(lambda found: f"{{{1 + len(found[2]) // len(f', {found[1]}')}{{{found[1]}}}}}", text)
