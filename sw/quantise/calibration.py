"""What a float network's tensors range over on calibration samples, by ONNX Runtime's calibrators, and clipping.

One sample is run at a time. Smallest and largest values are reduced inside the network, so no activation is kept;
histograms need the activations of one sample at once. The histograms cover the range that a first pass has found, so
their size does not depend on the order of the samples.
"""

from __future__ import annotations

import io
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, create_calibrator
from onnxruntime.quantization.calibrate import HistogramCollector

from dovetail.sw.errors import NetworkError, first_line
from dovetail.sw.host.onnx_session import Session
from dovetail.sw.network.layout import Array, Sample
from dovetail.sw.quantise.float_network import FloatGraph
from dovetail.sw.quantise.parameters import Range
from dovetail.sw.quantise.patterns import has_weights
from dovetail.sw.quantise.samples import checked
from dovetail.sw.quantise.scheme import Scheme

Means = NDArray[np.float64]

_BINS = 2048
_LEVELS = 256
_CANDIDATES = 100
"""Ranges that clipping by divergence tries."""
_NEARLY_NOTHING = 1e-6
_WHOLE = Scheme(clipping="minmax")


class Calibration:
    """Ranges on the same samples for one scheme after another; what was measured once is kept.

    Parameters
    ----------
    graph: the float network.
    samples: calibration inputs; gone through once for "minmax", and once more for each other kind of clipping.

    Raises
    ------
    NetworkError: no samples, samples that do not fit, or a tensor that is not finite on them.
    """

    def __init__(self, graph: FloatGraph, samples: Iterable[Sample]) -> None:
        self.graph = graph
        self._samples = samples if iter(samples) is not samples else list(samples)
        self._known: dict[str, Mapping[str, Range]] = {}
        self._means: Mapping[str, Means] | None = None
        self._histograms: HistogramCollector | None = None
        self.count = 0
        """How many samples there are; known after the first ranges."""

    def ranges(self, scheme: Scheme) -> Mapping[str, Range]:
        """Range of each float tensor by name, clipped as the scheme says. Raises NetworkError."""
        key = f"percentile {scheme.percentile}" if scheme.clipping == "percentile" else scheme.clipping
        if key not in self._known:
            try:
                self._known[key] = self._minmax() if key == "minmax" else self._clipped(scheme)
            except (NetworkError, OSError):
                raise
            except Exception as error:  # the runtime raises its own classes; also MemoryError
                reason = first_line(error)
                raise NetworkError(f"float network must be one that ONNX Runtime runs, not: {reason}") from error
        return self._known[key]

    def means(self) -> Mapping[str, Means]:
        """Mean of each channel of every float input of a layer with weights, by name."""
        if self._means is None:
            names = {node.input[0] for node in self.graph.nodes if has_weights(self.graph, node)}
            session = Session(self.graph.model, tuple(names - {value.name for value in self.graph.inputs}))
            sums: dict[str, Means] = {}
            count = 0
            for count, sample in enumerate(self._samples, 1):
                inputs = checked(sample, self.graph.inputs, f"calibration sample {count - 1}")
                found = {**inputs, **session.run(inputs)}
                sums = {name: sums.get(name, 0.0) + channel_means(found[name]) for name in names}
            self._means = {name: total / count for name, total in sums.items()}
        return self._means

    def row_maxima(self, names: Sequence[str]) -> Mapping[str, Range]:
        """The lowest and the highest of the largest values of all rows, the last axis, of float tensors, by name."""
        session = Session(self.graph.model, names)
        found: dict[str, Range] = {}
        for number, sample in enumerate(self._samples):
            results = session.run(checked(sample, self.graph.inputs, f"calibration sample {number}"))
            for name in names:
                rows = results[name].max(axis=-1)
                seen = Range(float(rows.min()), float(rows.max()))
                found[name] = seen.join(found.get(name, seen))
        return found

    def _minmax(self) -> Mapping[str, Range]:
        data = sorted(self._observed(CalibrationMethod.MinMax).compute_data().items())
        found = {name: Range(*map(_number, seen.range_value)) for name, seen in data}
        for name, seen in found.items():
            if not np.isfinite(seen.high - seen.low):
                raise NetworkError(f"tensor {name!r} must be finite on the calibration samples, not NaN or infinite")
        return found

    def _clipped(self, scheme: Scheme) -> Mapping[str, Range]:
        whole, collector = self.ranges(_WHOLE), self._collector()
        if scheme.clipping == "kl":
            found = {}
            for name, (counts, edges, *_) in collector.histogram_dict.items():
                found[name] = least_divergent(counts, edges, whole[name])
            return found
        collector.percentile = scheme.percentile
        with redirect_stdout(io.StringIO()):
            clipped = collector.compute_percentile()
        return {name: Range(_number(low), _number(high)) for name, (low, high, *_) in clipped.items()}

    def _collector(self) -> HistogramCollector:
        """Histograms of all tensors."""
        if self._histograms is None:
            whole = self.ranges(_WHOLE)
            self._histograms = HistogramCollector("percentile", False, _BINS, _BINS, 100.0, "same")
            self._histograms.histogram_dict = {name: _empty_histogram(seen) for name, seen in whole.items()}
            self._observed(CalibrationMethod.Percentile, self._histograms)
        return self._histograms

    def _observed(self, method: CalibrationMethod, collector: HistogramCollector | None = None) -> Any:
        """A calibrator of ONNX Runtime that has seen every sample."""
        with tempfile.TemporaryDirectory() as folder:
            path, watched = Path(folder) / "float.onnx", str(Path(folder) / "watched.onnx")
            onnx.save_model(self.graph.model, path)
            options = {"symmetric": False}
            calibrator = create_calibrator(
                path, augmented_model_path=watched, calibrate_method=method, extra_options=options
            )
            calibrator.collector = collector
            self.count = 0
            for sample in self._samples:
                one = checked(sample, self.graph.inputs, f"calibration sample {self.count}")
                with redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):  # the calibrators print
                    calibrator.collect_data(_Reader(one))
                self.count += 1
        if not self.count:
            raise NetworkError("calibration must have at least one sample, not none")
        return calibrator


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    """One sample."""

    def __init__(self, sample: Sample) -> None:
        self._left = [dict(sample)]

    def get_next(self) -> dict[str, Any] | None:
        """The sample, then None."""
        return self._left.pop() if self._left else None


def _empty_histogram(seen: Range) -> tuple[Any, ...]:
    threshold = np.float32(max(abs(seen.low), abs(seen.high), float(np.finfo(np.float32).tiny)))
    edges = np.linspace(-threshold, threshold, _BINS + 1, dtype=np.float32)
    return np.zeros(_BINS, np.int64), edges, np.float32(seen.low), np.float32(seen.high), threshold


def _number(value: Any) -> float:
    return float(np.asarray(value).ravel()[0])


def channel_means(values: Array) -> Means:
    """Mean of each channel of a layer's input: axis 1 of an image, the last axis of anything else."""
    channel = 1 if values.ndim == 4 else values.ndim - 1
    others = tuple(axis for axis in range(values.ndim) if axis != channel)
    result: Means = values.mean(axis=others, dtype=np.float64)
    return result


# Clipping by divergence ------------------------------------------------------------------------


def least_divergent(counts: NDArray[np.int64], edges: NDArray[np.float32], seen: Range) -> Range:
    """The part of a range whose 256 levels keep most of a distribution, by Kullback-Leibler divergence.

    ONNX Runtime has this too, but for ranges around zero only: half of the levels of a rectified tensor would go to
    values that it never takes. It also takes a second for each tensor.

    Parameters
    ----------
    counts: histogram, in equally wide bins, of all values.
    edges: of the bins.
    seen: smallest and largest value; the result is this range times a factor of at most 1.
    """
    first, last = (int(np.clip(np.searchsorted(edges, end) - 1, 0, counts.size - 1)) for end in (seen.low, seen.high))
    zero = int(np.clip(np.searchsorted(edges, 0.0, "right") - 1, first, last))
    best, found = np.inf, seen
    for factor in np.linspace(1, 0, _CANDIDATES, endpoint=False):
        low, high = zero - round((zero - first) * factor), zero + round((last - zero) * factor) + 1
        if high - low < _LEVELS:
            break
        divergence = _divergence(counts, low, high, zero)
        if divergence < best:
            best, found = divergence, Range(seen.low * float(factor), seen.high * float(factor))
    return found


def _divergence(counts: NDArray[np.int64], low: int, high: int, zero: int) -> float:
    """Of bins [low, high) with the rest in the outermost ones, from what 256 levels leave of these bins.

    A level spreads what it holds over its bins that are not empty. Zero and both ends have levels of their own: there
    rectified and clipped tensors pile up.
    """
    inner = counts[low:high].astype(np.float64)
    given = inner.copy()
    given[0] += counts[:low].sum()
    given[-1] += counts[high:].sum()
    level = np.arange(inner.size) * _LEVELS // inner.size
    filled = inner > 0
    filled[[0, zero - low, -1]] = False
    share = np.bincount(level, inner * filled, _LEVELS) / np.maximum(np.bincount(level, filled, _LEVELS), 1)
    kept = np.maximum(np.where(filled, share[level], inner), _NEARLY_NOTHING * inner.sum() / inner.size)
    if not inner.any():
        return np.inf
    p, q = given / given.sum(), kept / kept.sum()
    present = p > 0
    return float(np.sum(p[present] * np.log(p[present] / q[present])))
