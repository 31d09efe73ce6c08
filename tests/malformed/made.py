"""Sound files that Dovetail itself makes, by commands that must succeed."""

from __future__ import annotations

import io
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from dovetail.flows.cli import main

NETWORK = "zoo:hard_swish_block?channels=4&resolution=4"
SMALL = ("--ic-lanes", "4", "--oc-lanes", "4", "--sram", "64KiB", "--effort", "0")
Files = dict[str, bytes]
SPACE = f"""\
[[network]]
source = "{NETWORK}"
weight = 2

[base]
bus = 64
sram = "64 KiB"

[axes]
ic_lanes = [2, 4]
oc_lanes = {{ from = 4, to = 8, factor = 2 }}

[metrics]
both = "cycles + lut"

[goals]
objectives = ["cycles", "lut"]
constraints = ["cycles < 1e9"]
clock = "100 MHz"

[compile]
effort = 0

[search]
method = "exhaustive"
"""


def command(*words: str) -> None:
    """Run a command that must succeed."""
    said = io.StringIO()
    with redirect_stderr(said), redirect_stdout(said):
        code = main([*words, "--json"])
    assert code == 0, said.getvalue()


def made_by(*words: str) -> Files:
    """The files that a command writes to the folder that stands for ``OUT``."""
    with tempfile.TemporaryDirectory() as folder:
        command(*(word.replace("OUT", folder) for word in words))
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(Path(folder).rglob("*"))
            if path.is_file()
        }
