"""Verilate a component: behaviour of the handle, the cache, and the text of errors."""

import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.cosim.rtl import verilate
from dovetail.cosim.rtl.block import Bench, block_design
from dovetail.isa.common import build_cache, cplusplus


class Mac(wiring.Component):  # type: ignore[misc]
    """total += a * b, and a wide register, so that every port size occurs."""

    pair: Out(wiring.Signature({"a": In(signed(8)), "b": In(signed(13))}))  # type: ignore[valid-type]
    wide: In(100)  # type: ignore[valid-type]
    total: Out(signed(40))  # type: ignore[valid-type]
    last: Out(100)  # type: ignore[valid-type]
    sum: Out(signed(14))  # type: ignore[valid-type]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += [self.total.eq(self.total + self.pair.a * self.pair.b), self.last.eq(self.wide)]
        m.d.comb += self.sum.eq(self.pair.a + self.pair.b)
        return m


def test_poke_peek_tick(build_cache: Path) -> None:
    with Bench(Mac(), cache=build_cache) as bench:
        bench.poke("pair__a", -3)
        bench.poke("pair__b", 1000)
        bench.poke("wide", 1 << 99 | 5)
        assert bench.peek("sum") == 997
        assert bench.peek("total") == 0
        bench.tick(2)
        assert bench.peek("total") == -6000
        assert bench.peek("last") == 1 << 99 | 5
        bench.reset()
        assert bench.peek("total") == 0
        with pytest.raises(KeyError, match=r"port must be one of pair__a, .*, not 'x'"):
            bench.peek("x")
        with pytest.raises(ValueError, match="total is an output"):
            bench.poke("total", 1)


def test_stream_takes_outputs_before_the_edge(build_cache: Path) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(-128, 128, 500), rng.integers(-4096, 4096, 500)
    wide = rng.integers(0, 256, (500, 13), np.uint8)
    wide[:, 12] &= 15
    with Bench(Mac(), cache=build_cache) as bench:
        got = bench.stream({"pair__a": a, "pair__b": b, "wide": wide}, ["total", "last", "sum"])
        assert np.array_equal(got["sum"], a + b)
        assert np.array_equal(got["total"], np.concatenate([[0], np.cumsum(a * b)[:-1]]))
        assert np.array_equal(got["last"][1:], wide[:-1])
        with pytest.raises(ValueError, match=r"input wide must be rows of 13 uint8, not \(5,\)"):
            bench.stream({"wide": np.arange(5)}, [])
    with Bench(Mac(), cache=build_cache) as bench:
        delayed = bench.pipeline({"wide": wide}, ["last"], latency=1)
        assert np.array_equal(delayed["last"], wide)


def test_the_cache_may_be_named_from_here(build_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(build_cache.parent)
    library = verilate.verilate(block_design(Mac()), Path(build_cache.name))
    assert library.is_absolute() and library.exists()


def test_instances_are_independent(build_cache: Path) -> None:
    with Bench(Mac(), cache=build_cache) as one, Bench(Mac(), cache=build_cache) as two:
        for bench, value in ((one, 1), (two, 2)):
            bench.poke("pair__a", value)
            bench.poke("pair__b", value)
            bench.tick(3)
        assert (one.peek("total"), two.peek("total")) == (3, 12)


def test_waves(build_cache: Path, tmp_path: Path) -> None:
    with Bench(Mac(), cache=build_cache, trace="vcd") as bench:
        path = tmp_path / "mac.vcd"
        bench.waves(path)
        bench.poke("pair__a", 1)
        bench.tick(5)
        bench.waves(None)
        assert path.stat().st_size > 100
    with (
        Bench(Mac(), cache=build_cache) as bench,
        pytest.raises(ValueError, match="trace must be vcd or fst for waves, not empty"),
    ):
        bench.waves(tmp_path / "none")


def test_hash_depends_on_every_input() -> None:
    design = verilate.Design({"a.v": "module dut; endmodule"}, "dut", {"a.cpp": ""})
    others: list[verilate.Design] = [
        verilate.Design({"a.v": "module dut;  endmodule"}, "dut", {"a.cpp": ""}),
        verilate.Design({"a.v": "module dut; endmodule"}, "dut", {"a.cpp": " "}),
        verilate.Design({"b.v": "module dut; endmodule"}, "dut", {"a.cpp": ""}),
        verilate.Design({"a.v": "module dut; endmodule"}, "dut", {"a.cpp": ""}, trace="fst"),
        verilate.Design({"a.v": "module dut; endmodule"}, "dut", {"a.cpp": ""}, defines=("A=1",)),
    ]
    assert len({verilate.design_hash(d) for d in [design, *others]}) == 6
    assert verilate.design_hash(block_design(Mac())) == verilate.design_hash(block_design(Mac()))


def _count_build(cache: Path, queue: Any) -> None:
    builds: list[int] = []
    build = verilate._build

    def counted(*arguments: Any) -> None:
        builds.append(1)
        build(*arguments)

    verilate._build = counted  # type: ignore[assignment]
    try:
        verilate.verilate(block_design(Mac()), cache)
    finally:
        queue.put(len(builds))


def test_two_processes_build_once(fresh_cache: Path) -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    workers = [context.Process(target=_count_build, args=(fresh_cache, queue)) for _ in range(2)]
    for worker in workers:
        worker.start()
    assert sorted(queue.get(timeout=120) for _ in workers) == [0, 1]
    for worker in workers:
        worker.join()
    assert not list(fresh_cache.glob("build-*"))


def test_failed_build_says_why(fresh_cache: Path) -> None:
    bad = verilate.Design({"dut.v": "module dut(input clk); wibble endmodule"}, "dut", {})
    with pytest.raises(cplusplus.ToolError, match=r"verilator_bin failed with exit code \d+; log: (?s:.*)syntax error"):
        verilate.verilate(bad, fresh_cache)
    assert not list(fresh_cache.glob("build-*"))
    assert "wibble" in next(fresh_cache.glob("*.log")).read_text()
    bad = verilate.Design({"dut.v": "module dut(input clk); endmodule"}, "dut", {"x.cpp": "#error no"})
    with pytest.raises(cplusplus.ToolError, match=r"g\+\+ failed with exit code 1"):
        verilate.verilate(bad, fresh_cache)
    with pytest.raises(ValueError, match="top must be a module of the Verilog texts, not 'other'"):
        verilate.verilate(verilate.Design({"dut.v": "module dut; endmodule"}, "other", {}), fresh_cache)


def test_missing_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(cplusplus.ToolError, match=r"g\+\+ is not on PATH; .* apt install g\+\+"):
        cplusplus.compiler()


def test_default_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build_cache.default_cache() == tmp_path / "dovetail"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert build_cache.default_cache() == tmp_path / ".cache" / "dovetail"
