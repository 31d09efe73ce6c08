"""What a point of a sweep is: a configuration, or a system and what its plan makes fast."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, overload

from dovetail.flows.options.parameters import AXES, CLOCK, SETTINGS, changed, flat
from dovetail.flows.options.system_parameters import ACCELERATORS, INFERENCES, MODE, NEW, TOTAL_SRAM, counts_of
from dovetail.isa.common.sizes import format_bytes
from dovetail.isa.common.suggestion import nearest
from dovetail.isa.config.given import PARAMETERS, ConfigError, MemoryTiming, Parameter
from dovetail.isa.config.memory import Memory, memory_of, named_memory, table_of
from dovetail.isa.config.presets import PRESETS
from dovetail.isa.config.resolved import Config
from dovetail.isa.config.system import WINDOW, Part, System
from dovetail.sw.compiler.options import MODES

EACH = 2
"""Inferences of a plan with throughput, for each accelerator, unless they are given."""
SHAPE = re.compile(r"\d+(x\d+){1,2}")
"""A kind of accelerator that is named by its lanes."""
MEMORY_MODEL = SETTINGS["memory_model"]
TIMING = {name: p for name, p in PARAMETERS.items() if p.memory}
SYSTEM_PARAMETERS = {**NEW, "sram": PARAMETERS["sram"], MEMORY_MODEL.name: MEMORY_MODEL, **TIMING}
"""What tables of systems have."""
AXES_OF_SYSTEMS = (*SYSTEM_PARAMETERS, CLOCK.name)
"""Axes of a sweep of systems."""


@dataclass(frozen=True)
class Deployment:
    """A system and what its plan makes fast.

    ``accelerators``: their kinds, as a user names them; ``inferences`` of a plan, 0 in the base of a space, whose
    points have them.
    """

    system: System
    mode: str = MODES[0]
    inferences: int = 0
    accelerators: str = ""

    @property
    def configs(self) -> tuple[Config, ...]:
        """Of the accelerators, by their numbers."""
        return tuple(part.config for part in self.system.accelerators)

    @property
    def memory(self) -> Memory:
        """Behind the interconnect."""
        return self.system.memory

    @property
    def macs_per_cycle(self) -> int:
        """Multipliers of all accelerators."""
        return sum(config.macs_per_cycle for config in self.configs)

    @property
    def sram(self) -> int:
        """Bytes of an accelerator, of different ones the most."""
        return max(config.sram for config in self.configs)

    @property
    def total_sram(self) -> int:
        """Bytes of all accelerators."""
        return sum(config.sram for config in self.configs)

    @property
    def hash(self) -> int:
        """64-bit hash of everything but the memory's timing."""
        data = {name: value for name, value in self.to_dict().items() if name != "memory"}
        data["accelerators"] = [[name, f"{part.config.hash:016x}", at] for part, (name, _, at) in self._parts(data)]
        return int.from_bytes(hashlib.sha256(json.dumps(data, sort_keys=True).encode()).digest()[:8], "little")

    def _parts(self, data: Mapping[str, Any]) -> zip[tuple[Part, Any]]:
        return zip(self.system.accelerators, data["accelerators"], strict=True)

    def to_dict(self) -> dict[str, Any]:
        """All of it, in the terms of files."""
        system = {field.name: getattr(self.system, field.name) for field in fields(self.system)}
        system["accelerators"] = [
            [part.name, part.config.to_dict(), part.registers] for part in self.system.accelerators
        ]
        system["memory"] = table_of(self.memory)
        return {**system, MODE.name: self.mode, INFERENCES.name: self.inferences, "kinds": self.accelerators}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Deployment:
        """The inverse of :meth:`to_dict`. Raises ConfigError."""
        system = dict(data)
        mode, inferences, kinds = (system.pop(name) for name in (MODE.name, INFERENCES.name, "kinds"))
        parts = [Part(name, Config.from_dict(config), registers) for name, config, registers in system["accelerators"]]
        system |= {"accelerators": tuple(parts), "memory": memory_of(system["memory"])}
        return cls(System(**system), mode, inferences, kinds)


Design = Config | Deployment
"""What a point of a space is."""


def parameters_of(design: Design) -> dict[str, Any]:
    """Every parameter, by the names of :func:`columns_of`."""
    if isinstance(design, Config):
        return flat(design)
    widest = max(design.configs, key=lambda config: config.bus)
    memory = vars(widest.replace(memory=design.memory).like_fixed)
    own = {name: getattr(design, name) for name in (*NEW, "sram")}
    return own | {MEMORY_MODEL.name: label_of(design.memory)} | memory


def columns_of(base: Design) -> Mapping[str, Parameter]:
    """The parameters that tables of a space have."""
    return PARAMETERS if isinstance(base, Config) else SYSTEM_PARAMETERS


@overload
def changed_design(base: Config, changes: Mapping[str, Any]) -> Config: ...
@overload
def changed_design(base: Deployment, changes: Mapping[str, Any]) -> Deployment: ...
def changed_design(base: Design, changes: Mapping[str, Any]) -> Design:
    """``base`` with settings changed; what merely followed from the changed ones follows anew. Raises ConfigError."""
    if isinstance(base, Config):
        return changed(base, changes)
    system = base.system
    kinds = changes.get(ACCELERATORS.name, "")
    parts = _named(system, kinds) if kinds else system.accelerators
    sram = changes.get("sram")
    if total := changes.get(TOTAL_SRAM.name):
        if total % len(parts):
            raise ConfigError(
                f"{TOTAL_SRAM.name} must be a multiple of the number of accelerators, {len(parts)}, not"
                f" {format_bytes(total)}"
            )
        sram = total // len(parts)
    if sram:
        parts = tuple(replace(part, config=changed(part.config, {"sram": sram})) for part in parts)
    mode = changes.get(MODE.name, base.mode)
    count = changes.get(INFERENCES.name, base.inferences) or EACH * len(parts)
    system = replace(system, accelerators=parts, memory=_memory(system.memory, changes))
    return Deployment(system, mode, count if mode != MODES[0] else 1, kinds or kinds_in(system))


def label_of(memory: Memory) -> str:
    """The memory in a word."""
    return "fixed" if isinstance(memory, MemoryTiming) else memory.label


def _memory(memory: Memory, changes: Mapping[str, Any]) -> Memory:
    table = table_of(named_memory(changes["memory_model"]) if "memory_model" in changes else memory)
    return memory_of(table | {name: changes[name] for name in TIMING if name in changes})


def kinds_in(system: System) -> str:
    """The accelerators of a file as their lanes, or as their names where that does not tell different ones apart."""
    configs = [part.config for part in system.accelerators]
    shapes = [config.array.replace(" ", "") for config in configs]
    names = shapes if len(set(shapes)) == len(set(configs)) else [part.name for part in system.accelerators]
    return str(ACCELERATORS.kind.read("+".join(names)))


def _named(system: System, kinds: str) -> tuple[Part, ...]:
    """The accelerators that a text names."""
    parts: list[Part] = []
    for kind, count in counts_of(kinds):
        config = config_of_kind(system, kind)
        for n in range(count):
            name = kind if count == 1 else f"{kind}_{n + 1}"
            parts.append(Part(name, config, len(parts) * WINDOW))
    return tuple(parts)


def config_of_kind(system: System, kind: str) -> Config:
    """A kind of accelerator: a name of the system's file, lanes of its first accelerator, or a preset.

    Raises ConfigError.
    """
    names = {part.name: part.config for part in system.accelerators}
    if kind in names:
        return names[kind]
    if SHAPE.fullmatch(kind):
        lanes = SETTINGS["lanes"].parse(kind)
        return changed(system.accelerators[0].config, {"lanes": lanes})
    if kind in PRESETS:
        return Config.load(kind)
    known = (*names, *(name for name in PRESETS if not name.startswith("study")))
    raise ConfigError(
        f"accelerators must be lanes such as 8x8, names of the system's file ({', '.join(names)}) or presets, not"
        f" {kind!r}{nearest(kind, known)}"
    )


def check_axes(base: Design, axes: Mapping[str, Any]) -> None:
    """Raise ConfigError for axes that the points of a space do not have, and for kinds that nobody knows."""
    if isinstance(base, Config):
        for name in NEW:
            if name in axes:
                raise ConfigError(f"axes must be those of a configuration, not {name}, unless the base is a system")
        return
    for name in axes:
        if name not in AXES_OF_SYSTEMS and name in AXES:
            raise ConfigError(
                f"axes must be of the whole system ({', '.join(AXES_OF_SYSTEMS)}), not {name}: accelerators names"
                " configurations"
            )
    if {"sram", TOTAL_SRAM.name} <= axes.keys():
        raise ConfigError(f"give either sram, of each accelerator, or {TOTAL_SRAM.name}, not both")
    for kinds in axes.get(ACCELERATORS.name, ()):
        for kind, _ in counts_of(kinds):
            if not SHAPE.fullmatch(kind):
                config_of_kind(base.system, kind)
