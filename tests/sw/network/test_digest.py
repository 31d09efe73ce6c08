from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import pytest

from dovetail.sw.network.digest import digest


class Colour(Enum):
    RED = 1


@dataclass(frozen=True)
class Thing:
    size: int
    cache: list[Any] = field(default_factory=list, compare=False)


def test_equal_values_have_equal_digests() -> None:
    array = np.arange(6, dtype=np.int8).reshape(2, 3)
    assert digest(array, Thing(1), {"a": (1, None)}) == digest(array.copy("F"), Thing(1), {"a": [1, None]})
    assert digest(Thing(1, [object()])) == digest(Thing(1)), "what does not count when things are compared"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.zeros(4, np.int8), np.zeros(4, np.uint8)),
        (np.zeros((2, 2), np.int8), np.zeros(4, np.int8)),
        (np.zeros(4, np.int8), np.array([0, 0, 0, 1], np.int8)),
        (("ab", "c"), ("a", "bc")),
        (((1,), 2), ((1, 2),)),
        ({"a": 1}, {"b": 1}),
        (Thing(1), Thing(2)),
        (Colour.RED, "RED"),
        (1, True),
        (1, "1"),
    ],
)
def test_other_values_have_others(one: Any, other: Any) -> None:
    assert digest(one) != digest(other)


def test_what_has_no_bytes_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^value must be plain data, not generator$"):
        digest({"x": (n for n in range(3))})
