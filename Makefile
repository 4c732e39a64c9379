# Every target does its own set-up: a virtual environment in .venv, rebuilt when pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

all: .venv/.core src/toprank/_kernels.so  ## the command `toprank`, ready to use

.PHONY: all demo test check bench nightly docs clean

.venv/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

src/toprank/_kernels.so: $(wildcard native/*) .venv/.core  ## the compiled kernels, built anew when their sources change
	$(BIN)/python native/build.py

.venv/.dev: .venv/.core
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

.venv/.bench: .venv/.dev
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	touch $@

KERNELS := src/toprank/_kernels.so

demo: .venv/.core $(KERNELS)  ## the main job on embedded data
	$(BIN)/toprank demo --out build/demo

test: .venv/.dev $(KERNELS)  ## the test suite, the slow part left out
	$(BIN)/pytest -m "not nightly" -n 2

nightly: .venv/.dev $(KERNELS)  ## everything, the slow part included, on examples drawn anew
	HYPOTHESIS_PROFILE=explore $(BIN)/pytest -n 2

check: .venv/.dev $(KERNELS)  ## style, types, documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -p no:xdist tests/test_architecture.py  # imports point one way
	$(BIN)/mkdocs build --strict --quiet --site-dir build/site

docs: .venv/.dev $(KERNELS)  ## the documentation, served locally
	$(BIN)/mkdocs serve

bench: .venv/.bench $(KERNELS)  ## every benchmark, peers in the same run
	for file in benchmarks/[a-z]*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
