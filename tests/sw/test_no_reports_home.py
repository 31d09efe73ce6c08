"""No dependency reports what a user does: it leaves no device number and no database behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import numpy
from onnx import TensorProto, helper
from dovetail.sw.host.onnx_session import Session
values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy"]
graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "graph", values[:1], values[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
Session(model).run({"x": numpy.ones((1, 4), numpy.float32)})
"""


@pytest.mark.parametrize("first", ["", "import dovetail.sw.quantise.calibration"])
def test_onnx_runtime_leaves_nothing_behind(first: str, tmp_path: Path) -> None:
    """Whether a session or the quantiser imports it first."""
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "ORT_DISABLE_TELEMETRY")}
    environment |= {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / ".cache")}
    command = [sys.executable, "-c", first + RUN]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
