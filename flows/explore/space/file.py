"""Space files: a `Space` as TOML. Errors name the line."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from dovetail.flows.explore.space import toml_lines
from dovetail.flows.explore.space.deployment import SYSTEM_PARAMETERS, Deployment, Design
from dovetail.flows.explore.space.design_space import (
    HOSTS,
    METHODS,
    PART_NAMES,
    SAMPLERS,
    SCENARIOS,
    WEIGHTS,
    Plan,
    Space,
    Workload,
    usual_goals,
)
from dovetail.flows.explore.space.expressions import ExpressionError, parse
from dovetail.flows.explore.space.near_miss import check
from dovetail.flows.options.parameters import AXES, CLOCK, SETTINGS, changed, values_between
from dovetail.flows.options.system_parameters import NEW
from dovetail.isa.common.suggestion import nearest
from dovetail.isa.common.toml import parse_toml
from dovetail.isa.config.given import INT, SIZE, ConfigError
from dovetail.isa.config.presets import PRESETS
from dovetail.isa.config.resolved import Config
from dovetail.isa.config.system import System
from dovetail.sw.analysis.cost.energy import TABLES as ENERGY_TABLES
from dovetail.sw.analysis.cost.energy import load_table
from dovetail.sw.compiler.options import EFFORTS, TILINGS
from dovetail.sw.compiler.partition.host_cost import HostCost, default_host, load_host_cost
from dovetail.sw.errors import DovetailError

TABLES = ("network", "base", "axes", "metrics", "goals", "compile", "search")
GOALS = ("objectives", "constraints", "part", "scenario", "clock", "energy_table", "host")
FLAGS = (False, True)
ZOO = "zoo:"
NEEDS = {
    "points": ("random", "optuna", "narrow"),
    "seed": ("random", "optuna"),
    "sampler": ("optuna",),
    "storage": ("optuna",),
    "study": ("optuna",),
}
"""Keys of ``[search]`` -> the methods that take them."""
DEPENDENT = ("lanes", "stripe", "kernel_rows", "requant_lanes", "banks")
"""Settings whose limits follow from others."""

Place = toml_lines.Path


class SpaceError(DovetailError):
    """A space file breaks a rule: ``FILE:LINE: what, the rule and the way out``."""


def load(path: str | Path) -> Space:
    """The space of a file. Networks and tables are looked for from its folder. Raises SpaceError, or OSError."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
    except UnicodeDecodeError as error:
        raise SpaceError(f"{path}: must be text in UTF-8; byte {error.start} is not") from None
    return read(text, str(path), Path(path).parent)


def read(text: str, name: str, folder: Path) -> Space:
    """The space of a text. ``name``: how errors call it. Raises SpaceError."""
    try:
        data = parse_toml(text)
    except tomllib.TOMLDecodeError as error:
        raise SpaceError(_syntax(name, text, str(error))) from None
    return _Reader(name, data, toml_lines.lines_of(text), folder).space()


def _syntax(name: str, text: str, message: str) -> str:
    found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", message, re.DOTALL)
    if found:
        return f"{name}:{found[2]}: must be TOML: {found[1]} (column {found[3]})"
    return (
        f"{name}:{len(text.rstrip().splitlines()) or 1}: must be TOML: {message.removesuffix(' (at end of document)')}"
    )


class _Reader:
    """Reads the tables one by one; every error has a place in the text."""

    def __init__(self, name: str, data: dict[str, Any], lines: Mapping[Place, int], folder: Path) -> None:
        self.name, self.data, self.lines, self.folder = name, data, lines, folder

    def error(self, place: Place, text: str) -> SpaceError:
        """An error at a place of the file, or at the nearest that is written there."""
        while place not in self.lines:
            place = place[:-1]
        return SpaceError(f"{self.name}:{self.lines[place]}: {text}")

    @contextmanager
    def at(self, place: Place, before: str = "") -> Iterator[None]:
        """Errors raised within get the place, and the words ``before``."""
        try:
            yield
        except SpaceError:
            raise
        except (DovetailError, ConfigError, ValueError) as error:
            raise self.error(place, f"{before}{error}") from None

    def space(self) -> Space:
        """The whole file."""
        self.known((), self.data, TABLES, "a table")
        base = self.base()
        axes, goals, plan = self.axes(base), self.table("goals"), self.plan()
        self.known(("goals",), goals, GOALS, "a key of [goals]")
        if "clock" in goals and "clock" in axes:
            raise self.error(("goals", "clock"), "clock must be an axis or a goal, not both; leave one out")
        compiler = self.table("compile")
        self.known(("compile",), compiler, ("effort", "tiling", "keep_weights", "host_cost"), "a key of [compile]")
        space = self.with_metrics(
            Space(
                workloads=self.workloads(),
                base=base,
                axes=axes,
                clock=self.clock(goals),
                tiling=self.choice(("compile", "tiling"), compiler.get("tiling", TILINGS[0]), TILINGS),
                effort=self.choice(("compile", "effort"), compiler.get("effort", EFFORTS[0]), EFFORTS),
                keep_weights=self.choice(("compile", "keep_weights"), compiler.get("keep_weights", False), FLAGS),
                energy_table=self.energy_table(goals),
                host=self.choice(("goals", "host"), goals.get("host", HOSTS[0]), HOSTS),
                search=plan,
                host_cost=self.host_cost(compiler),
                part=self.choice(("goals", "part"), goals["part"], PART_NAMES) if "part" in goals else "",
                **usual_goals(base, axes),
            )
        )
        if "objectives" in goals:
            space = self.with_objectives(space, goals["objectives"])
        if "constraints" in goals:
            space = replace(space, constraints=self.constraints(space, goals["constraints"]))
        if "scenario" in goals:
            space = self.with_scenario(space, goals["scenario"])
        with self.at(("goals", "constraints")):
            check(space)
        return space

    def host_cost(self, compiler: Mapping[str, Any]) -> HostCost:
        """The table that a file names, read here: what the store keeps is what it says."""
        place = ("compile", "host_cost")
        if "host_cost" not in compiler:
            return default_host()
        with self.at(place):
            return load_host_cost(self.file(place, compiler["host_cost"]))

    # --- values of any kind -------------------------------------------------------------------------------------

    def known(self, place: Place, table: Mapping[str, Any], names: tuple[str, ...], what: str) -> None:
        """Refuse keys that nobody reads."""
        for key in table:
            if key not in names:
                raise self.error((*place, key), f'"{key}" must be {what}{nearest(key, names)}')

    def table(self, name: str) -> Mapping[str, Any]:
        """A table of the top, or nothing where it is left out."""
        value = self.data.get(name, {})
        if not isinstance(value, dict):
            raise self.error((name,), f"{name} must be a table; write [{name}]")
        return value

    def text(self, place: Place, value: Any) -> str:
        if not isinstance(value, str) or not value:
            name = next(key for key in reversed(place) if isinstance(key, str))
            raise self.error(place, f"{name} must be a text in quotes, not {_shown(value)}")
        return value

    def whole(self, place: Place, value: Any, least: int) -> int:
        if type(value) is not int or not least <= value < 1 << 31:
            raise self.error(place, f"{place[-1]} must be an integer {least}..{(1 << 31) - 1}, not {_shown(value)}")
        return value

    def number(self, place: Place, value: Any, limits: tuple[float, float], rule: str) -> float:
        if type(value) not in (int, float) or not limits[0] <= value <= limits[1]:
            raise self.error(place, f"{place[-1]} must be {rule}, {limits[0]:g} to {limits[1]:g}, not {_shown(value)}")
        return float(value)

    def choice(self, place: Place, value: Any, choices: tuple[Any, ...]) -> Any:
        if value not in choices or type(value) is not type(choices[0]):
            shown = (_shown(choice) if isinstance(choice, bool) else str(choice) for choice in choices)
            raise self.error(place, f"{place[-1]} must be one of {', '.join(shown)}, not {_shown(value)}")
        return value

    def list(self, place: Place, value: Any, example: str) -> list[Any]:
        """A list that is not empty and has no duplicates."""
        if not isinstance(value, list):
            raise self.error(place, f"{place[-1]} must be a list such as {example}, not {_shown(value)}")
        if not value:
            raise self.error(place, f"{place[-1]} must have at least one value; or leave it out")
        seen = set()
        for index, item in enumerate(map(_shown, value)):
            if item in seen:
                raise self.error((*place, index), f"{place[-1]}: {item} must be listed only once")
            seen.add(item)
        return value

    def file(self, place: Place, value: Any, rather: str = "") -> str:
        """A file, looked for from the space file's folder; ``rather``: what else it could be."""
        path = os.path.normpath(self.folder / self.text(place, value))
        if not os.path.isfile(path):
            raise self.error(
                place, f"{place[-1]} must be {rather}a file, relative to the space file; there is no {path}"
            )
        return path

    # --- tables -------------------------------------------------------------------------------------------------

    def workloads(self) -> tuple[Workload, ...]:
        """The networks."""
        entries = self.data.get("network", [])
        if isinstance(entries, dict):
            raise self.error(
                ("network",), "network must be written [[network]], with two brackets: there may be several"
            )
        if not isinstance(entries, list) or not entries:
            raise self.error(("network",), 'a space must have a network; write [[network]] and source = "FILE" below')
        return tuple(self.workload(("network", index), entry) for index, entry in enumerate(entries))

    def workload(self, place: Place, entry: Any) -> Workload:
        if not isinstance(entry, dict):
            raise self.error(place, f"network must be written [[network]], not {_shown(entry)}")
        self.known(place, entry, ("source", "weight", "shape", "name"), "a key of [[network]]")
        if "source" not in entry:
            raise self.error(place, 'network must have a source = "FILE", or "zoo:NAME"')
        weight = self.number((*place, "weight"), entry.get("weight", 1.0), WEIGHTS, "a number")
        shapes = entry.get("shape", {})
        if not isinstance(shapes, dict):
            raise self.error(
                (*place, "shape"), f"shape must be a table such as {{ input = [1, 3, 8, 8] }}, not {_shown(shapes)}"
            )
        sizes = {name: self.sizes((*place, "shape", name), value) for name, value in shapes.items()}
        name = self.text((*place, "name"), entry["name"]) if "name" in entry else ""
        with self.at((*place, "name")):
            return Workload(self.source((*place, "source"), entry["source"]), weight, sizes, name)

    def source(self, place: Place, value: Any) -> str:
        if not self.text(place, value).startswith(ZOO):
            return self.file(place, value)
        from dovetail.sw.zoo.catalogue import builder  # it brings the ONNX library: not for reading files

        with self.at(place):
            builder(value.removeprefix(ZOO))
        return str(value)

    def sizes(self, place: Place, value: Any) -> tuple[int, ...]:
        if not isinstance(value, list) or not value or not all(type(n) is int and n > 0 for n in value):
            raise self.error(place, f"{place[-1]} must be a list of sizes such as [1, 3, 8, 8], not {_shown(value)}")
        return tuple(value)

    def base(self) -> Design:
        """The configuration or the system below the axes."""
        table = self.table("base")
        if "system" in table:
            return self.system(table)
        self.known(
            ("base",),
            table,
            ("preset", "file", "system", *SETTINGS),
            "a configuration parameter, preset, file or system",
        )
        if {"preset", "file"} <= set(table):
            raise self.error(("base", "file"), "base must have a preset or a file, not both; leave one out")
        start = Config()
        if "preset" in table:
            name = table["preset"]
            if not isinstance(name, str) or name not in PRESETS:
                raise self.error(
                    ("base", "preset"), f"preset {_shown(name)} must be known{nearest(str(name), tuple(PRESETS))}"
                )
            start = Config.load(name)
        if "file" in table:
            start = self.configuration(("base", "file"), table["file"])
        try:
            given = {name: self.value(("base", name), name, v) for name, v in table.items() if name in SETTINGS}
            return changed(start, given)
        except ConfigError as error:
            named = [name for name in table if str(error).startswith(f"{name} ")]
            raise self.error(("base", *named[:1]), str(error)) from None

    def system(self, table: Mapping[str, Any]) -> Deployment:
        """The system below the axes. What else the table gives are axes of one value: it may name accelerators."""
        self.known(("base",), table, ("system", *SYSTEM_PARAMETERS), "a parameter of a system, or system")
        place = ("base", "system")
        with self.at(place):
            return Deployment(System.load(self.file(place, table["system"])))

    def configuration(self, place: Place, value: Any) -> Config:
        with self.at(place):
            return Config.load(self.file(place, value))

    def axes(self, base: Design) -> dict[str, tuple[Any, ...]]:
        """What varies."""
        table = self.table("axes")
        names = tuple(AXES) if isinstance(base, Deployment) else (*SETTINGS, CLOCK.name)
        self.known(("axes",), table, names, "a configuration parameter")
        axes = {name: self.axis(("axes", name), name, value) for name, value in table.items()}
        if isinstance(base, Deployment):
            given = {name: v for name, v in self.table("base").items() if name != "system" and name not in axes}
            axes |= {name: (self.value(("base", name), name, value),) for name, value in given.items()}
        with self.at(("axes",), "axes: "):
            Space((), base if isinstance(base, Deployment) else Config(), axes)
        return axes

    def axis(self, place: Place, name: str, value: Any) -> tuple[Any, ...]:
        if isinstance(value, dict):
            return self.range(place, name, value)
        if not isinstance(value, list):
            raise self.error(
                place, f"{name} must be a list such as [{_shown(value)}], or a range; one value goes to [base]"
            )
        values = [self.value((*place, index), name, item) for index, item in enumerate(value)]
        for index, item in enumerate(self.list(place, values, "")):
            self.possible((*place, index), name, item)
        return tuple(values)

    def range(self, place: Place, name: str, table: Mapping[str, Any]) -> tuple[int, ...]:
        """``{ from = 8, to = 64, step = 8 }``, or with a factor."""
        kind = AXES[name].kind
        if kind not in (INT, SIZE):
            raise self.error(place, f"{name} must be a list of values, not a range")
        self.known(place, table, ("from", "to", "step", "factor"), "a key of a range")
        if not {"from", "to"} <= set(table) or len({"step", "factor"} & set(table)) != 1:
            raise self.error(place, f"{name}: a range must have from, to, and either step or factor")
        low, high = (self.value((*place, key), name, table[key]) for key in ("from", "to"))
        step, factor = table.get("step", 0), table.get("factor", 0)
        if "factor" in table and type(factor) not in (int, float):
            raise self.error((*place, "factor"), f"factor must be a number, not {_shown(factor)}")
        if "step" in table:
            step = self.value((*place, "step"), name, step)
        with self.at(place, f"{name}: a range "):
            values = values_between(low, high, step=step, factor=factor)
        for value in (values[0], values[-1]):
            self.possible(place, name, value)
        return tuple(values)

    def value(self, place: Place, name: str, value: Any) -> Any:
        """A value of a configuration parameter."""
        with self.at(place):
            return AXES[name].read(value)

    def possible(self, place: Place, name: str, value: Any) -> None:
        """Refuse a value that no configuration can have."""
        if name == CLOCK.name or name in NEW:
            return
        try:
            if name in DEPENDENT:
                AXES[name].check(value)
            else:
                changed(Config(), {name: value})
        except ConfigError as error:
            if str(error).startswith(f"{name} must be"):
                raise self.error(place, str(error)) from None

    def with_metrics(self, space: Space) -> Space:
        """The space with the user's metrics."""
        for name, text in self.table("metrics").items():
            place = "metrics", name
            with self.at(place, f"metric {name}: "):
                space = replace(space, metrics={**space.metrics, name: self.text(place, text)})
        return space

    def with_objectives(self, space: Space, value: Any) -> Space:
        """The space with its objectives; each is checked alone, so that an error has its line."""
        place = ("goals", "objectives")
        names = self.list(place, value, '["cycles", "sram"]')
        for index, name in enumerate(names):
            try:
                replace(space, objectives=(self.text((*place, index), name),))
            except ExpressionError as error:
                raise self.error((*place, index), f"objective {error}") from None
            except ConfigError as error:
                told = str(error).removeprefix(f'objectives must be metrics, not "{name}"')
                raise self.error((*place, index), f'objective "{name}" must be a metric{told}') from None
        return replace(space, objectives=tuple(names))

    def constraints(self, space: Space, value: Any) -> tuple[str, ...]:
        place = ("goals", "constraints")
        texts = self.list(place, value, '["ic_lanes * oc_lanes <= 256"]')
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise self.error(
                    (*place, index), f'a constraint must be a text such as "pe <= 256", not {_shown(text)}'
                )
            with self.at((*place, index), "constraint "):
                parse(text, space.scope)
        return tuple(texts)

    def with_scenario(self, space: Space, value: Any) -> Space:
        """The space with what counts of its scenarios."""
        place = ("goals", "scenario")
        if isinstance(value, dict):
            value = {name: self.value((*place, name), name, v) if name in SETTINGS else v for name, v in value.items()}
        else:
            value = self.choice(place, value, SCENARIOS)
        with self.at(place):
            return replace(space, scenario=value)

    def clock(self, goals: Mapping[str, Any]) -> float:
        return float(self.value(("goals", "clock"), CLOCK.name, goals.get("clock", Space.clock)))

    def energy_table(self, goals: Mapping[str, Any]) -> str:
        """The name of a table that comes with Dovetail, or a file; none where it is left out."""
        place, value = ("goals", "energy_table"), goals.get("energy_table", "")
        if value in ("", *ENERGY_TABLES):
            return str(value)
        source = self.file(place, value, f"one of {', '.join(ENERGY_TABLES)}, or ")
        with self.at(place):
            load_table(source)
        return source

    def plan(self) -> Plan:
        """How to search."""
        table = self.table("search")
        names = tuple(f.name for f in fields(Plan))
        self.known(("search",), table, names, "a key of [search]")
        method = self.choice(("search", "method"), table.get("method", METHODS[0]), METHODS)
        for name in set(table) & set(NEEDS):
            if method not in NEEDS[name]:
                raise self.error(
                    ("search", name),
                    f"{name} must be left out of the search {method}; {', '.join(NEEDS[name])} take it",
                )
        if method in ("random", "optuna") and "points" not in table:
            raise self.error(("search",), f"the search {method} must have points = how many to evaluate")
        plan: dict[str, Any] = {"method": method}
        for name, least in (("points", 1), ("seed", 0)):
            if name in table:
                plan[name] = self.whole(("search", name), table[name], least)
        if "sampler" in table:
            plan["sampler"] = self.choice(("search", "sampler"), table["sampler"], SAMPLERS)
        plan |= {name: self.text(("search", name), table[name]) for name in ("storage", "study") if name in table}
        if "://" not in plan.get("storage", "://"):
            plan["storage"] = os.path.normpath(self.folder / plan["storage"])
        return Plan(**plan)


def _shown(value: Any) -> str:
    return json.dumps(value, default=str)
