"""Plants faults into the RTL, one at a time, and sees whether the suite catches each of them.

    python tests/mutation/campaign.py [--jobs N] [--only TEXT] [--output docs/mutations.md]

``faults.toml`` lists the faults: a piece of text in a file of ``hw/``, what it becomes, and the test that is meant to
fail. Each fault runs that test, nothing else, on a copy of the project; the same test must pass on a copy without
faults.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FAULTS = Path(__file__).with_name("faults.toml")
FOLDERS = (".pkg", "isa", "hw", "sw", "cosim", "flows", "tests")
TIMEOUT = 900
"""Seconds for one test: a fault that makes it run on and on is not caught."""

TESTS_FAILED = 1
"""pytest's exit code when tests ran and some failed; others mean that it could not run them."""


@dataclass(frozen=True)
class Fault:
    """``old`` becomes ``new`` in ``file``; the pytest node ``caught_by`` is meant to fail."""

    file: str
    old: str
    new: str
    what: str
    caught_by: str

    def plant(self, root: Path) -> None:
        """Change the file below ``root``. Raises ValueError unless ``old`` is there exactly once."""
        path = root / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file} must hold this text once, not {text.count(self.old)} times: {self.old!r}")
        path.write_text(text.replace(self.old, self.new))


def faults() -> list[Fault]:
    """The list of faults."""
    return [Fault(**row) for row in tomllib.loads(FAULTS.read_text())["fault"]]


def run_test(node: str, fault: Fault | None, cache: Path) -> int:
    """pytest's exit code for a test on a copy of the project with a fault; -1 if it does not come to an end."""
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        root = Path(folder)
        for name in FOLDERS:
            shutil.copytree(ROOT / name, root / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", root)
        if fault:
            fault.plant(root)
        environment = os.environ | {
            "PYTHONPATH": str(root / ".pkg"),
            "XDG_CACHE_HOME": str(cache),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-o", f"cache_dir={cache}", "-m", "", node]
        try:
            return subprocess.run(command, cwd=root, env=environment, capture_output=True, timeout=TIMEOUT).returncode
        except subprocess.TimeoutExpired:
            return -1


def campaign(chosen: Sequence[Fault], *, jobs: int = 2) -> dict[Fault | str, int]:
    """Exit code of every fault's test, and of each test without a fault, by its name."""
    tasks: list[Fault | str] = [*sorted({fault.caught_by for fault in chosen}), *chosen]
    with tempfile.TemporaryDirectory(prefix="mutation-cache-") as cache, ThreadPoolExecutor(jobs) as pool:

        def run(task: Fault | str) -> int:
            if isinstance(task, str):
                return run_test(task, None, Path(cache))
            return run_test(task.caught_by, task, Path(cache))

        codes = {}
        for task, code in zip(tasks, pool.map(run, tasks), strict=True):
            codes[task] = code
            what = f"no fault, {task}" if isinstance(task, str) else f"{task.file}: {task.what}"
            print(f"{verdict(task, code):<10} {what}", flush=True)
    return codes


def verdict(task: Fault | str, code: int) -> str:
    """A word for the exit code of a test without (``task`` is its name) or with a fault."""
    if isinstance(task, str):
        return "passes" if code == 0 else "FAILS"
    return {TESTS_FAILED: "caught", 0: "SURVIVES", -1: "HANGS"}.get(code, "BROKEN")


def table(chosen: Iterable[Fault], codes: dict[Fault | str, int]) -> str:
    """The campaign as Markdown."""
    rows = [
        f"| {n} | `{fault.file}` | {fault.what} | `{fault.caught_by.removeprefix('tests/')}` |"
        f" {verdict(fault, codes[fault])} |"
        for n, fault in enumerate(chosen, 1)
    ]
    caught = sum(row.endswith("| caught |") for row in rows)
    head = [
        "# Faults planted into the RTL",
        "",
        "Made by `python tests/mutation/campaign.py --output docs/mutations.md`. Each row is one fault, planted alone",
        "into a copy of the project (`tests/mutation/faults.toml` has the exact text), and the test that was run on",
        "it. Without the fault every one of these tests passes.",
        "",
        f"{caught} of {len(rows)} caught.",
        "",
        "| | file | fault | test | |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *rows, ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2, help="tests at a time")
    parser.add_argument("--only", default="", help="faults whose file, text or test contains this")
    parser.add_argument("--output", type=Path, help="write the table to this file")
    args = parser.parse_args()
    chosen = [f for f in faults() if args.only in f"{f.file} {f.what} {f.caught_by}"]
    codes = campaign(chosen, jobs=args.jobs)
    if args.output:
        args.output.write_text(table(chosen, codes))
    return 0 if all(verdict(task, code) in ("passes", "caught") for task, code in codes.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
