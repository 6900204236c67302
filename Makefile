# Two environments, pinned in requirements/: modern (.venv) and legacy (.venv-legacy).
# Every target builds what it needs first, so `make demo` in a fresh clone is enough.

PYTHON ?= python3.11

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

MODERN := .venv
LEGACY := .venv-legacy
SOURCES := $(wildcard src tests benchmarks examples)

.PHONY: help env demo test lint bench clean

help: ## Show this list
	@echo "Tornasole: make <target>"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Needs Python 3.11, found as '$(PYTHON)'; another one: make PYTHON=/path/to/python3.11 <target>"

env: $(MODERN)/.ready $(LEGACY)/.ready ## Build both test environments; does nothing when they are current

demo: $(MODERN)/.ready ## Train a small model with a hook, then look at what was saved
	@$(MODERN)/bin/tornasole demo

test: env ## Lint, and all tests in the modern environment and, beside it, in the legacy one
	@mkdir -p build/test; outcome="passed"; summary=""; \
	$(LEGACY)/bin/python -m pytest -q > build/test/beside.log 2>&1 & beside=$$!; \
	trap 'kill $$beside 2> /dev/null || true' EXIT; \
	run() { \
		echo "==> $$1"; \
		local result="passed"; \
		"$${@:2}" 2>&1 | tee "build/test/$$1.log" || { result="FAILED"; outcome="FAILED"; }; \
		summary+="$$(printf '%-7s %-7s %s' "$$1" "$$result" "$$(grep -E 'passed|failed|error|Success' "build/test/$$1.log" | tail -n 1)")"$$'\n'; \
	}; \
	run lint $(MAKE) lint; \
	run modern $(MODERN)/bin/python -m pytest -q; \
	status=0; wait $$beside || status=$$?; \
	run legacy sh -c "cat build/test/beside.log; exit $$status"; \
	printf '\n%smake test: %s\n' "$$summary" "$$outcome"; \
	[ "$$outcome" = passed ]

lint: $(MODERN)/.ready ## Check style (ruff) and types (mypy)
	@$(MODERN)/bin/python -m ruff check --quiet $(SOURCES)
	@$(MODERN)/bin/python -m ruff format --check --quiet $(SOURCES) \
		|| { echo "Badly formatted; to mend: $(MODERN)/bin/ruff format $(SOURCES)"; exit 1; }
	@$(MODERN)/bin/python -m mypy

bench: env ## Run the benchmarks; results go to benchmarks/results/
	@$(MODERN)/bin/python -m benchmarks
	@$(LEGACY)/bin/python -m benchmarks

clean: ## Remove caches and build outputs (the environments stay)
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

# Framework tests skip themselves where their framework is not installed, so both environments run all
# of tests/. A stamp is written last: an interrupted build is taken up again by the next one.
$(MODERN)/.ready: requirements/modern.txt pyproject.toml
	@$(call build-environment,$(MODERN),$<,modern)

$(LEGACY)/.ready: requirements/legacy.txt pyproject.toml
	@$(call build-environment,$(LEGACY),$<,legacy)

# $(1) folder, $(2) requirement file, $(3) its name. An environment that works is brought up to date, never
# handed to another Python.
define build-environment
	echo "Building the $(3) environment in $(1) (a few minutes and gigabytes the first time)"; \
	if ! $(1)/bin/python -m pip --version > /dev/null 2>&1; then \
		if ! "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2> /dev/null; then \
			echo "The test environments need Python 3.11, and '$(PYTHON)' is not one." >&2; \
			echo "Install it, or name it: make PYTHON=/path/to/python3.11 env" >&2; \
			exit 1; \
		fi; \
		if ! "$(PYTHON)" -m venv --clear $(1); then \
			echo "'$(PYTHON)' cannot make virtual environments (on Debian: install python3.11-venv)." >&2; \
			exit 1; \
		fi; \
	fi; \
	install() { \
		$(1)/bin/python -m pip install --disable-pip-version-check --no-input "$$@" >> $(1)/install.log 2>&1 \
			|| { tail -n 20 $(1)/install.log >&2; echo "Failed; the whole log: $(1)/install.log" >&2; exit 1; }; \
	}; \
	: > $(1)/install.log; \
	install -r $(2); \
	install --no-deps -e .; \
	touch $@; \
	echo "The $(3) environment is ready"
endef
