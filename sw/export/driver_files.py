"""The C99 driver as files: sources, headers made from the tables, examples and their Makefile."""

from importlib.resources import files

from dovetail.isa.config.resolved import Config
from dovetail.isa.generate.cheader import PREFIX, cheader

ISA_HEADER, CONFIG_HEADER = "dovetail_isa.h", "dovetail_config.h"


def driver_files(config: Config, *, examples: bool = False) -> dict[str, str]:
    """Text by file name, all for one folder: the driver for ``config``, and its examples if they are wanted."""
    folder = files("dovetail.sw.export").joinpath("c/driver")
    folders = [folder, folder.joinpath("examples")][: 1 + examples]
    texts = {path.name: path.read_text() for place in folders for path in place.iterdir() if path.is_file()}
    return texts | {ISA_HEADER: cheader(), CONFIG_HEADER: config_header(config)}


def config_header(config: Config) -> str:
    """The text of ``dovetail_config.h``: which accelerator programs and bitstream are for."""
    rows = {
        "HASH": (f"0x{config.hash:016x}ull", "for dovetail_open()"),
        "IC_LANES": (f"{config.ic_lanes}u", "input channels multiplied per cycle"),
        "OC_LANES": (f"{config.oc_lanes}u", "output channels per cycle"),
        "PIXEL_LANES": (f"{config.pixel_lanes}u", "output pixels per cycle"),
        "SRAM_BYTES": (f"{config.sram}u", "on-chip memory"),
        "BUS_BYTES": (f"{config.bus_bytes}u", "bytes of a beat of the memory bus"),
    }
    lines = [
        "/* One accelerator's configuration. Made by `dovetail driver`; change the configuration instead. */",
        "#ifndef DOVETAIL_CONFIG_H",
        "#define DOVETAIL_CONFIG_H",
        "",
        *(f"#define {PREFIX}_CONFIG_{name} {value} /* {doc} */" for name, (value, doc) in rows.items()),
        "",
        "#endif",
    ]
    return "\n".join(lines) + "\n"
