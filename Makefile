# Entry points for users and developers. What a target needs is installed into .venv on first use.
PYTHON ?= python3
PREFIX ?= $(HOME)/.local
MAN := $(PREFIX)/share/man/man1/alipes.1
BASH_COMPLETION := $(PREFIX)/share/bash-completion/completions/alipes
ZSH_COMPLETION := $(PREFIX)/share/zsh/site-functions/_alipes
FISH_COMPLETION := $(PREFIX)/share/fish/vendor_completions.d/alipes.fish
SHARED := $(MAN) $(BASH_COMPLETION) $(ZSH_COMPLETION) $(FISH_COMPLETION)
BIN := .venv/bin
WORKERS ?= 4
UV := $(shell command -v uv)
VENV := $(if $(UV),$(UV) venv --quiet --seed --python $(PYTHON) .venv 2>/dev/null ||) $(PYTHON) -m venv .venv
PIP_EDITABLE := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
EDITABLE := $(if $(UV),$(UV) pip install --quiet --python $(BIN)/python --no-deps --editable . 2>/dev/null ||) $(PIP_EDITABLE)
SOURCES := $(shell find src -name "*.py")
TEST_SOURCES := $(shell find tests -name "*.py")
unexport PYTHONDONTWRITEBYTECODE  # the workers of pytest share what was compiled
.DEFAULT_GOAL := help
.PHONY: help run install uninstall serve test test-all check check-types check-architecture bench bench-rivals soak torture services pictures docs lock clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

run: $(if $(ALL),.venv/all.stamp) .venv/bytecode.stamp  ## start alipes in the terminal (without an API key: a tiny demo model; ALL=1: with all extras)
	@$(BIN)/alipes

install: .venv/bytecode.stamp  ## put `alipes` on your PATH, with man page and completions (PREFIX=~/.local)
	@mkdir -p "$(PREFIX)/bin"
	@ln -sf "$(CURDIR)/$(BIN)/alipes" "$(PREFIX)/bin/alipes"
	@mkdir -p $(dir $(SHARED))
	@$(BIN)/alipes man > "$(MAN)"
	@$(BIN)/alipes completion bash > "$(BASH_COMPLETION)"
	@$(BIN)/alipes completion zsh > "$(ZSH_COMPLETION)"
	@$(BIN)/alipes completion fish > "$(FISH_COMPLETION)"
	@echo "alipes: installed as $(PREFIX)/bin/alipes. Start it with: alipes"
	@case ":$$PATH:" in *":$(PREFIX)/bin:"*) ;; *) echo "alipes: $(PREFIX)/bin is not on your PATH. Add it with: export PATH=\"$(PREFIX)/bin:\$$PATH\"";; esac

uninstall:  ## remove what `make install` made; your conversations stay in ~/.alipes
	@rm -f "$(PREFIX)/bin/alipes" $(SHARED)

serve: .venv/bytecode.stamp  ## start the gateway: messengers, HTTP API, metrics; see docs/messengers.md
	@$(BIN)/alipes serve

test: .venv/compiled-tests.stamp .venv/bytecode.stamp  ## the tests that end in minutes and need nothing else (TESTS=paths: only those)
	@WORKERS=$(WORKERS) $(BIN)/python tools/run_tests.py $(if $(TESTS),-n $(WORKERS) --dist worksteal $(TESTS),quick)

test-all: .venv/compiled-tests.stamp .venv/bytecode.stamp  ## `make test`, then all other tests; `make services` installs what some need
	@WORKERS=$(WORKERS) $(BIN)/python tools/run_tests.py all

check: .venv/compiled-tests.stamp  ## ruff, mypy --strict, import-linter, architecture tests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache
	@$(MAKE) --no-print-directory -j 2 check-types check-architecture
	@$(BIN)/python tools/shape.py

check-types:
	@$(BIN)/mypy

check-architecture:
	@$(BIN)/python -m pytest -n 2 tests/architecture

bench: .venv/test.stamp  ## all benchmarks, compared with the last results (KEEP=1: save as the last results)
	@$(BIN)/python -m bench $(if $(KEEP),--keep) $(ONLY)

bench-rivals: .venv/test.stamp  ## benchmark other agents in the same run (KEEP=1: save and draw)
	@tools/rivals
	@$(BIN)/python -m bench.rivals $(if $(KEEP),--keep)

soak: .venv/test.stamp  ## ten minutes of mixed load (SOAK=seconds), looking for leaks
	@$(BIN)/python -m bench.soak $(or $(SOAK),600)

torture: .venv/test.stamp  ## long stress tests (MINUTES=60), reported in torture-report.md
	@ALIPES_TORTURE_TRIALS=200 ALIPES_TORTURE_MINUTES=$(or $(MINUTES),60) ALIPES_TORTURE_REPORT=torture-report.md \
		ALIPES_FUZZ=2000 ALIPES_SIMULATION=20000 $(BIN)/python -m pytest -o faulthandler_timeout=0 tests/torture tests/simulation \
		tests/unit/providers/test_stream_fuzz.py tests/unit/console/markdown tests/unit/config/test_config_fuzz.py tests/contract \
		tests/e2e/test_api_schema.py tests/page/test_chat_kills.py
	@$(BIN)/python -m bench kills chat_kills

services: .venv/test.stamp  ## install the servers and programs some tests use (Debian packages need root; npm)
	@tools/services

docs: .venv/test.stamp  ## update the parts of the docs that are derived from the code
	@$(BIN)/python tools/docs.py

pictures: .venv/test.stamp  ## redraw the pictures in the docs from a real run
	@$(BIN)/python tools/pictures.py

lock:  ## update requirements/*.txt (needs uv)
	@tools/lock

clean:  ## remove everything installed here
	rm -rf .venv .services .rivals

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("alipes needs Python 3.11 or newer; set PYTHON=python3.x" if sys.version_info < (3, 11) else 0)'
	@echo "alipes: creating .venv (once)" >&2
	@$(VENV)

.venv/run.stamp: .venv/bin/python src/alipes/config/pins.txt tools/install.py pyproject.toml
	@$(BIN)/python tools/install.py "installing its dependencies and a demo model into .venv (once; about 200 MB on disk)" base
	@$(EDITABLE)
	@touch $@

.venv/all.stamp: .venv/run.stamp
	@$(BIN)/python tools/install.py "installing all extras (once)" all
	@touch $@

# Makes the first start as fast as the second, even with PYTHONDONTWRITEBYTECODE set.
.venv/bytecode.stamp: .venv/run.stamp $(SOURCES)
	@$(BIN)/python -m compileall -q -j 0 src
	@touch $@

.venv/test.stamp: .venv/run.stamp requirements/test.txt
	@$(BIN)/python tools/install.py "installing the test tools and what all features need (once)" -r requirements/test.txt
	@touch $@

.venv/compiled-tests.stamp: .venv/test.stamp $(TEST_SOURCES)
	@$(BIN)/python tools/compile_tests.py
	@touch $@
