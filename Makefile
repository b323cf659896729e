# Every target sets up what it needs in .venv and keeps it up to date; nothing outside this directory is touched.
#
#   make demo      train a tiny model twice, the second time with a fault, and have the fault found
#   make test      the tests                (PYTEST_ARGS='-k name' and the like are passed on)
#   make test-slow the tests marked slow    (more of what make test does: other models, more moments of a crash, real interpreters)
#   make lint      ruff and mypy
#   make bench     what recording costs     (minutes; see benchmarks/README.md)
#
# PYTHON   the interpreter for .venv, 3.10 or newer
# TORCH    what to install where .venv has no torch 2.6 or newer; if this very version does not exist for the interpreter, the newest does
# JOBS     how many processes run the tests

PYTHON ?= python3
TORCH ?= torch==2.13.0
JOBS ?= 2
PYTEST_ARGS ?=

VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/msprobe-ready
SOURCES := $(shell find src/msprobe -name '*.c' -o -name '*.h')
HAS_TORCH := import torch; assert tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 6)

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: setup demo test test-slow lint bench clean
.SILENT:
.DELETE_ON_ERROR:

setup: $(READY)

demo: $(READY)
	$(RUN) examples/demo/demo.py

test: $(READY)
	$(RUN) -m pytest -n $(JOBS) --dist loadfile $(PYTEST_ARGS)

test-slow: $(READY)
	$(RUN) -m pytest -n $(JOBS) --dist worksteal -m slow $(PYTEST_ARGS)

lint: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m mypy

bench: $(READY)
	$(RUN) benchmarks/bench_startup.py
	$(RUN) benchmarks/bench_memory.py
	$(RUN) benchmarks/bench_step.py
	$(RUN) benchmarks/bench_save.py

clean:
	rm -rf $(VENV) build demo_out src/msprobe.egg-info
	find src -name '*.so' -delete

# The build runs in this environment, not in a fresh one, so that a rebuild of the kernels needs no network.
$(READY): pyproject.toml setup.py $(SOURCES) | $(RUN)
	$(RUN) -m pip --version >/dev/null 2>&1 || $(RUN) -m ensurepip >/dev/null
	$(RUN) -c '$(HAS_TORCH)' 2>/dev/null || { echo "installing torch into $(VENV) (some minutes)"; \
		$(RUN) -m pip install -q '$(TORCH)' || $(RUN) -m pip install -q torch; }
	echo "installing msprobe into $(VENV)"
	$(RUN) -m pip install -q 'setuptools>=77' wheel
	$(RUN) -m pip install -q --no-build-isolation -e '.[test]'
	touch $@

$(RUN):
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
		echo "msprobe needs Python 3.10 or newer; name one with: make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
