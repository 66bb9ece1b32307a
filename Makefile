# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.installed
WORKERS ?= 2

.PHONY: demo test test-full lint format clean help

help:
	@echo "make demo       install, then trained model -> Verilog -> Verilator -> comparison"
	@echo "make test       install, lint, type-check, test"
	@echo "make test-full  the long regressions too"
	@echo "make format     format the sources"
	@echo "make clean      remove build/"

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' || \
	  { echo "make: needs Python 3.11 or 3.12; give one with PYTHON=..." >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo "make: Python's venv module is missing; on Debian: apt-get install python3-venv" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
	  -c constraints.txt -e '.[golden,diffusers,sim,test]'
	touch $@

demo: $(READY)
	$(VENV)/bin/disc demo

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

test: lint
	$(VENV)/bin/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not full"

test-full: lint
	DISC_SEED=$${DISC_SEED:-random} $(VENV)/bin/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

format: $(READY)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean:
	rm -rf build
