"""Carry cells of an ECP5 netlist, made fewer between Yosys and nextpnr.

A cell CCU2C has two *halves*, each a LUT of four inputs in front of a bit of the chain: ``sum = p ^ carry`` and
``next carry = p ? carry : g``, where ``p`` is any function of the inputs, and ``g`` one of the first two. Yosys uses
two inputs of a half and puts what it adds up into LUTs before it; it leaves carries connected that nobody reads. For
each chain that begins with a constant, and for each carry that leaves a chain, read or not, nextpnr adds a cell.

Here a LUT that only a half reads goes into the half, carries that nobody reads are let go, and a chain's first carry
comes from a half of its own, or from its first bit, whose sum is then a LUT. A carry that is read is the sum of one
more half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any

PINS = "ABCD"
CONSTANTS = {"0": 0, "1": 1, "x": 0}
HIGH = "1"
"""What a pin without a net is tied to."""
NOTHING = "x"
"""For nextpnr, a port without a net."""

Bit = int | str
"""A net's number in Yosys's JSON, or a constant."""


@dataclass(frozen=True)
class Table:
    """A function of nets: bit n of ``ones`` is its value where net i has bit i of n."""

    nets: tuple[int, ...]
    ones: int

    def __call__(self, values: Mapping[int, int]) -> int:
        return self.ones >> sum(values[net] << n for n, net in enumerate(self.nets)) & 1

    def put(self, net: int, value: Table) -> Table:
        """The function with another one in place of a net."""
        nets = tuple(dict.fromkeys([*(other for other in self.nets if other != net), *value.nets]))
        return table_of(nets, lambda values: self({**values, net: value(values)}))


def assignments(nets: tuple[int, ...]) -> Iterator[dict[int, int]]:
    """All values of nets, in the order of a table."""
    for n in range(1 << len(nets)):
        yield {net: n >> i & 1 for i, net in enumerate(nets)}


def table_of(nets: tuple[int, ...], function: Callable[[Mapping[int, int]], int]) -> Table:
    """The table of a function that takes the values of ``nets``."""
    return Table(nets, sum(function(values) << n for n, values in enumerate(assignments(nets))))


NEVER = Table((), 0)


@dataclass(frozen=True)
class Half:
    """Half of a cell. ``p`` and ``g`` have the same nets; ``g`` matters only where ``p`` is 0. ``sum``: the net that it
    drives, or `NOTHING`."""

    p: Table
    g: Table
    sum: Bit

    @property
    def nets(self) -> tuple[int, ...]:
        """What it reads."""
        return self.p.nets

    def pins(self) -> tuple[list[Bit], int] | None:
        """The nets of its pins and its INIT; None if no pins can do it.

        Pins without a net are high, so of INIT they select the upper parts; the low four bits, which are the ones with
        C and D low, are ``g`` of A and B.
        """
        pins: list[Bit] = [*self.nets, *[HIGH] * (len(PINS) - len(self.nets))]
        for order in permutations(pins):
            generate: dict[int, int] = {}
            able = True
            init = 0
            for values in assignments(self.nets):
                bits = [values[pin] if isinstance(pin, int) else CONSTANTS[pin] for pin in order]
                at = sum(bit << n for n, bit in enumerate(bits))
                wanted = [(at & 3, self.g(values))] if not self.p(values) else []
                if at < 4:
                    wanted.append((at, self.p(values)))
                init |= self.p(values) << at
                able = able and all(generate.setdefault(where, bit) == bit for where, bit in wanted)
            if able:
                return list(order), init | sum(bit << where for where, bit in generate.items())
        return None


@dataclass(frozen=True)
class Chain:
    """Cells whose carries follow each other. ``first``: the constant that goes into it; ``carry``: the net of the one
    that leaves it, or `NOTHING`."""

    cells: tuple[str, ...]
    halves: tuple[Half, ...]
    first: int
    carry: Bit


class Netlist:
    """A module of Yosys's JSON, changed in place: nets with who drives and who reads them."""

    def __init__(self, module: dict[str, Any]) -> None:
        self.module = module
        self.cells: dict[str, Any] = module["cells"]
        self.drivers: dict[int, str] = {}
        self.readers: dict[int, int] = {}
        for port in module["ports"].values():
            self._count(port["bits"])
        for name, cell in self.cells.items():
            for port, bits in cell["connections"].items():
                if cell["port_directions"][port] == "output":
                    self.drivers.update((bit, name) for bit in bits if isinstance(bit, int))
                else:
                    self._count(bits)
        self.last = max([*self.drivers, *self.readers], default=0)

    def _count(self, bits: Iterable[Bit]) -> None:
        for bit in bits:
            if isinstance(bit, int):
                self.readers[bit] = self.readers.get(bit, 0) + 1

    def reads(self, bit: Bit) -> int:
        """How many ports read a net; 0 for a constant."""
        return self.readers.get(bit, 0) if isinstance(bit, int) else 0

    def pin(self, name: str, port: str) -> Bit:
        """What is at a port of one bit; `HIGH` if it is not connected."""
        bits = self.cells[name]["connections"].get(port, [])
        return bits[0] if bits else HIGH

    def table(self, pins: list[Bit], init: int) -> Table:
        """The function of a LUT with these pins."""
        nets = tuple(dict.fromkeys(pin for pin in pins if isinstance(pin, int)))

        def value(values: Mapping[int, int]) -> int:
            bits = (values[pin] if isinstance(pin, int) else CONSTANTS[pin] for pin in pins)
            return init >> sum(bit << n for n, bit in enumerate(bits)) & 1

        return table_of(nets, value)

    def lut(self, name: str) -> Table:
        """The function of a LUT."""
        return self.table([self.pin(name, pin) for pin in PINS], int(self.cells[name]["parameters"]["INIT"], 2))

    def chains(self) -> list[Chain]:
        """Chains that begin with a constant, and of which no carry is read but that of the last cell."""
        carries = {n for n, cell in self.cells.items() if cell["type"] == "CCU2C"}
        after = {carry: name for name in carries if isinstance(carry := self.pin(name, "CIN"), int)}
        found = []
        for name in sorted(carries):
            first = self.pin(name, "CIN")
            if isinstance(first, int):
                continue
            names = [name]
            while self.reads(carry := self.pin(names[-1], "COUT")) == 1 and carry in after:
                names.append(after[carry])
            last = carry if self.reads(carry) else NOTHING
            if carry in after or any(self._injects(each) for each in names):
                continue  # a carry that both a cell and something else read
            halves = tuple(self._half(each, n) for each in names for n in "01")
            found.append(Chain(tuple(names), halves, CONSTANTS[first], last))
        return found

    def _injects(self, name: str) -> bool:
        return any(self.cells[name]["parameters"][f"INJECT1_{n}"] != "NO" for n in "01")

    def _half(self, name: str, n: str) -> Half:
        pins = [self.pin(name, pin + n) for pin in PINS]
        init = int(self.cells[name]["parameters"][f"INIT{n}"], 2)
        p = self.table(pins, init)
        g = self.table(pins, (init & 0xF) * 0x1111)
        total = self.pin(name, f"S{n}")
        return Half(p, table_of(p.nets, g), total if self.reads(total) else NOTHING)

    def fold(self, half: Half) -> Half:
        """The half with LUTs in it that nothing else reads, or that give it no more inputs than it has. Removes those
        that are then not read."""
        for net in half.nets:
            name = self.drivers.get(net, "")
            if not name or self.cells[name]["type"] != "LUT4":
                continue
            lut = self.lut(name)
            inputs = {*half.nets, *lut.nets} - {net}
            if len(inputs) > len(PINS) or (self.readers[net] > 1 and len(inputs) > len(half.nets)):
                continue
            folded = Half(half.p.put(net, lut), half.g.put(net, lut), half.sum)
            if folded.pins() is not None:
                self.readers[net] -= 1
                for other in lut.nets:
                    self.readers[other] += other not in half.nets
                if not self.readers[net]:
                    for other in lut.nets:
                        self.readers[other] -= 1
                    del self.cells[name]
                return self.fold(folded)
        return half

    def new(self) -> int:
        """A new net."""
        self.last += 1
        return self.last


def shorten_carries(module: dict[str, Any]) -> None:
    """Makes all chains of a module shorter. ``module``: as Yosys writes it in JSON, of ECP5 cells; changed in place."""
    netlist = Netlist(module)
    for chain in netlist.chains():
        _rewrite(netlist, chain)


def _rewrite(netlist: Netlist, chain: Chain) -> None:
    """Writes a chain into as few cells as can hold it."""
    halves = list(chain.halves)
    while halves and halves[-1].sum == NOTHING and chain.carry == NOTHING:
        for net in halves.pop().nets:
            netlist.readers[net] -= 1
    halves = [netlist.fold(half) for half in halves]
    model = netlist.cells[chain.cells[0]]
    for name in chain.cells:
        del netlist.cells[name]
    if chain.carry != NOTHING:
        halves.append(Half(NEVER, NEVER, chain.carry))
    elif not halves:
        return
    begin = _beginning(halves[0], chain.first)
    if len(halves) % 2 == 0 and begin.pins() is not None:
        if halves[0].sum != NOTHING:
            p = halves[0].p
            netlist.cells[f"{chain.cells[0]}_LUT4_Z"] = lut_cell(p, chain.first, halves[0].sum, model)
        halves[0] = begin
    else:
        halves.insert(0, Half(NEVER, Table((), chain.first), NOTHING))
    if len(halves) % 2:
        halves.append(Half(NEVER, NEVER, NOTHING))
    carry: Bit = NOTHING
    for n in range(0, len(halves), 2):
        name = chain.cells[n // 2] if n // 2 < len(chain.cells) else f"{chain.cells[-1]}_CCU2C_CIN"
        before, carry = carry, NOTHING if n + 2 == len(halves) else netlist.new()
        netlist.cells[name] = _carry(halves[n : n + 2], before, carry, model)


def _beginning(half: Half, first: int) -> Half:
    """A half whose carry does not depend on that before it, but is what ``half`` makes of ``first``."""
    carry = table_of(half.nets, lambda values: first if half.p(values) else half.g(values))
    return Half(Table(half.nets, 0), carry, NOTHING)


def lut_cell(p: Table, first: int, to: Bit, model: Mapping[str, Any]) -> dict[str, Any]:
    """A LUT for the sum of a half whose carry is ``first``."""
    size = len(p.nets)
    init = sum((p.ones >> (n & (1 << size) - 1) & 1 ^ first) << n for n in range(1 << len(PINS)))
    pins: list[Bit] = [*p.nets, *["0"] * (len(PINS) - size)]
    return _cell("LUT4", {"INIT": f"{init:016b}"}, dict(zip(PINS, pins, strict=True)), {"Z": to}, model)


def _carry(halves: list[Half], before: Bit, after: Bit, model: Mapping[str, Any]) -> dict[str, Any]:
    """A carry cell of two halves."""
    parameters: dict[str, str] = {}
    inputs: dict[str, Bit] = {"CIN": before}
    outputs: dict[str, Bit] = {"COUT": after}
    for n, half in enumerate(halves):
        found = half.pins()
        assert found is not None, "as Yosys had it, or tried before"
        pins, init = found
        parameters |= {f"INIT{n}": f"{init:016b}", f"INJECT1_{n}": "NO"}
        inputs |= {f"{pin}{n}": net for pin, net in zip(PINS, pins, strict=True)}
        outputs[f"S{n}"] = half.sum
    return _cell("CCU2C", parameters, inputs, outputs, model)


def _cell(
    kind: str,
    parameters: Mapping[str, str],
    inputs: Mapping[str, Bit],
    outputs: Mapping[str, Bit],
    model: Mapping[str, Any],
) -> dict[str, Any]:
    """A cell in Yosys's JSON, with the attributes of another one."""
    directions = dict.fromkeys(inputs, "input") | dict.fromkeys(outputs, "output")
    return {
        "hide_name": model["hide_name"],
        "type": kind,
        "parameters": dict(parameters),
        "attributes": model["attributes"],
        "port_directions": directions,
        "connections": {port: [bit] for port, bit in {**inputs, **outputs}.items()},
    }
