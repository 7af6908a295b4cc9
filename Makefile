# `make` checks quickly; every target sets itself up first.
PYTHON ?= python3
STAMP := .venv/.installed
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
WORKERS := -n auto --maxprocesses=4

.DEFAULT_GOAL := check
.PHONY: check setup lint types fast demo test soak generated tpch memory bench docs docs-check clean

check: lint types fast

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo 'headwater needs Python 3.11 or newer, and `$(PYTHON)` is not: name another with `make PYTHON=...`.' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "\`$(PYTHON)\` has no venv module: install it (on Debian: apt-get install python3-venv)." >&2; exit 1; }
	test -x $(BIN)/pip || $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[embedded,spark,bench,dev]'
	@touch $@

lint: $(STAMP)
	$(BIN)/ruff check src tests scripts

types: $(STAMP)
	$(BIN)/mypy

fast: $(STAMP)
	$(PYTEST) -q $(wildcard tests/unit tests/property)

demo: $(STAMP)
	scripts/java
	$(BIN)/headwater demo

test: lint types
	scripts/postgres15
	scripts/java
	scripts/chromium
	@test -e .venv/spark.jsa || $(BIN)/python scripts/spark_classes.py || true
	$(PYTEST) -q $(WORKERS) -m 'not soak and not bench' tests

# Fifteen minutes of writers and accidents; HEADWATER_SOAK_MINUTES says otherwise, HEADWATER_SOAK_SEED repeats one.
soak: $(STAMP)
	scripts/java
	$(PYTEST) -q -s -m soak tests/soak

generated: $(STAMP)
	HEADWATER_TEST_SCALE=50 $(PYTEST) -q $(WORKERS) --timeout=0 -m 'generated or costly' tests

tpch: $(STAMP)
	HEADWATER_TPCH_SCALE=0.1 $(PYTEST) -q $(WORKERS) --timeout=0 tests/tpch

memory: $(STAMP)
	scripts/java
	$(PYTEST) -q -s --timeout=0 -k 5M tests/integration/spark/test_memory.py

bench: $(STAMP)
	$(BIN)/headwater bench refresh
	$(BIN)/headwater bench capture
	$(BIN)/headwater bench immediate

docs: $(STAMP)
	$(BIN)/python -m tests.docs_pages --write

docs-check: $(STAMP)
	$(BIN)/python -m tests.docs_pages --check

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
