"""The files of the SystemC platform."""

import pytest

from dovetail.cosim.systemc.folder import config_header
from dovetail.isa.config.given import ConfigError
from dovetail.isa.config.resolved import Config


def test_memory_with_rows_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^memory must be fixed on the SystemC platform, not sdram@50MHz$"):
        config_header(Config(memory="sdram@50MHz"))
