"""Damaged files of every format, in child processes with limits: no trace, no hang, no growth, nothing half-written.

    python -m tests.malformed.campaign --cases 3000 --seed 1 [--format NAME] [--case N]

A case is told by format, seed and number; ``--case`` takes that one alone and shows what it printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SECONDS, MEGABYTES = 20, 2048
PATIENCE = 120
"""Seconds after which a child is ended that says nothing: a library may be stuck where no signal reaches it."""


def run(name: str, seed: int, first: int, last: int) -> Iterator[dict[str, Any]]:
    """What became of cases of a format; one that ends its process is a crash, and the rest goes to another."""
    while first < last:
        words = [sys.executable, "-m", "tests.malformed.worker", name, *map(str, (seed, first, last))]
        path = os.pathsep.join([str(ROOT), str(ROOT / ".pkg"), os.environ.get("PYTHONPATH", "")])
        child = subprocess.Popen(
            words,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert child.stdout and child.stderr
        errors: list[str] = []
        reader = threading.Thread(target=lambda child=child, errors=errors: errors.append(child.stderr.read()))
        reader.start()
        begun = None
        timer = threading.Timer(PATIENCE, child.kill)
        timer.start()
        for line in child.stdout:
            timer.cancel()
            timer = threading.Timer(PATIENCE, child.kill)
            timer.start()
            record = json.loads(line)
            begun = record.get("begins")
            if begun is None:
                first = record["number"] + 1
                yield record
        timer.cancel()
        code = child.wait()
        reader.join()
        if begun is not None:
            first = begun + 1
            yield {"number": begun, "outcome": f"crash {code}", "error": errors[0][-500:], "seconds": 0, "growth": 0}
        elif code:
            raise RuntimeError(f"the worker did not start: {errors[0][-2000:]}")


def wrong(record: dict[str, Any]) -> str:
    """What is wrong with the outcome of a case; "" if nothing is."""
    outcome, error = str(record["outcome"]), str(record["error"])
    told = [line for line in error.splitlines() if line.startswith("dovetail: error:")]
    if outcome not in ("0", "1", "2"):
        return outcome
    if "Traceback" in error:
        return "a trace"
    if outcome == "2" and (len(told) != 1 or len(told[0]) < 30 or not error.endswith(told[0] + "\n")):
        return "not one line"
    if record["seconds"] > SECONDS:
        return f"{record['seconds']} s"
    if record["growth"] > MEGABYTES:
        return f"{record['growth']} MiB"
    return f"left {record['left'][:3]}" if record["left"] else ""


def main() -> int:
    from tests.malformed.formats import FORMATS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=3000, help="of all formats together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", choices=FORMATS, action="append")
    parser.add_argument("--case", type=int)
    args = parser.parse_args()
    names = args.format or list(FORMATS)
    each = -(-args.cases // len(names))
    total, failures = Counter[str](), []
    slowest, largest = 0.0, 0
    for name in names:
        first, last = (0, each) if args.case is None else (args.case, args.case + 1)
        count = Counter[str]()
        for record in run(name, args.seed, first, last):
            trouble = wrong(record)
            count["wrong" if trouble else "taken" if record["outcome"] in "01" else "refused"] += 1
            slowest, largest = max(slowest, record["seconds"]), max(largest, record["growth"])
            if trouble:
                failures.append(f"{name} --seed {args.seed} --case {record['number']}: {trouble}")
                print(failures[-1], record.get("action"), record["error"][-300:], sep="\n    ")
            if args.case is not None:
                print(json.dumps(record, indent=1))
        total += count
        print(f"{name:<14} {dict(count)}", flush=True)
    print(f"{total.total()} cases, seed {args.seed}: {total['taken']} taken, {total['refused']} refused with one line,")
    print(f"{len(failures)} wrong; the slowest {slowest:.1f} s, the largest {largest} MiB more")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
