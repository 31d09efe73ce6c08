"""LUTs of an ECP5 netlist that it can do without, between Yosys and nextpnr.

Yosys makes a function of five or six inputs of two or four LUTs and multiplexers behind them. Where half of it has
fewer inputs than that, fewer LUTs are enough. It leaves LUTs, and such halves, for which the LUTs that read them have
room. And it inverts resets by LUTs, often in front of thousands of flip-flops, which can do that themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
    _merge(Netlist(module))


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
    low, high = (netlist.lut(lut) for lut in luts)
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
        table = netlist.lut(netlist.drivers[lsr[0]])
        if len(table.nets) == 1 and table.ones == 0b01:
            read[lsr[0]] = read.get(lsr[0], 0) + 1
            cell["connections"]["LSR"] = [table.nets[0]]
            cell["parameters"]["LSRMUX"] = "INV"
    for bit, count in read.items():
        if count == netlist.reads(bit):
            del netlist.cells[netlist.drivers[bit]]


def _merge(netlist: Netlist) -> None:
    """Puts a LUT, or a multiplexer with one of its two, into all that read it, if those are LUTs with room for it."""
    cells = netlist.cells
    luts = {name: netlist.lut(name) for name, cell in cells.items() if cell["type"] == LUT}
    readers: dict[Bit, set[str]] = {bit: {""} for port in netlist.module["ports"].values() for bit in port["bits"]}
    for name, cell in cells.items():
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] != "output":
                for bit in bits:
                    readers.setdefault(bit, set()).add(name)
    for name in list(cells):
        for table, removed in _movable(netlist, luts, readers, name):
            out = netlist.pin(name, "Z")
            into = sorted(readers.get(out, ()))
            if not isinstance(out, int) or not into or any(reader not in luts for reader in into):
                break
            if any(len({*luts[reader].nets, *table.nets} - {out}) > len(PINS) for reader in into):
                continue
            for reader in into:
                luts[reader] = luts[reader].put(out, table)
                cells[reader] = lut_cell(luts[reader], 0, netlist.pin(reader, "Z"), cells[reader])
                for net in luts[reader].nets:
                    readers[net].add(reader)
            for gone in removed:
                for bit in (bit for bits in cells.pop(gone)["connections"].values() for bit in bits):
                    readers.get(bit, set()).discard(gone)
                luts.pop(gone, None)
            break


def _movable(
    netlist: Netlist, luts: Mapping[str, Table], readers: Mapping[Bit, set[str]], name: str
) -> Iterator[tuple[Table, list[str]]]:
    """What may move of a cell into those that read it, and the cells that it leaves without a reader."""
    if name in luts:
        yield luts[name], [name]
    elif netlist.cells.get(name, {}).get("type") == "PFUMX":
        choice, *halves = (netlist.pin(name, port) for port in MULTIPLEXERS["PFUMX"])
        for side in (0, 1):
            half, other = halves[side], halves[1 - side]
            lut = netlist.drivers.get(half, "") if isinstance(half, int) else ""
            if lut in luts and readers[half] == {name} and isinstance(choice, int) and isinstance(other, int):
                nets = tuple(dict.fromkeys([*luts[lut].nets, choice, other]))
                if len(nets) <= len(PINS):
                    yield table_of(nets, _chosen(choice, side, luts[lut], other)), [name, lut]
