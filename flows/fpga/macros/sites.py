"""The sites of a part, as nextpnr has them: it is asked by a netlist that fills it with multipliers and block RAMs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MACROS = {"MULT18X18D": "dsp", "DP16KD": "bram"}
"""Cells that have sites of their own, and the resource that they take."""
PAD = "TRELLIS_IO"
BEL = re.compile(r"X(\d+)/Y(\d+)/")


@dataclass(frozen=True)
class Sites:
    """``macros``: names of the sites for each type of cell; ``pads``: the site of each cell at a pin, by its name."""

    macros: Mapping[str, Sequence[str]]
    pads: Mapping[str, str]

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Sites:
        """``answer``: the module of :func:`question`, as nextpnr writes it after placement."""
        bels: dict[str, dict[str, str]] = {kind: {} for kind in (*MACROS, PAD)}
        for name, cell in answer["cells"].items():
            if cell["type"] in bels:
                bels[cell["type"]][name] = cell["attributes"]["NEXTPNR_BEL"]
        return cls({kind: sorted(bels[kind].values()) for kind in MACROS}, bels[PAD])


def question(module: Mapping[str, Any], total: Mapping[str, int]) -> dict[str, Any]:
    """A module that fills a part. ``module``: a design whose pins it has; ``total``: what the part has, by resource."""
    cells = {f"{kind}.{n}": _cell(kind, {}, {}) for kind, resource in MACROS.items() for n in range(total[resource])}
    for name, cell in module["cells"].items():
        if cell["type"] == PAD:
            cells[name] = _cell(PAD, cell["parameters"], {"B": cell["connections"]["B"]})
    return {"attributes": module["attributes"], "ports": module["ports"], "cells": cells, "netnames": {}}


def place_of(bel: str) -> tuple[int, int]:
    """Column and row of a site, which its name begins with."""
    found = BEL.match(bel)
    if found is None:
        raise ValueError(f"the name of a site must begin with its column and row, such as X4/Y10/, not be {bel}")
    return int(found[1]), int(found[2])


def _cell(kind: str, parameters: Mapping[str, str], connections: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": kind,
        "parameters": parameters,
        "attributes": {},
        "port_directions": dict.fromkeys(connections, "inout"),
        "connections": connections,
    }
