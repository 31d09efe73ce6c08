"""A system: accelerators, the interconnect that joins them to one memory, and where the host sees them."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dovetail.isa.common.sizes import format_bytes
from dovetail.isa.common.suggestion import nearest
from dovetail.isa.common.toml import parse_toml
from dovetail.isa.config.given import BUS_WIDTHS, SIZE, ConfigError, MemoryTiming
from dovetail.isa.config.memory import Memory, memory_of
from dovetail.isa.config.resolved import Config
from dovetail.isa.host import ADDRESS_BITS
from dovetail.isa.timing.memory import ADDRESS_SPACE

MAX_ACCELERATORS = 16
WINDOW = 1 << ADDRESS_BITS
"""Bytes of an accelerator's registers in the host's address space."""
DEFAULT_MEMORY = 64 << 20
DEFAULT_REACTION = 100
MAX_REACTION = 1 << 20
PARTS = ("accelerators", "interconnect", "memory", "host")
"""Tables of a system's file."""


@dataclass(frozen=True)
class Part:
    """An accelerator of a system; its registers begin at ``registers`` on the host's port."""

    name: str
    config: Config
    registers: int


@dataclass(frozen=True)
class System:
    """Accelerators before one memory.

    Parameters
    ----------
    accelerators: 1..16 parts with different names; an accelerator's place is its number, which is its id on the bus.
        Their registers are multiples of 4 KiB that do not overlap.
    memory: timing of system memory, the same for all. What a part's configuration says of it does not count.
    memory_bytes: size of system memory, from address 0 on; a multiple of 4096.
    bus: data bits of memory; that of the widest accelerator if None.
    reaction: cycles from the one in which the host could begin to start a program to the one in which it does,
        1..2^20 (:mod:`dovetail.isa.timing.jobs`).

    Raises
    ------
    ConfigError
        When a parameter breaks its rule.
    """

    accelerators: tuple[Part, ...]
    memory: Memory = field(default_factory=MemoryTiming)
    memory_bytes: int = DEFAULT_MEMORY
    bus: int | None = None
    reaction: int = DEFAULT_REACTION

    def __post_init__(self) -> None:
        if not 1 <= len(self.accelerators) <= MAX_ACCELERATORS:
            raise ConfigError(f"accelerators must be 1..{MAX_ACCELERATORS}, not {len(self.accelerators)}")
        taken: dict[int, str] = {}
        for part in self.accelerators:
            where = f"accelerators.{part.name}: registers"
            if part.registers % WINDOW or not 0 <= part.registers < ADDRESS_SPACE:
                raise ConfigError(
                    f"{where} must be a multiple of {format_bytes(WINDOW)} below {format_bytes(ADDRESS_SPACE)},"
                    f" not {part.registers:#x}"
                )
            if part.registers in taken:
                raise ConfigError(f"{where} must not overlap those of {taken[part.registers]}, not {part.registers:#x}")
            taken[part.registers] = part.name
        names = [part.name for part in self.accelerators]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"accelerators must have different names, not {name!r} twice")
        if self.memory_bytes % 4096 or not 4096 <= self.memory_bytes <= ADDRESS_SPACE:
            raise ConfigError(
                f"memory: size must be a multiple of 4 KiB, 4 KiB..{format_bytes(ADDRESS_SPACE)},"
                f" not {self.memory_bytes}"
            )
        widest = max(part.config.bus for part in self.accelerators)
        if self.bus is not None and (self.bus not in BUS_WIDTHS or self.bus < widest):
            wide = ", ".join(str(bus) for bus in BUS_WIDTHS if bus >= widest)
            raise ConfigError(
                f"interconnect: bus must be one of {wide}, as the widest accelerator has {widest}, not {self.bus}"
            )

        if isinstance(self.reaction, bool) or self.reaction not in range(1, MAX_REACTION + 1):
            raise ConfigError(f"host: reaction must be 1..{MAX_REACTION} cycles, not {self.reaction!r}")

    @property
    def memory_bus(self) -> int:
        """Data bits of memory."""
        return max(part.config.bus for part in self.accelerators) if self.bus is None else self.bus

    @property
    def numbers(self) -> dict[str, int]:
        """The number of each accelerator, by its name."""
        return {part.name: number for number, part in enumerate(self.accelerators)}

    def __getitem__(self, name: str) -> Part:
        """The accelerator of a name. Raises :class:`ConfigError`."""
        for part in self.accelerators:
            if part.name == name:
                return part
        names = [part.name for part in self.accelerators]
        raise ConfigError(f"accelerator must be one of {', '.join(names)}, not {name!r}{nearest(name, names)}")

    @classmethod
    def from_toml(cls, text: str, folder: Path = Path()) -> "System":
        """Parse TOML text; files of configurations are looked for from ``folder`` on. Raises :class:`ConfigError`."""
        try:
            tables = parse_toml(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"system is not TOML: {error}") from None
        _check_names("system", tables, PARTS)
        for name in PARTS:
            if not isinstance(tables.get(name, {}), dict):
                raise ConfigError(f"{name} must be a table, not {tables[name]!r}")
        accelerators = tables.get("accelerators", {})
        parts = tuple(_part(name, given, n, folder) for n, (name, given) in enumerate(accelerators.items()))
        interconnect, memory, host = (dict(tables.get(name, {})) for name in PARTS[1:])
        _check_names("interconnect", interconnect, ("bus",))
        _check_names("host", host, ("reaction",))
        size = memory.pop("size", DEFAULT_MEMORY)
        return cls(
            parts, memory_of(memory), _read_size(size), interconnect.get("bus"), host.get("reaction", DEFAULT_REACTION)
        )

    @classmethod
    def load(cls, path: str | Path) -> "System":
        """The system of a TOML file. Raises :class:`ConfigError`."""
        path = Path(path)
        if not path.is_file():
            raise ConfigError(f"{path} must be the TOML file of a system; there is no such file")
        try:
            return cls.from_toml(path.read_text(encoding="utf-8"), path.parent)
        except (ConfigError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: {error}") from None


def _part(name: str, given: Any, number: int, folder: Path) -> Part:
    """An accelerator of a file: its table, or the name of its configuration alone."""
    table = {"config": given} if isinstance(given, str) else given
    where = f"accelerators.{name}"
    if not isinstance(table, dict) or not isinstance(table.get("config"), str):
        raise ConfigError(f'{where} must be a table with config = "a preset or a TOML file", not {given!r}')
    _check_names(where, table, ("config", "registers"))
    registers = table.get("registers", number * WINDOW)
    if isinstance(registers, bool) or not isinstance(registers, int):
        raise ConfigError(f"{where}: registers must be an address, not {registers!r}")
    beside = folder / table["config"]
    try:
        config = Config.load(beside if beside.is_file() else table["config"])
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    return Part(name, config, registers)


def _check_names(where: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Raises :class:`ConfigError` for the first key that is not known."""
    for name in given:
        if name not in known:
            raise ConfigError(f'{where}: "{name}" must be a name of its parts{nearest(name, known)}')


def _read_size(value: Any) -> int:
    try:
        return int(SIZE.read(value))
    except ValueError as error:
        raise ConfigError(f"memory: size {error}") from None


def configs_of(design: Config | System) -> tuple[Config, ...]:
    """Of an accelerator, or of those of a system by their numbers."""
    return tuple(part.config for part in design.accelerators) if isinstance(design, System) else (design,)
