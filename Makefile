# Needs Python 3.11 or later and make; everything else goes into .venv. The targets:
#
#   make demo    translate a short talk into Vietnamese while it is spoken (CPU, a minute; no PyTorch)
#   make toy     toy corpus, translator, search, agent, quality/latency curve, sentences word by word (CPU, 4 minutes)
#   make test    ruff, mypy and the tests, without the slow ones (5 minutes)
#   make test-all  ruff, mypy and every test, which also scores every kept trace again (CI runs this)
#   make docs    the documentation as a site, in build/site
#   make clean   remove .venv and every cache; data/ and runs/ stay
#
# Variables, as in `make demo PYTHON=python3.12`:
#
#   PYTHON   the interpreter that .venv is made with
#   TORCH    the requirement for PyTorch. pip's settings decide which build is installed: on most Linux machines
#            the CUDA build, with gigabytes of further packages. For the CPU build, give the path or URL of its
#            wheel, or set PIP_FIND_LINKS or PIP_INDEX_URL to the address of the CPU builds.

PYTHON ?= python3
TORCH ?= torch==2.13.0

VENV := .venv
PINS := requirements/base.txt requirements/train.txt requirements/serve.txt requirements/dev.txt
SIMULEVAL_PINS := $(wildcard requirements/simuleval.txt)
# A virtual environment cannot be moved, so the hash depends on its folder too.
HASH := $(shell (cat $(PINS) requirements/speech.txt requirements/hf.txt pyproject.toml; echo "$(CURDIR) $(TORCH)") | cksum | cut -d' ' -f1)
LIGHT := $(VENV)/.light-$(HASH)
READY := $(VENV)/.ready-$(HASH)
SPEECH := $(VENV)/.speech-$(HASH)
HF := $(VENV)/.hf-$(HASH)
DOCS := $(VENV)/docs
# --no-compile: compiling all modules of torch takes longer than compiling only those that are imported.
PIP := $(VENV)/bin/python -m pip install -qq --no-compile --disable-pip-version-check

PYTEST := OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n 2

.PHONY: help demo toy test test-all check docs clean python
.DELETE_ON_ERROR:

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

demo: $(LIGHT)
	@$(VENV)/bin/whilst demo

toy: $(READY)
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" recipes/toy/run.sh

# SimulEval is used only for comparison and pins an old tqdm, so it is installed into a folder of its own, which the
# tests that need it add to the Python path.
test: check
	$(PYTEST) -m "not slow"

test-all: check $(DOCS)/.ready $(SPEECH) $(HF) $(VENV)/talks/.ready
	$(PYTEST)

check: $(READY) $(SIMULEVAL_PINS:requirements/simuleval.txt=$(VENV)/simuleval/.ready)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

docs: $(DOCS)/.ready
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict --quiet
	@echo "whilst: build/site/index.html"

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find whilst tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The light install starts with an empty environment; later steps add to it. Stamps are written last, so that an
# interrupted step is repeated.
$(LIGHT): | python
	@echo "whilst: making $(VENV) with $$($(PYTHON) --version)"
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) -r requirements/base.txt
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(READY): $(LIGHT)
	@echo "whilst: installing $(TORCH) and $$(cat $(PINS) | grep -c ==) pinned packages (a minute or two)"
	@$(PIP) "$(TORCH)" $(PINS:%=-r %)
	@touch $@
	@echo "whilst: ready; later runs use $(VENV) as it is"

# The speech recogniser is available for some platforms only.
$(SPEECH): $(READY)
	@$(PIP) -r requirements/speech.txt || echo "whilst: no speech recogniser for this machine: its tests are skipped"
	@touch $@

$(HF): $(READY)
	@$(PIP) -r requirements/hf.txt
	@touch $@

$(VENV)/simuleval/.ready: $(SIMULEVAL_PINS) $(READY)
	@echo "whilst: installing simuleval into $(VENV)/simuleval"
	@rm -rf $(VENV)/simuleval
	@$(PIP) --no-deps --target $(VENV)/simuleval -r $(SIMULEVAL_PINS)
	@touch $@

# mweralign is available for some platforms only.
$(VENV)/talks/.ready: requirements/talks.txt $(READY)
	@rm -rf $(VENV)/talks
	@mkdir $(VENV)/talks
	@$(PIP) --no-deps --target $(VENV)/talks -r requirements/talks.txt || \
	    echo "whilst: no OmniSTEval and simulstream for this machine: tests that compare with them are skipped"
	@touch $@

$(DOCS)/.ready: requirements/docs.txt $(LIGHT)
	@echo "whilst: installing MkDocs into $(DOCS)"
	@rm -rf $(DOCS)
	@$(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/python -m pip install -qq --disable-pip-version-check --no-deps -r requirements/docs.txt
	@touch $@

python:
	@command -v $(PYTHON) > /dev/null || \
	    { echo "whilst: $(PYTHON) not found: install Python 3.11 or later, or name it: make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "whilst: needs Python 3.11 or later, $(PYTHON) is $$($(PYTHON) --version 2>&1): name another with make PYTHON=..." >&2; exit 1; }
