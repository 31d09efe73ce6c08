"""A design on a board, through Yosys and nextpnr to a bitstream."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dovetail.flows.fpga.carry import shorten_carries
from dovetail.flows.fpga.design.boards import CROWDED, RESOURCES, Board
from dovetail.flows.fpga.design.pll import MHZ, Dividers
from dovetail.flows.fpga.luts import save_luts
from dovetail.flows.fpga.macros.copies import copy_flip_flops
from dovetail.flows.fpga.macros.place import place_macros
from dovetail.flows.fpga.macros.sites import Sites, question
from dovetail.flows.fpga.products import register_products
from dovetail.flows.fpga.reports import (
    Placed,
    log_utilisation,
    netlist_cells,
    netlist_resources,
    pass_throughs,
    read_report,
)
from dovetail.flows.fpga.rewrite import rewrite, top_of
from dovetail.flows.fpga.synthesis import NO_ELEMENTS
from dovetail.flows.fpga.tools import BuildError, Tool, complaint, run
from dovetail.hw.common.elaboration import checked

NAME = "dovetail_board"
"""Name of the top and of its files."""
TOOLS = {
    "ecp5": ("yosys", "nextpnr-ecp5", "ecppack"),
    "ice40": ("yosys", "nextpnr-ice40", "icepack"),
    "gowin": ("yosys", "nextpnr-himbaechel-gowin", "gowin_pack"),
}
"""What a bitstream takes, by family: synthesis, place and route, packing."""
BITSTREAM = {"ecp5": f"{NAME}.bit", "ice40": f"{NAME}.bin", "gowin": f"{NAME}.fs"}
CONSTRAINTS = {"ecp5": f"{NAME}.lpf", "ice40": f"{NAME}.pcf", "gowin": f"{NAME}.cst"}
PLACEMENT = {"ecp5": f"{NAME}.config", "ice40": f"{NAME}.asc", "gowin": f"{NAME}.pnr.json"}
"""The file between place and route and packing."""
FEWER_SETS = (
    "dfflegalize -mince 6 -minsrst 12 -cell $_DFF_?_ 01 -cell $_DFF_?P?_ r -cell $_SDFF_?P?_ r"
    " -cell $_DFFE_??_ 01 -cell $_DFFE_?P??_ r -cell $_SDFFE_?P??_ r"
)
"""Command for Yosys amid its synthesis for ECP5: an enable of fewer than 6 flip-flops and a reset of fewer than 12
become logic in front of them. Only flip-flops with the same ones share a slice."""
STATISTICS = "netlist.json"
SITES = "sites"
"""Name of the files by which nextpnr is asked for the sites of the part."""
KEPT = (f"{NAME}.*", "seed-*", f"{SITES}*", STATISTICS, "yosys.log", "build.json")
"""What a build writes into its folder, and removes of the one before."""


@dataclass(frozen=True)
class Target:
    """Where a design runs. ``wanted``, ``clock``: Hz asked for and reached, with the PLL's setting if there is one."""

    board: Board
    wanted: int
    clock: int
    dividers: Dividers | None

    @classmethod
    def of(cls, board: Board, wanted: int) -> Target:
        """The clock nearest to the one wanted. Raises DovetailError."""
        return cls(board, wanted, *board.clock(wanted))


@dataclass(frozen=True)
class Options:
    """How it is built. ``seeds``: of nextpnr; ``jobs``: runs of it at once; ``synthesis``, ``placement``: more options
    of Yosys's command for the family and of nextpnr."""

    seeds: tuple[int, ...] = (1,)
    jobs: int = 1
    synthesis: tuple[str, ...] = ()
    placement: tuple[str, ...] = ()


@dataclass(frozen=True)
class Netlist:
    """A synthesised design in a folder. ``design``: hash of what was synthesised, its constraints and all options;
    ``used``: resources before place and route; ``commands``: Amaranth's for the three tools."""

    folder: Path
    design: str
    used: Mapping[str, int]
    commands: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Run:
    """What one seed gave: a placement, or why there is none."""

    seed: int
    placed: Placed | None
    error: str = ""

    @property
    def fmax(self) -> float:
        """MHz of the slowest clock; 0 without a placement."""
        return self.placed.slowest if self.placed else 0.0


@dataclass
class Builder:
    """Builds for one target.

    Parameters
    ----------
    target: board and clock.
    tools: the three programs of the family, by name.
    options: how.
    say: told in a line what has been done.
    """

    target: Target
    tools: Mapping[str, Tool]
    options: Options = field(default_factory=Options)
    say: Callable[[str], None] = lambda text: None

    @property
    def family(self) -> str:
        """The family of the part."""
        return self.target.board.part.family

    def prepare(self, top: Any, folder: Path) -> tuple[str, Sequence[Sequence[str]]]:
        """Write what the tools read: RTLIL, Verilog, scripts and constraints of ``top``.

        Returns the hash of the design and the commands. Removes a former build from the folder, which is made.
        """
        platform = self.target.board.load()
        script, synthesis = self._script()
        with checked():
            plan = platform.build(
                top,
                name=NAME,
                do_build=False,
                emit_src=False,
                debug_verilog=True,
                synth_opts=synthesis,
                script_after_read=script,
                script_after_synth=f"tee -q -o {STATISTICS} stat -json",
                nextpnr_opts=[
                    "--timing-allow-fail",
                    *self._wanted(),
                    *self.target.board.placement,
                    *self.options.placement,
                ],
            )
        commands = json.loads(plan.files[f"build_{NAME}.json"])["commands"]
        inputs = {name: plan.files[name] for name in (f"{NAME}.il", f"{NAME}.ys", CONSTRAINTS[self.family])}
        digest = hashlib.sha256(json.dumps([inputs, commands, self.target.board.crowded], sort_keys=True).encode())
        folder.mkdir(parents=True, exist_ok=True)
        for pattern in KEPT:
            for path in folder.glob(pattern):
                path.unlink()
        for name, text in inputs.items():
            (folder / name).write_text(text)
        (folder / f"{NAME}.v").write_text(plan.files[f"{NAME}.debug.v"])
        return digest.hexdigest()[:16], commands

    def _script(self) -> tuple[str, list[str]]:
        """What Yosys runs before its command for the family, and the options of that command."""
        options = [*self.target.board.synthesis, *self.options.synthesis]
        if self.family != "ecp5":
            return NO_ELEMENTS, options
        first = " ".join(["synth_ecp5", *options, "-top", NAME, "-run", "begin:map_ffs"])
        return "\n".join([NO_ELEMENTS, first, FEWER_SETS]), [*options, "-run", "map_ffs:"]

    def _wanted(self) -> tuple[str, ...]:
        """Options that tell nextpnr the clock, where the constraints do not: those of Gowin have pins only."""
        return ("--freq", f"{self.target.clock / MHZ:g}") if self.family == "gowin" else ()

    def synthesise(self, folder: Path, design: str, commands: Sequence[Sequence[str]]) -> Netlist:
        """Run Yosys in the folder that :meth:`prepare` filled. Raises BuildError."""
        yosys, arguments = self._command(commands[0], {f"{NAME}.rpt": "yosys.log"})
        done = run(yosys, arguments, folder)
        if done.returncode:
            raise BuildError(f"yosys failed ({folder / 'yosys.log'}): {complaint(done)}")
        cells = Counter(netlist_cells(folder / STATISTICS))
        if self.family == "ecp5":
            cells.update(rewrite(folder / f"{NAME}.json", shorten_carries, register_products, save_luts))
        used = netlist_resources(cells, self.family)
        if self.family == "gowin":
            used["lut"] += pass_throughs(folder / f"{NAME}.syn.json")
        self.say("synthesised: " + ", ".join(f"{count:,} {RESOURCES[name]}" for name, count in used.items()))
        return Netlist(folder, design, used, commands)

    def place(self, netlist: Netlist) -> list[Run]:
        """Run nextpnr with every seed; where hardly a multiplier is left, with their places and those of block RAMs."""
        if self._crowded(netlist) and self.family == "ecp5":
            sites = self._sites(netlist)
            copies = rewrite(
                netlist.folder / f"{NAME}.json",
                lambda module: copy_flip_flops(module, place_macros(module, sites)),
            )
            self.say(f"placed: multipliers and block RAMs; copied: {copies.total():,} flip-flops")
        with ThreadPoolExecutor(self.options.jobs) as pool:
            return list(pool.map(lambda seed: self._place(netlist, seed), self.options.seeds))

    def _sites(self, netlist: Netlist) -> Sites:
        """What nextpnr makes of a netlist that fills the part. Raises BuildError."""
        folder = netlist.folder
        module = top_of(json.loads((folder / f"{NAME}.json").read_text()))
        asked = {"modules": {SITES: question(module, self.target.board.part.total)}}
        (folder / f"{SITES}.json").write_text(json.dumps(asked))
        files = {f"{NAME}.json": f"{SITES}.json", f"{NAME}.tim": f"{SITES}.log", f"{NAME}.config": f"{SITES}.config"}
        nextpnr, arguments = self._command(netlist.commands[1], files)
        answer = folder / f"{SITES}.placed.json"
        done = run(nextpnr, [*arguments, "--no-route", "--write", answer.name], folder)
        if done.returncode:
            raise BuildError(f"nextpnr does not tell the sites of the part ({SITES}.log): {complaint(done)}")
        return Sites.of(top_of(json.loads(answer.read_text())))

    def _place(self, netlist: Netlist, seed: int) -> Run:
        log, report = netlist.folder / f"seed-{seed}.log", netlist.folder / f"seed-{seed}.json"
        names = {f"{NAME}.tim": log.name, PLACEMENT[self.family]: self._placement(seed)}
        nextpnr, arguments = self._command(netlist.commands[1], names)
        if self._crowded(netlist) and not any(word.partition("=")[0] == "--placer" for word in arguments):
            arguments += self.target.board.crowded
        done = run(nextpnr, [*arguments, "--seed", str(seed), "--report", report.name], netlist.folder)
        if done.returncode:
            self.say(f"seed {seed}: failed")
            return Run(seed, None, f"{log}: {complaint(done)}")
        placed = read_report(report, self.family, netlist.used["ff"])
        found = Run(seed, placed)
        self.say(f"seed {seed}: {found.fmax:.2f} MHz")
        return found

    def _crowded(self, netlist: Netlist) -> bool:
        """Whether hardly a multiplier is left of the part."""
        return netlist.used.get("dsp", 0) > CROWDED * self.target.board.part.total["dsp"]

    def pack(self, netlist: Netlist, best: Run) -> Path:
        """Make the bitstream of a run. Raises BuildError."""
        packer, arguments = self._command(netlist.commands[2], {PLACEMENT[self.family]: self._placement(best.seed)})
        done = run(packer, arguments, netlist.folder)
        if done.returncode:
            raise BuildError(f"{packer.name} failed: {complaint(done)}")
        return netlist.folder / BITSTREAM[self.family]

    def best(self, netlist: Netlist, runs: Sequence[Run]) -> Run:
        """The fastest run. Raises BuildError if all failed, with the resources that their logs tell."""
        able = [run for run in runs if run.placed]
        if able:
            return max(able, key=lambda run: run.fmax)
        log = netlist.folder / f"seed-{runs[0].seed}.log"
        used = log_utilisation(log.read_text(), self.family) if log.exists() else {}
        total = self.target.board.part.total
        told = ", ".join(f"{RESOURCES[name]} {count:,} of {total[name]:,}" for name, count in used.items())
        raise BuildError(
            f"nextpnr failed with {'every seed' if len(runs) > 1 else f'seed {runs[0].seed}'}, {runs[0].error}"
            f"{f' (placed: {told})' if told else ''}; --seeds N tries others, a smaller configuration leaves more room"
        )

    def _command(self, words: Sequence[str], names: Mapping[str, str]) -> tuple[Tool, list[str]]:
        """The program of one of Amaranth's commands, and its arguments with some files named otherwise."""
        return self.tools[words[0]], [names.get(word, word) for word in words[1:]]

    def _placement(self, seed: int) -> str:
        return f"seed-{seed}{PLACEMENT[self.family].removeprefix(NAME)}"
