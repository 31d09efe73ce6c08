"""The memory behind the AXI port, alone: the cycle of every handshake, strobes, errors, protocol checks."""

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.cosim.rtl.block import driver
from dovetail.cosim.rtl.verilate import Design, verilate

READ_INPUTS = ("arvalid", "araddr", "arlen", "arsize", "arburst", "rready")
INPUTS = (*READ_INPUTS, "awvalid", "awaddr", "awlen", "wvalid", "wlast", "wstrb", "wdata", "bready")
OUTPUTS = ("arready", "rvalid", "rlast", "rresp", "rdata", "awready", "wready", "bvalid", "bresp")


class Memory:
    """One memory of 8-byte beats; `cycle` is one clock cycle."""

    def __init__(self, library: ctypes.CDLL, size: int, latency: tuple[int, int], beat_cycles: int) -> None:
        self.library = library
        self.data = np.arange(size, dtype=np.uint8)
        library.mem_new.restype = ctypes.c_void_p
        library.mem_violation.restype = ctypes.c_char_p
        library.mem_stalled.restype = ctypes.c_uint64
        self.handle = ctypes.c_void_p(
            library.mem_new(
                ctypes.c_void_p(self.data.ctypes.data),
                *(ctypes.c_uint64(v) for v in (size, *latency, beat_cycles)),
            )
        )

    def cycle(self, **inputs: int) -> dict[str, int]:
        values = {"arsize": 3, "arburst": 1, "rready": 1, "bready": 1, "wstrb": 255, **inputs}
        given = np.array([values.get(name, 0) for name in INPUTS], np.uint64)
        got = np.zeros(len(OUTPUTS), np.uint64)
        self.library.mem_cycle(self.handle, ctypes.c_void_p(given.ctypes.data), ctypes.c_void_p(got.ctypes.data))
        return dict(zip(OUTPUTS, map(int, got), strict=True))

    @property
    def violation(self) -> str:
        return str(self.library.mem_violation(self.handle).decode())


@pytest.fixture(scope="module")
def library(build_cache: Path) -> ctypes.CDLL:
    source = (Path(__file__).parent / "memory_driver.cpp").read_text()
    files = {
        "memory_driver.cpp": source,
        **{name: driver(name) for name in ("axi_bus.h", "axi_memory.h", "memory_model.h")},
    }
    design = Design({"dut.v": "module dut(input clk); endmodule\n"}, "dut", files)
    return ctypes.CDLL(str(verilate(design, build_cache)))


@pytest.fixture
def make(library: ctypes.CDLL) -> Iterator[Any]:
    made: list[Memory] = []

    def factory(size: int = 8192, latency: tuple[int, int] = (5, 7), beat_cycles: int = 1) -> Memory:
        made.append(Memory(library, size, latency, beat_cycles))
        return made[-1]

    yield factory
    for memory in made:
        library.mem_delete(memory.handle)


@pytest.mark.parametrize("beat_cycles", [1, 3])
def test_read_beats_come_when_they_should(make: Any, beat_cycles: int) -> None:
    memory = make(beat_cycles=beat_cycles)
    addresses = {0: (16, 3), 2: (4088, 0), 30: (128, 1)}
    seen = []
    for now in range(60):
        address, beats = addresses.get(now, (0, 0))
        bus = memory.cycle(arvalid=int(now in addresses), araddr=address, arlen=beats)
        assert bus["arready"]
        if bus["rvalid"]:
            seen.append((now, bus["rdata"] & 255, bus["rlast"], bus["rresp"]))
    g = beat_cycles
    first = [5, 5 + g, 5 + 2 * g, 5 + 3 * g, 5 + 4 * g]
    assert [s[0] for s in seen] == [*first, 35, 35 + g]
    assert [s[1] for s in seen] == [16, 24, 32, 40, 4088 & 255, 128, 136]
    assert [s[2] for s in seen] == [0, 0, 0, 1, 1, 0, 1]
    assert not any(s[3] for s in seen)


def test_a_beat_waits_for_rready(make: Any) -> None:
    memory = make()
    memory.cycle(arvalid=1, araddr=0, arlen=1)
    seen = [bool(memory.cycle(rready=int(now == 9))["rvalid"]) for now in range(1, 10)]
    assert seen == [False] * 4 + [True] * 5
    assert memory.cycle()["rdata"] & 255 == 8


@pytest.mark.parametrize("beat_cycles", [1, 2])
def test_write_beats_strobes_and_response(make: Any, beat_cycles: int) -> None:
    memory = make(beat_cycles=beat_cycles)
    beats = [(0x1111111111111111, 255, 0), (0x2222222222222222, 0b11000000, 1)]
    memory.cycle(awvalid=1, awaddr=68, awlen=1)
    accepted: list[int] = []
    answered: list[tuple[int, int]] = []
    for now in range(1, 20):
        data, strobe, last = beats[len(accepted)] if len(accepted) < 2 else (0, 0, 0)
        bus = memory.cycle(wvalid=int(len(accepted) < 2), wdata=data, wstrb=strobe, wlast=last)
        if bus["wready"] and len(accepted) < 2:
            accepted.append(now)
        if bus["bvalid"]:
            answered.append((now, bus["bresp"]))
    assert accepted == [1, 1 + beat_cycles]
    assert answered == [(1 + beat_cycles + 7, 0)]
    expected = np.arange(8192, dtype=np.uint8)
    expected[64:72] = 0x11
    expected[78:80] = 0x22
    assert np.array_equal(memory.data, expected)
    assert memory.violation == ""


def test_outside_answers_decerr(make: Any) -> None:
    memory = make(size=4096)
    memory.cycle(arvalid=1, araddr=4096, arlen=0, awvalid=1, awaddr=4096, awlen=0)
    memory.cycle(wvalid=1, wlast=1, wdata=1)
    codes = [
        (bus["rvalid"], bus["rresp"], bus["rdata"], bus["bvalid"], bus["bresp"])
        for bus in (memory.cycle() for _ in range(8))
    ]
    assert (1, 3, 0) in [c[:3] for c in codes]
    assert (1, 3) in [c[3:] for c in codes]
    assert np.array_equal(memory.data, np.arange(4096, dtype=np.uint8))


def test_broken_parts_answer_slverr(make: Any) -> None:
    memory = make(latency=(1, 1))
    memory.library.mem_broken(memory.handle, ctypes.c_uint64(64), ctypes.c_uint64(64))
    codes = []
    for now in range(12):
        bus = memory.cycle(arvalid=int(now == 0), araddr=48, arlen=9)
        codes += [(bus["rresp"], bus["rdata"] & 255)] if bus["rvalid"] else []
    assert codes == [(0, 48), (0, 56), *[(2, 0)] * 8]
    for address, code in ((56, 0), (64, 2), (120, 2), (128, 0)):
        memory.cycle(awvalid=1, awaddr=address, awlen=0)
        memory.cycle(wvalid=1, wlast=1, wdata=0x0101010101010101 * 0xAB)
        answers = [bus["bresp"] for bus in (memory.cycle() for _ in range(4)) if bus["bvalid"]]
        assert answers == [code]
        assert (memory.data[address : address + 8] == 0xAB).all() == (code == 0)


def test_stalls_put_off_handshakes_and_add_up(make: Any) -> None:
    """One channel at a time, so that every stall shows; the bytes are those of a memory without."""
    memory = make(latency=(1, 1))
    memory.library.mem_stalls(memory.handle, ctypes.c_uint64(5), ctypes.c_uint32(2), ctypes.c_uint32(7))
    times, data = [], []
    for now in range(600):
        bus = memory.cycle(arvalid=int(now == 0), araddr=0, arlen=99)
        if bus["rvalid"]:
            times.append(now)
            data.append(bus["rdata"] & 255)
    assert data == [8 * n & 255 for n in range(100)]
    gaps = np.diff(times)
    assert gaps.min() == 1 and gaps.max() == 8
    # The stalls after the address and after the last beat put off nothing any more.
    late = int(memory.library.mem_stalled(memory.handle)) - (times[-1] - 100)
    assert 0 <= late <= 14
    assert memory.violation == ""


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({"arvalid": 1, "araddr": 4088, "arlen": 1}, "a burst that crosses a 4 KiB boundary"),
        ({"arvalid": 1, "arsize": 2}, "a beat narrower than the bus"),
        ({"arvalid": 1, "arburst": 0}, "a burst that is not INCR"),
        ({"wvalid": 1}, "a write beat without an address"),
        ({"awvalid": 1, "awlen": 0, "wvalid": 1}, "WLAST does not match AWLEN"),
    ],
)
def test_protocol(make: Any, inputs: dict[str, int], text: str) -> None:
    memory = make()
    memory.cycle(**inputs)
    assert memory.violation == text
