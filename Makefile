# Every target sets up what it needs in .venv and keeps it up to date; nothing outside this directory is touched.
#
#   make demo      train a tiny model twice, the second time with a fault, and have the fault found
#   make test      the tests                (PYTEST_ARGS='-k name' and the like are passed on)
#   make test-slow the tests marked slow    (more of what make test does: other models, more moments of a crash, real interpreters)
#   make test-mindspore  the tests that need MindSpore, in an environment of its own (.venv-mindspore, 2.5 GB)
#   make lint      ruff and mypy
#   make bench     what recording costs     (minutes; see benchmarks/README.md)
#
# PYTHON   the interpreter for .venv, 3.10 or newer
# TORCH    what to install where .venv has no torch 2.6 or newer; if this very version does not exist for the interpreter, the newest does
# MINDSPORE  what to install into .venv-mindspore
# JOBS     how many processes run the tests

PYTHON ?= python3
TORCH ?= torch==2.13.0
MINDSPORE ?= mindspore==2.10.0
JOBS ?= 2
PYTEST_ARGS ?=

VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/msprobe-ready
MINDSPORE_VENV := .venv-mindspore
SOURCES := $(shell find src/msprobe -name '*.c' -o -name '*.h')
HAS_TORCH := import torch; assert tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 6)

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: setup setup-mindspore demo test test-slow test-mindspore lint bench clean
.SILENT:
.DELETE_ON_ERROR:

setup: $(READY)

demo: $(READY)
	$(RUN) examples/demo/demo.py

test: $(READY)
	$(RUN) -m pytest -n $(JOBS) --dist loadfile $(PYTEST_ARGS)

test-slow: $(READY)
	$(RUN) -m pytest -n $(JOBS) --dist worksteal -m slow $(PYTEST_ARGS)

# MindSpore's wheel is built on NumPy 1; msprobe itself is not installed there but found through PYTHONPATH, kernels included.
setup-mindspore: $(MINDSPORE_VENV)/ready

test-mindspore: $(READY) $(MINDSPORE_VENV)/ready
	MSPROBE_MINDSPORE_PYTHON=$(abspath $(MINDSPORE_VENV))/bin/python $(RUN) -m pytest -n $(JOBS) --dist loadfile tests/mindspore -m mindspore $(PYTEST_ARGS)

lint: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m mypy

bench: $(READY)
	$(RUN) benchmarks/bench_startup.py
	$(RUN) benchmarks/bench_memory.py
	$(RUN) benchmarks/bench_step.py
	$(RUN) benchmarks/bench_save.py

clean:
	rm -rf $(VENV) $(MINDSPORE_VENV) build demo_out src/msprobe.egg-info
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

# With the interpreter of .venv, for which the kernels were built.
$(MINDSPORE_VENV)/ready: pyproject.toml | $(RUN)
	$(RUN) -m venv $(MINDSPORE_VENV)
	echo "installing $(MINDSPORE) into $(MINDSPORE_VENV) (some minutes)"
	$(MINDSPORE_VENV)/bin/python -m pip install -q '$(MINDSPORE)' 'numpy<2' pydantic PyYAML rich orjson ujson xxhash XlsxWriter libcst
	touch $@
