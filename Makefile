# Outrider's front door. Every target calls the CLI, docker or ansible; logic lives in Python.
PYTHON ?= python3
STACK ?= smollm2-cpu
RUNTIME ?= local
RUN ?= demo
VENV := .venv
OUTRIDER := $(VENV)/bin/outrider
NOT_QUIET := $(if $(BUSY), and not quiet)
NODES = $(or $(INVENTORY),$(error INVENTORY=FILE must name the nodes; begin with a copy of ansible/inventory.example.yml)) \
  $(if $(filter command% environment%,$(origin STACK)),--stack $(STACK))
COMPILE := uv pip compile -q --python-platform x86_64-manylinux_2_28 --generate-hashes --no-emit-index-url --no-header \
  --no-annotate --override requirements/excluded.txt

.DEFAULT_GOAL := help
.PHONY: help env demo test test-quiet lint types lock clean stop status preflight train-plan train-env test-slow
.PHONY: evidence-smollm2 evidence-auto evidence-kimi-shape evidence-kimi-client evidence-kimi-auto evidence-kimi-tp2
.PHONY: evidence-kimi-full evidence-kimi-long evidence-kimi-rank evidence-kimi-schedule evidence-budget
.PHONY: image image-cpu lock-images dashboards dashboards-down watch provision node-report test-provision

help: ## Show this help
	@grep -hE '^[a-z0-9%-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9%-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

env: ## Make or refresh .venv from the locks (nothing else is needed but Python >= 3.11)
	@$(PYTHON) tools/setup_env.py --venv $(VENV)

train-env: ## Make or refresh .venv-train, the interpreter that trains drafters
	@$(PYTHON) tools/setup_env.py --venv .venv-train --lock requirements/train.lock --without-outrider

demo: env ## Serve, load, measure and report the embedded default: a real model on a real engine
	@$(OUTRIDER) fetch smollm2-cpu
	@$(OUTRIDER) campaign smollm2-cpu --run $(RUN) || test $$? -eq 3 # 3: done, with findings that are shown

test: env ## Run the tests: a few minutes, real engine and browser included; BUSY=1 leaves `quiet` ones out
	@$(VENV)/bin/python -m pytest -m "not slow and not train and not container and not provision$(NOT_QUIET)" $(PYTEST_ARGS)

test-slow: env train-env ## Run the long tests: engines, parity, training from prompts to a served head; BUSY=1 too
	@$(VENV)/bin/python -m pytest -m "(slow or train) and not container and not provision$(NOT_QUIET)" $(PYTEST_ARGS)

test-quiet: env ## Run what BUSY=1 leaves out, short and long: it measures time and wants the machine to itself
	@$(VENV)/bin/python -m pytest -m "quiet and not container and not provision" $(PYTEST_ARGS)

preflight: env ## Check STACK before anything is loaded
	@$(OUTRIDER) preflight $(STACK)

serve-%: env ## Serve a variant of STACK on RUNTIME: make serve-eagle3 STACK=... RUNTIME=local|compose|systemd
	@$(OUTRIDER) serve $(STACK) $* --runtime $(RUNTIME)

stop: env ## Stop every engine that was started on RUNTIME
	@$(OUTRIDER) stop --runtime $(RUNTIME)

status: env ## Show the engines that were started on RUNTIME
	@$(OUTRIDER) status --runtime $(RUNTIME)

dashboards: env ## Start Prometheus, Grafana, Alertmanager and exporters (Docker); STACK= whose cells are shown
	@$(OUTRIDER) observe up $(STACK)

dashboards-down: env ## Stop them; what was recorded is kept
	@$(OUTRIDER) observe down

watch: env ## Show in this terminal whether speculation pays now
	@$(OUTRIDER) watch

image: env ## Build the CUDA image (vLLM with the patch ledger applied); BASE= names another base
	@$(OUTRIDER) image build serve $(if $(BASE),--base $(BASE))

image-cpu: env ## Build the embedded engine's image and the load image; BASE= names another base
	@$(OUTRIDER) image build serve-cpu $(if $(BASE),--base $(BASE))
	@$(OUTRIDER) image build load $(if $(BASE),--base $(BASE))

provision: env ## Make the nodes of INVENTORY ready for STACK's kind of serving; CHECK=1 only shows what would change
	@$(OUTRIDER) provision --inventory $(NODES) $(if $(CHECK),--check) || test $$? -eq 3 # 3: ready, with advisories

node-report: env ## Measure the nodes of INVENTORY again and write their report
	@$(OUTRIDER) provision report --inventory $(NODES) || test $$? -eq 3

test-provision: env ## Provision a virtual machine and a container, every fault included (root, Debian 12)
	@.ci/provision all

evidence-smollm2: env ## On a GPU: measure, decide, serve what was emitted and hold it against every static k
	@benchmarks/evidence/smollm2.sh

evidence-auto: env ## On a GPU: a variant that chooses k beside each static k, and what choosing costs
	@benchmarks/evidence/auto.sh

evidence-budget: env ## On a GPU: a step of the flagship's shape by how many experts it may read
	@benchmarks/evidence/kimi_shape.sh budget

evidence-kimi-shape: env ## On a GPU: what a step of the flagship's shape costs, 8 layers of dummy weights
	@benchmarks/evidence/kimi_shape.sh one

evidence-kimi-long: env ## The same at 16k tokens of context, which come from the prefix cache
	@benchmarks/evidence/kimi_shape.sh long

evidence-kimi-rank: env ## What each of eight GPUs would do at full depth, on one of them, without all-reduce
	@benchmarks/evidence/kimi_shape.sh rank

evidence-kimi-client: env ## On a GPU: our client beside the engine's own, where steps repeat within 1 %
	@benchmarks/evidence/kimi_shape.sh client

evidence-kimi-auto: env ## On a GPU: a variant that chooses k as users come and go, 8 layers of dummy weights
	@benchmarks/evidence/kimi_shape.sh auto

evidence-kimi-schedule: env ## On a GPU: from static k to a schedule, served and held against them
	@benchmarks/evidence/kimi_shape.sh schedule

evidence-kimi-tp2: env ## The same on two GPUs, over NVLink and over host memory
	@benchmarks/evidence/kimi_shape.sh two

evidence-kimi-full: env ## All 61 layers on eight GPUs, over NVLink and over host memory
	@benchmarks/evidence/kimi_shape.sh full

train-plan: env ## What would a drafter for STACK cost?
	@$(OUTRIDER) train plan $(STACK)

lint: env ## Check style
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check .

types: env ## Check types
	@$(VENV)/bin/mypy

lock: ## Compile requirements/*.lock (needs uv)
	@uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --no-annotate --override requirements/excluded.txt --extra load --extra cpu --extra compose --extra provision \
	  --extra dashboards --extra dev pyproject.toml -o requirements/dev.lock
	@uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --no-annotate --override requirements/excluded.txt requirements/train.in -o requirements/train.lock
	@echo triton==3.9.0 | uv pip compile -q --universal --python-version 3.11 --no-deps --generate-hashes --no-emit-index-url \
	  --no-header --no-annotate - -o requirements/interpreted-triton.lock

lock-images: env ## Compile the images' locks (needs uv) and pin their bases by digest (needs the registries)
	@$(COMPILE) --python-version 3.11 -c requirements/dev.lock requirements/serve-cpu.in -o requirements/serve-cpu.lock
	@$(COMPILE) --python-version 3.11 -c requirements/dev.lock --extra load pyproject.toml -o requirements/load.lock
	@$(COMPILE) --python-version 3.12 --no-deps requirements/serve.in -o requirements/serve.lock
	@uv pip compile -q --python-platform x86_64-manylinux_2_28 --generate-hashes --no-emit-index-url --no-header --no-annotate \
	  --python-version 3.12 -c requirements/load.lock --extra load pyproject.toml requirements/serve-venv.in \
	  -o requirements/serve-venv.lock
	@$(COMPILE) --python-version 3.11 requirements/installer.in -o requirements/installer.lock
	@$(OUTRIDER) image lock

clean: ## Remove what the tools here left behind, results excepted
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
