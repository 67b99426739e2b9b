# SPDX-License-Identifier: Apache-2.0
# One Makefile for Python and TypeScript; each target calls the native tool.
# A fresh machine needs Python 3.11 or newer and make; the rest comes from package registries.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
TOOLS := $(VENV)/.tools
INSTALLED := $(VENV)/.installed
STATIC := src/pilothouse/server/static
NODE_MAJOR := 20
JOBS ?= 2
ARGS ?=

# The first of these that is new enough; override with `make PYTHON=/path/to/python up`.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
  "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)

# uv and node from the machine when they work there, otherwise from the wheels in $(TOOLS).
# Recipes read them when they run, after `install` had its chance to fetch them.
UV = $(shell if uv --version >/dev/null 2>&1; then echo uv; else echo $(TOOLS)/bin/uv; fi)
NODE_OK = [ "$$(node -p 'process.versions.node.split(`.`)[0]' 2>/dev/null || echo 0)" -ge $(NODE_MAJOR) ] && npm --version >/dev/null 2>&1
NPM = cd web && PATH="$(shell if $(NODE_OK); then dirname "$$(command -v npm)"; else echo $(CURDIR)/$(TOOLS)/bin; fi):$$PATH" npm
CHROMIUM = $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
WEB_SOURCES := $(shell find web -type f -not -path '*/node_modules/*' -not -path '*/dist/*' 2>/dev/null)

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ The two commands

.PHONY: up
up: install web ## Set up, then run the loop on the simulator and serve the page (ARGS="--scenario idle")
	$(BIN)/pilothouse up $(ARGS)

.PHONY: test
test: install web lint test-web lab-parts test-scheduler test-fast test-browser test-live ## Set up, then run every check and test
	@echo "make test: lint, types, imports, page, scheduler, Python, browser and live tests done; what was skipped is named above with its reason."

##@ Parts of them

.PHONY: install
install: $(INSTALLED) ## Make .venv from the locked requirements

$(INSTALLED): requirements/dev.txt pyproject.toml | $(BIN)/python uv
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.txt
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

$(BIN)/python:
	@[ -n "$(PYTHON)" ] || { echo "make: Python 3.11 or newer is needed and none was found. Install it, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || uv --version >/dev/null 2>&1 || $(MAKE) debian-package PACKAGE=python3-venv WHY="$(PYTHON) has no ensurepip"
	@if uv --version >/dev/null 2>&1; then uv venv --quiet --allow-existing --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(VENV); else $(PYTHON) -m venv $(VENV); fi

.PHONY: uv
uv: | $(BIN)/python
	@uv --version >/dev/null 2>&1 || [ -x $(TOOLS)/bin/uv ] || { $(PYTHON) -m venv $(TOOLS) && $(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/tools.txt; }

.PHONY: node
node: | uv
	@{ $(NODE_OK); } || [ -x $(TOOLS)/bin/npm ] || { [ -x $(TOOLS)/bin/python ] || $(UV) venv --quiet $(TOOLS) --python $(BIN)/python; \
	  $(UV) pip install --quiet --python $(TOOLS)/bin/python --require-hashes --no-deps -r requirements/tools.txt; }

.PHONY: web
web: $(if $(wildcard web/package.json),$(STATIC)/.built) ## Build the page, when its sources changed

web/node_modules/.installed: web/package.json web/package-lock.json | node
	$(NPM) ci --no-audit --no-fund --loglevel=error
	@mkdir -p $(@D) && touch $@

$(STATIC)/.built: $(WEB_SOURCES) web/node_modules/.installed
	$(NPM) run --silent build
	@mkdir -p $(@D) && touch $@

.PHONY: lint
lint: install ## Style, types and import direction
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	@if [ -f web/package.json ]; then $(MAKE) lint-web; fi

.PHONY: lint-web
lint-web: web/node_modules/.installed
	$(NPM) run --silent lint

.PHONY: test-web
test-web: $(if $(wildcard web/package.json),web/node_modules/.installed) ## Unit tests of the page
	@if [ -f web/package.json ]; then $(NPM) run --silent test; else echo "No web/ here: nothing to test."; fi

.PHONY: test-fast
test-fast: install ## Python tests without the browser (ARGS="-k journal")
	$(BIN)/pytest -q -n $(JOBS) -m "not browser and not live" $(ARGS)

.PHONY: test-browser
test-browser: install web chromium ## The page in a real browser
	$(BIN)/pytest -q -m browser

.PHONY: chromium
chromium:
	@[ -n "$(CHROMIUM)" ] || $(MAKE) debian-package PACKAGE=chromium WHY="no chromium on PATH, and the browser tests need one"

LAB_PACKAGES := containerd runc containernetworking-plugins iproute2 openssl mount prometheus

.PHONY: test-live
test-live: lab-parts ## Tests on a real Kubernetes on this machine; root on Debian, else they say why not
	$(BIN)/pytest -q -m live tests/live --ignore=tests/live/placement --ignore=tests/live/act $(ARGS)
	$(BIN)/pytest -q -m live tests/live/placement $(ARGS)
	$(BIN)/pytest -q -m live tests/live/act $(ARGS)

.PHONY: lab-parts
lab-parts: install lab-packages
	@if [ "$$(id -u)" = 0 ] && [ "$$(uname -s)" = Linux ]; then { $(BIN)/pilothouse lab build --scheduler && $(BIN)/pilothouse lab build --helm; } || [ -z "$${CI:-}" ]; fi

# The lab's flags, so that what it compiled of Kubernetes is not compiled again.
.PHONY: test-scheduler
test-scheduler: ## Go vet and tests of the scheduler; the first time they compile much of Kubernetes
	@if command -v go >/dev/null; then \
	  cd scheduler && export CGO_ENABLED=0 GOWORK=off GOFLAGS="-mod=readonly -trimpath -buildvcs=false" && go vet ./... && go test ./...; \
	else echo "There is no go command, so the scheduler's Go tests did not run. Install Go 1.26 or newer."; [ -z "$${CI:-}" ]; fi

.PHONY: lab-packages
lab-packages:
	@if [ "$$(id -u)" = 0 ] && [ -f /etc/debian_version ] && ! dpkg -s $(LAB_PACKAGES) >/dev/null 2>&1; then \
	  $(MAKE) debian-package PACKAGE="$(LAB_PACKAGES)" WHY="the lab runs real kubelets"; fi

# Debian's packages are the only thing here that is not from a language registry. apt-get gives up at
# once where uv and npm ask again: while another holds its lock, or a mirror is away.
APT = DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3

.PHONY: debian-package
debian-package:
	@if [ "$$(id -u)" = 0 ] && [ -f /etc/debian_version ]; then \
	  echo "Installing $(PACKAGE): $(WHY)."; \
	  for try in 1 2 3; do \
	    $(APT) update && $(APT) install -y --no-install-recommends $(PACKAGE) >/dev/null && break; \
	    [ $$try -lt 3 ] || exit 1; sleep $$((15 * try)); \
	  done; \
	else echo "make: $(WHY). Install it (Debian: sudo apt-get install $(PACKAGE)) and try again." >&2; exit 1; fi

##@ Upkeep

.PHONY: fmt
fmt: install ## Format the code
	$(BIN)/ruff check --fix --exit-zero .
	$(BIN)/ruff format .

.PHONY: bench
bench: install ## Run every benchmark, one after the other, and say which held; ARGS: some of them
	@$(BIN)/python -m benchmarks $(ARGS)

.PHONY: lock
lock: | uv ## Resolve the requirements anew: versions and hashes, no addresses
	$(UV) pip compile -q pyproject.toml --extra kubernetes $(LOCK_FLAGS) -o requirements/runtime.txt
	$(UV) pip compile -q pyproject.toml --extra dev --extra learn --extra fast --extra bench --extra distributed $(LOCK_FLAGS) -o requirements/dev.txt
	$(UV) pip compile -q requirements/build.in $(LOCK_FLAGS) -o requirements/build.txt
	$(UV) pip compile -q requirements/tools.in $(LOCK_FLAGS) -o requirements/tools.txt

LOCK_FLAGS := --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --custom-compile-command "make lock"

.PHONY: generate
generate: install ## Write what is derived from code: API document, settings and CLI reference
	$(BIN)/python -m docs.generate

.PHONY: verify
verify: install ## Fail when a derived file is not what the code says
	$(BIN)/python -m docs.generate --check

.PHONY: manifests
manifests: install ## Write deploy/manifests from the chart (needs helm, or: pilothouse lab build --helm)
	$(BIN)/python -m deploy.render $(ARGS)

.PHONY: image
image: ## Build the container image (needs docker or podman)
	$(shell command -v docker || command -v podman || echo docker) build -f deploy/Dockerfile -t pilothouse:$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' src/pilothouse/__init__.py) .

.PHONY: presubmit
presubmit: fmt generate test ## Everything to run before sending a change

.PHONY: clean
clean: ## Remove what was built; keep .venv
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache $(STATIC) web/dist
	find src tests docs -name __pycache__ -type d -prune -exec rm -rf {} +
