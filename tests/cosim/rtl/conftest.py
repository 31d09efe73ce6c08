"""What the tests of builds share."""

import shutil
from pathlib import Path

import pytest

from dovetail.cosim.rtl import verilate


@pytest.fixture(scope="module")
def fresh_cache(build_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache without builds. Verilator's runtime is there: it takes longer to compile than what these tests build."""
    root, cache = verilate.verilator_root(), tmp_path_factory.mktemp("cache")
    flags = verilate._flags(root, verilate.Design({}, "dut", {}))
    runtime = verilate._runtime(build_cache, root, "", flags)[0].parent
    shutil.copytree(runtime, cache / runtime.name)
    return cache
