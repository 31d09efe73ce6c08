"""LUTs, FFs, DSPs and block RAMs of an accelerator on ECP5, module by module.

    python benchmarks/area_by_module.py [CONFIG] [--depth N] [--least LUTS] [--yosys COMMAND]

CONFIG is a preset (default: ulx3s) or a TOML file. The accelerator is synthesised whole and flat, as for a board, in
minutes; a cell counts for the module whose name it kept, and for all modules around that one. Where Yosys shares logic
between modules it counts for one of them. Before place and route; needs the extra `synth`.
"""

import argparse
import sys

from dovetail.flows.fpga.synthesis import netlist_resources, synthesise
from dovetail.isa.config.given import ConfigError
from dovetail.isa.config.resolved import Config
from dovetail.sw.errors import DovetailError


def rows(config: Config, *, depth: int, least: int, command: str = "") -> list[str]:
    """The table: the accelerator, and its modules to ``depth`` that take at least so many LUTs, the largest first."""
    modules = netlist_resources(synthesise(config, command).modules)

    def inside(module: str) -> list[str]:
        level = module.count(".") + 2 if module else 1
        within = f"{module}." if module else ""
        children = (name for name in modules if name and name.startswith(within) and name.count(".") + 1 == level)
        return sorted(children, key=lambda name: -modules[name].lut)

    def shown(module: str, level: int) -> list[str]:
        used = modules[module]
        name = "  " * level + (module.rpartition(".")[2] or "accelerator")
        lines = [f"{name:40}{used.lut:>9,}{used.ff:>9,}{used.dsp:>7,}{used.bram:>7,}"]
        if level < depth:
            for child in inside(module):
                if modules[child].lut >= least:
                    lines += shown(child, level + 1)
        return lines

    return [f"{'module':40}{'LUT':>9}{'FF':>9}{'DSP':>7}{'BRAM':>7}", *shown("", 0)]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", default="ulx3s", metavar="CONFIG")
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--least", type=int, default=50, metavar="LUTS")
    parser.add_argument("--yosys", metavar="COMMAND", default="")
    args = parser.parse_args()
    try:
        print("\n".join(rows(Config.load(args.config), depth=args.depth, least=args.least, command=args.yosys)))
    except (ConfigError, DovetailError) as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
