"""Copies of flip-flops that are read far and wide, each near some of the readers.

A wire across an ECP5 takes as long as half a dozen LUTs. A flip-flop that is read all over the chip is at best in the
middle of its readers; copies of it are in the middle of some of them each, and the long wires are then those to the
copies' inputs. So only flip-flops are copied whose value is there early: at most :data:`LEVELS` LUTs make it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dovetail.flows.fpga.macros.wires import Floats

FLIP_FLOP = "TRELLIS_FF"
READERS = 12
"""Readers of a flip-flop that is copied, at least."""
REACH = 36.0
"""Tiles, half the perimeter of a box: readers that lie within such a box share a copy."""
LEVELS = 2
"""Cells of logic before a flip-flop that is copied, at most."""
COPY = "_copy"
"""In the name of a copy, behind that of the flip-flop."""

Pin = tuple[int, str, int]
"""The reader of a net: number of the cell, port, and bit of the port."""


def copy_flip_flops(module: dict[str, Any], places: Floats) -> None:
    """Copies those of a module as Yosys writes it in JSON; changes it in place.

    ``places``: of its cells, roughly, ``[cells, 2]`` in tiles. A flip-flop with an enable is not copied, as the enable
    of the copies would be late.
    """
    cells = list(module["cells"].values())
    names = list(module["cells"])
    drivers = dict(_pins(cells, output=True))
    readers: dict[int, list[Pin]] = {}
    for bit, pin in _pins(cells, output=False):
        readers.setdefault(bit, []).append(pin)
    outside = {bit for port in module["ports"].values() for bit in port["bits"]}
    last = max([*drivers, *readers, 0])
    for number, cell in enumerate(cells):
        read = next(iter(cell["connections"].get("Q", [])), None)
        pins = readers.get(read, []) if isinstance(read, int) else []
        if cell["type"] != FLIP_FLOP or len(pins) < READERS or read in outside or not _copied(cell, drivers, cells):
            continue
        _, *others = _groups(pins, places)
        for n, group in enumerate(others):
            last += 1
            connections = {port: list(bits) for port, bits in cell["connections"].items()} | {"Q": [last]}
            module["cells"][f"{names[number]}{COPY}{n}"] = {**cell, "connections": connections}
            for reader, port, at in group:
                cells[reader]["connections"][port][at] = last


def _pins(cells: list[Any], *, output: bool) -> Iterator[tuple[int, Pin]]:
    """The nets that cells drive, or read, each with where."""
    for number, cell in enumerate(cells):
        for port, bits in cell["connections"].items():
            if (cell["port_directions"][port] == "output") == output:
                yield from ((bit, (number, port, at)) for at, bit in enumerate(bits) if isinstance(bit, int))


def _copied(cell: Mapping[str, Any], drivers: Mapping[int, Pin], cells: list[Any]) -> bool:
    """Whether a flip-flop has no enable, and few LUTs before it."""
    if cell["parameters"].get("CEMUX", "CE").strip() != "1":
        return False
    ports = ("DI", "LSR") if cell["parameters"].get("LSRMUX", "LSR").strip() == "LSR" else ("DI",)
    reached = [bit for port in ports for bit in cell["connections"].get(port, [])]
    for _ in range(LEVELS + 1):
        logic = [cells[drivers[bit][0]] for bit in reached if bit in drivers]
        logic = [each for each in logic if each["type"] != FLIP_FLOP]
        if any(each["type"] not in ("LUT4", "PFUMX", "L6MUX21") for each in logic):
            return False
        if not logic:
            return True
        reached = [
            bit
            for each in logic
            for port, bits in each["connections"].items()
            if each["port_directions"][port] != "output"
            for bit in bits
        ]
    return False


def _groups(pins: list[Pin], places: Floats) -> list[list[Pin]]:
    """Readers, in groups within reach of each other: cut in halves along the longer side of their box."""
    at = places[[cell for cell, _, _ in pins]]
    sides = np.ptp(at, axis=0)
    if sides.sum() <= REACH or len(pins) < READERS:
        return [pins]
    axis = int(np.argmax(sides))
    order = np.argsort(at[:, axis], kind="stable")
    half = len(pins) // 2
    low, high = ([pins[n] for n in part] for part in (order[:half], order[half:]))
    return [*_groups(low, places), *_groups(high, places)]
