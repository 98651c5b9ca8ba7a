# `make train` and `make test` do all the set-up on a fresh machine: a virtual environment in .venv, with the tested versions.

RECIPE ?= resnet152
CLUSTER ?= dcu32
ARGS ?=

# The newest Python that every pinned version has wheels for comes with most systems as one of these; PYTHON=... names another.
PYTHON ?= $(shell for name in python3.11 python3.12 python3; do \
	$$name -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$name && break; done)

NEWEST := .venv/ready
DTK := .venv-dtk/ready

.PHONY: train test smoke slow parity lint clean

train: $(NEWEST)  ## plan, rehearse or train: RECIPE= CLUSTER= ARGS="steps=100 ..."
	.venv/bin/python -m zoo.train recipe=$(RECIPE) cluster=$(CLUSTER) $(ARGS)

test: $(NEWEST)  ## the tests, without the slow ones
	.venv/bin/python -m pytest -q --durations=10

slow: $(NEWEST)  ## the slow tests: half an hour and more
	.venv/bin/python -m pytest -q --durations=10 -m slow

smoke: $(DTK)  ## plan, train, save and resume on the oldest JAX
	.venv-dtk/bin/python -m pytest -q --durations=10 -m smoke

parity: $(NEWEST)  ## against torch, transformers and timm, in the environment whose Python ZOO_PARITY_PYTHON names
	.venv/bin/python -m pytest -q tests/parity -m slow

lint: $(NEWEST)  ## format, lint and types, as the commit hooks do
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy

$(NEWEST): pyproject.toml constraints/newest.txt
	$(call environment,.venv,newest)

$(DTK): pyproject.toml constraints/dtk.txt
	$(call environment,.venv-dtk,dtk)

define environment
	@test -n "$(PYTHON)" || { echo "error: no Python of 3.11 to 3.13 found; install one, or give PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install --quiet --constraint constraints/$(2).txt --editable '.[dev]'
	touch $@
endef

clean:  ## removes the environments and whatever was built; runs/ and data/ stay
	rm -rf .venv .venv-dtk build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
