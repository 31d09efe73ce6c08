"""Functional coverage: bins follow the tables, runs fall into the bins that they should, holes are found."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from dovetail.cosim.compare.fuzz import random_case
from dovetail.cosim.coverage.bins import CORNERS, FLAGS, all_bins, as_json, cover, holes, markdown, operations
from dovetail.flows.cli import main
from dovetail.isa.config.given import FEATURES
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import INSTRUCTIONS, Cause, Op, Unit, cfg, pack, sync
from dovetail.isa.timing.run import time_program
from dovetail.sw.random.programs.configurations import configurations
from dovetail.sw.random.programs.targeted import targeted_program, targets

CONFIG = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")


def covered(words: list[int], config: Config = CONFIG) -> set[tuple[str, str, str]]:
    return set(cover(config, words, time_program(config, words)))


def load(**values: int) -> list[int]:
    rows, planes = values.pop("rows", 1), values.pop("planes", 1)
    values = {"LENGTH": 100, "SRAM_BYTES": 5000} | values
    count = pack(Unit.LOAD, "COUNT", rows=rows, planes=planes)
    return [*(cfg(Unit.LOAD, n, v) for n, v in values.items()), cfg(Unit.LOAD, "COUNT", count), int(Op.DMA_READ)]


def pool(**values: int) -> list[int]:
    """Maximum over 2 x 3 pixels of 4 channels, from address 0 to address 8192."""
    values = {
        "IN_BYTES": 24,
        "IN_ROWS": 2,
        "ROW_BYTES": 12,
        "Y_STEP": 12,
        "X_STEP": 4,
        "OUT_ADDR": 8192,
        "OUT_BYTES": 24,
        "OUT_Y_STEP": 12,
        "OUT_X_STEP": 4,
        "GEOMETRY": pack(Unit.VECTOR, "GEOMETRY", kh=1, kw=1, stride_y=1, dilation_y=1),
        "TILE": pack(Unit.VECTOR, "TILE", height=2, width=3),
        "BLOCKS": pack(Unit.VECTOR, "BLOCKS", count=1, last=4),
        "QUANT": pack(Unit.VECTOR, "QUANT", zero_in=0, zero_out=0, lo=-128, hi=127),
    } | values
    return [*(cfg(Unit.VECTOR, n, v) for n, v in values.items()), int(Op.POOL)]


END = [int(Op.END)]


def shapes(words: list[int]) -> set[str]:
    return {column for table, _, column in covered(words + END) if table == "shapes"}


def test_bins_follow_the_tables() -> None:
    bins = all_bins()
    assert len(set(bins)) == len(bins)
    units = {op: row.unit for op, row in INSTRUCTIONS.items() if row.unit is not None}
    assert {row for table, row, _ in bins if table == "flags"} == {op.name for op, unit in units.items() if FLAGS[unit]}
    assert {row for table, row, _ in bins if table == "shapes"} == {op.name for op in units}
    assert {row for table, row, _ in bins if table == "checks"} == {op.name for op in units}
    assert {row for table, row, _ in bins if table == "stalls"} == {unit.name for unit in Unit}
    assert {row for table, row, _ in bins if table == "configurations"} == {
        *FEATURES,
        "softmax",
        "norm",
        "norm_bits",
        "depthwise",
        "bus",
        "pixel_lanes",
    }
    assert ("flags", "POOL", "MODE.average=1") in bins
    assert ("flags", "CONV", "MODE.accumulate=0") in bins
    for corner in CORNERS:
        assert any(corner.applies(INSTRUCTIONS[op]) for op in operations()), corner.name


def test_what_runs_is_a_bin() -> None:
    """No run falls beside the bins, except for zero words behind the program."""
    bins = set(all_bins())
    for number, config in enumerate(configurations(3, 8)):
        for seed in range(6):
            case = random_case(config, 100 * number + seed, count=12)
            p = case.program
            timeline = time_program(config, p.words, address=p.program, base=p.base, memory_bytes=len(p.memory))
            counts = cover(config, p.words, timeline, p.base)
            assert set(counts) <= bins, set(counts) - bins


def test_faults_fall_into_their_bins() -> None:
    for target in targets(CONFIG):
        program = targeted_program(random.Random(f"{target}"), CONFIG, target)
        assert program is not None
        timeline = time_program(
            CONFIG, program.words, address=program.program, base=program.base, memory_bytes=len(program.memory)
        )
        op, cause = target
        found = set(cover(CONFIG, program.words, timeline, program.base))
        rows = {row for table, row, column in found if table in ("checks", "words") and column == cause.name}
        # One bin for reserved bits in the words of all operations.
        assert rows == {"operation" if cause == Cause.RESERVED and op in operations() else op.name}


@pytest.mark.parametrize(
    ("words", "expected", "missing"),
    [
        (load(), {"one row", "memory aligned"}, {"several rows", "region cut", "memory unaligned", "one byte"}),
        (load(rows=3, MEM_ROW_STEP=100, SRAM_ROW_STEP=100), {"several rows"}, {"one row", "rows backwards"}),
        (load(rows=3, MEM_ADDR=999, MEM_ROW_STEP=(1 << 32) - 9), {"rows backwards", "memory unaligned"}, {"one row"}),
        (load(planes=2), {"several planes"}, {"several rows"}),
        (load(LENGTH=1), {"one byte"}, {"longest burst"}),
        (load(MEM_ADDR=4090), {"across 4 KiB", "memory unaligned"}, {"longest burst"}),
        (load(LENGTH=5000), {"longest burst", "across 4 KiB"}, {"region cut"}),
        (load(SRAM_BYTES=99), {"region cut"}, set()),
        (pool(), {"rows and columns", "last block full", "input aligned"}, {"output cut", "input cut", "kernel rows"}),
        (pool(TILE=0x10001), {"one pixel"}, {"one row", "one column", "rows and columns"}),
        (pool(TILE=0x30001), {"one row"}, {"one column"}),
        (pool(TILE=0x10002), {"one column"}, {"one row"}),
        (pool(OUT_BYTES=23), {"output cut"}, {"input cut"}),
        (pool(IN_BYTES=20), {"input cut"}, {"output cut"}),
        (pool(PAD_TOP=1), {"padding above"}, {"padding left", "padding below"}),
        (
            pool(GEOMETRY=0x01010102, KY_STEP=12),
            {"kernel rows", "padding below", "input cut"},
            {"kernel columns", "row dilation"},
        ),
        (pool(BLOCKS=0x10001), {"one channel", "last block partial"}, {"several blocks", "last block full"}),
        (pool(OUT_ADDR=8190), {"output unaligned", "output in several banks"}, {"input unaligned"}),
        (pool(QUANT=0x7E800000), {"narrow clamp"}, set()),
    ],
)
def test_shapes(words: list[int], expected: set[str], missing: set[str]) -> None:
    found = shapes(words)
    assert expected <= found
    assert not missing & found


def test_stalls_and_waits() -> None:
    words = [*load(), sync(Unit.STORE, Unit.LOAD), *END]
    found = covered(words)
    assert ("waits", "STORE", "LOAD") in found and ("waits", "LOAD", "STORE") not in found
    stalls = {unit: {column for table, row, column in found if (table, row) == ("stalls", unit.name)} for unit in Unit}
    assert stalls[Unit.STORE] == {"CONFIG", "TOKEN", "IDLE"}
    assert stalls[Unit.ARRAY] == {"IDLE"}
    assert stalls[Unit.LOAD] == {"BUSY", "CONFIG", "IDLE"}


def test_report() -> None:
    everything = Counter(dict.fromkeys(all_bins(), 1234))
    assert holes(everything) == []
    text = markdown(everything)
    assert f"{len(all_bins())} of {len(all_bins())} bins." in text and text.endswith("## Holes\n\nnone\n")
    assert "| MODE.average=1 |" in text and "1,234" in text
    del everything["stalls", "ARRAY", "TOKEN"]
    assert markdown(everything).endswith("## Holes\n\n- stalls: ARRAY, TOKEN\n")
    data = as_json(everything)
    assert data["hit"] == len(all_bins()) - 1
    assert data["holes"] == [("stalls", "ARRAY", "TOKEN")]


def test_fuzz_writes_it(tmp_path: Path, build_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.flows.commands.fuzz.default_cache", lambda: build_cache)
    config = tmp_path / "config.toml"
    config.write_text('ic_lanes = 8\noc_lanes = 8\nsram = "64 KiB"\n')
    for name in ("coverage.md", "coverage.json"):
        command = [
            "fuzz",
            "--config",
            str(config),
            "--programs",
            "4",
            "--count",
            "4",
            "--coverage",
            str(tmp_path / name),
        ]
        assert main(command) == 0
    assert (tmp_path / "coverage.md").read_text().startswith("# Functional coverage\n")
    assert 0 < json.loads((tmp_path / "coverage.json").read_text())["hit"] < len(all_bins())
    assert main(["fuzz", "--coverage", "coverage.txt"]) == 2
