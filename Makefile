# Two commands: `make demo` shows what the library does and leaves demo/report.html, `make test` checks all of it.
# Both make the virtual environment when it is missing or older than its description.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test test-slow lint format docs release-check clean

demo: $(VENV)/.installed-demo
	$(BIN)/cgmvae demo --out demo

# One thread for each of pytest's workers, which share the cores.
test: lint
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest

test-slow: $(VENV)/.installed-dev
	$(BIN)/pytest -m slow

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

release-check: $(VENV)/.installed-dev
	$(BIN)/python tools/release_check.py

clean:
	rm -rf $(VENV) build demo dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.installed-%: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[$*]'
	touch $@
