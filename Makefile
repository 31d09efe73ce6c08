# Everything starts from Python 3.11+, g++, make, perl and git: the first target that needs the environment makes it.
#
#   make sweep   the reference study on MobileNetV1 224: out/sweep/results.csv, pictures, report.html
#   make test    the default tests
#   make slow    the slow tests, all or a share of them: SHARE=2/5
#   make fuzz    random programs on model and RTL: more than 100,000 operations over 60 configurations (SEED=1)
#   make lint    ruff: rules and format
#   make types   mypy, strict
#   make layers  import-linter: which folder may import which
#   make docs    the generated manuals, docs/isa.md and docs/formal.md
#   make site    the documentation as a site with search: out/site/index.html
#   make clean   removes everything that can be made again
#
# PYTHON is the interpreter that the environment is made from, VENV its folder.

PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= dev,cocotb
JOBS ?= 2
SHARE ?=
SEED ?= 1

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup sweep test slow fuzz lint types layers docs site clean

help:
	@sed -n 's/^#   //p' Makefile

setup: $(STAMP)

# pip runs again only when pyproject.toml has changed.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'Dovetail needs Python 3.11 or newer; name one: make PYTHON=/path/to/python3.11' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	@touch $@

sweep: $(STAMP)
	$(BIN)/dovetail sweep zoo:mobilenet_v1 --study --output out/sweep

test: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS)

slow: $(STAMP)
	$(BIN)/python -m pytest -m slow -n $(JOBS) $(if $(SHARE),--share $(SHARE))

fuzz: $(STAMP)
	mkdir -p out
	$(BIN)/dovetail fuzz --programs 4200 --configs 60 --seed $(SEED) --jobs $(JOBS) --coverage out/coverage.md

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

layers: $(STAMP)
	$(BIN)/lint-imports

docs: $(STAMP)
	$(BIN)/dovetail isa --manual --output docs/isa.md
	$(BIN)/dovetail prove --manual --output docs/formal.md

# What writes the site is an extra of its own: nothing else needs it.
$(VENV)/.docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

site: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --config-file docs/site/mkdocs.yml
	@echo out/site/index.html

clean:
	rm -rf .venv build dist out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
