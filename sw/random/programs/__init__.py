"""Random programs, legal and illegal, for comparing engines.

A legal program uses every operation the configuration has, with SYNCs from the hazard tracker. An illegal one is a
legal one with something broken; it still has one outcome (no program returned here races, see
:func:`~dovetail.sw.compiler.emit.hazards.races`).
"""

from dovetail.sw.random.programs.broken import BREAKS, bounded, illegal_program, settled
from dovetail.sw.random.programs.configurations import WHOLE, configurations
from dovetail.sw.random.programs.legal import RandomProgram, legal_program
from dovetail.sw.random.programs.registers import (
    DATA_BYTES,
    legal_registers,
    operations,
    random_config,
    strange_registers,
    weight_stream,
)
from dovetail.sw.random.programs.targeted import checks_of, targeted_program, targets

__all__ = [
    "BREAKS",
    "DATA_BYTES",
    "WHOLE",
    "RandomProgram",
    "bounded",
    "checks_of",
    "configurations",
    "illegal_program",
    "legal_program",
    "legal_registers",
    "operations",
    "random_config",
    "settled",
    "strange_registers",
    "targeted_program",
    "targets",
    "weight_stream",
]
