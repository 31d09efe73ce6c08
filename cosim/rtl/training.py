"""What a tuned build of the accelerator is trained on: g++ arranges the code after what a run of it needs.

A network, for what is frequent, and random programs, so that no operation is left out: what was never seen to run would
be compiled for size.
"""

import random
from contextlib import suppress

import numpy as np

from dovetail.cosim.rtl.setting import LoadedProgram, settings_of
from dovetail.isa.config.resolved import Config
from dovetail.sw import frontend
from dovetail.sw.errors import DovetailError
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.random.programs.legal import legal_program
from dovetail.sw.runtime.compiled_network import compile_network
from dovetail.sw.zoo.catalogue import model_bytes

NETWORK = "mobilenet_v2_block"
PROGRAMS = 10
"""Random ones."""


def training_programs(config: Config) -> list[LoadedProgram]:
    """Programs that together take some ten thousand cycles."""
    programs: list[LoadedProgram] = []
    for seed in range(PROGRAMS):
        made = legal_program(random.Random(seed), config)
        programs.append(LoadedProgram(made.memory, *made.arguments))
    graph = frontend.load(NetworkFile(NETWORK, model_bytes(NETWORK)))
    (port,) = graph.inputs
    sample = np.random.default_rng(0).integers(-128, 128, port.shape).astype(port.dtype)
    with suppress(DovetailError):  # an accelerator too small for it: then random programs alone
        programs += settings_of(compile_network(graph, config), sample)
    return programs
