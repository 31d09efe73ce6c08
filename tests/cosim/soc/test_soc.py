"""Inferences on the SoC in RTL, from reset to result: the model's outputs, segments in the predicted cycles."""

import importlib.util
import json
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from dovetail.cosim.soc.build import HOST_BYTES, TRAP, compile_program, loaded_parts, soc_header
from dovetail.cosim.soc.inference import SocInference, run_inference
from dovetail.cosim.soc.simulation import SocError, SocRun, run_program
from dovetail.flows.cli import main
from dovetail.hw.soc.vexriscv import vexriscv_verilog
from dovetail.isa.common.cplusplus import ToolError
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.memory import Memory, kind_of, named_memory
from dovetail.isa.config.resolved import Config
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network

MISSING = [name for name in ("pythondata_cpu_vexriscv", "ziglang") if importlib.util.find_spec(name) is None]
needs_soc = pytest.mark.skipif(
    bool(MISSING), reason=f'not installed: {", ".join(MISSING)} (pip install "dovetail[soc]")'
)
MODELS = Path(__file__).parents[4] / "shared" / "models" / "mlperf_tiny"
beside = pytest.mark.skipif(not MODELS.is_dir(), reason="the trained networks are not beside the project")
TINY = Config(ic_lanes=2, oc_lanes=4, sram="32 KiB", banks=4, requant_lanes=1, vector_lanes=1, bus=32, stripe=8)
LIMIT = 100_000_000


def inference(compiled: CompiledNetwork, cache: Path) -> SocInference:
    """On a random sample; outputs and cycles are checked."""
    random = np.random.default_rng(3)
    sample = {p.name: random.integers(-128, 128, p.shape).astype(p.dtype) for p in compiled.graph.inputs}
    found = run_inference(compiled, sample, cache=cache, limit=LIMIT)
    expected = compiled.run(sample)
    assert list(found.outputs) == list(expected.outputs)
    for name, value in expected.outputs.items():
        assert found.outputs[name].dtype == value.dtype
        np.testing.assert_array_equal(found.outputs[name], value)
    assert len(found.segments) == len(compiled.code.segments)
    for segment in found.segments:
        if kind_of(compiled.config.memory) != "fixed":
            assert segment.predicted is None
            continue
        assert segment.predicted is not None
        late = segment.run.cycles - segment.predicted.cycles
        assert 0 <= late <= segment.run.bursts, "the processor is in the way for a cycle or two"
        assert segment.different == 0 or late
    assert found.cycles == found.start_up + found.accelerator + found.host <= found.run.cycles
    return found


@needs_soc
def test_a_network_from_reset_to_result(build_cache: Path) -> None:
    compiled = compile_network("zoo:attention_block?tokens=4&channels=8", TINY, effort=0)
    found = inference(compiled, build_cache)
    assert len(found.segments[0].run.entries) > 10
    assert [step.name for step in found.steps][:2] == ["boot", "weights"]
    assert any("softmax" in step.name for step in found.steps)

    assert ran("int main(void) { return 77; }", build_cache).status == 77
    assert ran('int main(void) { __asm__(".word 0"); return 0; }', build_cache).status == TRAP + ILLEGAL_INSTRUCTION
    with pytest.raises(SocError, match="the program must end within 20,000 cycles"):
        ran("int main(void) { for (;;); }", build_cache)
    with pytest.raises(SocError, match="the program has used an address where nothing is; its console says 'x'"):
        ran("int main(void) { *(volatile int *)SOC_CONSOLE = 'x'; return *(volatile int *)0x7fffff00; }", build_cache)


ILLEGAL_INSTRUCTION = 2


def ran(text: str, cache: Path) -> SocRun:
    """A program of one file, on the SoC that the first test has built."""
    memory = np.zeros(HOST_BYTES, np.uint8)
    sources = {"soc.h": soc_header({}), "main.c": f'#include "soc.h"\n{text}\n'}
    for address, data in compile_program(sources, (), cache):
        memory[address : address + len(data)] = np.frombuffer(data, np.uint8)
    return run_program(TINY, memory, cache=cache, limit=20_000)


@needs_soc
@pytest.mark.slow
@pytest.mark.parametrize(
    "memory",
    [
        MemoryTiming(),
        MemoryTiming(read_latency=13, write_latency=7, beat_cycles=2),
        named_memory("sdram"),
        named_memory("ddr4-2400-x16"),
    ],
    ids=["fixed", "slow beats", "sdram", "dram"],
)
def test_keyword_spotting(memory: Memory, build_cache: Path) -> None:
    compiled = compile_network("zoo:dscnn", Config.load("small").replace(memory=memory), effort=0)
    assert inference(compiled, build_cache).segments


@needs_soc
@beside
@pytest.mark.slow
@pytest.mark.parametrize("depthwise", ["native", "none"])
def test_trained_keyword_spotting(depthwise: str, build_cache: Path) -> None:
    """Without a depthwise unit the processor computes every other layer. The estimate is not fitted to this network."""
    config = Config.load("small") if depthwise == "native" else Config.load("small").replace(depthwise="none")
    compiled = compile_network(MODELS / "kws_dscnn" / "kws_int8.tflite", config)
    found = inference(compiled, build_cache)
    assert len(found.segments) == (1 if depthwise == "native" else 5)
    work = compiled.report().host_work
    start_up = work.cost.start_up(found.weights_bytes, compiled.code.memory_bytes)
    assert start_up == pytest.approx(found.start_up, rel=0.15)
    assert work.cycles == pytest.approx(found.host, rel=0.15 if depthwise == "native" else 0.5)


@needs_soc
@pytest.mark.slow
def test_the_command(
    build_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dovetail.flows.commands.soc.default_cache", lambda: build_cache)
    call = ["soc", "zoo:dscnn", "--config", "small", "--effort", "0", "--output", str(tmp_path / "y.npz")]
    assert main([*call, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["equal"] and data["cycles"] == data["steps"][-1]["end"]
    assert data["segments"][0]["processor_bursts"] and (tmp_path / "y.npz").exists()
    assert main([*call, "--limit", "1000"]) == 2
    error = "the program must end within 1,000 cycles; give it more with a higher limit"
    assert capsys.readouterr().err == f"dovetail: error: {error}\n"
    trace = tmp_path / "t.json"
    assert main([*call, "--timeline", str(trace)]) == 0
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    host = [event for event in events if event["cat"] == "host"]
    assert [(event["name"], event["ts"] + event["dur"]) for event in host] == [
        (step["name"], step["end"]) for step in data["steps"]
    ]
    units = [event for event in events if event["cat"] == "operation"]
    (segment,) = (event for event in host if event["name"] == "segment 0")
    assert len(units) > 10
    assert min(event["ts"] for event in units) > segment["ts"]
    assert max(event["ts"] + event["dur"] for event in units) < segment["ts"] + segment["dur"]
    out = capsys.readouterr().out
    assert "outputs      EQUAL to those of the model" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--limit", "0"], "--limit must be at least 1 cycle, not 0"),
        (["--waves", "w.txt"], "--waves must be a .fst or .vcd file, not w.txt"),
        (["--timeline", "t.png"], "--timeline must end in .json, not t.png"),
        (["--timeline", "/nowhere/t.json"], "--timeline: /nowhere must be a folder"),
        (["--waves", "/nowhere/w.fst"], "--waves: /nowhere must be a folder"),
    ],
)
def test_refused_in_one_line(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["soc", "zoo:dscnn", *options]) == 2
    assert capsys.readouterr().err == f"dovetail: error: {message}\n"


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolError, match=r'the SoC needs the processor VexRiscv: pip install "dovetail\[soc\]"'):
        vexriscv_verilog()
    with pytest.raises(ToolError, match=r'the SoC needs a compiler for RISC-V: pip install "dovetail\[soc\]"'):
        compile_program({}, (), tmp_path)
    assert import_module("dovetail.flows.commands.soc")


@needs_soc
def test_sources_that_do_not_compile(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"(?s)zig failed with exit code 1\n.*no_such"):
        compile_program({"soc.h": soc_header({}), "main.c": "int main(void) { return no_such; }"}, (), tmp_path)


def test_parts_of_an_elf_file() -> None:
    header = bytes(28) + (52).to_bytes(4, "little") + bytes(10) + (32).to_bytes(2, "little") + (2).to_bytes(2, "little")
    segments = b"".join(n.to_bytes(4, "little") for n in (1, 116, 0x100, 0x200, 3, 8, 0, 0, 2, 116, 0, 0, 3, 3, 0, 0))
    assert loaded_parts(header.ljust(52, b"\0") + segments + b"abc") == [(0x200, b"abc")]
