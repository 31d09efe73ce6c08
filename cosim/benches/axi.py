"""AXI4 and AXI4-Lite: cocotbext-axi behind the accelerator's ports, memories with stalls, errors or exact timing, and a
monitor of the rules that a manager must keep.

The accelerator's ports have no ids, which cocotbext-axi needs. :class:`WithIds` adds ids that are always 0.
"""

import logging
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge
from cocotb.types import LogicArray
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiReadBus, AxiResp, AxiSlaveRead, AxiSlaveWrite, AxiWriteBus

from dovetail.cosim.benches.bench import pauses
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.host import HOST_REGISTERS
from dovetail.isa.timing.dma import BOUNDARY
from dovetail.isa.timing.memories.fixed import Direction
from dovetail.isa.timing.memory import Broken, answers

Responder = Callable[[int, int], AxiResp]
"""What an access (address, bytes) is answered with."""

ID_SIGNALS = ("arid", "rid", "awid", "bid")


class _Id:
    """A signal of one bit that is always 0."""

    value = property(lambda self: LogicArray("0"), lambda self, value: None)

    def __len__(self) -> int:
        return 1

    def setimmediatevalue(self, value: object) -> None:
        """Nothing."""


class WithIds:
    """A design as cocotbext-axi wants it: ids where it has none."""

    def __init__(self, dut: Any) -> None:
        self._dut = dut
        self._log, self._name = dut._log, dut._name

    def __getattr__(self, name: str) -> Any:
        if name.endswith(ID_SIGNALS) and not hasattr(self._dut, name):
            return _Id()
        return getattr(self._dut, name)

    def __dir__(self) -> list[str]:
        return dir(self._dut)


def _quiet(dut: Any) -> None:
    """Silence cocotbext-axi, which logs every access."""
    logging.getLogger(f"cocotb.{dut._name}").setLevel(logging.ERROR)
    for name in list(logging.root.manager.loggerDict):
        if name.startswith(f"cocotb.{dut._name}."):
            logging.getLogger(name).setLevel(logging.ERROR)


def within(contents: bytearray, broken: Broken = ()) -> Responder:
    """OKAY inside ``contents``, DECERR beyond, SLVERR in ``broken`` parts (address, bytes)."""

    def respond(address: int, size: int) -> AxiResp:
        if address + size > len(contents):
            return AxiResp.DECERR
        return AxiResp.OKAY if answers(address, size, len(contents), broken) else AxiResp.SLVERR

    return respond


class _BusError(Exception):
    pass


class _Read(AxiSlaveRead):  # type: ignore[misc]
    """cocotbext-axi's subordinate on a byte array, with any response."""

    def __init__(self, bus: Any, clock: Any, reset: Any, contents: bytearray, respond: Responder) -> None:
        super().__init__(bus, clock, reset)
        self._contents, self._respond = contents, respond
        self._error = AxiResp.SLVERR
        _with_error(self, self.r_channel, "rresp")

    async def _read(self, address: int, length: int) -> bytes:
        response = self._respond(address, length)
        if response != AxiResp.OKAY:
            self._error = response
            raise _BusError
        return bytes(self._contents[address : address + length])


class _Write(AxiSlaveWrite):  # type: ignore[misc]
    def __init__(self, bus: Any, clock: Any, reset: Any, contents: bytearray, respond: Responder) -> None:
        super().__init__(bus, clock, reset)
        self._contents, self._respond = contents, respond
        self._error = AxiResp.SLVERR
        _with_error(self, self.b_channel, "bresp")

    async def _write(self, address: int, data: bytes) -> None:
        response = self._respond(address, len(data))
        if response != AxiResp.OKAY:
            self._error = response
            raise _BusError
        self._contents[address : address + len(data)] = data


def _with_error(subordinate: Any, channel: Any, name: str) -> None:
    """Answer a failed access with the intended error; cocotbext-axi always answers SLVERR."""
    send = channel.send

    async def answer(item: Any) -> None:
        if getattr(item, name) != AxiResp.OKAY:
            setattr(item, name, subordinate._error)
        await send(item)

    channel.send = answer


class AxiMemory:
    """System memory behind an AXI4 manager, in cocotbext-axi: it checks burst lengths, sizes and the 4 KiB rule.

    Parameters
    ----------
    prefix
        The ports are ``<prefix>_araddr`` and so on; a manager may have read or write channels only.
    contents
        The memory from address 0 on, changed in place.
    respond
        See :func:`within`, the default.
    """

    def __init__(self, dut: Any, prefix: str, contents: bytearray, *, respond: Responder | None = None) -> None:
        self.contents = contents
        respond = respond or within(contents)
        entity, channels = WithIds(dut), []
        if hasattr(dut, f"{prefix}_arvalid"):
            bus = AxiReadBus.from_prefix(entity, prefix, case_insensitive=False)
            self.read = _Read(bus, dut.clk, dut.rst, contents, respond)
            channels += [self.read.ar_channel, self.read.r_channel]
        if hasattr(dut, f"{prefix}_awvalid"):
            bus = AxiWriteBus.from_prefix(entity, prefix, case_insensitive=False)
            self.write = _Write(bus, dut.clk, dut.rst, contents, respond)
            channels += [self.write.aw_channel, self.write.w_channel, self.write.b_channel]
        if not channels:
            raise ValueError(f"the design has no AXI4 channels named {prefix}_...")
        self._channels = channels
        _quiet(dut)

    def stall(self, numbers: random.Random, share: float = 0.5, longest: int = 8) -> None:
        """From now on every channel pauses at random."""
        for channel in self._channels:
            channel.set_pause_generator(pauses(random.Random(numbers.random()), share, longest))


class TimedMemory:
    """System memory that answers as early as :class:`~dovetail.isa.timing.memories.fixed.Direction` allows, as the
    model's and the RTL engine's does."""

    def __init__(
        self, dut: Any, prefix: str, contents: bytearray, timing: MemoryTiming, *, respond: Responder | None = None
    ) -> None:
        self.dut, self.contents = dut, contents
        self._prefix, self._respond = prefix, respond or within(contents)
        if hasattr(dut, f"{prefix}_arvalid"):
            self._port("arready").value = 1
            cocotb.start_soon(self._read(Direction.reads(timing)))
        if hasattr(dut, f"{prefix}_awvalid"):
            self._port("awready").value = self._port("wready").value = 1
            cocotb.start_soon(self._write(Direction.writes(timing)))

    def _port(self, name: str) -> Any:
        return getattr(self.dut, f"{self._prefix}_{name}")

    async def _read(self, timing: Direction) -> None:
        valid, address, length, data, response, last, ready = map(
            self._port, ("arvalid", "araddr", "arlen", "rdata", "rresp", "rlast", "rvalid")
        )
        size = len(data) // 8
        beats: deque[tuple[int, int, bool]] = deque()  # cycle, address, last
        cycle, latest = 0, -timing.beat_cycles
        while True:
            await RisingEdge(self.dut.clk)
            if valid.value:
                at, count = int(address.value), int(length.value) + 1
                first = timing.first_beat(cycle, latest)
                for n in range(count):
                    latest = timing.last_beat(first, n + 1)
                    beats.append((latest, at + n * size, n == count - 1))
            cycle += 1
            due = bool(beats) and beats[0][0] == cycle
            ready.value = int(due)
            if due:
                _, at, ends = beats.popleft()
                answer = self._respond(at, size)
                good = answer == AxiResp.OKAY
                data.value = int.from_bytes(self.contents[at : at + size], "little") if good else 0
                response.value, last.value = int(answer), int(ends)

    async def _write(self, timing: Direction) -> None:
        aw_valid, address, length, w_valid, w_ready, data, strobe, last, b_valid, response = map(
            self._port,
            ("awvalid", "awaddr", "awlen", "wvalid", "wready", "wdata", "wstrb", "wlast", "bvalid", "bresp"),
        )
        size = len(data) // 8
        opened: deque[tuple[int, int]] = deque()  # address, beats
        answered: deque[tuple[int, AxiResp]] = deque()
        at = left = 0
        worst = AxiResp.OKAY
        cycle = free = 0
        while True:
            await RisingEdge(self.dut.clk)
            if w_valid.value and w_ready.value:
                assert left or opened, "write data came before its address"
                if not left:
                    at, left = opened.popleft()
                    worst = AxiResp.OKAY
                good = store_beat(self.contents, self._respond, at, int(data.value), int(strobe.value), size)
                worst = good if good != AxiResp.OKAY else worst
                at, left = at + size, left - 1
                assert bool(last.value) == (left == 0), "WLAST must be with the last beat of a burst"
                if not left:
                    answered.append((timing.end(cycle), worst))
                free = cycle + timing.beat_cycles
            if aw_valid.value:
                opened.append((int(address.value), int(length.value) + 1))
            cycle += 1
            w_ready.value = int(cycle >= free)
            due = bool(answered) and answered[0][0] == cycle
            b_valid.value = int(due)
            if due:
                response.value = int(answered.popleft()[1])


def store_beat(contents: bytearray, respond: Responder, address: int, data: int, strobe: int, size: int) -> AxiResp:
    """Write the bytes of a beat of ``size`` bytes that have a strobe, which are side by side."""
    if not strobe:
        return AxiResp.OKAY
    low = (strobe & -strobe).bit_length() - 1
    count = strobe.bit_length() - low
    response = respond(address + low, count)
    if response == AxiResp.OKAY:
        contents[address + low : address + low + count] = (data >> 8 * low).to_bytes(max(count, size), "little")[:count]
    return response


REQUESTS = {
    "ar": ("addr", "len", "size", "burst"),
    "aw": ("addr", "len", "size", "burst"),
    "w": ("data", "strb", "last"),
}
"""Payload signals of the channels that a manager drives."""


class AxiRules:
    """Checks an AXI4 manager: payload and valid stay until ready, bursts are aligned INCR, none crosses 4 KiB, at most
    ``outstanding`` are under way per direction, and none at the end (:meth:`finish`)."""

    def __init__(self, dut: Any, prefix: str, *, outstanding: int) -> None:
        self.dut, self._prefix, self._outstanding = dut, prefix, outstanding
        self.under_way = {"ar": 0, "aw": 0}
        self.most = {"ar": 0, "aw": 0}
        """The most bursts that were under way at once."""
        self.bursts: list[tuple[str, int, int]] = []
        """Channel, address, beats of every burst."""
        for channel, names in REQUESTS.items():
            if hasattr(dut, f"{prefix}_{channel}valid"):
                signals = [getattr(dut, f"{prefix}_{channel}{name}") for name in names]
                cocotb.start_soon(self._watch(channel, signals))
        for request, answer in (("ar", "r"), ("aw", "b")):
            if hasattr(dut, f"{prefix}_{answer}valid"):
                cocotb.start_soon(self._answers(request, answer))

    def _handshake(self, channel: str) -> tuple[Any, Any]:
        return getattr(self.dut, f"{self._prefix}_{channel}valid"), getattr(self.dut, f"{self._prefix}_{channel}ready")

    async def _watch(self, channel: str, signals: list[Any]) -> None:
        valid, ready = self._handshake(channel)
        waiting: tuple[int, ...] | None = None
        while True:
            await RisingEdge(self.dut.clk)
            if not valid.value:
                assert waiting is None, f"{channel}valid went away before {channel}ready"
                continue
            values = tuple(int(signal.value) for signal in signals)
            assert waiting in (None, values), f"{channel}: the payload changed before it was taken"
            waiting = None if ready.value else values
            if ready.value and channel != "w":
                self._burst(channel, *values)

    def _burst(self, channel: str, address: int, length: int, size: int, kind: int) -> None:
        end = address + (length + 1 << size) - 1
        assert kind == 1 and address % (1 << size) == 0, f"{channel}: bursts must be INCR and aligned"
        assert address // BOUNDARY == end // BOUNDARY, f"{channel}: the burst at {address:#x} crosses 4 KiB"
        self.under_way[channel] += 1
        self.most[channel] = max(self.most[channel], self.under_way[channel])
        assert self.under_way[channel] <= self._outstanding, f"{channel}: more than {self._outstanding} bursts"
        self.bursts.append((channel, address, length + 1))

    async def _answers(self, request: str, answer: str) -> None:
        valid, ready = self._handshake(answer)
        last = getattr(self.dut, f"{self._prefix}_rlast") if answer == "r" else None
        while True:
            await RisingEdge(self.dut.clk)
            if valid.value and ready.value and (last is None or last.value):
                self.under_way[request] -= 1
                assert self.under_way[request] >= 0, f"{answer}: an answer without a request"

    def finish(self) -> None:
        """Nothing may be under way any more."""
        assert not any(self.under_way.values()), f"bursts without an answer: {self.under_way}"


class HostDriver:
    """The host on AXI4-Lite, registers by name (cocotbext-axi's ``AxiLiteMaster``).

    Parameters
    ----------
    prefix
        The ports are ``<prefix>_awaddr`` and so on.
    """

    def __init__(self, dut: Any, prefix: str) -> None:
        self.dut = dut
        self.bus = AxiLiteMaster(AxiLiteBus.from_prefix(dut, prefix), dut.clk, dut.rst)
        _quiet(dut)

    def stall(self, numbers: random.Random, share: float = 0.5, longest: int = 4) -> None:
        """From now on every channel pauses at random."""
        write, read = self.bus.write_if, self.bus.read_if
        for channel in (write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel):
            channel.set_pause_generator(pauses(random.Random(numbers.random()), share, longest))

    async def read(self, register: str | int) -> tuple[int, AxiResp]:
        """Value and response of a register, by its name or offset."""
        offset = HOST_REGISTERS[register].offset if isinstance(register, str) else register
        answer = await self.bus.read(offset, 4)
        return int.from_bytes(answer.data, "little"), AxiResp(answer.resp)

    async def write(self, register: str | int, value: int, *, first: int = 0, size: int = 4) -> AxiResp:
        """Write ``size`` bytes of ``value`` from byte ``first`` of a register on; the response."""
        offset = HOST_REGISTERS[register].offset if isinstance(register, str) else register
        data = value.to_bytes(4, "little")[first : first + size]
        answer = await self.bus.write(offset + first, data)
        return AxiResp(answer.resp)
