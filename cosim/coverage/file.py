"""Coverage as a file that can be merged with others, whatever seeds, configurations and kinds of runs they come from.

Functional bins mean the same for all accelerators and are added up. Lines and branches of the RTL belong to one
Verilog text: they are added up per design, by the hash of that text, which the file holds too.
"""

import base64
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dovetail.cosim.coverage.bins import Counts, all_bins, as_json
from dovetail.cosim.coverage.rtl import KINDS_OF_POINTS, Point, RtlCoverage, analyse

Key = tuple[str, str, tuple[int, ...], str, str]
"""Kind, file, lines, module and name of a point: what a point is without its count."""


@dataclass
class DesignCoverage:
    """Counts of the points of one design. ``label``: its configuration in a line."""

    label: str
    verilog: Mapping[str, str]
    points: Counter[Key] = field(default_factory=Counter)

    @property
    def digest(self) -> str:
        """Hash of the Verilog."""
        text = json.dumps(sorted(self.verilog.items()))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def add(self, points: Iterable[Point]) -> None:
        """Count points."""
        for point in points:
            self.points[point.kind, point.file, point.lines, point.module, point.name] += point.count

    def analysed(self) -> RtlCoverage:
        """Totals and holes."""
        return analyse([Point(*key[:4], count, key[4]) for key, count in self.points.items()], self.verilog)

    def to_json(self) -> dict[str, Any]:
        """As JSON has it; the Verilog is packed."""
        packed = base64.b64encode(zlib.compress(json.dumps(dict(self.verilog)).encode(), 9)).decode()
        points = [[kind, file, list(lines), module, name, n] for (kind, file, lines, module, name), n in self.items()]
        return {"label": self.label, "verilog": packed, "points": points}

    def items(self) -> list[tuple[Key, int]]:
        """Points with their counts, in a fixed order."""
        return sorted(self.points.items())

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "DesignCoverage":
        """What :meth:`to_json` wrote. Raises ValueError for anything else, and what reading another form raises."""
        unpacked = zlib.decompressobj().decompress(base64.b64decode(data["verilog"]), LIMIT)
        verilog = json.loads(unpacked)
        if not isinstance(verilog, dict) or not all(isinstance(text, str) for text in verilog.values()):
            raise ValueError("Verilog must be text by the name of its file")
        lengths = {file: len(text.splitlines()) for file, text in verilog.items()}
        design = DesignCoverage(str(data["label"]), verilog)
        for kind, file, lines, module, name, count in data["points"]:
            if kind not in KINDS_OF_POINTS or not isinstance(module, str) or not isinstance(name, str):
                raise ValueError(
                    f"a point must be a {', '.join(KINDS_OF_POINTS)} of a module, not {kind!r} of {module!r}"
                )
            if not all(type(line) is int and 0 < line <= lengths[file] for line in lines):
                raise ValueError(f"lines of a point must be those of {file!r}, not {lines!r}")
            design.points[kind, file, tuple(lines), module, name] += _count(count)
        return design


LIMIT = 1 << 28
"""Bytes of Verilog of a design, at most."""


@dataclass
class Coverage:
    """Functional counts, and designs by the hash of their Verilog."""

    functional: Counts = field(default_factory=Counter)
    designs: dict[str, DesignCoverage] = field(default_factory=dict)

    def add(self, design: DesignCoverage) -> None:
        """Take in the counts of a design."""
        mine = self.designs.setdefault(design.digest, DesignCoverage(design.label, design.verilog))
        mine.points.update(design.points)

    def __iadd__(self, other: "Coverage") -> "Coverage":
        self.functional.update(other.functional)
        for design in other.designs.values():
            self.add(design)
        return self

    def to_json(self) -> dict[str, Any]:
        """What :func:`load` reads."""
        designs = {digest: design.to_json() for digest, design in sorted(self.designs.items())}
        return {"functional": as_json(self.functional), "designs": designs}


def load(path: Path) -> Coverage:
    """Coverage that `dovetail coverage --output`, `dovetail fuzz --coverage` or a cocotb run wrote as JSON.

    Raises OSError, or ValueError for anything else; the text names the file.
    """
    try:
        data = json.loads(path.read_text())
        functional = data.get("functional", data)
        coverage = Coverage(_counts(functional["tables"]))
        for design in data.get("designs", {}).values():
            coverage.add(DesignCoverage.from_json(design))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, zlib.error) as error:
        raise ValueError(f"{path}: must be coverage as JSON, from fuzz, coverage or a bench: {error}") from None
    return coverage


def merged(paths: Sequence[Path]) -> Coverage:
    """The coverage of several files together. Raises as :func:`load` does."""
    total = Coverage()
    for path in paths:
        total += load(path)
    return total


def _counts(tables: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Counts:
    known = set(all_bins())
    counts: Counts = Counter()
    for table, rows in tables.items():
        for row, columns in rows.items():
            for column, count in columns.items():
                if (table, row, column) not in known:
                    raise ValueError(f"{table}, {row}, {column} is no bin of this version")
                counts[table, row, column] = _count(count)
    return counts


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"a count must be a natural number, not {value!s:.40}")
    return value
