"""The record of a build, for people, JSON, the store and the regression table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dovetail.flows.fpga.builder import Netlist, Options, Run, Target
from dovetail.flows.fpga.design.pll import MHZ
from dovetail.flows.fpga.reports import Placed
from dovetail.flows.fpga.tools import Tool
from dovetail.isa.config.resolved import Config


@dataclass(frozen=True)
class Build:
    """A design that was placed and routed.

    ``configs``: of the accelerators; ``memory``: the memory of the board design, in words; ``seeds``: MHz of the
    slowest clock by seed, 0 where a seed failed; ``seed``: the best; ``placed``: what that one gave; ``design``: hash
    of what was built, constraints and options included; ``tools``: versions by name.
    """

    configs: tuple[Config, ...]
    target: Target
    memory: str
    options: Options
    design: str
    tools: Mapping[str, str]
    seeds: Mapping[int, float]
    seed: int
    placed: Placed

    @classmethod
    def of(
        cls,
        configs: tuple[Config, ...],
        target: Target,
        memory: str,
        options: Options,
        tools: Mapping[str, Tool],
        netlist: Netlist,
        runs: list[Run],
        best: Run,
    ) -> Build:
        """The record of a build's best run."""
        assert best.placed is not None
        return cls(
            configs,
            target,
            memory,
            options,
            netlist.design,
            {name: tool.version for name, tool in tools.items()},
            {run.seed: run.fmax for run in runs},
            best.seed,
            best.placed,
        )

    @property
    def config(self) -> Config:
        """Of the accelerator, the first one if there are several."""
        return self.configs[0]

    @property
    def fmax(self) -> float:
        """MHz of the slowest clock."""
        return self.placed.slowest

    @property
    def met(self) -> bool:
        """Whether it is as fast as its clock."""
        return self.placed.met

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        board, part = self.target.board, self.target.board.part
        held = [
            {
                "config": {name: value for name, value in config.to_dict().items() if name != "memory"},
                "config_hash": f"{config.hash:016x}",
            }
            for config in self.configs
        ]
        return {
            **(held[0] if len(held) == 1 else {"accelerators": held}),
            "board": board.name,
            "part": part.name,
            "speed": part.speed,
            "memory": self.memory,
            "wanted_mhz": self.target.wanted / MHZ,
            "clock_mhz": self.target.clock / MHZ,
            "used": dict(self.placed.used),
            "available": dict(part.total),
            "fmax_mhz": dict(self.placed.fmax),
            "met": self.met,
            "seed": self.seed,
            "seeds": {str(seed): fmax for seed, fmax in self.seeds.items()},
            "critical_paths": [path.to_dict() for path in self.placed.paths],
            "design": self.design,
            "tools": dict(self.tools),
            "options": {
                "synthesis": [*board.synthesis, *self.options.synthesis],
                "placement": [*self.options.placement],
            },
        }
