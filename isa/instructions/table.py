"""The instruction set: the one table of opcodes, fields, registers and causes, with its encoder and decoder.

Everything that knows an opcode, a field or a register offset (RTL, model, assembler, manual, C header) asks here.
A program is a stream of 64-bit little-endian words; see ``docs/architecture.md`` for what they do.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from dovetail.isa.numerics import semantics
from dovetail.isa.numerics.add import add
from dovetail.isa.numerics.multiplier import SHIFT_MAX, SHIFT_MIN
from dovetail.isa.numerics.multiply import multiply
from dovetail.isa.numerics.vector import Registers, VectorOperation, VectorParameters

WORD_BYTES = 8
PAGE_WORDS = 128
"""Instruction words per fetch page: the front end fetches a program page by page."""
PAGE_BYTES = PAGE_WORDS * WORD_BYTES
QUEUE_DEPTH = 16
"""Words that each unit's instruction queue holds."""


class Unit(IntEnum):
    """The four units; they run concurrently, each in order. The value is the unit's number in encodings."""

    LOAD = 0
    ARRAY = 1
    VECTOR = 2
    STORE = 3


EXTENSIONS = range(0x80, 0xC0)
"""Opcodes of operations that extensions add to the vector unit. Dovetail itself will never use them."""


class Op(IntEnum):
    """Opcodes, bits 7:0 of a word."""

    CFG = 0x01
    SYNC = 0x02
    END = 0x03
    DMA_READ = 0x10
    DMA_WRITE = 0x11
    CONV = 0x20
    CONV_RELU = 0x21
    DEPTH_CONV = 0x22
    MAT_MUL = 0x23
    POOL = 0x40
    E_ADD = 0x41
    E_MUL = 0x42
    E_ABS = 0x43
    C_MIN = 0x44
    C_MAX = 0x45
    ACT_RELU = 0x46
    ACT_LRELU = 0x47
    ACT_LUT = 0x48
    MOV = 0x49
    E32_ADD = 0x4A
    E32_SHIFT = 0x4B
    REQUANT = 0x4C
    SOFTMAX = 0x4D
    NORM = 0x4E
    WIDEN = 0x4F
    NORM16 = 0x50
    NORM16_WIDE = 0x51

    @classmethod
    def new(cls, code: int, name: str) -> "Op":
        """The opcode of an extension's operation, one of :data:`EXTENSIONS`. It is no member until :meth:`join`."""
        op = int.__new__(cls, code)
        op._name_, op._value_ = name, code
        return op

    def join(self) -> None:
        """Become a member: enumerations are closed, but the instruction set is not."""
        Op._member_names_.append(self.name)
        Op._member_map_[self.name] = Op._value2member_map_[self.value] = self


class Cause(IntEnum):
    """Why the engine stopped. Where several apply to one instruction the lowest number is reported."""

    NONE = 0
    OPCODE = 1
    RESERVED = 2
    REGISTER = 3
    UNIT_ABSENT = 4
    NO_END = 5
    ZERO_SIZE = 6
    TOO_LARGE = 7
    ALIGNMENT = 8
    SRAM_RANGE = 9
    BANK_CONFLICT = 10
    BUS_READ = 11
    BUS_WRITE = 12
    BUS_FETCH = 13
    RACE = 14


CAUSE_DOC: dict[Cause, str] = {
    Cause.NONE: "the program ran to its END",
    Cause.OPCODE: "unknown opcode",
    Cause.RESERVED: "a reserved bit of the instruction word or of a register value is set, or CFG names a"
    " parameter that the configuration lacks",
    Cause.REGISTER: "CFG of a register that does not exist, or SYNC of a unit that does not exist",
    Cause.UNIT_ABSENT: "the configuration has no such unit or instruction",
    Cause.NO_END: "the program's last page was passed without an END",
    Cause.ZERO_SIZE: "a size, count or region length is zero",
    Cause.TOO_LARGE: "STRIPE above the accumulator depth, a last block larger than the lanes, a group above the weight"
    " sets, a slide above 2, a channel multiplier above the lanes or together with a group, a row of NORM"
    " or SOFTMAX above 4,096 channels, pairs of pixels that a"
    " read cannot have or that a row or a stripe parts, columns that a word cannot have or that do not fill it, or"
    " what several kernel rows at once cannot have",
    Cause.ALIGNMENT: "the weight stream's address or length is not a multiple of the SRAM word",
    Cause.SRAM_RANGE: "a region does not lie inside the SRAM",
    Cause.BANK_CONFLICT: "a bank port that the instruction needs is in use by another unit, or twice by itself",
    Cause.BUS_READ: "the bus answered a DMA read with an error",
    Cause.BUS_WRITE: "the bus answered a DMA write with an error",
    Cause.BUS_FETCH: "the bus answered an instruction fetch with an error",
    Cause.RACE: "an operation would write SRAM bytes that another unit's operation in progress reads, or read what it"
    " writes: a SYNC is missing",
}


@dataclass(frozen=True)
class Field:
    """Bits ``low .. low + width - 1`` of an instruction word or a packed register."""

    name: str
    low: int
    width: int
    doc: str

    @property
    def mask(self) -> int:
        return ((1 << self.width) - 1) << self.low

    def get(self, word: int) -> int:
        """The field's value in ``word``, unsigned."""
        return (word >> self.low) & ((1 << self.width) - 1)

    def put(self, value: int) -> int:
        """``value`` at the field's place. Raises ValueError when it does not fit; negatives wrap to the width."""
        if not -(1 << (self.width - 1)) <= value < 1 << self.width:
            raise ValueError(f"{self.name} must fit {self.width} bits, not {value}")
        return (value & ((1 << self.width) - 1)) << self.low


OPCODE = Field("opcode", 0, 8, "operation")
CFG_REG = Field("reg", 8, 8, "register number: unit in bits 7:6, index in bits 5:0")
CFG_PARAM = Field("param", 16, 4, "number of the host register PARAM that is added to `value`; 0: none")
CFG_VALUE = Field("value", 32, 32, "new value of the register, less that parameter")
SYNC_UNIT = Field("unit", 8, 8, "the unit that waits")
SYNC_ON = Field("on", 16, 8, "the unit it waits for")
SYNC_PENDING = Field("pending", 32, 32, "how many of the instructions dispatched so far to `on` may still be running")


TRAITS = {
    "taps": "walks the taps of a window",
    "two_operands": "reads a second operand wherever it reads the first",
    "looks_up": "reads a table first, in which it looks up what it computes with, or its results",
    "records": "reads two words of 32 bits per channel in region B, in its last pass over a row",
    "passes": "goes over every row several times",
    "int32_input": "works on int32 operands",
    "int32_output": "has int32 results",
    "depthwise": "makes each output channel of one input channel",
    "matrix": "multiplies with a matrix in SRAM instead of a weight stream",
    "full_range": "clamps its results to the int8 range, whatever QUANT says",
}
"""What layers must know of an operation beside its opcode: flags of :class:`Instruction`, and their meaning."""


@dataclass(frozen=True)
class Stage:
    """What the vector unit has between an operation's operands and its result; ``latency`` in cycles."""

    name: str
    latency: int
    doc: str


SCALING = Stage(
    "scaling",
    18,
    "Eleven cycles form the operand of the final scaling (an int32's left shift; for an addition: differences, partial"
    " products, products, rounding in two, alignment, rounding, sum and comparison, choice, magnitude); then come the"
    " last seven of the array's REQUANTISE.",
)
DIRECT = Stage("direct", 3, "Results that need no scaling: look-up or shift, fraction, rounding.")
SOFTMAX = Stage(
    "softmax",
    18,
    "SOFTMAX: element and distance from the row's largest, look-up, entry; two cycles of multiplication, right shift,"
    " ten bits of the quotient, rounding.",
)
NO_STAGE = Stage("none", 0, "Not the vector unit's.")


@dataclass(frozen=True)
class Pass:
    """One of the times that an operation of the vector unit goes over a row, which is an output pixel. ``serial``:
    every block is read once for each of its lanes, an element per step. ``wait``: cycles before its first step, in
    TFLITE and in ONNX."""

    serial: bool = False
    wait: tuple[int, int] = (0, 0)


MAX_PASSES = 4
MAX_WAITS = range(256)
TABLE_BYTES = 256
"""Of a table of int8 results."""


@dataclass(frozen=True)
class Instruction:
    """One row of the instruction table. ``unit`` is None for what the front end does itself; ``feature`` is the member
    of :class:`~dovetail.isa.config.resolved.Config` that says whether an accelerator has the instruction, None for
    those that all have. The flags are :data:`TRAITS`. Of the vector unit's operations also: ``stage`` is what makes
    their results, ``compute`` what these are; ``scaling`` is what SCALING does, POOL's follows from its MODE;
    ``shifts`` are those of OUT_MULT, from and to, with which random operands make results that do not all clamp;
    ``passes`` are empty where each output is made of its own operands alone; results come in the last one, or, where
    there is a ``drain``, in the last one of the next row, and those of the last row in the drain, which reads nothing;
    a table has ``table_bytes``. ``extension`` is the package that an operation comes from, see
    :mod:`dovetail.isa.extensions`."""

    op: Op
    unit: Unit | None
    doc: str
    feature: str | None = None
    scaling: VectorOperation | None = None
    compute: semantics.Semantics = semantics.undefined
    stage: Stage = NO_STAGE
    shifts: tuple[int, int] = (0, 0)
    fields: tuple[Field, ...] = ()
    taps: bool = False
    two_operands: bool = False
    looks_up: bool = False
    table_bytes: int = TABLE_BYTES
    records: bool = False
    passes: tuple[Pass, ...] = ()
    drain: Pass | None = None
    int32_input: bool = False
    int32_output: bool = False
    depthwise: bool = False
    matrix: bool = False
    full_range: bool = False
    extension: str | None = None

    @property
    def rescales(self) -> bool:
        """Whether it scales one int8 operand, less its zero point."""
        return self.scaling is not None and not (self.two_operands or self.int32_input or self.records)

    @property
    def reads_b(self) -> bool:
        """Whether it reads region B: a second operand, a table, records or a matrix."""
        return self.two_operands or self.looks_up or self.records or self.matrix

    @property
    def moves(self) -> bool:
        """Whether it is a transfer between system memory and SRAM."""
        return self.unit in (Unit.LOAD, Unit.STORE)

    @property
    def input_bytes(self) -> int:
        """Bytes of an operand's element."""
        return 4 if self.int32_input else 1

    @property
    def output_bytes(self) -> int:
        """Bytes of a result; of ARRAY's MODE says."""
        return 4 if self.int32_output else 1

    def parameters(self, registers: Registers) -> VectorParameters:
        """What the vector unit's registers say of the operation's arithmetic."""
        return VectorParameters.read(registers, self.scaling)

    @property
    def reserved(self) -> int:
        """Mask of the bits that must be zero."""
        used = OPCODE.mask
        for field in self.fields:
            used |= field.mask
        return ~used & (1 << 64) - 1


NORM16_PASSES = (Pass(), Pass(wait=(90, 90)))
"""Of rows of 16 bits, whose variance has more digits."""

INSTRUCTIONS: dict[Op, Instruction] = {
    i.op: i
    for i in (
        Instruction(
            Op.CFG,
            None,
            "Write a unit's configuration register, in order with its work.",
            fields=(CFG_REG, CFG_PARAM, CFG_VALUE),
        ),
        Instruction(
            Op.SYNC,
            None,
            "Make `unit` wait until all but the last `pending` instructions dispatched so far to `on` are done.",
            fields=(SYNC_UNIT, SYNC_ON, SYNC_PENDING),
        ),
        Instruction(Op.END, None, "End of program: wait for every unit, then report completion."),
        Instruction(Op.DMA_READ, Unit.LOAD, "Strided 3-D transfer from system memory to SRAM."),
        Instruction(Op.DMA_WRITE, Unit.STORE, "Strided 3-D transfer from SRAM to system memory."),
        Instruction(
            Op.CONV, Unit.ARRAY, "2-D convolution tile; results clamp to the int8 range.", taps=True, full_range=True
        ),
        Instruction(
            Op.CONV_RELU, Unit.ARRAY, "2-D convolution tile; results clamp to QUANT.lo .. QUANT.hi.", taps=True
        ),
        Instruction(
            Op.DEPTH_CONV,
            Unit.ARRAY,
            "Depthwise convolution tile; results clamp to QUANT.lo .. QUANT.hi.",
            "depth_conv",
            taps=True,
            depthwise=True,
        ),
        Instruction(
            Op.MAT_MUL,
            Unit.ARRAY,
            "Product of the input's rows with an int8 matrix in SRAM; results clamp to QUANT.lo .. QUANT.hi.",
            "matmul",
            taps=True,
            matrix=True,
        ),
        Instruction(
            Op.POOL,
            Unit.VECTOR,
            "Maximum or average over a window.",
            "pooling",
            compute=semantics.pooled,
            stage=SCALING,
            shifts=(-5, 0),
            taps=True,
        ),
        Instruction(
            Op.E_ADD,
            Unit.VECTOR,
            "Element-wise sum, or difference, of two rescaled int8 tensors.",
            "elementwise",
            VectorOperation.ADD,
            add,
            SCALING,
            (-21, -17),
            two_operands=True,
        ),
        Instruction(
            Op.E_MUL,
            Unit.VECTOR,
            "Element-wise product of two int8 tensors, rescaled.",
            "elementwise",
            VectorOperation.MULTIPLY,
            multiply,
            SCALING,
            (-11, -7),
            two_operands=True,
        ),
        Instruction(
            Op.E_ABS,
            Unit.VECTOR,
            "Element-wise absolute value, rescaled.",
            "elementwise",
            VectorOperation.ABSOLUTE,
            semantics.magnitude,
            SCALING,
            (-2, 1),
        ),
        Instruction(
            Op.C_MIN,
            Unit.VECTOR,
            "Element-wise minimum of two rescaled int8 tensors.",
            "elementwise",
            VectorOperation.MINIMUM,
            add,
            SCALING,
            (-21, -17),
            two_operands=True,
        ),
        Instruction(
            Op.C_MAX,
            Unit.VECTOR,
            "Element-wise maximum of two rescaled int8 tensors.",
            "elementwise",
            VectorOperation.MAXIMUM,
            add,
            SCALING,
            (-21, -17),
            two_operands=True,
        ),
        Instruction(
            Op.ACT_RELU,
            Unit.VECTOR,
            "Rescale and clamp: ReLU, ReLU6, requantisation of an int8 tensor.",
            "activation",
            VectorOperation.REQUANTISE,
            semantics.rescaled,
            SCALING,
            (-2, 1),
        ),
        Instruction(
            Op.ACT_LRELU,
            Unit.VECTOR,
            "Leaky ReLU: one multiplier from the zero point up, another below.",
            "activation",
            VectorOperation.LEAKY,
            semantics.leaky,
            SCALING,
            (-2, 1),
        ),
        Instruction(
            Op.ACT_LUT,
            Unit.VECTOR,
            "Table of 256 int8 values: sigmoid, tanh, hard-swish, GELU, any function.",
            "activation",
            compute=semantics.looked_up,
            stage=DIRECT,
            looks_up=True,
        ),
        Instruction(
            Op.MOV, Unit.VECTOR, "Strided copy in SRAM, with padding.", "vector", compute=semantics.copied, stage=DIRECT
        ),
        Instruction(
            Op.E32_ADD,
            Unit.VECTOR,
            "Element-wise sum of two int32 tensors, modulo 2^32.",
            "elementwise",
            compute=semantics.sum32,
            stage=DIRECT,
            two_operands=True,
            int32_input=True,
            int32_output=True,
        ),
        Instruction(
            Op.E32_SHIFT,
            Unit.VECTOR,
            "Element-wise shift of an int32 tensor; to the right with rounding.",
            "elementwise",
            compute=semantics.shifted32,
            stage=DIRECT,
            shifts=(SHIFT_MIN, SHIFT_MAX),
            int32_input=True,
            int32_output=True,
        ),
        Instruction(
            Op.REQUANT,
            Unit.VECTOR,
            "int32 tensor to int8, by one multiplier.",
            "elementwise",
            VectorOperation.REQUANTISE,
            semantics.requantised,
            SCALING,
            (-27, -22),
            int32_input=True,
        ),
        Instruction(
            Op.SOFTMAX,
            Unit.VECTOR,
            "Softmax of every pixel's channels, with a table of 256 exponentials of 32 bits.",
            "softmax",
            compute=semantics.softmaxed,
            stage=SOFTMAX,
            looks_up=True,
            table_bytes=1024,
            passes=(Pass(wait=(24, 9)), Pass(serial=True, wait=(1, 1))),
            drain=Pass(serial=True, wait=(26, 11)),
        ),
        Instruction(
            Op.NORM,
            Unit.VECTOR,
            "Layer norm or RMS norm of every pixel's channels, up to 4,096, with a gain and an offset per channel.",
            "norm",
            VectorOperation.NORM,
            semantics.normed,
            SCALING,
            records=True,
            passes=(Pass(), Pass(wait=(80, 80))),
        ),
        Instruction(
            Op.WIDEN,
            Unit.VECTOR,
            "Rescale an int8 tensor to 16 bits, in int32; results clamp to the int16 range.",
            "norm16",
            VectorOperation.REQUANTISE,
            semantics.widened,
            SCALING,
            (3, 8),
            int32_output=True,
        ),
        Instruction(
            Op.NORM16,
            Unit.VECTOR,
            "As NORM, but of an int32 tensor whose low 16 bits count, without a zero point.",
            "norm16",
            VectorOperation.NORM,
            semantics.normed16,
            SCALING,
            records=True,
            passes=NORM16_PASSES,
            int32_input=True,
        ),
        Instruction(
            Op.NORM16_WIDE,
            Unit.VECTOR,
            "As NORM16, with results of 16 bits, in int32, which clamp to the int16 range.",
            "norm16",
            VectorOperation.NORM,
            semantics.normed16_wide,
            SCALING,
            records=True,
            passes=NORM16_PASSES,
            int32_input=True,
            int32_output=True,
        ),
    )
}
"""Every instruction that is known; :func:`dovetail.isa.extensions.load` adds to it. An accelerator has its own, see
:func:`dovetail.isa.instructions.checks.known`."""
DMA_OPS = {row.unit: row.op for row in INSTRUCTIONS.values() if row.unit is not None and row.moves}
"""The operation of LOAD and of STORE."""
BUS_CAUSES = {Unit.LOAD: Cause.BUS_READ, Unit.STORE: Cause.BUS_WRITE}
"""What a bus error of an operation of theirs is."""


def unit_of(op: int) -> Unit:
    """The unit that executes an operation."""
    unit = INSTRUCTIONS[Op(op)].unit
    assert unit is not None
    return unit


@dataclass(frozen=True)
class Register:
    """A 32-bit configuration register. Without ``fields`` all 32 bits are one unsigned number."""

    unit: Unit
    index: int
    name: str
    doc: str
    fields: tuple[Field, ...] = ()

    @property
    def number(self) -> int:
        """The number that CFG uses."""
        return self.unit << 6 | self.index

    @property
    def mask(self) -> int:
        """Bits that may be set."""
        return sum(f.mask for f in self.fields) if self.fields else 0xFFFF_FFFF


GEOMETRY = (
    Field("kh", 0, 8, "kernel rows"),
    Field("kw", 8, 8, "kernel columns (1 when packed along the lanes)"),
    Field("stride_y", 16, 8, "input rows per output row"),
    Field("dilation_y", 24, 8, "input rows per kernel row"),
)
TILE = (Field("height", 0, 16, "output rows"), Field("width", 16, 16, "output columns"))
BLOCKS = (
    Field("count", 0, 16, "blocks of output channels, the last included"),
    Field("last", 16, 8, "channels in the last block, 1 .. lanes"),
)
QUANT = (
    Field("zero_in", 0, 8, "int8 zero point of the input, what padding reads as"),
    Field("zero_out", 8, 8, "int8 zero point of the output"),
    Field("lo", 16, 8, "int8 lower clamp"),
    Field("hi", 24, 8, "int8 upper clamp"),
)

WINDOW = (
    ("IN_ADDR", "SRAM byte address of the input region", ()),
    ("IN_BYTES", "length of the input region; bytes outside read as QUANT.zero_in", ()),
    ("ORIGIN", "offset in the region of tap (0, 0) of output (0, 0) (negative with padding)", ()),
    ("Y_STEP", "bytes between the windows of vertically adjacent outputs", ()),
    ("X_STEP", "bytes between the windows of horizontally adjacent outputs", ()),
    ("KY_STEP", "bytes between kernel rows", ()),
    ("KX_STEP", "bytes between kernel columns", ()),
    ("IN_ROWS", "valid input rows", ()),
    ("ROW_BYTES", "valid bytes in an input row", ()),
    ("PAD_TOP", "rows of padding above the region", ()),
    ("PAD_LEFT", "bytes of padding left of a row", ()),
    ("GEOMETRY", "kernel and vertical steps", GEOMETRY),
    ("TILE", "output tile", TILE),
    ("QUANT", "zero points and clamp", QUANT),
    ("OUT_ADDR", "SRAM byte address of the output region", ()),
    ("OUT_BYTES", "length of the output region; a write that does not lie inside is dropped", ()),
    ("OUT_Y_STEP", "bytes between output rows", ()),
    ("OUT_X_STEP", "bytes between output pixels", ()),
    ("BLOCKS", "output channel blocks", BLOCKS),
)

DMA = (
    ("MEM_ADDR", "system memory byte address, relative to the host's BASE", ()),
    ("MEM_ROW_STEP", "bytes between rows in system memory", ()),
    ("MEM_PLANE_STEP", "bytes between planes in system memory", ()),
    ("SRAM_ADDR", "SRAM byte address of the region", ()),
    ("SRAM_BYTES", "length of the region; reads outside give zero, writes outside are dropped", ()),
    ("SRAM_ROW_STEP", "bytes between rows in SRAM", ()),
    ("SRAM_PLANE_STEP", "bytes between planes in SRAM", ()),
    ("LENGTH", "bytes of a row", ()),
    ("COUNT", "rows and planes", (Field("rows", 0, 16, "rows"), Field("planes", 16, 16, "planes"))),
)

ARRAY = (
    *WINDOW,
    (
        "KC",
        "blocks of ic_lanes bytes per kernel tap (1 .. 65535); not used by DEPTH_CONV",
        (
            Field("blocks", 0, 16, "blocks"),
            Field(
                "group",
                16,
                4,
                "input blocks per group less one: blocks whose weights are held at the same time, at most weight_sets",
            ),
        ),
    ),
    ("W_ADDR", "SRAM byte address of the weight stream, a multiple of the SRAM word", ()),
    ("W_BYTES", "length of the weight stream, a multiple of the SRAM word; beyond it the stream reads as zero", ()),
    ("STRIPE", "output pixels per stripe, 1 .. stripe", (Field("pixels", 0, 10, "pixels"),)),
    (
        "MODE",
        "how results leave the array",
        (
            Field("rounding", 0, 1, "0: tflite, 1: onnx"),
            Field("int32", 1, 1, "write int32 accumulators instead of requantised int8"),
            Field("accumulate", 2, 1, "start from the int32 values at the output addresses instead of the bias"),
            Field("extra", 4, 3, "DEPTH_CONV: output channels per input channel (channel multiplier) less one"),
            Field(
                "slide",
                8,
                2,
                "DEPTH_CONV: kernel columns from an output pixel to the next, 1 or 2, in place of X_STEP; 0: X_STEP",
            ),
            Field(
                "pairs",
                10,
                1,
                "CONV, CONV_RELU, MAT_MUL with pixel lanes: a read has the input of two pixels, X_STEP bytes apart",
            ),
            Field(
                "columns",
                11,
                2,
                "DEPTH_CONV with pixel lanes: a word has so many input columns beside each other, as a power of two",
            ),
            Field("rows", 13, 2, "DEPTH_CONV: lines before its own whose input a line sees, too"),
            Field("skip", 15, 2, "DEPTH_CONV with `rows`: lines without results between two with results"),
            Field("chain", 17, 1, "DEPTH_CONV with `rows`: it sees that of the steps before, not of the lines before"),
        ),
    ),
    ("B_ADDR", "MAT_MUL: SRAM byte address of the matrix", ()),
    ("B_BYTES", "MAT_MUL: length of its region; bytes outside read as zero_b", ()),
    ("B_STEP", "MAT_MUL: bytes between its rows", ()),
    (
        "B_FORM",
        "MAT_MUL: how the matrix is stored",
        (
            Field("zero_b", 0, 8, "int8 zero point"),
            Field("transposed", 8, 1, "a row holds what one output channel is multiplied with"),
        ),
    ),
)

VECTOR = (
    *WINDOW,
    (
        "MODE",
        "operation variant",
        (
            Field("rounding", 0, 1, "0: tflite, 1: onnx"),
            Field("average", 1, 1, "POOL: 0 maximum, 1 average"),
            Field("requantise", 2, 1, "POOL average: 1 requantise the sum by OUT_MULT/SHIFTS instead of dividing"),
            Field("subtract", 3, 1, "E_ADD: A less B; norms: 1 layer norm, 0 RMS norm"),
        ),
    ),
    (
        "B_ADDR",
        "SRAM byte address of the second operand's region; ACT_LUT, SOFTMAX: of the table; norms: of the records",
        (),
    ),
    ("B_BYTES", "length of that region; bytes outside read as zero_b", ()),
    (
        "B_Y_STEP",
        "bytes between rows of the second operand; 0 repeats a row; SOFTMAX: how many more elements count in the next"
        " row",
        (),
    ),
    (
        "B_X_STEP",
        "bytes between pixels of the second operand; 0 repeats a pixel; SOFTMAX: how many more elements count in the"
        " next pixel",
        (),
    ),
    ("B_ZERO", "int8 zero point of the second operand", (Field("zero_b", 0, 8, "zero point"),)),
    ("A_MULT", "E_ADD, C_MIN, C_MAX: multiplier of the first operand", (Field("mult", 0, 31, "multiplier"),)),
    (
        "B_MULT",
        "E_ADD, C_MIN, C_MAX: multiplier of the second operand; ACT_LRELU: below the zero point; norms:"
        " bits 55:32 of the term of eps",
        (Field("mult", 0, 31, "multiplier"),),
    ),
    (
        "OUT_MULT",
        "multiplier of the result; SOFTMAX in ONNX: levels that stand for 1, modulo 8192",
        (Field("mult", 0, 31, "multiplier"),),
    ),
    (
        "SHIFTS",
        "signed shifts of the three multipliers",
        (
            Field("a", 0, 6, "shift of A_MULT"),
            Field("b", 8, 6, "shift of B_MULT"),
            Field("out", 16, 6, "shift of OUT_MULT; E32_SHIFT: to the left, or rounding to the right if negative"),
        ),
    ),
    (
        "SUM_BIAS",
        "int32 added to an average's sum of taps, which count padding as QUANT.zero_in, and to the int32 values of"
        " E32_ADD, E32_SHIFT and REQUANT; norms: bits 31:0 of the term of eps",
        (),
    ),
    (
        "POOL_COUNT",
        "POOL average: taps per window; SOFTMAX: elements of the first pixel that count",
        (Field("count", 0, 15, "taps, or elements"),),
    ),
    ("POOL_MAGIC", "POOL average: reciprocal of 2 * count, see `average_magic`", (Field("mult", 0, 31, "multiplier"),)),
    ("POOL_SHIFT", "POOL average: signed shift that belongs to it", (Field("shift", 0, 6, "shift of POOL_MAGIC"),)),
)

REGISTERS: dict[Unit, dict[str, Register]] = {
    unit: {name: Register(unit, index, name, doc, fields) for index, (name, doc, fields) in enumerate(rows)}
    for unit, rows in ((Unit.LOAD, DMA), (Unit.ARRAY, ARRAY), (Unit.VECTOR, VECTOR), (Unit.STORE, DMA))
}
BY_NUMBER: dict[int, Register] = {r.number: r for unit in REGISTERS.values() for r in unit.values()}


def _check_tables() -> None:
    """Refuse overlapping or overflowing fields when the tables load."""
    groups = [(str(i.op.name), 64, (OPCODE, *i.fields)) for i in INSTRUCTIONS.values()]
    groups += [(f"{r.unit.name}.{r.name}", 32, r.fields) for r in BY_NUMBER.values()]
    for name, width, fields in groups:
        used = 0
        for field in fields:
            if field.mask & used or field.low + field.width > width:
                raise AssertionError(f"field {field.name} of {name} overlaps another or exceeds {width} bits")
            used |= field.mask
    for unit, registers in REGISTERS.items():
        if len(registers) > 64:
            raise AssertionError(f"{unit.name} must have at most 64 registers, not {len(registers)}")


_check_tables()


def pack(unit: Unit, name: str, **values: int) -> int:
    """The value of a packed register from its fields, all of which must be given."""
    register = REGISTERS[unit][name]
    if {f.name for f in register.fields} != set(values):
        raise ValueError(f"{unit.name}.{name} must be given {[f.name for f in register.fields]}, not {sorted(values)}")
    return sum(f.put(values[f.name]) for f in register.fields)


def pack_some(unit: Unit, name: str, **values: int) -> int:
    """As :func:`pack`, but fields that are not given are 0."""
    return pack(unit, name, **dict.fromkeys((f.name for f in REGISTERS[unit][name].fields), 0) | values)


def unpack(unit: Unit, name: str, value: int) -> dict[str, int]:
    """The fields of a packed register's value, unsigned."""
    return {f.name: f.get(value) for f in REGISTERS[unit][name].fields}


def cfg(unit: Unit, name: str, value: int, param: int = 0) -> int:
    """The word that writes ``value`` (modulo 2^32) to a register, plus a parameter if it names one."""
    number = REGISTERS[unit][name].number << CFG_REG.low
    return Op.CFG | number | CFG_PARAM.put(param) | (value & 0xFFFF_FFFF) << CFG_VALUE.low


def sync(unit: Unit, on: Unit, pending: int = 0) -> int:
    """The word that makes ``unit`` wait for ``on``."""
    return Op.SYNC | SYNC_UNIT.put(unit) | SYNC_ON.put(on) | SYNC_PENDING.put(pending)


@dataclass(frozen=True)
class Decoded:
    """A decoded word; ``fault`` is what the front end raises for it."""

    word: int
    op: Op | None
    fault: Cause = Cause.NONE
    register: Register | None = None
    value: int = 0
    unit: Unit | None = None
    on: Unit | None = None
    param: int = 0


def decode(word: int) -> Decoded:
    """Decode a 64-bit word. Absent units and parameters are the engine's business, not the decoder's."""
    code = OPCODE.get(word)
    if code not in INSTRUCTIONS:
        return Decoded(word, None, Cause.OPCODE)
    op = Op(code)
    row = INSTRUCTIONS[op]
    if word & row.reserved:
        return Decoded(word, op, Cause.RESERVED)
    if op == Op.CFG:
        register = BY_NUMBER.get(CFG_REG.get(word))
        value = CFG_VALUE.get(word)
        if register is None:
            return Decoded(word, op, Cause.REGISTER)
        if value & ~register.mask:
            return Decoded(word, op, Cause.RESERVED)
        return Decoded(word, op, Cause.NONE, register, value, register.unit, param=CFG_PARAM.get(word))
    if op == Op.SYNC:
        unit, on = SYNC_UNIT.get(word), SYNC_ON.get(word)
        if unit >= len(Unit) or on >= len(Unit):
            return Decoded(word, op, Cause.REGISTER)
        return Decoded(word, op, Cause.NONE, None, SYNC_PENDING.get(word), Unit(unit), Unit(on))
    return Decoded(word, op, Cause.NONE, None, 0, row.unit)


def to_bytes(words: Iterable[int]) -> bytes:
    """Little-endian bytes of a stream."""
    return b"".join(w.to_bytes(WORD_BYTES, "little") for w in words)


def from_bytes(data: bytes) -> Iterator[int]:
    """The words of a stream."""
    for i in range(0, len(data), WORD_BYTES):
        yield int.from_bytes(data[i : i + WORD_BYTES], "little")
