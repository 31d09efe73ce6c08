"""Fingerprints of fixed networks and random programs: what a change that is to change nothing must keep.

A network's has its programs' words, its constants, the cycles in which every operation starts and ends, and the bytes
of an inference. A random program's has its words, the timeline, counters and fault of its run, and the memory and SRAM
after it. Model and RTL have one fingerprint. ``python -m tests.fingerprints.take`` takes them anew, for changes that
are meant; ``--only NAME`` those that begin so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import astuple
from pathlib import Path

import numpy as np

from dovetail.cosim.compare.fuzz import Case, random_case, random_timing
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Unit, to_bytes
from dovetail.isa.timing.timeline import Timeline
from dovetail.sw.model.accelerator import Model
from dovetail.sw.random.networks import random_network
from dovetail.sw.random.programs.configurations import WHOLE
from dovetail.sw.runtime.compiled_network import compile_network
from dovetail.sw.runtime.engine import Bytes, RunResult

FILE = Path(__file__).with_name("fingerprints.json")
MODELS = Path(__file__).parents[3] / "shared" / "models"

CONFIGS = {
    "8x8": Config(ic_lanes=8, oc_lanes=8, sram="512 KiB"),
    "16x16": Config(ic_lanes=16, oc_lanes=16, sram="512 KiB", bus=128),
    "64KiB": Config(ic_lanes=8, oc_lanes=8, sram="64 KiB", bus=32),
    "input": Config(pe=64, dataflow="input", sram="128 KiB"),
    "output": Config(pe=64, dataflow="output", sram="128 KiB", depthwise="emulated"),
    "whole": WHOLE,
    "microcoded": Config.load("icebreaker"),
}
SMALL = (
    *("resnet8", "dscnn", "autoencoder", "mobilenet_v2_block", "hard_swish_block", "inception_block"),
    *("shuffle_block", "attention_block"),
)
LARGE = ("mobilenet_v1", "mobilenet_v2", "resnet50", "efficientnet_lite0", "vit_tiny", "bert_tiny", "cct")
TRAINED = {
    "resnet8": "mlperf_tiny/ic_resnet8/resnet8_int8.tflite",
    "vww": "mlperf_tiny/vww_mobilenet_v1_025/vww_int8.tflite",
    "kws": "mlperf_tiny/kws_dscnn/kws_int8.tflite",
    "ad": "mlperf_tiny/ad_autoencoder/ad_int8.tflite",
}
PROGRAMS = 40
"""Random programs of a configuration."""


def names() -> dict[str, list[str]]:
    """Names of all fingerprints by what they are of: ``small``, ``large`` and ``trained`` networks, ``programs``."""
    chips = ("8x8", "16x16", "64KiB")
    return {
        "small": [
            *(f"zoo:{network} {config} {effort}" for network in SMALL for config in chips[::2] for effort in (0, 1)),
            *(f"random:{seed} {config} 1" for seed in range(6) for config in CONFIGS),
        ],
        "large": [f"zoo:{network} {config} 1" for network in LARGE for config in chips],
        "trained": [f"trained:{network} {config} 1" for network in TRAINED for config in CONFIGS],
        "programs": [
            f"program:{seed} {config}" for config in ("64KiB", "whole", "microcoded") for seed in range(PROGRAMS)
        ],
    }


def take(name: str) -> str:
    """The fingerprint of a name; of the model's run."""
    if name.startswith("program:"):
        return of_run(*run_program(name))
    network, config, effort = name.split()
    return of_network(network, CONFIGS[config], int(effort))


def of_network(name: str, config: Config, effort: int) -> str:
    """Words, constants, cycles and the bytes of an inference; no bytes of large networks and of floats on the host."""
    kind, _, rest = name.partition(":")
    network = name if kind == "zoo" else random_network(int(rest), 6) if kind == "random" else MODELS / TRAINED[rest]
    compiled = compile_network(network, config, effort=effort)
    parts = [to_bytes(segment.words) for segment in compiled.code.segments]
    parts.append(compiled.code.constants())
    for timeline in compiled.report().timeline:
        parts += of_timeline(timeline)
    if rest not in LARGE and not compiled.code.host_reasons:
        rng = np.random.default_rng(1)
        inputs = {port.name: rng.integers(0, 100, port.shape).astype(port.dtype) for port in compiled.graph.inputs}
        result = compiled.run(inputs)
        parts += [result.outputs[output].tobytes() for output in sorted(result.outputs)]
    return digest(parts)


def program_of(name: str) -> Case:
    """The random program of a name."""
    label, config = name.split()
    seed = int(label.partition(":")[2])
    return random_case(CONFIGS[config].replace(memory=random_timing(seed)), seed)


def run_program(name: str) -> tuple[list[int], RunResult, Bytes]:
    """Words of a random program, its run on the model, SRAM after it."""
    case = program_of(name)
    program = case.program
    model = Model(program.config)
    model.write_sram(case.sram())
    run = model.run(program.memory.copy(), *program.arguments)
    return list(program.words), run, model.read_sram()


def of_run(words: list[int], run: RunResult, sram: Bytes) -> str:
    """Of a program, what its run looked like and what it left."""
    counters = repr([astuple(run.counters[unit]) for unit in Unit])
    return digest(
        [to_bytes(words), *of_timeline(run.timeline), counters.encode(), run.memory.tobytes(), sram.tobytes()]
    )


def of_timeline(timeline: Timeline) -> list[bytes]:
    """When every operation ran, in bytes."""
    columns = (timeline.unit, timeline.op, timeline.pc, timeline.start, timeline.end, timeline.works)
    return [np.asarray(column, np.int64).tobytes() for column in columns] + [
        repr((timeline.cycles, timeline.fault and (timeline.fault.cause.value, timeline.fault.pc))).encode()
    ]


def digest(parts: list[bytes]) -> str:
    """16 hexadecimal digits."""
    return hashlib.sha256(b"|".join(parts)).hexdigest()[:16]


def main() -> None:
    """Take all, or those that begin with a name, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="NAME", default="", help="those that begin with it")
    only = parser.parse_args().only
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    wanted = [name for group in names().values() for name in group]
    for name in wanted:
        if name.startswith(only):
            known[name] = take(name)
            print(name, known[name], flush=True)
    FILE.write_text(json.dumps({name: known[name] for name in wanted if name in known}, indent=1) + "\n")


if __name__ == "__main__":
    main()
