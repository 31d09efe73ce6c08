"""A netlist's file, rewritten between Yosys and nextpnr."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any


def rewrite(path: Path, *steps: Callable[[dict[str, Any]], None]) -> Counter[str]:
    """Let steps change the top module of a file that Yosys wrote, one after the other. Returns how many cells of each
    type there are now more, or fewer."""
    netlist = json.loads(path.read_text())
    module = top_of(netlist)
    before = _types(module)
    for step in steps:
        step(module)
    path.write_text(json.dumps(netlist))
    after = _types(module)
    after.subtract(before)
    return after


def top_of(netlist: dict[str, Any]) -> dict[str, Any]:
    """The top module of what Yosys or nextpnr writes as JSON."""
    tops: list[dict[str, Any]] = [each for each in netlist["modules"].values() if "top" in each["attributes"]]
    (module,) = tops
    return module


def _types(module: dict[str, Any]) -> Counter[str]:
    return Counter(cell["type"] for cell in module["cells"].values())
