"""The contract between hardware and software: configuration, instructions, numerics, timing, programs."""

from dovetail.isa.config import PRESETS, Config, ConfigError, MemoryTiming
from dovetail.isa.instructions.assembler import AssemblyError, assemble, disassemble
from dovetail.isa.instructions.table import Cause, Decoded, Op, Unit, decode
from dovetail.isa.program import Program, ProgramError, Segment, Step, TensorDescriptor

__all__ = [
    "PRESETS",
    "AssemblyError",
    "Cause",
    "Config",
    "ConfigError",
    "Decoded",
    "MemoryTiming",
    "Op",
    "Program",
    "ProgramError",
    "Segment",
    "Step",
    "TensorDescriptor",
    "Unit",
    "assemble",
    "decode",
    "disassemble",
]
