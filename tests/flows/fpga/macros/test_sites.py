"""What nextpnr is asked about the sites of a part, and its answer."""

import pytest

from dovetail.flows.fpga.macros.sites import Sites, place_of, question

PIN = {"type": "TRELLIS_IO", "parameters": {"DIR": "INPUT"}, "attributes": {}, "connections": {"B": [2], "O": [3]}}
MODULE = {
    "attributes": {"top": "1"},
    "ports": {"rx": {"direction": "input", "bits": [2]}},
    "cells": {"pin": PIN, "lut": {"type": "LUT4", "connections": {"A": [3]}}},
}


def test_a_full_part_with_the_pins_of_the_design() -> None:
    asked = question(MODULE, {"dsp": 3, "bram": 2, "lut": 1000})
    assert [cell["type"] for cell in asked["cells"].values()] == ["MULT18X18D"] * 3 + ["DP16KD"] * 2 + ["TRELLIS_IO"]
    assert asked["cells"]["pin"]["connections"] == {"B": [2]} and asked["ports"] == MODULE["ports"]
    for n, cell in enumerate(asked["cells"].values()):
        cell["attributes"]["NEXTPNR_BEL"] = f"X{9 - n}/Y4/SITE"
    found = Sites.of(asked)
    assert found.macros == {"MULT18X18D": [f"X{n}/Y4/SITE" for n in (7, 8, 9)], "DP16KD": ["X5/Y4/SITE", "X6/Y4/SITE"]}
    assert found.pads == {"pin": "X4/Y4/SITE"}


def test_column_and_row() -> None:
    assert place_of("X118/Y34/MULT18_4") == (118, 34)
    with pytest.raises(ValueError, match="must begin with its column and row"):
        place_of("MULT18_4")
