"""Print the table of docs/build.md from `builds.json` beside this file.

    python benchmarks/builds.py

`dovetail build --check benchmarks/builds.json` builds again what has changed since, and fails where a frequency fell or
a resource grew by more than 5 %; `--update` in place of `--check` keeps the new figures.
"""

from pathlib import Path

from dovetail.flows.fpga.regression import load, markdown

DATA = Path(__file__).with_suffix(".json")

if __name__ == "__main__":
    print("\n".join(markdown(load(DATA))))
