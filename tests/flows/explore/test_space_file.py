"""Space files: what they say, and the line of every error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dovetail.flows.explore.space.design_space import Plan, Space, Workload
from dovetail.flows.explore.space.file import SpaceError, load, read
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.cost.energy import FOLDER

FULL = """\
[[network]]
source = "zoo:dscnn"
[[network]]
source = "nets/net.tflite"
weight = 2
shape = { "in put" = [1, 3, 8, 8] }
[base]
preset = "16x16"
sram = "1 MiB"
read_latency = 60
[axes]
lanes = [[8, 8], [16, 4]]
stripe = { from = 8, to = 24, step = 8 }
sram = { from = "64 KiB", to = "1 MiB", factor = 4 }
depthwise = ["none", "native"]
pooling = [true, false]
[goals]
objectives = ["fps", "sram"]
constraints = ["pe <= 64", "host_macs == 0"]
clock = "1.5 GHz"
energy_table = "mine.toml"
host = "any"
[compile]
effort = 1
tiling = "channels"
keep_weights = true
[search]
method = "optuna"
points = 100
seed = 7
sampler = "tpe"
storage = "study.log"
study = "mine"
"""


def folder_with_files(folder: Path) -> Path:
    (folder / "nets").mkdir()
    for name in ("nets/net.tflite", "energy.toml", "bytes.toml"):
        (folder / name).write_bytes(b"\xff")
    (folder / "base.toml").write_text("stripe = 4\n")
    (folder / "mine.toml").write_text((FOLDER / "45nm.toml").read_text())
    (folder / "bad.toml").write_text("stripe = 400\n")
    return folder


def test_everything(tmp_path: Path) -> None:
    path = folder_with_files(tmp_path) / "space.toml"
    path.write_text(FULL)
    space = load(path)
    assert space == Space(
        workloads=(
            Workload("zoo:dscnn"),
            Workload(str(tmp_path / "nets/net.tflite"), 2.0, {"in put": (1, 3, 8, 8)}),
        ),
        base=Config(ic_lanes=16, oc_lanes=16, sram="1 MiB", memory=MemoryTiming(read_latency=60)),
        axes={
            "lanes": ((8, 8), (16, 4)),
            "stripe": (8, 16, 24),
            "sram": (65536, 262144, 1048576),
            "depthwise": ("none", "native"),
            "pooling": (True, False),
        },
        constraints=("pe <= 64", "host_macs == 0"),
        objectives=("fps", "sram"),
        clock=1.5e9,
        energy_table=str(tmp_path / "mine.toml"),
        tiling="channels",
        keep_weights=True,
        effort=1,
        host="any",
        search=Plan("optuna", 100, 7, "tpe", str(tmp_path / "study.log"), "mine"),
    )


def test_little(tmp_path: Path) -> None:
    space = read('[[network]]\nsource = "zoo:dscnn?classes=3"\n', "x", tmp_path)
    assert space == Space((Workload("zoo:dscnn?classes=3"),), Config(), {})
    assert space.count() == 1


NETWORK = '[[network]]\nsource = "zoo:dscnn"\n'
ERRORS = [
    ("a = \n", "1: must be TOML: Invalid value (column 5)"),
    (NETWORK + "[axes\n", "3: must be TOML: Expected ']' at the end of a table declaration (column 6)"),
    (NETWORK + "[base]\nbus = 64\nbus = 64\n", "5: must be TOML: Cannot overwrite a value (column 9)"),
    (NETWORK + 'base = """\n\n', "3: must be TOML: Unterminated string"),
    ("a = " + "9" * 5000 + "\n", "1: must be TOML: Exceeds the limit (4300 digits) for integer string conversion"),
    ("a = 1\nb = " + "[" * 2000 + "]" * 2000, "2: must be TOML: tables and arrays must be nested less deeply"),
    ("", '1: a space must have a network; write [[network]] and source = "FILE" below'),
    ("[axes]\nbus = [64]\n", '1: a space must have a network; write [[network]] and source = "FILE" below'),
    ("[network]\n", "1: network must be written [[network]], with two brackets: there may be several"),
    ('network = ["zoo:dscnn"]\n', '1: network must be written [[network]], not "zoo:dscnn"'),
    ("\n[[network]]\nweight = 1\n", '2: network must have a source = "FILE", or "zoo:NAME"'),
    ('[[network]]\nsource = ["a"]\n', '2: source must be a text in quotes, not ["a"]'),
    ('[[network]]\nsource = "a.tflite"\n', "2: source must be a file, relative to the space file; there is no "),
    ('[[network]]\nsource = "zoo:dscn"\n', "2: zoo network must be one of mobilenet_v1, "),
    ('[[network]]\nsource = "zoo:dscnn?n=1"\n', "2: parameter of zoo:dscnn must be one of classes, seed, not 'n'"),
    (NETWORK + "wieght = 1\n", '3: "wieght" must be a key of [[network]]; did you mean "weight"?'),
    (NETWORK + "\nweight = 0\n", "4: weight must be a number, 1e-09 to 1e+09, not 0"),
    (NETWORK + "weight = nan\n", "3: weight must be a number, 1e-09 to 1e+09, not NaN"),
    (NETWORK + "shape = [1]\n", "3: shape must be a table such as { input = [1, 3, 8, 8] }, not [1]"),
    (NETWORK + "[network.shape]\nx = [1]\ny = [\n 0]\n", "5: y must be a list of sizes such as [1, 3, 8, 8], not [0]"),
    (NETWORK + "[axis]\n", '3: "axis" must be a table; did you mean "axes"?'),
    ("axes = 3\n" + NETWORK, "1: axes must be a table; write [axes]"),
    (NETWORK + "[base]\nstrip = 8\n", '4: "strip" must be a configuration parameter, preset, file or system;'),
    (NETWORK + '[base]\npreset = "8x9"\n', '4: preset "8x9" must be known; did you mean "8x8"?'),
    (NETWORK + '[base]\nfile = "base.toml"\npreset = "8x8"\n', "4: base must have a preset or a file, not both; leave"),
    (NETWORK + '[base]\nfile = "none.toml"\n', "4: file must be a file, relative to the space file; there is no "),
    (NETWORK + '[base]\nfile = "bad.toml"\n', "4: {bad.toml}: stripe must be 1..64, not 400"),
    (NETWORK + '[base]\nfile = "bytes.toml"\n', "4: {bytes.toml}: 'utf-8' codec can't decode"),
    (NETWORK + "[base]\nbus = 64\nstripe = 99\n", "5: stripe must be 1..64, not 99"),
    (NETWORK + '[base]\nbus = "wide"\n', "4: bus must be an integer, not 'wide'"),
    (NETWORK + "[base]\nbus = true\n", "4: bus must be an integer, not True"),
    (NETWORK + "[base]\nmatmul = 1\n", "4: matmul must be true or false, not 1"),
    (NETWORK + '[base]\nsram = "1 MB"\n', "4: sram must be a size in B, KiB, MiB or GiB such as "),
    (NETWORK + '[base]\nsram = "1 MiB"\nbanks = 64\n', "5: banks must be 4..32, not 64"),
    (NETWORK + "[base]\npe = 64\nic_lanes = 8\n", "3: give either pe and dataflow or ic_lanes, oc_lanes and pixel"),
    (NETWORK + "[axes]\nsrma = []\n", '4: "srma" must be a configuration parameter; did you mean "sram"?'),
    (NETWORK + "[axes]\nbus = 64\n", "4: bus must be a list such as [64], or a range; one value goes to [base]"),
    (NETWORK + "[axes]\nbus = []\n", "4: bus must have at least one value; or leave it out"),
    (NETWORK + "[axes]\nbus = [\n  64,\n  32,\n  64]\n", "7: bus: 64 must be listed only once"),
    (NETWORK + '[axes]\nsram = ["1 MiB",\n"1024 KiB"]\n', "5: sram: 1048576 must be listed only once"),
    (NETWORK + "[axes]\nbus = [64, # , 1\n 100]\n", "5: bus must be one of 32, 64, 128, 256, 512, not 100"),
    (NETWORK + '[axes]\ndepthwise = ["nativ"]\n', "4: depthwise must be one of none, emulated, native, not 'nativ'"),
    (NETWORK + "[axes]\nlanes = [8, 8]\n", "4: lanes must be input and output lanes such as [8, 16], or"),
    (NETWORK + "[axes]\nread_latency = [10,\n0]\n", "5: read_latency must be 1..4096, not 0"),
    (NETWORK + "[axes]\nbus = [64]\nlanes = [[8, 8]]\npe = [64]\n", "3: axes: give lanes without pe, dataflow, "),
    (NETWORK + "[axes]\nbus = { from = 32, too = 64 }\n", '4: "too" must be a key of a range; did you mean "to"?'),
    (NETWORK + "[axes]\nbus = { from = 32, to = 64 }\n", "4: bus: a range must have from, to, and either step or "),
    (NETWORK + "[axes.bus]\nfrom = 32\nto = 64\nstep = -1\n", "3: bus: a range must have a step of at least 1, or a"),
    (NETWORK + "[axes]\nbus = { from = 32, to = 64, factor = 1 }\n", "4: bus: a range must have a step of at least 1,"),
    (NETWORK + "[axes]\nstripe = { from = 8, to = 4, step = 1 }\n", "4: stripe: a range must go up, not from 8 to 4"),
    (NETWORK + "[axes]\nstripe = { from = 8, to = 520, step = 8 }\n", "4: stripe must be 1..512, not 520"),
    (NETWORK + "[axes]\nsram = { from = 32768, to = 1000000, step = 1 }\n", "4: sram: a range must have 10,000 values"),
    (NETWORK + "[axes]\nbus = { from = 1, to = 9, factor = inf }\n", "4: bus: a range must have a step of at least 1,"),
    (NETWORK + f"[axes]\nbus = {{ from = 1, to = {1 << 2000}, factor = 2 }}\n", "4: bus: a range must end below 2^63"),
    (NETWORK + "[axes.stripe]\nfrom = 8\nto = 9\nfactor = 'a'\n", '6: factor must be a number, not "a"'),
    (NETWORK + '[axes.stripe]\nfrom = 8\nto = 9.5\nstep = 1\n', "5: stripe must be an integer, not 9.5"),
    (NETWORK + "[axes]\nmatmul = { from = 8, to = 80, step = 8 }\n", "4: matmul must be a list of values, not a range"),
    (NETWORK + "[goals]\nobjective = []\n", '4: "objective" must be a key of [goals]; did you mean "objectives"?'),
    (NETWORK + "[goals]\nobjectives = []\n", "4: objectives must have at least one value; or leave it out"),
    (NETWORK + '[goals]\nobjectives = "fps"\n', '4: objectives must be a list such as ["cycles", "sram"], not "fps"'),
    (NETWORK + '[goals]\nobjectives = ["fps",\n"cycle"]\n', '5: objective "cycle" must be a metric; did you mean "cy'),
    (NETWORK + '[goals]\nobjectives = ["fps", "fps"]\n', '4: objectives: "fps" must be listed only once'),
    (NETWORK + "[goals]\nobjectives = [1]\n", "4: objectives must be a text in quotes, not 1"),
    (NETWORK + '[goals]\nconstraints = [\n"pe < 9",\n"pe <"]\n', "6: constraint `pe <` must be a comparison such as"),
    (NETWORK + '[goals]\nconstraints = ["pee < 9"]\n', '4: constraint `pee < 9`: "pee" must be a parameter or a'),
    (NETWORK + "[goals]\nconstraints = [9]\n", '4: a constraint must be a text such as "pe <= 256", not 9'),
    (NETWORK + '[goals]\nconstraints = ["pe < 9"]\n', "4: constraints rule every combination of the axes out; loosen"),
    (NETWORK + '[goals]\nclock = "fast"\n', '4: clock must be a frequency such as "100 MHz", or Hz as a number, 1'),
    (NETWORK + "[goals]\nclock = 0\n", '4: clock must be a frequency such as "100 MHz", or Hz as a number, 1 to 1e+12'),
    (NETWORK + '[goals]\nhost = "all"\n', '4: host must be one of least, any, not "all"'),
    (NETWORK + '[goals]\nenergy_table = "90nm"\n', "4: energy_table must be one of 45nm, or a file, relative to the"),
    (NETWORK + '[goals]\nenergy_table = "energy.toml"\n', "4: {energy.toml}: energy table must be TOML: "),
    (NETWORK + '[goals]\nenergy_table = "base.toml"\n', "4: {base.toml}: stripe is not a key of an energy table; "),
    (NETWORK + "[compile]\nefort = 1\n", '4: "efort" must be a key of [compile]; did you mean "effort"?'),
    (NETWORK + "[compile]\neffort = 4\n", "4: effort must be one of 0, 1, 2, 3, not 4"),
    (NETWORK + "[compile]\neffort = 1.0\n", "4: effort must be one of 0, 1, 2, 3, not 1.0"),
    (NETWORK + "[compile]\neffort = true\n", "4: effort must be one of 0, 1, 2, 3, not true"),
    (NETWORK + "[compile]\nkeep_weights = 1\n", "4: keep_weights must be one of false, true, not 1"),
    (NETWORK + "[compile]\ntiling = 1\n", "4: tiling must be one of free, channels, not 1"),
    (NETWORK + '[search]\nmethod = "all"\n', '4: method must be one of exhaustive, random, optuna, narrow, not "all"'),
    (NETWORK + '[search]\nseed = 1\n', "4: seed must be left out of the search exhaustive; random, optuna take it"),
    (NETWORK + '[search]\n\nmethod = "random"\n', "3: the search random must have points = how many to evaluate"),
    (NETWORK + '[search]\nmethod = "random"\npoints = 0\n', "5: points must be an integer 1..2147483647, not 0"),
    (NETWORK + '[search]\nmethod = "optuna"\npoints = 9\nsampler = "x"\n', "6: sampler must be one of nsga2, nsga3,"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), ERRORS)
def test_errors_say_where(text: str, message: str, tmp_path: Path) -> None:
    path = folder_with_files(tmp_path) / "space.toml"
    path.write_text(text)
    message = re.sub(r"{(\w+\.toml)}", lambda match: str(tmp_path / match[1]), message)
    with pytest.raises(SpaceError, match="^" + re.escape(f"{path}:{message}")) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_marks_and_line_ends(tmp_path: Path) -> None:
    """As editors on Windows write them."""
    (tmp_path / "s.toml").write_bytes(
        b"\xef\xbb\xbf" + NETWORK.replace("\n", "\r\n").encode() + b"[axes]\r\nbus = [\r\n9]"
    )
    with pytest.raises(SpaceError, match=r"s\.toml:5: bus must be one of"):
        load(tmp_path / "s.toml")


def test_not_text(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_bytes(b"ab\xff")
    with pytest.raises(SpaceError, match=r"s\.toml: must be text in UTF-8; byte 2 is not$"):
        load(tmp_path / "s.toml")
