# Outrider's front door. Every target calls the CLI, docker or ansible; logic lives in Python.
PYTHON ?= python3
STACK ?= smollm2-cpu
RUN ?= demo
VENV := .venv
OUTRIDER := $(VENV)/bin/outrider

.DEFAULT_GOAL := help
.PHONY: help env demo test lint types lock clean stop status preflight train-plan train-env test-slow

help: ## Show this help
	@grep -hE '^[a-z0-9%-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9%-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

env: ## Make or refresh .venv from the locks (nothing else is needed but Python >= 3.11)
	@$(PYTHON) tools/setup_env.py --venv $(VENV)

train-env: ## Make or refresh .venv-train, the interpreter that trains drafters
	@$(PYTHON) tools/setup_env.py --venv .venv-train --lock requirements/train.lock --without-outrider

demo: env ## Serve, load, measure and report the embedded default: a real model on a real engine
	@$(OUTRIDER) fetch smollm2-cpu
	@$(OUTRIDER) campaign smollm2-cpu --run $(RUN) || test $$? -eq 3 # 3: done, with findings that are shown

test: env ## Run the tests: a few minutes, real engine and browser included
	@$(VENV)/bin/python -m pytest -m "not slow and not train and not container and not provision" $(PYTEST_ARGS)

test-slow: env train-env ## Run the long tests: engines, parity, training from prompts to a served head
	@$(VENV)/bin/python -m pytest -m "(slow or train) and not container and not provision" $(PYTEST_ARGS)

preflight: env ## Check STACK before anything is loaded
	@$(OUTRIDER) preflight $(STACK)

serve-%: env ## Serve a variant of STACK in the background: make serve-eagle3, make serve-ngram, ...
	@$(OUTRIDER) serve $(STACK) $*

stop: env ## Stop every engine that was started here
	@$(OUTRIDER) stop

status: env ## Show the engines that were started here
	@$(OUTRIDER) status

train-plan: env ## What would a drafter for STACK cost?
	@$(OUTRIDER) train plan $(STACK)

lint: env ## Check style
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check .

types: env ## Check types
	@$(VENV)/bin/mypy

lock: ## Compile requirements/*.lock (needs uv)
	@uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --no-annotate --override requirements/excluded.txt --extra load --extra cpu --extra dev \
	  pyproject.toml -o requirements/dev.lock
	@uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --no-annotate --override requirements/excluded.txt requirements/train.in -o requirements/train.lock

clean: ## Remove what the tools here left behind, results excepted
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
