"""The C header compiles as C99 and agrees with the encoder."""

import shutil
import subprocess
from pathlib import Path

import pytest

from dovetail.isa.generate.cheader import cheader
from dovetail.isa.host import HOST_REGISTERS
from dovetail.isa.instructions.table import BY_NUMBER, CAUSE_DOC, Cause, Op, Unit, cfg, pack, sync

COMPILER = shutil.which("gcc") or shutil.which("cc") or ""

MAIN = """
#include <stdio.h>
#include <inttypes.h>
#include "dovetail_isa.h"
#define UNIT(name) printf("%u " #name "\\n", DOVETAIL_UNIT_##name);
#define CAUSE(name, text) printf("%u %s\\n", DOVETAIL_CAUSE_##name, text);
int main(void) {
    printf("%016" PRIx64 "\\n", dovetail_cfg(DOVETAIL_REG_ARRAY_TILE,
        7u << DOVETAIL_ARRAY_TILE_HEIGHT_SHIFT | 9u << DOVETAIL_ARRAY_TILE_WIDTH_SHIFT));
    printf("%016" PRIx64 "\\n", dovetail_sync(DOVETAIL_UNIT_STORE, DOVETAIL_UNIT_VECTOR, 5));
    printf("%016" PRIx64 "\\n", (uint64_t)DOVETAIL_OP_CONV);
    DOVETAIL_UNITS(UNIT)
    DOVETAIL_CAUSES(CAUSE)
    return 0;
}
"""


def test_everything_has_a_definition() -> None:
    text = cheader()
    for op in Op:
        assert f"#define DOVETAIL_OP_{op.name} 0x{op:02x}u " in text
    for cause in Cause:
        assert f"#define DOVETAIL_CAUSE_{cause.name} {int(cause)}u " in text
    for register in BY_NUMBER.values():
        assert f"#define DOVETAIL_REG_{register.unit.name}_{register.name} 0x{register.number:02x}u " in text
    for host in HOST_REGISTERS.values():
        assert f"#define DOVETAIL_HOST_{host.name} 0x{host.offset:03x}u " in text


def test_no_name_is_defined_twice() -> None:
    names = [line.split()[1] for line in cheader().splitlines() if line.startswith("#define ")]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.skipif(not COMPILER, reason="no C compiler")
def test_it_compiles_and_agrees(tmp_path: Path) -> None:
    (tmp_path / "dovetail_isa.h").write_text(cheader())
    (tmp_path / "main.c").write_text(MAIN)
    flags = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    subprocess.run([COMPILER, *flags, "main.c", "-o", "main"], cwd=tmp_path, check=True)
    result = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True)
    tile = cfg(Unit.ARRAY, "TILE", pack(Unit.ARRAY, "TILE", height=7, width=9))
    expected = [tile, sync(Unit.STORE, Unit.VECTOR, 5), int(Op.CONV)]
    lines = result.stdout.splitlines()
    assert [int(line, 16) for line in lines[:3]] == expected
    units, causes = lines[3 : 3 + len(Unit)], lines[3 + len(Unit) :]
    assert units == [f"{int(unit)} {unit.name}" for unit in Unit]
    assert causes == [f"{int(cause)} {text}" for cause, text in CAUSE_DOC.items()]
