"""Quantise a float network: ONNX or TFLite in, QDQ ONNX out, with the figures of what that costs."""

import argparse
import math
import sys
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from dovetail.flows.options.network import add_seed_option, add_shape_option, add_state_option, shapes_of, states_of
from dovetail.flows.output.reply import Report
from dovetail.flows.output.tables import new_table
from dovetail.isa.common.files import write_atomically
from dovetail.sw import frontend
from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.onnx.parsed import ParsedOnnx
from dovetail.sw.frontend.onnx.states import States, note
from dovetail.sw.frontend.parsed_file import Remainder
from dovetail.sw.network.layout import Array, Sample
from dovetail.sw.quantise.automatic import Goal, Search, Trial, search
from dovetail.sw.quantise.calibration import Calibration
from dovetail.sw.quantise.ends import integer_ends
from dovetail.sw.quantise.float_network import FloatGraph, float_model, rest_of
from dovetail.sw.quantise.quality import Comparison, Quality
from dovetail.sw.quantise.quantiser import Quantised, apply
from dovetail.sw.quantise.samples import FileSamples, RandomSamples, Steps, labels_of, without_states
from dovetail.sw.quantise.scheme import Scheme
from dovetail.sw.quantise.smoothing import smooth

_SCHEME_HELP = (
    "words in any order: asymmetric, symmetric, symmetric-uint8 or power-of-two activations; per-channel or per-tensor"
    " weights; percentile=VALUE, minmax or kl clipping; uncorrected biases; integer-sums or int16-sums; float-first,"
    " float-last, int32-last, float=NODE; default: asymmetric per-channel percentile=99.99"
)
_MOST_LAYERS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("network", metavar="NETWORK", help="a float .onnx or .tflite file")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--calibration",
        metavar="X.npz|X.npy|FOLDER",
        type=Path,
        help="inputs, one or a batch, as the float network takes them",
    )
    source.add_argument("--random", metavar="N", type=int, help="calibrate with N random inputs: there is no data")
    add_seed_option(parser, "of the random inputs")
    parser.add_argument("--output", metavar="Q.onnx", type=Path, help="the QDQ network (without: report only)")
    parser.add_argument("--scheme", metavar="WORDS", default="", help=_SCHEME_HELP)
    parser.add_argument(
        "--keep-float", metavar="NODE", action="append", default=[], help="a node that stays float, or a pattern with *"
    )
    parser.add_argument(
        "--smooth",
        action="store_true",
        help="bring channels of norms and gated layers to like ranges first, by the calibration inputs",
    )
    parser.add_argument(
        "--auto",
        metavar="GOAL",
        help="accuracy=POINTSpt (below float, needs --labels) or sqnr=DECIBELdB: the first scheme that reaches it",
    )
    parser.add_argument(
        "--write-best", action="store_true", help="with --auto: write the best even if it misses the goal"
    )
    parser.add_argument(
        "--evaluate", metavar="X.npz|X.npy|FOLDER", type=Path, help="inputs to compare on; default: the calibration's"
    )
    parser.add_argument(
        "--labels", metavar="Y.npy|Y.npz[:KEY]", help="classes of the inputs to compare on; default key: y"
    )
    parser.add_argument("--per-layer", action="store_true", help="print the signal-to-noise of every node, worst first")
    parser.add_argument(
        "--integer-ends",
        action="store_true",
        help="inputs and outputs of the QDQ network are its 8-bit integers, not floats; variables stay what they are",
    )
    add_shape_option(parser)
    add_state_option(parser)


def run(args: argparse.Namespace) -> Report:
    scheme, goal = _scheme(args), Goal.parse(args.auto) if args.auto else None
    if goal and args.scheme:
        raise NetworkError("--auto must choose the scheme itself; leave out --scheme")
    if args.write_best and not goal:
        raise NetworkError("--write-best must come with --auto, the search for the best scheme")
    if args.integer_ends and not args.output:
        raise NetworkError("--integer-ends must come with --output, the network that has them")
    if args.output and not args.output.resolve().parent.is_dir():
        raise NetworkError(f"{args.output}: must be in a folder that exists")
    source = frontend.parse(frontend.read(args.network, states_of(args)), shapes_of(args))
    model = float_model(source)
    states = source.states if isinstance(source, ParsedOnnx) else {}
    graph = FloatGraph(model, states)
    rest = (source.remainder, rest_of(source, model)) if source.remainder else None
    if rest and args.integer_ends:
        raise NetworkError(f"--integer-ends must be left out: what is behind {source.name} takes floats")
    samples = _samples(args, graph, states)
    labels = _labels(args.labels) if args.labels else None
    if args.smooth:
        graph = smooth(graph, samples)
    calibration = Calibration(graph, samples)
    compared = _stepped(graph, states, args.evaluate) if args.evaluate else samples
    if goal:
        found = search(calibration, goal, compared, labels, scheme.keep_float, _tell)
        if states or args.state:
            note(found.quantised.model, states)
        return _with_rest(_searched(args, calibration, found, str(goal), states), args, rest)
    quantised = apply(calibration, scheme)
    if states or args.state:
        note(quantised.model, states)
    quality = Comparison(graph).quality(quantised.model, compared, labels, layers=args.per_layer)
    data, text = _outcome(args, calibration, scheme, quantised, quality)
    if args.output:
        data["output"] = str(args.output)
        text += _write(args, quantised, states, data)
    return _with_rest(Report(data, text), args, rest)


# --- what the user asked for --------------------------------------------------------------------------------------


def _scheme(args: argparse.Namespace) -> Scheme:
    scheme = Scheme.parse(args.scheme)
    return replace(scheme, keep_float=(*scheme.keep_float, *args.keep_float))


def _samples(args: argparse.Namespace, graph: FloatGraph, states: States) -> Iterable[Sample]:
    if args.random is None:
        return _stepped(graph, states, args.calibration)
    random = RandomSamples(without_states(graph.inputs, states), args.random, args.seed)
    return Steps(graph, states, random) if states else random


def _stepped(graph: FloatGraph, states: States, path: Path) -> Iterable[Sample]:
    """The samples of a file or folder; steps of a network with variables."""
    files = FileSamples(path, without_states(graph.inputs, states))
    return Steps(graph, states, files) if states else files


def _labels(text: str) -> Array:
    path, _, key = text.rpartition(":")
    return labels_of(Path(path), key) if path and not Path(text).exists() else labels_of(Path(text))


def _with_rest(report: Report, args: argparse.Namespace, rest: tuple[Remainder, bytes] | None) -> Report:
    """Report the operators that are unknown here and all behind them, and write them beside the output."""
    if rest is None:
        return report
    remainder, content = rest
    data: dict[str, Any] = {"left": list(remainder.left)}
    lines = [f"left to you  {remainder.text}"]
    if "output" in report.data:
        path = args.output.with_suffix(".rest.tflite" if frontend.is_tflite(content) else ".rest.onnx")
        write_atomically(path, content)
        data["rest"] = str(path)
        lines.append(f"rest         {path}: as it was; its inputs are outputs of {args.output}")
    return replace(report, data={**report.data, **data}, text=[*report.text, *lines])


def _write(args: argparse.Namespace, quantised: Quantised, states: States, data: dict[str, Any]) -> list[str]:
    """Write the network; what is told of it, as text and in ``data``."""
    lines, model = [], quantised.model
    if args.integer_ends:
        ends = integer_ends(model, {*states, *states.values()})
        data["integer_ends"] = [asdict(end) for end in ends]
        lines = [f"integers     {end.name}: {end.dtype}, {end.scale:.9g} * (value {-end.zero_point:+})" for end in ends]
    content = model.SerializeToString()
    write_atomically(args.output, content)
    return [*lines, f"output       {args.output}: {len(content):,} bytes"]


# --- what came of it ----------------------------------------------------------------------------------------------


def _outcome(
    args: argparse.Namespace, calibration: Calibration, scheme: Scheme, quantised: Quantised, quality: Quality
) -> tuple[dict[str, Any], list[Any]]:
    """Data and text of one quantised network."""
    plan = quantised.plan
    source = f"random, seed {args.seed}: no data, so ranges and figures say little" if args.random else args.calibration
    data: dict[str, Any] = {
        "network": args.network,
        "scheme": str(scheme),
        "calibration": {"samples": calibration.count, "random": args.random is not None},
        "layers": len(plan.layers),
        "integer_layers": len(plan.weights),
        "float_nodes": plan.floating,
        "quality": _quality(quality),
    }
    text: list[Any] = [_layer_table(quality)] if args.per_layer else []
    names = ", ".join(plan.floating[:4]) + (", ..." if len(plan.floating) > 4 else "")
    lines = [
        f"{args.network}: {scheme}",
        f"calibration  {calibration.count} samples ({source})",
        f"integer      {len(plan.weights)} of {len(plan.layers)} layers"
        + (f"; stay float: {names} ({len(plan.floating)})" if plan.floating else ", and all other nodes"),
        *(f"output SNR   {_decibel(value)} {name}" for name, value in quality.sqnr.items()),
    ]
    if quality.drop is not None:
        lines.append(f"accuracy     {_accuracy(quality)}")
    lines.append(f"compared     {quality.samples} samples, by {quality.engine}")
    return data, [*text, *lines]


def _searched(args: argparse.Namespace, calibration: Calibration, found: Search, goal: str, states: States) -> Report:
    best = found.best
    data, text = _outcome(args, calibration, best.scheme, found.quantised, best.quality)
    data |= {
        "goal": args.auto,
        "met": found.met,
        "tried": [
            {"scheme": str(t.scheme), "float_layers": t.float_layers, "quality": _quality(t.quality)}
            for t in found.trials
        ],
    }
    rows = []
    for trial in found.trials:
        q = trial.quality
        drop = ["", "", ""] if q.drop is None else [f"{q.float_accuracy:.2%}", f"{q.accuracy:.2%}", f"{q.drop:.2f}"]
        rows.append([str(trial.scheme), str(trial.float_layers), _decibel(q.worst), *drop])
    table = new_table("Tried", ("scheme", ">float layers", ">SNR", ">float", ">quantised", ">points below"), rows)
    text.insert(0, table)
    if not found.met:
        text.append(f"No scheme gives {goal}; the best is {str(best.scheme)!r}.")
    if args.output and (found.met or args.write_best):
        data["output"] = str(args.output)
        text += _write(args, found.quantised, states, data)
    elif args.output:
        text.append(f"Nothing is written to {args.output}; --write-best would.")
    return Report(data, text, 0 if found.met else 1)


def _tell(trial: Trial) -> None:
    accuracy = "" if trial.quality.accuracy is None else f", accuracy {trial.quality.accuracy:.2%}"
    print(f"{trial.scheme}: {_decibel(trial.quality.worst)}{accuracy}", file=sys.stderr)


def _quality(quality: Quality) -> dict[str, Any]:
    return {
        "samples": quality.samples,
        "sqnr": {name: _finite(value) for name, value in quality.sqnr.items()},
        "float_accuracy": quality.float_accuracy,
        "accuracy": quality.accuracy,
        "engine": quality.engine,
        "layers": [
            {"node": layer.node, "tensor": layer.tensor, "sqnr": _finite(layer.sqnr), "loss": _finite(layer.loss)}
            for layer in quality.layers
        ],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _decibel(value: float) -> str:
    return f"{value:.1f} dB" if math.isfinite(value) else "exact" if value > 0 else "no signal"


def _accuracy(quality: Quality) -> str:
    assert quality.drop is not None
    return (
        f"float {quality.float_accuracy:.2%}, quantised {quality.accuracy:.2%}: {quality.drop:.2f} points below float"
        f" (one sample is {100 / quality.samples:.2f} points)"
    )


def _layer_table(quality: Quality) -> Table:
    worst = quality.layers[:_MOST_LAYERS]
    rows = ((layer.node, _decibel(layer.sqnr), _decibel(layer.operands)) for layer in worst)
    return new_table(f"Signal-to-noise, the {len(worst)} worst", ("node", ">SNR", ">of its operands"), rows)
