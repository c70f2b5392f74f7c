# Every target works on a machine with Python, git and make: each makes its own virtual environment first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test check bench soak clean

demo: $(VENV)/.demo
	$(BIN)/klaud demo

test: $(VENV)/.test
	$(BIN)/python -m $(COVER) pytest -n 2 --dist worksteal

check: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_architecture.py

bench: $(VENV)/.bench
	$(BIN)/python -m bench

soak: $(VENV)/.test
	$(BIN)/python tests/soak/soak.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install --constraint constraints.txt --editable '.[demo]'
	@touch $@

$(VENV)/.test: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install --constraint constraints.txt --editable '.[demo,test]'
	@touch $@

$(VENV)/.bench: $(VENV)/.test
	$(PIP) install --constraint constraints.txt --editable '.[agent,encoder,demo,test,bench]'
	@touch $@

$(VENV)/.lint: $(VENV)/.test
	$(PIP) install --constraint constraints.txt --editable '.[agent,encoder,demo,test,lint]'
	@touch $@

clean:
	rm -rf $(VENV) .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
