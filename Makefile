# `make demo` and `make test` each do everything on a machine that has only Python 3.11+ (with pip and venv), gcc
# and make. A second run installs nothing.

PYTHON ?= python3
BIN := .venv/bin
# The versions of `datasets` that the built folder, and the loading script, are tried on.
DATASETS := 3.6 4.0 5.2
DATASETS_STAMPS := $(DATASETS:%=.venvs/datasets-%/.installed)

# One thread a process: the tests run in two processes, and torch would start a thread a core in each.
export OMP_NUM_THREADS := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: demo test environments pytest lint types test-open-clip clean

demo: .venv/.installed
	$(BIN)/dci demo --force

# Environments are installed beside each other: pip mostly waits.
test:
	$(MAKE) --jobs 3 --output-sync=target environments lint types
	$(MAKE) pytest

environments: .venv/.installed $(DATASETS_STAMPS) .venvs/gradio/.installed

pytest: environments
	$(BIN)/pytest -n 2 --dist worksteal

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.installed
	$(BIN)/mypy

# Apart from `test`: its environment takes 6 GB and some minutes.
test-open-clip: .venvs/open-clip/.installed
	.venvs/open-clip/bin/pytest -n 2 tests/with_open_clip

clean:
	rm -rf .venv .venvs build dist *.egg-info dci-demo .mypy_cache .ruff_cache .pytest_cache

.venv/.installed: setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -qq -c constraints.txt --config-settings editable_mode=compat -e '.[test]'
	touch $@

.venvs/datasets-%/.installed: tests/datasets_versions/datasets-%.txt
	$(PYTHON) -m venv .venvs/datasets-$*
	.venvs/datasets-$*/bin/pip install -qq -r $<
	touch $@

.venvs/gradio/.installed: tests/hub/gradio.txt
	$(PYTHON) -m venv .venvs/gradio
	.venvs/gradio/bin/pip install -qq -r $<
	touch $@

# torchvision wants a torch of its own version.
.venvs/open-clip/.installed: tests/with_open_clip/requirements.txt setup.cfg constraints.txt
	$(PYTHON) -m venv .venvs/open-clip
	grep -v '^torch==' constraints.txt > .venvs/open-clip/constraints.txt
	.venvs/open-clip/bin/pip install -qq -c .venvs/open-clip/constraints.txt -r $< -e '.[open-clip,spacy]' pytest pytest-xdist
	touch $@
