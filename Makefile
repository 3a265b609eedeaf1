# Bare `make` prints help. `make demo` and `make test` set up all they need.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory
# Tests and demos start hundreds of processes: what they import is compiled once, not by each.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamp
# Of an install without tools: a demo on a fresh clone has no use for cloud SDKs and test runners.
PLAIN  := $(VENV)/.plain
PYTEST := $(BIN)/python -m pytest

# ONCE=1   make demo ends by itself          SHORT=1  the quick rows of a benchmark
# DATA=DIR the folder of public data         JOBS=N   pytest in N processes (as cores, up to 4)
# SEEDS=N  worlds of make chaos             FIRST=N  the first seed of make chaos
# MORE=N   further worlds of make chaos, drawn from FROM=TEXT (the commit, or a digest of src)
# SCENARIOS=...  shipped scenarios for make chaos, by name or `all`
# ARGS=... passed on to pytest               PG=1     benchmark PostgreSQL too, or fail without it
ONCE  ?=
SHORT ?=
DATA  ?= ../shared/data
JOBS  ?= $(shell n=$$(nproc 2>/dev/null || echo 1); echo $$((n > 4 ? 4 : n)))
ARGS  ?=
SEEDS ?= 1000
FIRST ?= 0
MORE  ?= 0
FROM  ?= $(shell git rev-parse --verify HEAD 2>/dev/null \
  || find src -name '*.py' | LC_ALL=C sort | xargs cat | sha256sum | cut -c 1-40)
# Which cases of the slowest suites have their turn; empty, and where tests are chosen: all of them.
TURN  ?= $(if $(ARGS),,$(FROM))
SCENARIOS ?=
PG    ?=

PYTEST_ARGS := $(if $(filter-out 1,$(JOBS)),-n $(JOBS)) $(ARGS)

.PHONY: help
help: ## print this list
	@echo "roost: finds every VM its place, and says why."
	@echo
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) \
	  | awk -F ':.*## ' '{ printf "  make %-20s %s\n", $$1, $$2 }'

.PHONY: setup
setup: $(STAMP) ## create .venv with roost and its tools, pinned (quick the second time)
	@echo "setup: $(VENV) is ready"

.PHONY: plain
plain: $(PLAIN) ## create .venv with roost alone, as `pip install .` would: what ./roost and the demo need
	@echo "plain: $(VENV) is ready"

# What is installed is compiled to bytecode when it is first imported, not all of it beforehand: most never is.
define install
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "setup: roost needs Python 3.11 or newer. Maybe: make setup PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "setup: creating $(VENV) with $$("$(PYTHON)" --version)"; "$(PYTHON)" -m venv $(VENV); }
	@echo "setup: installing $(1) as pinned in constraints.txt ($(2))"
	@$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '$(3)'
endef

$(STAMP): pyproject.toml constraints.txt
	$(call install,roost and its tools,two to four minutes,.[dev])
	@touch $@ $(PLAIN)

$(PLAIN): pyproject.toml constraints.txt
	$(call install,roost,half a minute,.)
	@touch $@

.PHONY: demo
demo: $(PLAIN) ## run a control plane with 20 virtual hosts and show what it does (ONCE=1: end after the tour)
	@$(if $(ONCE),ONCE=$(ONCE)) $(BIN)/roost demo

.PHONY: demo-plan
demo-plan: $(PLAIN) ## an uneven fleet of virtual hosts, its plan, the moves as they happen, the calm afterwards (a minute)
	@$(if $(ONCE),ONCE=$(ONCE)) $(BIN)/roost demo --plan

.PHONY: demo-qemu
demo-qemu: $(STAMP) ## boot three real guests on two hosts, move one by a plan while it counts, break things (after make parts)
	@$(if $(ONCE),ONCE=$(ONCE)) $(BIN)/roost demo --qemu

.PHONY: demo-analysis
demo-analysis: $(STAMP) ## two weeks of readings on virtual hosts, learnt from, and a VM that promises would have put wrong
	@$(if $(ONCE),ONCE=$(ONCE)) $(BIN)/roost demo --analysis

.PHONY: demo-jobs
demo-jobs: $(STAMP) ## a parameter sweep on rented local workers: the pool grows, a worker is killed, results and the bill (a minute)
	@$(if $(ONCE),ONCE=$(ONCE)) $(BIN)/roost demo --jobs

.PHONY: demo-kube
demo-kube: $(STAMP) ## VMs as pods on a real Kubernetes with fake nodes: placed, moved, evicted (first time: 8 minutes of building; needs Go)
	@tools/build-kube >/dev/null
	@$(if $(ONCE),ONCE=$(ONCE)) $(BIN)/roost kube demo

# Compiling takes one core as long as the checks take another: side by side they cost half.
.PHONY: test
test: $(STAMP) ## what every change must pass: lint, types, layers, all tests but the slowest suites (TURN= for every case)
	@$(MAKE) --jobs=2 lint type layers kernels
	@$(MAKE) pytest

.PHONY: kernels
kernels: $(STAMP) ## compile the kernels, or find that they are there (once for each change of them)
	@$(BIN)/roost warm

# What tests write is forgotten with them: in memory where 4 GiB are free, so that none waits for a disk.
IN_MEMORY = $(shell [ -w /dev/shm ] && [ "$$(df --output=avail -k /dev/shm | tail -1)" -gt 4194304 ] \
  && echo PYTEST_DEBUG_TEMPROOT=/dev/shm)

.PHONY: pytest
pytest: $(STAMP) ## the tests alone (JOBS=1 for one process, ARGS='-k name' to choose)
	TURN=$(TURN) DATA=$(DATA) $(IN_MEMORY) $(PYTEST) --ignore=tests/system --ignore=tests/kube -m "not qemu or smoke" $(PYTEST_ARGS)

.PHONY: test-system
test-system: kernels ## real processes on real databases: started, killed, stopped, restarted (TURN= for every upgrade)
	TURN=$(TURN) $(PYTEST) tests/system -m "not qemu" $(PYTEST_ARGS)

# One file is one process's: its tests share a control plane.
.PHONY: test-qemu
test-qemu: $(STAMP) ## real guests on QEMU, a Debian among them: booted, moved, killed half way (after make parts; TURN= for every kill)
	TURN=$(TURN) $(PYTEST) tests/integration/qemu tests/conformance tests/system -m qemu --dist loadfile $(PYTEST_ARGS)

.PHONY: test-kube
test-kube: $(STAMP) ## real Kubernetes: scheduler, API server, fake nodes (after make kube-tools; TURN= for every case)
	TURN=$(TURN) $(PYTEST) tests/kube --dist loadfile $(PYTEST_ARGS)

.PHONY: test-all
test-all: ## every test there is, also those that take turns (after make parts and make kube-tools; about an hour)
	@$(MAKE) test test-system test-qemu test-kube TURN=
	@$(MAKE) test-kernels-python test-bounds

.PHONY: lint
lint: $(STAMP) ## ruff: format and rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

.PHONY: fmt
fmt: $(STAMP) ## rewrite the code in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: type
type: $(STAMP) ## mypy, strict, on src
	$(BIN)/mypy

.PHONY: layers
layers: $(STAMP) ## import-linter: who may import whom
	$(BIN)/lint-imports

.PHONY: check
check: lint type layers ## lint, types, layers and goldens: the quick half of test
	$(PYTEST) tests/scenario $(PYTEST_ARGS)

.PHONY: goldens
goldens: $(STAMP) ## rewrite tests/scenario/*/*.expect; read the diff before you commit it
	$(PYTEST) tests/scenario --rewrite-goldens $(PYTEST_ARGS)

.PHONY: bench-engine
bench-engine: $(STAMP) ## speed and memory of the engine beside the plain compiled scan (SHORT=1: quick rows)
	$(BIN)/python -m benchmarks.engine $(if $(SHORT),--short)

.PHONY: bench-jobs
bench-jobs: $(STAMP) ## 10,000 jobs beside dask.distributed, plans of 100,000, an array of as many, the cheapest mix (SHORT=1: fewer)
	$(BIN)/python -m benchmarks.jobs $(if $(SHORT),--short)

.PHONY: bench-rules
bench-rules: $(STAMP) ## decisions under rules beside those without, answers held to the interpreter (SHORT=1: quick rows)
	$(BIN)/python -m benchmarks.rules $(if $(SHORT),--short)

.PHONY: bench-analysis
bench-analysis: $(STAMP) ## periods, confidence, forecasts, classes and consolidation judged on unseen series (DATA=folder, SHORT=1: quick rows)
	$(BIN)/python -m benchmarks.analysis --data $(DATA) $(if $(SHORT),--short)

.PHONY: bench-planner
bench-planner: $(STAMP) ## moves found on public instances and made fleets, beside published results (DATA=folder, SHORT=1: quick rows)
	$(BIN)/python -m benchmarks.planner --data $(DATA) $(if $(SHORT),--short)

.PHONY: bench-api
bench-api: $(STAMP) ## durable creates, agents and starts of a real server (SHORT=1: quick rows, PG=1: PostgreSQL too)
	$(BIN)/python -m benchmarks.api $(if $(SHORT),--short) $(if $(PG),--postgres yes)

.PHONY: bench-agent
bench-agent: $(STAMP) ## boots and live moves beside QEMU by hand, memory of agents (SHORT=1: quick rows; after make parts)
	$(BIN)/python -m benchmarks.agent $(if $(SHORT),--short)

.PHONY: bench-hardening
bench-hardening: $(STAMP) ## what bad clients cost good ones (SHORT=1: quick rows)
	$(BIN)/python -m benchmarks.hardening $(if $(SHORT),--short)

.PHONY: bench-sim
bench-sim: $(STAMP) ## simulated worlds: a campaign, a quiet week, planted mistakes (SHORT=1: quick rows)
	TURN=$(if $(SHORT),$(TURN)) $(BIN)/python -m benchmarks.sim $(if $(SHORT),--short)

.PHONY: bench-kube
bench-kube: $(STAMP) ## the same requests through kube-scheduler and through roost (SHORT=1: quick rows; after make kube-tools)
	$(BIN)/python -m benchmarks.kube $(if $(SHORT),--short)

.PHONY: bench-cli
bench-cli: $(STAMP) ## CPU of commands, size of an install, a first start with nothing compiled (minutes)
	$(BIN)/python -m benchmarks.cli

.PHONY: bench-packing
bench-packing: $(STAMP) ## packing quality on public traces (DATA=folder)
	$(BIN)/python -m benchmarks.packing --data $(DATA)

# Where the tests are that carry the marker `kernel`: collecting all others takes as long again.
KERNEL_TESTS := tests/property tests/unit/analysis tests/unit/placement

.PHONY: test-kernels-python
test-kernels-python: $(STAMP) ## kernel tests with the compiler off
	NUMBA_DISABLE_JIT=1 $(PYTEST) $(KERNEL_TESTS) -m kernel $(PYTEST_ARGS)

.PHONY: kernels-bounds
kernels-bounds: $(STAMP) ## compile the kernels with array bounds checked, or find that they are there
	@NUMBA_BOUNDSCHECK=1 $(BIN)/roost warm

# Compiled by one process first, for each of several would compile them all.
.PHONY: test-bounds
test-bounds: kernels-bounds ## kernel tests with array bounds checked
	NUMBA_BOUNDSCHECK=1 $(PYTEST) $(KERNEL_TESTS) -m kernel $(PYTEST_ARGS)

.PHONY: chaos
chaos: $(STAMP) ## the control plane and agents through simulated faults (SEEDS=1000 worlds, FIRST=0, MORE=0 drawn from the commit, SCENARIOS=all or names)
	@$(BIN)/roost sim chaos --seeds $(SEEDS) --first $(FIRST) \
	  $(if $(filter-out 0,$(MORE)),--more $(MORE) --from '$(FROM)') $(addprefix --scenario ,$(SCENARIOS))

# SEED=N one draw of faults, SECONDS=N or MINUTES=N of faults, DATABASE=sqlite|postgresql|both
.PHONY: chaos-jobs
chaos-jobs: $(STAMP) ## jobs on machines of a simulated cloud that fails, is slow and answers twice (SEEDS=10 worlds, FIRST=0)
	@PYTHONHASHSEED=0 $(BIN)/python -m roost.sim.rented.jobworld --seeds $(or $(filter-out 1000,$(SEEDS)),10) --first $(FIRST)

.PHONY: chaos-real
chaos-real: $(STAMP) ## real processes killed, frozen and cut off on real databases (SEED=1 SECONDS=120 DATABASE=both)
	@$(BIN)/python -m tests.campaign --seed $(or $(SEED),1) --database $(or $(DATABASE),both) \
	  --seconds $(or $(SECONDS),$(if $(MINUTES),$$(($(MINUTES) * 60))),120)

.PHONY: fuzz
fuzz: $(STAMP) ## what agents and clients may send, through decoders and whole connections (MESSAGES=1000000 ATTACKS=200 SEED=1)
	@$(BIN)/python -m tests.fuzz --messages $(or $(MESSAGES),1000000) --attacks $(or $(ATTACKS),200) --seed $(or $(SEED),1)

.PHONY: parts
parts: ## install the Debian packages that tests and demos use, those that are missing (as root)
	@tools/install-parts

.PHONY: kube-tools
kube-tools: ## build Kubernetes, etcd, KWOK and the descheduler into a cache (once per machine, about 8 minutes; needs Go)
	@tools/build-kube

.PHONY: constraints
constraints: ## pin the newest versions of everything into constraints.txt, from a fresh venv
	@tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	  "$(PYTHON)" -m venv "$$tmp/venv"; \
	  "$$tmp/venv/bin/python" -m pip install --quiet --disable-pip-version-check '.[dev]'; \
	  { echo "# Every version that make setup installs. Rewrite with: make constraints"; \
	    "$$tmp/venv/bin/python" -m pip freeze --exclude roost; } > "$$tmp/constraints.txt"; \
	  cp "$$tmp/constraints.txt" constraints.txt
	@echo "constraints: $$(grep -c == constraints.txt) versions pinned"

.PHONY: clean
clean: ## remove the venv, caches and build results
	rm -rf $(VENV) .cache .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
