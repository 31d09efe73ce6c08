"""The operations in programs: stages against semantics, model against RTL, and everything that is made of the rows."""

import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from amaranth.sim import Simulator
from own_instruction.hardware import STAGES
from own_instruction.instructions import BIT_AND, BIT_OR, BIT_XOR, PRELU

from dovetail.cosim.compare.fuzz import Case
from dovetail.cosim.compare.lockstep import Lockstep
from dovetail.flows import cli
from dovetail.isa.config.resolved import Config
from dovetail.isa.generate.cheader import cheader
from dovetail.isa.generate.manual import manual
from dovetail.isa.instructions.assembler import assemble, disassemble
from dovetail.isa.instructions.checks import View, has
from dovetail.isa.instructions.table import INSTRUCTIONS, REGISTERS, Cause, Op, Unit, pack
from dovetail.isa.timing.run import time_program
from dovetail.sw.random.programs.configurations import WHOLE
from dovetail.sw.random.programs.legal import legal_program
from dovetail.sw.random.programs.vector import vector_registers

NAME = "own_instruction"
CONFIG = WHOLE.replace(extensions=(NAME,))
OWN = [PRELU, BIT_AND, BIT_OR, BIT_XOR]
VECTOR = REGISTERS[Unit.VECTOR]

Bytes = npt.NDArray[np.int8]


def simulated(op: Op, registers: dict[str, int], a: Bytes, b: Bytes) -> Bytes:
    """What the operation's stage makes of rows of operands, [rows, lanes]."""
    dut = STAGES[INSTRUCTIONS[op].stage.name](CONFIG.replace(vector_lanes=a.shape[1]))
    rows: list[bytes] = []

    async def bench(ctx: Any) -> None:
        for name, register in VECTOR.items():
            ctx.set(dut.regs.as_value().word_select(register.index, 32), registers[name])
        ctx.set(dut.operation, int(op))
        await ctx.tick().repeat(2)
        for row in range(len(a) + dut.LATENCY):
            if row < len(a):
                ctx.set(dut.a, int.from_bytes(a[row].tobytes(), "little"))
                ctx.set(dut.b, int.from_bytes(b[row].tobytes(), "little"))
            await ctx.tick()
            rows.append(ctx.get(dut.result).to_bytes(4 * a.shape[1], "little")[: a.shape[1]])

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    return np.frombuffer(b"".join(rows[dut.LATENCY - 1 : -1]), np.int8).reshape(a.shape)


def registers_of(seed: int, **changes: int) -> dict[str, int]:
    return vector_registers(random.Random(seed), CONFIG, PRELU) | changes


@pytest.mark.parametrize("op", [BIT_AND, BIT_OR, BIT_XOR])
def test_bits_of_every_pair(op: Op) -> None:
    a, b = (side.astype(np.uint8).view(np.int8).reshape(-1, 16) for side in np.divmod(np.arange(1 << 16), 256))
    expected = {BIT_AND: a & b, BIT_OR: a | b, BIT_XOR: a ^ b}[op]
    row = INSTRUCTIONS[op]
    assert np.array_equal(row.compute(a, b, row.parameters(View(Unit.VECTOR, [0] * len(VECTOR)))), expected)
    assert np.array_equal(simulated(op, registers_of(0), a, b), expected)


@pytest.mark.parametrize("rounding", [0, 1])
def test_slopes(rounding: int) -> None:
    """Random registers, then some at the borders of shifts and multipliers."""
    rng = np.random.default_rng(rounding)
    borders = [
        {"SHIFTS": pack(Unit.VECTOR, "SHIFTS", a=a, b=0, out=out), "A_MULT": mult, "OUT_MULT": mult}
        for a, out, mult in ((7, 7, 1 << 23), (31, 8, 1 << 30), (-32, -32, (1 << 31) - 1), (0, -1, 0), (1, -8, 1 << 30))
    ]
    kept = 0
    for seed, changes in enumerate([{}, {}, {}, *borders]):
        registers = registers_of(seed, **changes)
        registers["MODE"] = pack(Unit.VECTOR, "MODE", rounding=rounding, average=0, requantise=0, subtract=0)
        a, b = rng.integers(-128, 128, (2, 120, 4)).astype(np.int8)
        row = INSTRUCTIONS[PRELU]
        expected = row.compute(a, b, row.parameters(View(Unit.VECTOR, [registers[name] for name in VECTOR])))
        assert np.array_equal(simulated(PRELU, registers, a, b), expected), registers
        kept += len(np.unique(expected))
    assert kept > 100, "most results must not be clamped"


def prelu_on_integers(a: int, b: int, za: int, zb: int, zy: int, slope: float) -> int:
    """With multipliers 1 and ``slope``: what a person would write down."""
    value = float(a - za) if a >= za else slope * (a - za) * (b - zb)
    return int(np.clip(np.rint(value) + zy, -128, 127))


def test_a_power_of_two_by_hand() -> None:
    row = INSTRUCTIONS[PRELU]
    values = dict.fromkeys(VECTOR, 0) | {
        "MODE": 1,
        "QUANT": pack(Unit.VECTOR, "QUANT", zero_in=3, zero_out=-5, lo=-128, hi=127),
        "B_ZERO": 7,
        "A_MULT": 1 << 23,
        "OUT_MULT": 1 << 23,
        "SHIFTS": pack(Unit.VECTOR, "SHIFTS", a=1, b=0, out=-5),
    }
    a, b = (side.astype(np.uint8).view(np.int8) for side in np.divmod(np.arange(1 << 16), 256))
    got = row.compute(a, b, row.parameters(View(Unit.VECTOR, list(values.values()))))
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    assert got.tolist() == [prelu_on_integers(x, y, 3, 7, -5, 2.0**-6) for x, y in pairs]


def test_the_rows_are_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert all(f"| `{op.name}` | `0x{op:02x}` |" in manual() for op in OWN)
    assert all(f"OP_{op.name} " in cheader() for op in OWN)
    text = "prelu\nbit_and\nbit_or\nbit_xor\n"
    words = assemble(text)
    assert words == [0x80, 0x81, 0x82, 0x83] and disassemble(words).replace(" ", "") == text.replace(" ", "")
    assert cli.main(["--with", NAME, "area"]) == 0
    assert f"extension {NAME}: its stages are not counted" in capsys.readouterr().out


def test_only_an_accelerator_with_the_extension_knows_the_opcode() -> None:
    for op in OWN:
        assert has(CONFIG, op) and not has(WHOLE, op)
        fault = time_program(WHOLE, [int(op), int(Op.END)]).fault
        assert fault is not None and fault.cause == Cause.OPCODE


def test_the_configuration_names_it() -> None:
    assert CONFIG.hash != WHOLE.hash and CONFIG != WHOLE
    assert Config.from_toml(CONFIG.to_toml()) == CONFIG
    assert elsewhere(CONFIG, "hash") == str(CONFIG.hash)


def test_another_process_knows_the_opcode() -> None:
    assert elsewhere(PRELU, "name") == "PRELU"


def elsewhere(thing: Any, attribute: str) -> str:
    """An attribute of what another process makes of a pickled thing."""
    script = f"import pickle, sys; print(pickle.load(sys.stdin.buffer).{attribute})"
    done = subprocess.run([sys.executable, "-c", script], input=pickle.dumps(thing), capture_output=True, check=True)
    return done.stdout.decode().strip()


def test_without_other_features() -> None:
    only = WHOLE.replace(pooling=False, elementwise=False, activation=False, extensions=(NAME,))
    assert only.vector and [op.name for op in INSTRUCTIONS if has(only, op)][-5:] == ["MOV", *(op.name for op in OWN)]


@pytest.mark.slow
@pytest.mark.parametrize("features", [True, False], ids=["all", "alone"])
def test_rtl_equals_model(features: bool, tmp_path: Path) -> None:
    """Bytes, cycles and timeline of random programs."""
    config = CONFIG.replace(**dict.fromkeys(("pooling", "elementwise", "activation"), features))
    pair = Lockstep(config, cache=tmp_path)
    operations = 0
    for seed in range(25):
        program = legal_program(random.Random(seed), config, count=20, only=OWN)
        comparison = Case(program, seed + 1).run(pair)
        assert comparison.equal, f"seed {seed}: {comparison.first_difference}"
        operations += sum(word & 0xFF in OWN for word in program.words)
    assert operations > 400
