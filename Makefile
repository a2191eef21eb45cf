# Everything a fresh checkout needs is made here: Python 3.11 or newer and make are enough.
#   make demo    the library at work on an embedded cluster, in under a minute
#   make test    every check that CI makes

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
COMMAND := $(BIN)/python -m dispatch_kubeflow.backend.cli
COMPILE := $(BIN)/python -c 'import pathlib, sys; from dispatch_kubeflow.machine.rules.compile import write_compiled; \
	write_compiled(pathlib.Path("tables"), pathlib.Path(sys.argv[1]))'
JOBS ?= 2

.PHONY: help
help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The environment: made once, and again when the pins or the package's own description change.
$(READY): requirements/dev.txt pyproject.toml requirements/python.sh
	@python="$$(requirements/python.sh $(PYTHON))"; \
	if ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		echo "Making $(VENV) with $$python"; \
		"$$python" -m venv --clear $(VENV); \
	fi
	@echo "Installing the pinned requirements"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: setup
setup: $(READY) ## make the environment

.PHONY: demo
demo: $(READY) ## show the library at work on an embedded cluster; MODE=kueue behind Kueue
	@$(COMMAND) demo --mode $(or $(MODE),plain)

.PHONY: test
test: lint types rooms generated examples properties ## every check

.PHONY: lint
lint: $(READY) ## the linter
	$(BIN)/ruff check .

# The import package is a namespace over top folders: links give the type checker that shape.
.PHONY: types
types: $(READY) ## the type checker, strict
	@mkdir -p .cache/types/dispatch_kubeflow
	@for room in machine tables backend; do ln -sfn "../../../$$room" ".cache/types/dispatch_kubeflow/$$room"; done
	@ln -sfn ../../../docs/examples .cache/types/dispatch_kubeflow/examples
	$(BIN)/mypy -p dispatch_kubeflow -p properties

.PHONY: rooms
rooms: $(READY) ## the import rules of the architecture
	@mkdir -p .cache
	@$(BIN)/lint-imports > .cache/rooms.log || { cat .cache/rooms.log; exit 1; }
	@tail -n 2 .cache/rooms.log

.PHONY: generated
generated: $(READY) ## prove the tables, and that what is made from them is what they make
	$(COMMAND) tables check
	@rm -rf .cache/docs
	@$(COMMAND) tables show --format markdown --out .cache/docs/tables
	@diff -r .cache/docs/tables docs/tables || { echo "docs/tables is not what the tables make: run 'make generate'"; exit 1; }
	@$(COMPILE) .cache/compiled.json
	@cmp .cache/compiled.json machine/rules/compiled.json || { echo "the compiled tables are stale: run 'make generate'"; exit 1; }

.PHONY: generate
generate: $(READY) ## write what is made from the tables: their compiled form, and the pages
	$(COMPILE) machine/rules/compiled.json
	rm -rf docs/tables
	$(COMMAND) tables show --format markdown --out docs/tables

# Thresholds are checked after pytest, on its data: machine/ whole, everything 95 of 100.
.PHONY: examples
examples: $(READY) ## the tests, with coverage
	@mkdir -p .cache && rm -f .coverage .coverage.*
	$(BIN)/python -m pytest tests -n $(JOBS) --dist worksteal --cov --cov-report=
	@for bound in 'machine/*:100' '*:95'; do \
		$(BIN)/coverage report --include "$${bound%:*}" --fail-under "$${bound#*:}" > .cache/coverage.log \
			|| { cat .cache/coverage.log; exit 1; }; \
		echo "Coverage of $${bound%:*}: at least $${bound#*:} %, branches too"; \
	done

# Without coverage, which would treble their time: the tests alone must reach every line.
.PHONY: properties
properties: $(READY) ## the short profile of the properties
	$(BIN)/python -m pytest properties -n $(JOBS) --dist worksteal

# Longer than a check of a change should take.
.PHONY: every-byte
every-byte: $(READY) ## every fault at every byte of request and answer
	DISPATCH_EVERY_BYTE=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -q tests/requests/test_faults.py

SECONDS ?= 60
.PHONY: fuzz
fuzz: $(READY) ## schedules by their seeds for SECONDS=60: the last line counts them and the violations
	@$(BIN)/python -m properties fuzz --seconds $(SECONDS)

PART ?= 1/1
.PHONY: pairs
pairs: $(READY) ## every pair of faults at two requests of every operation: half an hour, or one PART=3/20 of it
	@$(BIN)/python -m properties pairs --part $(PART)

.PHONY: bench
bench: $(READY) ## what a decision, a request and a deadline cost; on an idle machine
	$(BIN)/python -m tests.benchmarks.machine
	$(BIN)/python -m tests.benchmarks.bench_request_cost
	$(BIN)/python -m tests.benchmarks.bench_deadline_overshoot
	$(BIN)/python -m tests.benchmarks.bench_admission

# The real control plane brings its own makefile.
ifneq ($(wildcard tests/real/Makefile),)
.PHONY: real
real: $(READY) ## leave a real control plane running; prints its KUBECONFIG
	@$(MAKE) --no-print-directory -C tests/real up PYTHON="$(abspath $(BIN))/python"

.PHONY: test-real
test-real: $(READY) ## the tests against a real control plane
	$(MAKE) --no-print-directory -C tests/real test PYTHON="$(abspath $(BIN))/python"
endif

.PHONY: requirements
requirements: $(READY) ## pin the newest requirements, with hashes
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pip-tools
	$(BIN)/pip-compile --quiet --upgrade --generate-hashes --all-extras --strip-extras --allow-unsafe --no-config --no-header \
		--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options \
		--output-file requirements/dev.txt requirements/dev.in pyproject.toml

.PHONY: wheel
wheel: $(READY) ## build the wheel and the source distribution
	$(BIN)/python -m build --no-isolation

.PHONY: clean
clean: ## remove everything that was made
	rm -rf $(VENV) .cache build dist *.egg-info .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache
