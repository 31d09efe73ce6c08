"""Dovetail: hardware/software co-design for int8 neural-network accelerators.

Two lines deploy a network::

    program = dovetail.compile("net.onnx", dovetail.Config(pe=64, dataflow="output", sram="512 KiB"))
    result = program.run(x, engine="rtl")

`result` has `outputs`, `cycles`, `timeline` and `counters`. One line explores a space of configurations::

    results = dovetail.explore("space.toml", store="results.sqlite")

`results.rows` have a configuration, its costs and metrics each; `results.to_pandas()` is a table of them,
`results.layers()` one of their layers. `dovetail.layers(networks, configs)` is such a table without a sweep. What is
here is imported when first used.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.cosim.compare.networks import Verdict, verify
    from dovetail.flows.explore.results.layers import layers
    from dovetail.flows.explore.results.sweep_results import Results
    from dovetail.flows.explore.space.design_space import Space, Workload
    from dovetail.flows.explore.sweep import explore
    from dovetail.flows.report.pictures import facade as pictures
    from dovetail.isa.config.given import MemoryTiming
    from dovetail.isa.config.resolved import Config
    from dovetail.sw.analysis.cost.energy import energy_report as energy
    from dovetail.sw.analysis.explain.explainer import explain
    from dovetail.sw.compiler.partition.host_cost import HostCost
    from dovetail.sw.quantise.network import quantise_network as quantise
    from dovetail.sw.runtime.compiled_network import CompiledNetwork, Report, Result
    from dovetail.sw.runtime.compiled_network import compile_network as compile
    from dovetail.sw.runtime.saved_program import load_program as load

__version__ = "0.1.0"
__all__ = [
    "CompiledNetwork",
    "Config",
    "HostCost",
    "MemoryTiming",
    "Report",
    "Result",
    "Results",
    "Space",
    "Verdict",
    "Workload",
    "__version__",
    "compile",
    "energy",
    "explain",
    "explore",
    "layers",
    "load",
    "pictures",
    "quantise",
    "verify",
]

_HOME = {
    "Config": ("dovetail.isa.config.resolved", "Config"),
    "MemoryTiming": ("dovetail.isa.config.given", "MemoryTiming"),
    "CompiledNetwork": ("dovetail.sw.runtime.compiled_network", "CompiledNetwork"),
    "Report": ("dovetail.sw.runtime.compiled_network", "Report"),
    "Result": ("dovetail.sw.runtime.compiled_network", "Result"),
    "compile": ("dovetail.sw.runtime.compiled_network", "compile_network"),
    "load": ("dovetail.sw.runtime.saved_program", "load_program"),
    "Results": ("dovetail.flows.explore.results.sweep_results", "Results"),
    "Space": ("dovetail.flows.explore.space.design_space", "Space"),
    "Workload": ("dovetail.flows.explore.space.design_space", "Workload"),
    "explore": ("dovetail.flows.explore.sweep", "explore"),
    "layers": ("dovetail.flows.explore.results.layers", "layers"),
    "HostCost": ("dovetail.sw.compiler.partition.host_cost", "HostCost"),
    "quantise": ("dovetail.sw.quantise.network", "quantise_network"),
    "energy": ("dovetail.sw.analysis.cost.energy", "energy_report"),
    "explain": ("dovetail.sw.analysis.explain.explainer", "explain"),
    "Verdict": ("dovetail.cosim.compare.networks", "Verdict"),
    "verify": ("dovetail.cosim.compare.networks", "verify"),
    "pictures": ("dovetail.flows.report.pictures.facade", ""),
}

# By name, since every layer imports this package: `import pyverilator` works from here on.
_import_module("dovetail.cosim.handle.pyverilator_import").install()


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dovetail' has no attribute {name!r}")
    module, attribute = _HOME[name]
    if module in (
        "dovetail.sw.runtime.compiled_network",
        "dovetail.sw.runtime.saved_program",
    ):  # a network's `run` may name an engine
        _import_module("dovetail.cosim").register()
    return getattr(_import_module(module), attribute) if attribute else _import_module(module)


def __dir__() -> list[str]:
    return sorted(__all__)
