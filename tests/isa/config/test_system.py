"""Systems from TOML: what is read, and one clear line for each mistake."""

import re
from pathlib import Path

import pytest

from dovetail.isa.config.given import ConfigError, MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.config.system import DEFAULT_MEMORY, Part, System

TEXT = """
[accelerators.big]
config = "default"
registers = 0x4000_1000

[accelerators.small]
config = "mine.toml"
registers = 0x4000_0000

[interconnect]
bus = 128

[memory]
kind = "fixed"
size = "16 MiB"
read_latency = 30
"""
MINE = Config(pe=8, sram="32 KiB", banks=4, bus=32)


def test_a_system_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINE.to_toml())
    path = tmp_path / "system.toml"
    path.write_text(TEXT)
    system = System.load(path)
    assert system == System(
        (Part("big", Config(), 0x4000_1000), Part("small", MINE, 0x4000_0000)),
        memory=MemoryTiming(read_latency=30),
        memory_bytes=16 << 20,
        bus=128,
    )
    assert (system.memory_bus, system["small"].config) == (128, MINE)


def test_what_may_be_left_out() -> None:
    system = System.from_toml('[accelerators]\na = "default"\nb = "icebreaker"\n')
    assert [(part.name, part.registers) for part in system.accelerators] == [("a", 0), ("b", 4096)]
    assert (system.memory, system.memory_bytes) == (MemoryTiming(), DEFAULT_MEMORY)
    assert system.memory_bus == 64, "that of the widest"


def part(name: str = "a", more: str = "") -> str:
    return f'[accelerators.{name}]\nconfig = "default"\n{more}\n'


WRONG = {
    "": "accelerators must be 1..16, not 0",
    "[accelerators": "system is not TOML: Expected ']' at the end of a table declaration (at end of document)",
    "accelerators = 3": "accelerators must be a table, not 3",
    "[accelerator.a]": 'system: "accelerator" must be a name of its parts; did you mean "accelerators"?',
    "[accelerators.a]": 'accelerators.a must be a table with config = "a preset or a TOML file", not {}',
    "[accelerators]\na = 3": 'accelerators.a must be a table with config = "a preset or a TOML file", not 3',
    '[accelerators]\na = "defalt"': "accelerators.a: defalt must be a TOML file or a preset; there is no such file; did"
    ' you mean "default"?',
    part(more="clock = 3"): 'accelerators.a: "clock" must be a name of its parts; known: config, registers',
    part(more="registers = true"): "accelerators.a: registers must be an address, not True",
    part(more="registers = 0x800"): "accelerators.a: registers must be a multiple of 4 KiB below 4 GiB, not 0x800",
    part(more="registers = 0x1_0000_0000"): "accelerators.a: registers must be a multiple of 4 KiB below 4 GiB,"
    " not 0x100000000",
    part(more="registers = -4096"): "accelerators.a: registers must be a multiple of 4 KiB below 4 GiB, not -0x1000",
    part("a", "registers = 0x1000") + part("b"): "accelerators.b: registers must not overlap those of a, not 0x1000",
    "".join(part(f"a{n}") for n in range(17)): "accelerators must be 1..16, not 17",
    part() + "[interconnect]\nbus = 32": "interconnect: bus must be one of 64, 128, 256, 512, as the widest accelerator"
    " has 64, not 32",
    part() + "[interconnect]\nbus = true": "interconnect: bus must be one of 64, 128, 256, 512, as the widest"
    " accelerator has 64, not True",
    part() + "[interconnect]\nwidth = 64": 'interconnect: "width" must be a name of its parts; known: bus',
    part() + "[host]\nreaction = 0": "host: reaction must be 1..1048576 cycles, not 0",
    part() + "[host]\nreaction = true": "host: reaction must be 1..1048576 cycles, not True",
    part() + "[host]\nspeed = 3": 'host: "speed" must be a name of its parts; known: reaction',
    part() + '[memory]\nkind = "hbm"': "memory: kind must be one of fixed, sdram, dram, not 'hbm'",
    part() + "[memory]\nlatency = 3": 'memory: "latency" must be a name of its parts; did you mean "read_latency"?',
    part() + "[memory]\nread_latency = 0": "read_latency must be 1..4096, not 0",
    part() + "[memory]\nsize = 5000": "memory: size must be a multiple of 4 KiB, 4 KiB..4 GiB, not 5000",
    part() + '[memory]\nsize = "many"': 'memory: size must be a size in B, KiB, MiB or GiB such as "512 KiB",'
    " not 'many'",
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: re.sub(r"\W+", "-", text)[-40:])
def test_mistakes(text: str) -> None:
    with pytest.raises(ConfigError) as found:
        System.from_toml(text)
    assert str(found.value) == WRONG[text]


def test_mistakes_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "system.toml"
    with pytest.raises(ConfigError, match=f"^{path} must be the TOML file of a system; there is no such file$"):
        System.load(path)
    path.write_text("")
    with pytest.raises(ConfigError, match=rf"^{path}: accelerators must be 1\.\.16, not 0$"):
        System.load(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=f"^{path}: 'utf-8' codec"):
        System.load(path)


def test_names() -> None:
    system = System.from_toml(part("left") + part("right"))
    with pytest.raises(ConfigError) as found:
        system["rihgt"]
    assert str(found.value) == "accelerator must be one of left, right, not 'rihgt'; did you mean \"right\"?"
    with pytest.raises(ConfigError) as found:
        System((Part("a", MINE, 0), Part("a", MINE, 4096)))
    assert str(found.value) == "accelerators must have different names, not 'a' twice"
