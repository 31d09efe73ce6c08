"""The files of a sweep: table, pictures and page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dovetail.flows.explore.results.frame import Frame, Record
from dovetail.flows.explore.results.layers import explain_rows, layers_of
from dovetail.flows.explore.results.sweep_results import Results
from dovetail.flows.explore.results.table import ALL
from dovetail.flows.report.charts import pareto
from dovetail.flows.report.page import render
from dovetail.flows.report.system_files import write_systems
from dovetail.isa.common.files import write_atomically

EXPLAINED = 8
"""Points whose layers the page explains; each is compiled again."""


def write_files(
    folder: Path, results: Results, networks: Sequence[str], records: Sequence[Record], version: str
) -> dict[str, Path]:
    """Write results.csv, layers.csv (of the points that the page explains), pictures and report.html below ``folder``,
    and the best systems of a sweep of systems.

    Returns their paths, by what they are. ``networks``: names of the space's workloads; ``version``: of the compiler
    that the results are of. Bars of cycles are drawn of a sweep that is small enough to read them. Raises OSError.
    """
    from dovetail.flows.report.pictures.render import FORMATS, figure_bytes  # matplotlib takes half a second

    files: dict[str, tuple[str, bytes | str]] = {"csv": ("results.csv", Frame(records).to_csv())}
    if 0 < len(results.rows) <= ALL:
        for index in range(len(networks)):
            name = "cycles.png" if len(networks) == 1 else f"cycles-{index + 1}.png"
            files["picture" if index == 0 else f"picture{index + 1}"] = name, figure_bytes(results.bars(index))
    if pareto.of_results(results):
        picture = results.pareto()
        files |= {f"pareto_{fmt}": (f"pareto.{fmt}", figure_bytes(picture, fmt)) for fmt in FORMATS}
    best = results.apart().worth_explaining(EXPLAINED)
    explanations, _ = explain_rows(results.space, best)
    if explanations:
        files["layers"] = "layers.csv", layers_of(results.rows, explanations).to_csv()
    files["page"] = "report.html", render(results, explanations, version=version)
    for name, data in files.values():
        write_atomically(folder / name, data)
    systems = write_systems(folder, results.space, best)
    paths = {what: folder / name for what, (name, _) in files.items()}
    return paths | ({"systems": systems} if systems else {})
