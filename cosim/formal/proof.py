"""What a proof is: a harness, how it is proved, and the sentences that it consists of."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from amaranth.back import rtlil
from amaranth.lib import wiring

from dovetail.hw.common.elaboration import checked

TOP = "harness"
INVARIANT = "invariant: "
"""How sentences begin that k-induction needs and a reader does not."""
MODES = ("prove", "bmc")
CHECK = re.compile(r"cell \$check \$(\d+)\n((?:\s+parameter .*\n)+)")
PARAMETER = re.compile(r'parameter \\(FORMAT|FLAVOR) "(.*)"')


@dataclass(frozen=True)
class Proof:
    """A proof.

    Parameters
    ----------
    name: what it is called on the command line.
    block: the hardware, as a reader knows it.
    parameters: those of the instance that is proved.
    build: makes the harness.
    mode: ``prove`` is k-induction, for runs of any length; ``bmc`` covers the first ``depth`` cycles after reset.
    depth: k, or the cycles.
    cover: cycles within which every Cover must be reached.
    arbitrary: registers that do not start from their reset value but from any, as paths below the harness.
    slow: takes more than some seconds.
    """

    name: str
    block: str
    parameters: str
    build: Callable[[], wiring.Component]
    mode: str
    depth: int
    cover: int
    arbitrary: tuple[str, ...] = ()
    slow: bool = False

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, not {self.mode!r}")
        if self.depth < 1 or self.cover < 1:
            raise ValueError(f"depth and cover must be positive, not {self.depth} and {self.cover}")

    def rtlil(self) -> str:
        """The harness in Yosys' language; the same text for the same hardware."""
        with checked():
            text: str = rtlil.convert(self.build(), name=TOP, emit_src=False)
        return text


class Sentences:
    """The sentences in a harness's RTLIL, by what they are and by the number that Yosys gives them."""

    def __init__(self, text: str) -> None:
        self._found: dict[str, tuple[str, str]] = {}
        for match in CHECK.finditer(text):
            parameters = dict(PARAMETER.findall(match[2]))
            self._found[match[1]] = (parameters["FLAVOR"], parameters.get("FORMAT", ""))

    def __getitem__(self, number: str) -> str:
        return self._found[number][1]

    def _of(self, flavour: str) -> list[str]:
        return list(dict.fromkeys(text for kind, text in self._found.values() if kind == flavour))

    @cached_property
    def properties(self) -> list[str]:
        """What is proved, without invariants."""
        return [text for text in self._of("assert") if not text.startswith(INVARIANT)]

    @cached_property
    def invariants(self) -> list[str]:
        """What induction needs."""
        return [text for text in self._of("assert") if text.startswith(INVARIANT)]

    @cached_property
    def assumptions(self) -> list[str]:
        """What is assumed about the surroundings."""
        return self._of("assume")

    @cached_property
    def covers(self) -> list[str]:
        """What must be reachable."""
        return self._of("cover")
