# Every target does its own set-up: a virtual environment in .venv, rebuilt when pyproject.toml changes.
PYTHON ?= python3
NEWEST ?= python3.13
ifeq ($(OS),Windows_NT)
BIN := .venv/Scripts
else
BIN := .venv/bin
endif
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# What is compiled once is kept: else each of the hundreds of processes that tests start compiles all modules anew.
unexport PYTHONDONTWRITEBYTECODE

all: kernels  ## the command `toprank`, ready to use

.PHONY: all kernels demo test check bench nightly newest weekly mutants sanitize arm64 wheels docs clean

.venv/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

kernels: .venv/.core  ## the compiled kernels; built anew when their sources are others than those of the library
	$(BIN)/python native/build.py --if-changed

.venv/.dev: .venv/.core
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

.venv/.serve: .venv/.core
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[serve]'
	touch $@

.venv/.bench: .venv/.dev
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	touch $@

.venv/.wheels: .venv/.core
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[wheels]'
	touch $@

demo: .venv/.serve kernels  ## the main job on embedded data
	$(BIN)/toprank demo -o build/demo

test: .venv/.dev kernels  ## the test suite, the slow part left out
	$(BIN)/pytest -m "not nightly" -n 2 --dist worksteal

nightly: .venv/.dev kernels  ## everything, the slow part included, on examples drawn anew
	HYPOTHESIS_PROFILE=explore $(BIN)/pytest -n 2
	if command -v $(NEWEST) >/dev/null; then $(MAKE) newest; else echo "$(NEWEST) is not installed: not tried there."; fi
	$(MAKE) sanitize arm64
	$(MAKE) wheels
	$(BIN)/python native/wheels.py --try
	$(MAKE) mutants

# PyTorch is left out: on a new Python its pinned build may not be at hand.
NEWEST_BIN := $(subst .venv,.venv-newest,$(BIN))
PINNED ?= constraints-newest.txt
newest: kernels  ## the tests on the newest Python that is claimed, with the versions that `weekly` recorded (NEWEST=python3.13)
	$(NEWEST) -m venv .venv-newest
	$(NEWEST_BIN)/pip install --quiet $(if $(wildcard $(PINNED)),--constraint $(PINNED)) --editable '.[tests]'
	$(NEWEST_BIN)/pytest -m "not nightly" -n 2 --dist worksteal -k "not neural and not Neural and not network" \
	  --doctest-ignore-import-errors --ignore-glob 'tests/test_rankers_neural*'

weekly:  ## `newest` with the newest releases of every dependency; if the tests pass, their versions are recorded
	rm -rf .venv-newest build/newest.txt
	mkdir -p build
	$(NEWEST) -m venv .venv-newest
	$(NEWEST_BIN)/pip install --quiet --editable '.[tests]'
	echo "# What \`make weekly\` last passed with, on $$($(NEWEST) --version); \`make newest\` installs these versions." > build/newest.txt
	$(NEWEST_BIN)/pip freeze --exclude-editable >> build/newest.txt
	-diff constraints-newest.txt build/newest.txt  # what has changed since then: look there first if a test fails
	$(MAKE) newest PINNED=build/newest.txt
	cp build/newest.txt constraints-newest.txt

mutants: .venv/.dev kernels  ## a hundred single mistakes, drawn by SEED: which of them does no test notice?
	$(BIN)/python tests/mutants.py --count 100 --seed $(or $(SEED),0)

sanitize: .venv/.dev kernels  ## the tests again, with kernels that check every address and every operation (GCC, Linux)
	$(BIN)/python native/build.py --sanitize
	$(BIN)/python native/sanitized.py -m "not nightly" -n 2

arm64: .venv/.wheels .venv/.dev kernels  ## the kernels of ARM64 in an emulator: their tests, and their bits beside ours (Debian)
	$(BIN)/python native/arm64.py

wheels: .venv/.wheels  ## wheels for every machine into dist/, checked
	rm -rf dist
	$(BIN)/python native/wheels.py

check: .venv/.dev kernels  ## style, types, documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python native/build.py --strict --if-changed
	$(BIN)/pytest -p no:xdist tests/test_architecture.py  # imports point one way
	$(BIN)/mkdocs build --strict --quiet --site-dir build/site

docs: .venv/.dev kernels  ## the documentation, served locally
	$(BIN)/mkdocs serve

bench: .venv/.bench kernels  ## every benchmark, peers in the same run
	for file in benchmarks/[a-z]*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

clean:
	rm -rf .venv .venv-newest build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
