"""Packages that add operations: those that break a rule are refused in a line, and leave nothing behind.

What a good one brings is tested in ``docs/examples/own_instruction/tests``.
"""

import re
from pathlib import Path

import pytest

from dovetail.hw.vector.unit import hardware_of
from dovetail.isa import extensions
from dovetail.isa.config.given import ConfigError
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import INSTRUCTIONS, Op, Stage

HEAD = """
from dovetail.isa.instructions.table import SCALING, Instruction, Op, Pass, Stage, Unit
from dovetail.isa.numerics.semantics import copied
from dovetail.isa.numerics.vector import VectorOperation

def row(code=0x90, name="TWICE", unit=Unit.VECTOR, doc="Twice.", stage=Stage("twice", 2, ""), compute=copied, **more):
    return Instruction(Op.new(code, name), unit, doc, stage=stage, compute=compute, **more)
"""


def package(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str) -> None:
    """A package with one module, as an installer leaves it."""
    (folder / f"{name}.py").write_text(HEAD + source)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{extensions.GROUP}]\n{name} = {name}:ROWS\n")
    monkeypatch.syspath_prepend(folder)


STAGE = "must have its semantics (compute), and a stage of its own with a latency of at least 1"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("ROWS = [row(0x41)]", "TWICE must have an opcode of 0x80 to 0xbf, not 0x41"),
        ("ROWS = [row(name='twice')]", "twice must have a name of upper-case letters, digits and underscores"),
        (
            "ROWS = [row(name='E_ADD')]",
            "E_ADD must have an opcode and a name of its own: E_ADD, 0x41, is of Dovetail",
        ),
        (
            "ROWS = [row(), row(name='THRICE')]",
            "THRICE must have an opcode and a name of its own: TWICE, 0x90, is of extension {name}",
        ),
        (
            "ROWS = [row(), row(0x91, 'THRICE', stage=Stage('twice', 3, ''))]",
            "THRICE must have a stage of its own: twice is the stage of TWICE",
        ),
        (
            "ROWS = [row(stage=Stage('direct', 1, ''))]",
            "TWICE must have a stage of its own: direct is the stage of ACT_LUT",
        ),
        ("ROWS = [row(unit=Unit.ARRAY)]", "TWICE must be an operation of the vector unit, without fields and scaling"),
        (
            "ROWS = [row(scaling=VectorOperation.ADD)]",
            "TWICE must be an operation of the vector unit, without fields and scaling",
        ),
        ("ROWS = [row(stage=Stage('twice', 0, ''))]", f"TWICE {STAGE}"),
        (
            "ROWS = [Instruction(Op.new(0x90, 'TWICE'), Unit.VECTOR, 'Twice.', stage=Stage('t', 1, ''))]",
            f"TWICE {STAGE}",
        ),
        (
            "ROWS = [row(feature='twice')]",
            "TWICE must need one of matmul, pooling, elementwise, activation, or nothing, not 'twice'",
        ),
        ("ROWS = [row(int32_input=True)]", "TWICE must need elementwise, as it is of int32"),
        ("ROWS = [row(looks_up=True)]", "TWICE must need activation, as it looks up"),
        (
            "ROWS = [row(looks_up=True, feature='activation', table_bytes=512)]",
            "TWICE must have a table of 256 bytes, or of a multiple of it if it has passes",
        ),
        (
            "ROWS = [row(passes=(Pass(),) * 5)]",
            "TWICE must have at most 4 passes, each with a wait of 0 to 255 cycles",
        ),
        (
            "ROWS = [row(passes=(Pass(wait=(0, 256)),))]",
            "TWICE must have at most 4 passes, each with a wait of 0 to 255 cycles",
        ),
        ("ROWS = [row(doc='')]", "TWICE must have a sentence that says what it does"),
        ("ROWS = []", "dovetail.instructions must be a list of instructions, not []"),
        ("ROWS = ['twice']", "dovetail.instructions must be a list of instructions, not 'twice'"),
        ("ROWS = [row(]", "{name}:ROWS cannot be imported: "),
        ("ROWS = [1 // 0]", "{name}:ROWS cannot be imported: {name}.py:8: ZeroDivisionError: "),
    ],
)
def test_refused(source: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "own_" + re.sub(r"\W", "_", tmp_path.name)
    package(tmp_path, monkeypatch, name, source)
    before = dict(INSTRUCTIONS), list(Op)
    with pytest.raises(ConfigError) as error:
        Config(extensions=(name,))
    assert str(error.value).startswith(f"extension {name}: {message.format(name=name)}")
    assert "\n" not in str(error.value)
    assert (INSTRUCTIONS, list(Op)) == before


def test_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, monkeypatch, "own_thing", "ROWS = [row()]")
    with pytest.raises(ConfigError, match=r"^extension 'own_thin' must be an installed package with an entry point"):
        Config(extensions=("own_thin",))
    monkeypatch.setattr(extensions, "entry_points", lambda group: ())
    with pytest.raises(ConfigError, match=r"with an entry point dovetail\.instructions; none is installed$"):
        Config(extensions=("own_thing",))


def test_names() -> None:
    with pytest.raises(ConfigError, match=r"^extensions must be a list of names, not 'x'$"):
        Config.from_dict({"extensions": "x"})
    assert "extensions" not in Config().to_dict()


def test_a_stage_needs_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage("twice", 2, "")
    with pytest.raises(ConfigError, match=r"^stage 'twice' must have hardware: a package gives it under dovetail\."):
        hardware_of(stage)
    monkeypatch.setattr("dovetail.hw.vector.unit.shares", lambda group: {"own": {"twice": object}})
    with pytest.raises(ConfigError, match=r"^stage 'twice' must be a VectorStage with the LATENCY 2 of its row$"):
        hardware_of(stage)
