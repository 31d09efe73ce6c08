"""The files of a sweep: table, pictures and page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dovetail.flows.explore.results.frame import Frame, Record
from dovetail.flows.explore.results.layers import layers_of
from dovetail.flows.explore.results.rows import Results, common
from dovetail.flows.explore.results.table import ALL
from dovetail.isa.common.files import write_atomically
from dovetail.isa.common.sizes import format_bytes

EXPLAINED = 8
"""Points whose layers the page explains; each is compiled again."""


def write_files(
    folder: Path, results: Results, networks: Sequence[str], records: Sequence[Record], version: str
) -> dict[str, Path]:
    """Write results.csv, layers.csv (of the points that the page explains), pictures and report.html below ``folder``.

    Returns their paths, by what they are. ``networks``: names of the space's workloads; ``version``: of the compiler
    that the results are of. Bars of cycles are drawn of a sweep that is small enough to read them. Raises OSError.
    """
    from dovetail.flows.report.page import render
    from dovetail.flows.report.page.explaining import explain_best
    from dovetail.flows.report.pictures import pareto
    from dovetail.flows.report.pictures.style import FORMATS, figure_bytes

    files: dict[str, tuple[str, bytes | str]] = {"csv": ("results.csv", Frame(records).to_csv())}
    if 0 < len(results.rows) <= ALL:
        for index in range(len(networks)):
            name = "cycles.png" if len(networks) == 1 else f"cycles-{index + 1}.png"
            files["picture" if index == 0 else f"picture{index + 1}"] = name, figure_bytes(results.bars(index))
    if (picture := pareto.of_results(results)) is not None:
        files |= {f"pareto_{fmt}": (f"pareto.{fmt}", figure_bytes(picture, fmt)) for fmt in FORMATS}
    explanations, _ = explain_best(results.apart(), EXPLAINED)
    if explanations:
        files["layers"] = "layers.csv", layers_of(results, explanations).to_csv()
    files["page"] = "report.html", render(results, explanations, version=version)
    for name, data in files.values():
        write_atomically(folder / name, data)
    return {what: folder / name for what, (name, _) in files.items()}


def subtitle(results: Results) -> str:
    """What all configurations have in common."""
    rows, same = results.rows, common(results.rows)
    parts = [f"{len(rows)} configurations"] if len(rows) > 1 else []
    if {"ic_lanes", "oc_lanes"} <= same.keys():
        parts.append(f"{same['ic_lanes']} x {same['oc_lanes']} multipliers")
    same |= {"sram": format_bytes(same["sram"])} if "sram" in same else {}
    texts = {
        "sram": "{} SRAM",
        "depthwise": "depthwise {}",
        "bus": "{}-bit bus",
        "read_latency": "read latency {} cycles",
    }
    parts += [text.format(same[name]) for name, text in texts.items() if name in same]
    cut = "rows and channels" if results.space.tiling == "free" else "output channels"
    return ", ".join([*parts, f"tiling in {cut}"])
