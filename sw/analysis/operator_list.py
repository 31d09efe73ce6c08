"""The list of supported operators, ``docs/operators.md``: which of a file's operators run on the accelerator, and how.

Make it anew with ``python -m dovetail.sw.analysis.operator_list docs/operators.md``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from inspect import getdoc
from pathlib import Path
from textwrap import fill

from dovetail.isa.instructions.table import DMA_OPS, INSTRUCTIONS, Op
from dovetail.sw.compiler.partition.segments import RULES, pays_for_its_round_trip
from dovetail.sw.frontend.onnx.operators.elementwise import COMBINATIONS, FUNCTIONS
from dovetail.sw.frontend.tflite.floats.convert import OPERATORS as FLOAT_OPERATORS
from dovetail.sw.frontend.tflite.operators.elementwise import FUNCTIONS as TFLITE_FUNCTIONS
from dovetail.sw.frontend.tflite.operators.elementwise import RECTIFIERS
from dovetail.sw.network.elementwise import PAIR_OPERATORS


@dataclass(frozen=True)
class Row:
    """Operators of both kinds of files that become the same instructions, and what they must satisfy."""

    tflite: tuple[str, ...]
    onnx: tuple[str, ...]
    instructions: tuple[Op, ...]
    rule: str


ROWS = (
    Row(("CONV_2D",), ("Conv", "QLinearConv"), (Op.CONV_RELU,), "constant 8-bit weights; any stride, dilation, groups"),
    Row(
        ("DEPTHWISE_CONV_2D",),
        (),
        (Op.DEPTH_CONV,),
        "ONNX: Conv with one input channel per group; a channel multiplier above 8 or the output lanes: CONV_RELU",
    ),
    Row(
        ("FULLY_CONNECTED",),
        ("Gemm", "QGemm", "MatMul", "QLinearMatMul", "MatMulInteger"),
        (Op.CONV_RELU,),
        "constant 8-bit weights; ONNX: MatMul and Add too; a float result is int32 sums, which the host scales",
    ),
    Row(
        ("BATCH_MATMUL",),
        ("MatMul", "QLinearMatMul"),
        (Op.MAT_MUL,),
        "two activations, equally many matrices; ONNX: or one matrix for all rows; TFLite: FULLY_CONNECTED with "
        "computed weights too",
    ),
    Row(
        tuple(row.tflite for row in PAIR_OPERATORS.values()),
        (*(row.onnx for row in PAIR_OPERATORS.values()), "QLinearAdd", "QLinearMul"),
        tuple(op for op, row in INSTRUCTIONS.items() if row.two_operands and not row.int32_input),
        "one shape, or one row, column or channel (repeated by CONV_RELU) in an operand; constants too; ONNX: Min and "
        "Max of 8-bit integers as they are. With a "
        "constant of one element, or all on one tensor (`x * sigmoid(x)`): ACT_LUT",
    ),
    Row(tuple(RECTIFIERS), (), (Op.ACT_RELU,), "alone; behind a convolution, pooling or sum they cost nothing"),
    Row(
        ("QUANTIZE",),
        (),
        (Op.ACT_RELU,),
        "8 bits to 8 bits, at the ends of a TFLite file from or to uint8 too; from float on the host",
    ),
    Row(
        ("SOFTMAX",),
        ("Softmax", "QLinearSoftmax"),
        (Op.SOFTMAX,),
        "along the last axis in memory; ONNX: equal to ONNX Runtime where that fuses it with its conversions, else at "
        "most one step off, and on the host with `--exact`; factors in front of it are a part of the scale",
    ),
    Row(
        (),
        ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"),
        (Op.NORM, Op.NORM16, Op.NORM16_WIDE),
        "between integers, of 8 bits, or of 16 in a stream, of rows in one piece in memory, with constant gains and "
        "offsets: at most one step off ONNX Runtime's float kernel; with `--exact` on the host",
    ),
    Row(("ABS",), (), (Op.E_ABS,), ""),
    Row(("LEAKY_RELU",), (), (Op.ACT_LRELU,), "with a negative slope: ACT_LUT"),
    Row(
        TFLITE_FUNCTIONS,
        (*FUNCTIONS, *COMBINATIONS, "QLinearSigmoid", "QLinearLeakyRelu"),
        (Op.ACT_LUT,),
        "functions of one activation; ONNX: any expression of these (Add and the like with constants of one element)"
        " between DequantizeLinear and QuantizeLinear, Relu and Clip behind another operator at no cost;"
        " Relu alone that keeps its quantisation: POOL",
    ),
    Row((), ("QuantizeLinear", "DequantizeLinear"), (Op.ACT_LUT,), "from one 8-bit quantisation to another; else host"),
    Row(
        (),
        ("QuantizeLinear", "DequantizeLinear", "Add"),
        (Op.WIDEN, Op.E32_ADD, Op.REQUANT),
        "streams, tensors of 16 bits: int16 without a zero point, of one scale, a power of two, with which no sum can "
        "leave 16 bits; a second operand may be constant; they move as 8-bit tensors do",
    ),
    Row(
        ("AVERAGE_POOL_2D",),
        ("AveragePool", "QLinearAveragePool"),
        (Op.POOL,),
        "quantisation kept; padding counted or not (an instruction per area of equal count)",
    ),
    Row(("MAX_POOL_2D",), ("MaxPool",), (Op.POOL,), "quantisation kept"),
    Row(
        ("MEAN",),
        ("GlobalAveragePool", "QLinearGlobalAveragePool", "ReduceMean"),
        (Op.POOL,),
        "over height and width",
    ),
    Row(
        ("PAD", "PADV2"),
        ("Pad",),
        (Op.MOV,),
        "constant sizes; none at all in front of a convolution or pooling that can do it; ONNX: height, width and "
        "channels, with zero",
    ),
    Row(
        ("CONCATENATION",),
        ("Concat", "QLinearConcat"),
        tuple(DMA_OPS.values()),
        "parts are stored in their place where whatever else reads them can step from pixel to pixel; ONNX: other "
        "quantisations are rescaled by ACT_LUT first",
    ),
    Row(
        ("SLICE", "STRIDED_SLICE", "SPLIT", "SPLIT_V"),
        ("Slice", "Split"),
        tuple(DMA_OPS.values()),
        "constant bounds, forwards; none at all for channels or rows read by what can step from pixel to pixel",
    ),
    Row(
        ("RESIZE_NEAREST_NEIGHBOR",),
        ("Resize",),
        tuple(DMA_OPS.values()),
        "nearest pixel, whole factors: every pixel is repeated",
    ),
    Row(
        ("TRANSPOSE", "SPACE_TO_DEPTH", "DEPTH_TO_SPACE"),
        ("Transpose", "SpaceToDepth", "DepthToSpace"),
        (Op.MOV,),
        "ONNX: only where bytes must move; the order of channels goes into the weights of a convolution next to it",
    ),
    Row(
        ("RESHAPE", "SQUEEZE", "EXPAND_DIMS"),
        ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"),
        (),
        "nothing to do",
    ),
)


HEADER = """\
# Operators

<!-- Made by `python -m dovetail.sw.analysis.operator_list docs/operators.md`. Change that file; a test compares. -->

The operators of int8 networks, and the instructions that execute them. TFLite files give the results of TFLite Micro
(or of LiteRT's reference kernels, where TFLite Micro lacks an operator and for uint8 files). ONNX files (QDQ and
QOperator, int8 or uint8 activations) give those of ONNX Runtime's integer kernels. Operators that ONNX defines in
float32 become tables if they have one 8-bit input, and so 256 cases. All other operators, and nodes that do not meet
the rule, run on the host with LiteRT's reference kernels or ONNX Runtime; `dovetail compile` and `run` say which and
why. Softmax between 8-bit integers is computed, on the host too, in integers that give the bytes of these kernels.

| TFLite | ONNX | instructions | rule |
|---|---|---|---|
"""

CONFIGURATION = """
## What the configuration decides

A node that breaks one of these runs on the host:

"""

UNSIGNED = """
## uint8 TFLite files

Files from before TFLite's int8 quantisation have uint8 activations, and weights with one zero point per tensor.
Internally, activations are 128 lower, which changes no result. Weights minus their zero point may exceed int8. They are
then split into a sum of two int8 arrays (three where a weight is 255). Blocks of output channels with such weights take
more steps: twice as many in dense layers, 1 x 1 convolutions and first layers. Depthwise layers take a second
instruction for the affected taps. Other convolutions take a further pass over the affected input channels. MobileNetV1
takes 1.1 to 1.5 times the cycles of its int8 form (`decisions/0011-old-uint8-weights.md`). MEAN, ABS, LEAKY_RELU and
BATCH_MATMUL of uint8 files run on the host.
"""

STATE = """
## Variables

READ_VARIABLE, ASSIGN_VARIABLE, VAR_HANDLE and CALL_ONCE of TFLite files cost nothing. Operators with a state of their
own (UNIDIRECTIONAL_SEQUENCE_LSTM, SVDF, RNN) run on the host. ONNX's LSTM, GRU and RNN are spelled out when a float
network is quantised, and run on the accelerator. See [state](state.md).
"""

UNKNOWN = """
## Unknown operators

TFLite's custom operators that LiteRT implements (`TFLite_Detection_PostProcess` in float and uint8) run on the host.
Dovetail cannot run other custom operators, control flow, and ONNX nodes of domains other than ONNX's and ONNX
Runtime's. It computes everything that does not depend on them; `dovetail export` writes the rest as a file. See
[exported parts](export.md).
"""

DIFFERENCES = """
## Where runtimes differ

- ONNX Runtime's QLinearAdd and QLinearMul add the zero point before they round to even; the accelerator adds it
  afterwards. Near ties, and exact ties with an odd zero point, may round differently. So the compiler searches for
  multipliers, zero points and a rounding with which all 65536 pairs of bytes give ONNX Runtime's result. If it finds
  none, the layer runs on the host with ONNX Runtime's kernel. With random scales that happens for 3 sums in 1000.
  Scales written by hand, such as 0.05 or 0.062, cause many ties (an odd multiple of half a step is common). Of 1,000
  random cases with scales of one or two digits from 0.005 to 0.099, 41 % of the sums and 33 % of the products run on
  the host. The cause is the accelerator's rounding, not the search: the kernel rounds to 24 bits with the zero point
  included, and this decides these ties. Of 74 such products, neither factors changed by up to 400 units nor TFLite's
  rounding corrects any; of 41 such sums, equivalent zero points correct one. Sums with power-of-two scales always fit.
  `dovetail quantise` chooses scales that all fit.
- The results of these kernels depend on the bytes, and on two other things. First, if the first operand of a sum is
  constant over a run of the second's elements (`[1, C, 1, 1] + [1, C, H, W]`, or tensors of one element), ONNX Runtime
  swaps the operands. This moves near ties, so Dovetail swaps them too. Second, int8 and uint8 kernels round float32 at
  different magnitudes, which changes about one pair in 10^5. QOperator files use the kernels of their type, QDQ files
  those of uint8. Vector bodies and tails do not differ (measured with version 1.32 on AVX-512, all lengths from 2 to
  139, one and two threads).
- RELU6 on its own, with different input and output scales: TFLite Micro does not rescale, LiteRT and Dovetail do.
- Sub, Min and Max have no integer kernel in ONNX Runtime. It computes them in float32 and quantises the result; the
  accelerator gives the same result for every pair of bytes.
- Averages of ONNX files round ties to even, in the integers of the file. ONNX Runtime's QLinearAveragePool adds float32
  values, one tap after the other, so their last bits decide a tie. (2 x 2 and 4 x 4 windows have ties; 3 x 3 and 5 x 5
  have none.) The result is therefore no function of the sum, and no rounding, multiplier or rescaling can reproduce
  it. With a scale of 0.05 and zero point 0, the window 37, 44, 41, 16 gives 35, and 16, 41, 44, 37 gives 34; both
  averages are 34.5. Of the ties of random bytes up to 12 % (2 x 2) and 22 % (4 x 4) differ by one step, depending on
  the scale. All other results are equal. If the scale has few bits, all sums are exact. `dovetail quantise` therefore
  gives averaged tensors a scale of 8 bits, and both results are always equal. `dovetail diff` reports when an average
  differs at ties only.
- A float layer norm that directly follows sums (a residual, a bias): ONNX Runtime fuses them to SkipLayerNormalization,
  whose float32 results differ in the last bit from those of the separate operators. Dovetail therefore passes these
  nodes to ONNX Runtime together. (With separate nodes, a keyword transformer with 12 such blocks and only its matrix
  products quantised had 34 of 228 logits off by some steps; now it has none.) GELU with its bias (BiasGelu) gives the
  same values either way.
- ONNX Runtime's SimplifiedLayerNormalization, SkipLayerNormalization, SkipSimplifiedLayerNormalization, Attention,
  MultiHeadAttention, GroupQueryAttention (one token) and RotaryEmbedding are spelled out in standard operators when a
  float network is read. Masks of keys, local windows, packed queries and interleaved rotations are refused in a line.
  In a quantised network the host has the runtime's kernels for them.
- RMSNorm, which Deeploy's float networks have, is no operator of ONNX or ONNX Runtime. It is read as RMSNormalization
  of the last axis, with an epsilon of 10^-6 where the file names none. Such a file names an operator set that is too
  old for its HardSwish; it is taken to be of the first one that has all of its operators, so its Softmax is along the
  last axis. Attributes that the standard does not know are for integers, and left out.
- Networks of ONNX Runtime's dynamic quantisation (DynamicQuantizeLinear, MatMulInteger) find scales and zero points in
  each run. The accelerator has their matrix products, around a zero point of 0; all else, and what the zero point
  changes, is the host's.
- `E32_SHIFT` is for hand-written programs. No operator here needs it: when the compiler splits a sum, the array adds
  the parts in its accumulators.
- A stream's tensors are int32 in memory. WIDEN and REQUANT give the bytes of ONNX Runtime's float32 for every value,
  or the host computes them. Of 400 random scales behind REQUANT, 7 need a multiplier that is a few units away from
  their quotient, and one of these has none.
"""

FUSED = """
## What ONNX Runtime fuses between DequantizeLinear and QuantizeLinear

Measured with version 1.32 on x86-64, in a session with default optimisations. `dovetail diff` opens such sessions. It
runs int8 QDQ files in their uint8 form, in which convolutions and matrix products are integer too.

| operator | uint8 | int8 | Dovetail |
|---|---|---|---|
| Conv | QLinearConv | float | integer, as QLinearConv |
| MatMul | QLinearMatMul | float | integer, as QLinearMatMul |
| Gemm | QGemm | QGemm | integer, as QGemm |
| MatMul with a float result | MatMulIntegerToFloat | float | int32 sums, which the host multiplies by their step |
| Gemm, MatMul and Add, with an int32 bias and a float result | QGemm | float | the same |
| Add, Mul | QLinearAdd, QLinearMul | the same | the kernel's bytes for every pair, else the kernel on the host |
| Sub, Min, Max | float | float | float32's bytes for every pair |
| Softmax | QLinearSoftmax | QLinearSoftmax | its bytes, in integers on the host; generated C has its table |
| Sigmoid, LeakyRelu | QLinearSigmoid, QLinearLeakyRelu | the same | a table of what the session gives for each byte |
| other functions of one element | float (HardSwish: HardSigmoid and Mul; Gelu, QuickGelu) | the same | the same |
| Concat | QLinearConcat | QLinearConcat | movement, and a table for each part in another quantisation |
| AveragePool | QLinearAveragePool | the same | integer if the quantisation stays, else the kernel on the host |
| GlobalAveragePool | QLinearGlobalAveragePool | the same | integer, as the kernel |
| ReduceMean over height and width | float | float | integer |
| MaxPool, Relu, Clip, Transpose, Reshape, Resize, Slice, Pad | float | float | integer: nothing is rounded |
| LayerNormalization, LogSoftmax, InstanceNormalization, Div of two tensors | float | float | float on the host |

ONNX Runtime does not fuse an operator that is followed by Relu or Clip. The uint8 form therefore inserts a
QuantizeLinear/DequantizeLinear pair between them.
"""

FLOAT = """
## Float TFLite networks

`dovetail quantise` takes these operators, with the usual fused activations, and weights in float32, float16 or 8 bits:

"""


def text() -> str:
    """The whole document."""
    rules = [" ".join((getdoc(rule) or "").split()) for rule in (*RULES, pays_for_its_round_trip)]
    return (
        HEADER
        + "".join(map(_line, ROWS))
        + CONFIGURATION
        + "".join(f"- {rule}\n" for rule in rules)
        + UNSIGNED
        + STATE
        + UNKNOWN
        + DIFFERENCES
        + FUSED
        + _float()
    )


def _float() -> str:
    return FLOAT + fill(f"{', '.join(sorted(FLOAT_OPERATORS))}.", 120, break_on_hyphens=False) + "\n"


def _line(row: Row) -> str:
    instructions = ", ".join(f"`{op.name}`" for op in row.instructions)
    return f"| {', '.join(row.tflite)} | {', '.join(row.onnx)} | {instructions} | {row.rule} |\n"


def main() -> None:
    """Write the document to the file named on the command line."""
    Path(sys.argv[1]).write_text(text())


if __name__ == "__main__":
    main()
