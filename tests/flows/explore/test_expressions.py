"""Constraint expressions: what they may say, what they mean, and what is said of the others."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dovetail.flows.explore.space.expressions import ExpressionError, parse
from dovetail.flows.explore.space.metrics import METRICS
from dovetail.flows.options.parameters import flat
from dovetail.isa.config.resolved import Config

VALUES: dict[str, Any] = flat(Config(ic_lanes=8, oc_lanes=16, sram="512 KiB")) | {"cycles": 1000, "fps": 30.0}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("ic_lanes * oc_lanes <= 128", True),
        ("48 <= pe < 128", False),
        ("sram >= 512 KiB", True),
        ("sram > 0.5 * 1MiB", False),
        ("sram / pe == 4096 B and sram / pe > 4095B", True),
        ("sram == 1 GiB / 2048", True),
        ('depthwise == "native"', True),
        ("depthwise in ['none', 'emulated']", False),
        ("pe not in (64, 256)", True),
        ("matmul and not (cycles > 1000 or fps < 25)", True),
        ("matmul == True != activation", False),
        ("sram <= 1 MiB if pe > 64 else sram <= 64 KiB", True),
        ("max(ic_lanes, oc_lanes, 4) == 16 and min(ic_lanes, oc_lanes) == 8", True),
        ("abs(ic_lanes - oc_lanes) == 8 and log2(sram) == 19 and sqrt(oc_lanes) == 4", True),
        ("cycles // 300 == 3 and cycles % 300 == 100 and -cycles < +1", True),
        ("cycles / (pe - 128) > 1", False),  # a division by zero keeps nothing
        ("utilisation > 0", False),  # nobody knows it
        ("  pe == 128 ", True),
    ],
)
def test_meaning(text: str, holds: bool) -> None:
    assert parse(text).holds(VALUES) is holds
    assert (parse(text).violation(VALUES) == 0) is holds


def test_names() -> None:
    assert parse("max(pe, 4) <= 64").names == {"pe"}
    assert not parse("sram > 1 MiB and lut < 9").needs_cost
    assert parse("sram > cycles").needs_cost
    assert not set(METRICS) & {"min", "max", "abs", "sqrt", "log2"}


@pytest.mark.parametrize(
    ("text", "violation"),
    [
        ("cycles <= 800", 0.2),
        ("4000 < cycles", 0.75),
        ("fps >= 60", 0.5),
        ("cycles < 1000", 1e-9),
        ('dataflow == "input"', 1.0),
        ("cycles < 800 and fps > 60", 0.7),
        ("cycles < 800 or fps > 60", 1.0),
        ("48 <= pe <= 64", 0.5),
        ("0 * fps > 0 * cycles", 1.0),
        ("fps > 1" + "0" * 400, 1.0),
        ("fps * 1e999 - 1e999 > 1", 1.0),
    ],
)
def test_violation(text: str, violation: float) -> None:
    assert parse(text).violation(VALUES) == pytest.approx(violation)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pe <=", '`pe <=` must be a comparison such as "pe <= 256" or "sram / pe >= 1 KiB"'),
        ("pe = 64", '`pe = 64` must be a comparison such as "pe <= 256" or "sram / pe >= 1 KiB"'),
        ("pe <" + "9" * 5000 + " GiB", "`pe <999"),
        ("-" * 2000 + "pe < 9", "`-----"),
        ("", '`` must be a comparison such as "pe <= 256" or "sram / pe >= 1 KiB"'),
        ("pe + 1", '`pe + 1` must be a comparison such as "lut <= 60000", not a number'),
        ("1 < 2", "`1 < 2` must name a parameter or a metric; it is the same for every configuration"),
        ("ic_lane < 8", '`ic_lane < 8`: "ic_lane" must be a parameter or a metric; did you mean "ic_lanes"?'),
        ("lanes == 8", "`lanes == 8`: lanes is several numbers; write ic_lanes, oc_lanes and"),
        ("depthwise == native", '`depthwise == native`: the text native must be in quotes: "native"'),
        (
            'depthwise == "nativ"',
            '`depthwise == "nativ"`: depthwise must be one of none, emulated, native, not "nativ"',
        ),
        (
            'dataflow in ["left"]',
            '`dataflow in ["left"]`: dataflow must be one of input, output, mixed, balanced, not "left"',
        ),
        ('sram > "512 KiB"', "`sram > \"512 KiB\"`: `sram` is a number, but `'512 KiB'` is a text"),
        ("depthwise < depthwise", "`depthwise < depthwise`: only numbers have an order, but `depthwise` is a text"),
        ("matmul > 1", "`matmul > 1`: `matmul` is a truth value, but `1` is a number"),
        ("matmul == true", "`matmul == true`: write True for true, or the parameter by itself"),
        ("matmul + 1 > 0", "`matmul + 1 > 0`: arithmetic must have numbers, but `matmul` is a truth value"),
        ("pe and sram > 1", "`pe and sram > 1`: and must have comparisons, but `pe` is a number"),
        ("not pe == (1 if pe else 2)", "`not pe == (1 if pe else 2)`: if must have comparisons, but `pe` is a number"),
        ("(1 if matmul else 'a') == 1", "`(1 if matmul else 'a') == 1`: both results of `1 if matmul else 'a'` must"),
        ("pe in 8", "`pe in 8`: in must be followed by a list such as [8, 16], not `8`"),
        ("pe in [8, 'a']", "`pe in [8, 'a']`: `pe` is a number, but `'a'` is not"),
        ("pe is 8", "`pe is 8`: values must be compared with == or !=, not is"),
        ("pe ** 2 < 9", "`pe ** 2 < 9`: arithmetic must be one of + - * / // %, not `pe ** 2`"),
        ("~pe < 9", "`~pe < 9`: arithmetic must be one of + - * / // %, not `~pe`"),
        ("pe < 9j", "`pe < 9j`: values must be numbers, texts, True or False, not 9j"),
        ("max(pe) < 9", "`max(pe) < 9`: max must have two numbers or more"),
        ("abs(pe, 1) < 9", "`abs(pe, 1) < 9`: abs must have one number"),
        ("pow(pe, 2) < 9", "`pow(pe, 2) < 9`: calls must be of min, max, abs, sqrt, log2, not `pow(pe, 2)`"),
        (
            "pe.real < 9",
            '`pe.real < 9`: "pe" must be a network',
        ),
        ("f'{pe}' == 'a'", "`f'{pe}' == 'a'`: an expression may hold numbers, texts, names, arithmetic, comparisons, "),
        ("(lambda: pe)() < 9", "`(lambda: pe)() < 9`: calls must be of"),
        ("[pe for pe in [1]] == 1", "`[pe for pe in [1]] == 1`: an expression may hold"),
        ("__import__('os').system('true') == 0", "`__import__('os').system('true') == 0`: calls must be of"),
        ("(" * 300 + "pe" + ")" * 300 + " < 1", "`(((("),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match="^" + re.escape(message)):
        parse(text)
