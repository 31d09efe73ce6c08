"""The example in a platform's folder: programs, the memory they find, and what the model leaves behind."""

import random

import numpy as np

from dovetail.cosim.rtl.setting import Setting
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Unit
from dovetail.sw.model.accelerator import Model
from dovetail.sw.random.programs.legal import legal_program
from dovetail.sw.runtime.engine import sram_program

FOLDER = "example"


def example_files(config: Config, programs: list[Setting]) -> dict[str, bytes]:
    """Files by name: the platform's ``script``, and of every program the memory before it and behind it."""
    files: dict[str, bytes] = {}
    script: list[str] = []
    for number, program in enumerate(programs):
        model = Model(config)
        model.write_sram(program.sram)
        if program.sram.any():
            files[f"sram{number}.bin"] = sram_program(Unit.LOAD, program.sram)[0].tobytes()
            script += [f"load {FOLDER}/sram{number}.bin", "run 0:1:0"]
        files[f"image{number}.bin"] = program.memory.tobytes()
        result = model.run(program.memory.copy(), program.program, program.pages, program.base)
        files[f"expected{number}.bin"] = result.memory.tobytes()
        script += [
            f"load {FOLDER}/image{number}.bin",
            f"run {program.program}:{program.pages}:{program.base}",
            f"save {FOLDER}/memory{number}.bin",
        ]
    files["script"] = "".join(f"{line}\n" for line in script).encode()
    return {f"{FOLDER}/{name}": data for name, data in files.items()}


def random_example(config: Config) -> list[Setting]:
    """A random program, for a folder without a network: it uses what the configuration has."""
    program = legal_program(random.Random(0), config)
    sram = np.zeros(config.sram, np.uint8)
    return [Setting(program.memory, program.program, program.pages, program.base, sram)]
