"""LUTs of an ECP5 netlist that it can do without, between Yosys and nextpnr.

Yosys makes a function of five or six inputs of two or four LUTs and multiplexers behind them. Where half of it has
fewer inputs than that, fewer LUTs are enough. And it inverts resets by LUTs, often in front of thousands of flip-flops,
which can do that themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.flows.fpga.carry import PINS, Bit, Netlist, Table, lut_cell, table_of

LUT, FLIP_FLOP = "LUT4", "TRELLIS_FF"
MULTIPLEXERS = {"PFUMX": ("C0", "BLUT", "ALUT"), "L6MUX21": ("SD", "D0", "D1")}
"""Multiplexers of two LUTs, and of two of those: their ports for the choice, and for what it is if that is 0 and 1."""


def save_luts(module: dict[str, Any]) -> None:
    """Does so in a module as Yosys writes it in JSON, of ECP5 cells; changes it in place."""
    netlist = Netlist(module)
    larger = [name for name, cell in netlist.cells.items() if cell["type"] == "L6MUX21"]
    # Of a function of seven inputs the last multiplexer takes only what another one gives.
    bound = {netlist.pin(name, port) for name in larger for port in MULTIPLEXERS["L6MUX21"][1:]}
    for name in larger:
        if netlist.pin(name, "Z") not in bound:
            _shrink(netlist, name)
    _invert_resets(netlist)


def _shrink(netlist: Netlist, name: str) -> None:
    """Makes a function of four LUTs of three or two, if it can be."""
    choice, *halves = (netlist.pin(name, port) for port in MULTIPLEXERS["L6MUX21"])
    tables = [_table(netlist, half) for half in halves]
    if not isinstance(choice, int) or any(netlist.reads(half) != 1 for half in halves):
        return
    low, high = tables
    out, model = netlist.pin(name, "Z"), netlist.cells[name]
    if low is not None and high is not None:
        ports = dict(zip(MULTIPLEXERS["PFUMX"], (choice, netlist.new(), netlist.new()), strict=True))
        for table, port in ((low, "BLUT"), (high, "ALUT")):
            netlist.cells[f"{name}_{port}_LUT4_Z"] = lut_cell(table, 0, ports[port], model)
        for half in halves:
            _remove(netlist, half)
        directions = dict.fromkeys(ports, "input") | {"Z": "output"}
        connections = {port: [bit] for port, bit in {**ports, "Z": out}.items()}
        netlist.cells[name] = {**model, "type": "PFUMX", "port_directions": directions, "connections": connections}
        return
    for known, side in ((low, 0), (high, 1)):
        other = halves[1 - side]
        if known is not None and isinstance(other, int) and len({*known.nets, choice, other}) <= len(PINS):
            nets = tuple(dict.fromkeys([*known.nets, choice, other]))
            table = table_of(nets, _chosen(choice, side, known, other))
            _remove(netlist, halves[side])
            netlist.cells[name] = lut_cell(table, 0, out, model)
            return


def _chosen(choice: int, side: int, known: Table, other: int) -> Callable[[Any], int]:
    """``known`` where ``choice`` is ``side``, else the net ``other``."""
    return lambda values: known(values) if values[choice] == side else values[other]


def _table(netlist: Netlist, bit: Bit) -> Table | None:
    """What makes a net, if that is a multiplexer and two LUTs that nothing else reads, with four inputs in all."""
    name = netlist.drivers.get(bit, "") if isinstance(bit, int) else ""
    if netlist.cells.get(name, {}).get("type") != "PFUMX":
        return None
    choice, *halves = (netlist.pin(name, port) for port in MULTIPLEXERS["PFUMX"])
    luts = [netlist.drivers.get(half, "") if isinstance(half, int) else "" for half in halves]
    if not isinstance(choice, int) or any(
        netlist.reads(half) != 1 or netlist.cells.get(lut, {}).get("type") != LUT
        for lut, half in zip(luts, halves, strict=True)
    ):
        return None
    low, high = (
        netlist.table([netlist.pin(lut, pin) for pin in PINS], int(netlist.cells[lut]["parameters"]["INIT"], 2))
        for lut in luts
    )
    nets = tuple(dict.fromkeys([*low.nets, *high.nets, choice]))
    if len(nets) > len(PINS):
        return None
    return table_of(nets, lambda values: (high if values[choice] else low)(values))


def _remove(netlist: Netlist, bit: Bit) -> None:
    """Removes a multiplexer, by the net that it drives, and its LUTs."""
    assert isinstance(bit, int), "it had a table"
    cell = netlist.cells.pop(netlist.drivers[bit])
    for port in MULTIPLEXERS["PFUMX"][1:]:
        del netlist.cells[netlist.drivers[cell["connections"][port][0]]]


def _invert_resets(netlist: Netlist) -> None:
    """Has flip-flops invert their reset where a LUT does it."""
    read: dict[Any, int] = {}
    for cell in list(netlist.cells.values()):
        lsr = cell["connections"].get("LSR", [])
        if cell["type"] != FLIP_FLOP or not lsr or cell["parameters"].get("LSRMUX", "LSR").strip() != "LSR":
            continue
        lut = netlist.cells.get(netlist.drivers.get(lsr[0], ""))
        if lut is None or lut["type"] != LUT:
            continue
        pins = [lut["connections"][pin][0] for pin in PINS]
        table = netlist.table(pins, int(lut["parameters"]["INIT"], 2))
        if len(table.nets) == 1 and table.ones == 0b01:
            read[lsr[0]] = read.get(lsr[0], 0) + 1
            cell["connections"]["LSR"] = [table.nets[0]]
            cell["parameters"]["LSRMUX"] = "INV"
    for bit, count in read.items():
        if count == netlist.reads(bit):
            del netlist.cells[netlist.drivers[bit]]
