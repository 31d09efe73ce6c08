"""Names from files on the terminal and in pictures: as they are where they can be seen, escaped where not."""

import os
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import onnx
import pytest
from rich.table import Table

from dovetail.flows.cli import main
from dovetail.flows.commands import run as run_command
from dovetail.flows.output.printable import Block, block, printable
from dovetail.flows.output.reply import Report
from dovetail.flows.output.trouble import LONGEST
from dovetail.isa.config.given import ConfigError
from dovetail.sw.errors import DovetailError
from dovetail.sw.zoo import catalogue

NAME = "layer[0]/conv[/] $x_{ :warning: [bold]"
HOSTILE = NAME + "\x1b[2J\x07\r\x00\u202e\n]]>"
SMALL = ("--ic-lanes", "4", "--oc-lanes", "4", "--sram", "64KiB")


@pytest.fixture(scope="module", params=[NAME, HOSTILE], ids=["brackets", "control"])
def network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every node and tensor has the name in its own."""
    model = onnx.load_model_from_string(catalogue.model_bytes("mobilenet_v2_block?channels=4&resolution=6"))
    for number, node in enumerate(model.graph.node):
        node.name = f"{number} {request.param}"
        for side in (node.input, node.output):
            side[:] = [f"{name}{request.param}" for name in side]
    for value in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        value.name += request.param
    del model.graph.value_info[:]
    path = tmp_path_factory.mktemp("network") / "net[1].onnx"
    path.write_bytes(model.SerializeToString())
    return path


COMMANDS = {
    "inspect": (),
    "compile": ("--memory",),
    "explain": ("--layers",),
    "diff": (),
    "run": ("--layers",),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_names_of_nodes(command: str, network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, str(network), *SMALL, *COMMANDS[command]]) == 0
    out, err = capsys.readouterr()
    assert "layer[" in out or command == "explain"  # names are cut in the middle there
    assert printable(out + err, keep="\n") == out + err


def test_a_name_stays_in_its_line() -> None:
    """No name makes a line of its own, which might say anything; blocks and headings keep theirs."""
    table = Table("two\nlines", Block("two\nlines"), title="a\nb")
    table.add_row("x\nverdict EQUAL", "y")
    out = StringIO()
    Report({}, ["layer a\nEQUAL 9 layers", block(["first\r", "sec\nond"]), table]).write(out, as_json=False)
    text = out.getvalue()
    assert text.startswith("layer a\\nEQUAL 9 layers\nfirst\\r\nsec\\nond\n")
    assert "a\\nb" in text
    assert "x\\nverdict EQUAL" in text
    assert (text.count("two\\nlines"), text.count("two")) == (1, 2)


def test_pictures_are_well_formed(network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timeline, occupancy, folder = tmp_path / "t.svg", tmp_path / "o.svg", tmp_path / "explained"
    options = ("--timeline", str(timeline), "--occupancy", str(occupancy))
    assert main(["run", str(network), *SMALL, *options]) == 0
    assert main(["explain", str(network), *SMALL, "--pictures", str(folder)]) == 0
    assert len(list(folder.glob("*.png"))) > 1
    for picture in (timeline, occupancy):
        ElementTree.parse(picture)
    capsys.readouterr()


def test_what_is_visible() -> None:
    assert printable("plain [text] ü 卷积 \u00a0 'x'") == "plain [text] ü 卷积 \u00a0 'x'"
    assert printable("a\tb\x1b[0m\ud800\u202e") == r"a\tb\x1b[0m\ud800\u202e"
    assert printable("a\nb", keep="\n") == "a\nb"


def failing(error: BaseException) -> Callable[[object], None]:
    def run(_: object) -> None:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (DovetailError("name\x1b[2J must"), 2, r"name\x1b[2J must"),
        (ConfigError("a\nb"), 2, "a b"),
        (FileNotFoundError(2, "No such file", "a\nb.toml"), 2, "a b.toml: No such file"),
        (MemoryError(), 2, "this takes more memory than there is"),
        (RecursionError("maximum depth"), 70, "internal error, please report it with the trace in "),
        (KeyError("x\n\x1b"), 70, "internal error, please report it with the trace in "),
    ],
)
def test_errors_are_one_line(
    error: BaseException,
    code: int,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(run_command, "run", failing(error))
    assert main(["run", "zoo:dscnn"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"dovetail: error: {text}")
    assert err.count("\n") == 1
    assert err[:-1].isprintable()
    traces = list(tmp_path.iterdir())
    assert len(traces) == (code == 70)
    for trace in traces:
        content = trace.read_text()
        assert str(trace) in err
        assert content.startswith("dovetail ")
        assert "Traceback" in content
        assert "raise error" in content
        assert os.stat(trace).st_mode & 0o077 == 0


def test_errors_are_short(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(run_command, "run", failing(DovetailError("x" * 100_000)))
    assert main(["run", "zoo:dscnn"]) == 2
    assert len(capsys.readouterr().err) < LONGEST + 100
