# make run    the console on the sample models
# make serve  the same without a console
# make test   all checks and all tests, as CI runs them
# make check  the checks alone
# make soak   the pool under 100,000 random steps
# make fuzz   the endpoint under 100,000 frames that no client should send
# EXTRA=cuda  on Linux with an NVIDIA card

PYTHON ?= python3
EXTRA ?= cpu
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run serve test check format soak fuzz screenshot models clean

run: $(VENV)/run.stamp
	$(BIN)/omlx-tui $(ARGS)

serve: $(VENV)/run.stamp
	$(BIN)/omlx-tui serve $(ARGS)

test: check
	$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/test.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/codespell

format: $(VENV)/test.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The pool under 100,000 random steps, another sequence each time (minutes).
soak: $(VENV)/test.stamp
	$(BIN)/python -m pytest tests/pool/test_properties.py \
	  --hypothesis-profile=slow --timeout=0 $(ARGS)

# The endpoint under 100,000 frames, another sequence each time (ten minutes).
fuzz: $(VENV)/test.stamp
	$(BIN)/python -m pytest tests/gateway/test_fuzz.py \
	  --hypothesis-profile=slow --timeout=0 $(ARGS)

# The picture in README.md, of a real host that serves and evicts.
screenshot: $(VENV)/test.stamp
	$(BIN)/python -m docs.screenshot docs/console.svg

# Trains the sample models again (most of an hour on two cores, see sample_models/README.md).
models: $(VENV)/models.stamp
	$(BIN)/python -m sample_models.build

clean:
	rm -rf $(VENV)

$(VENV)/pip.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "omlx-tui needs Python 3.11 or newer; name one: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/run.stamp: $(VENV)/pip.stamp pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRA)]'
	@touch $@

$(VENV)/test.stamp: $(VENV)/run.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group check --group test
	@touch $@

$(VENV)/models.stamp: $(VENV)/run.stamp sample_models/requirements-build.txt
	$(BIN)/python -m pip install --quiet --requirement sample_models/requirements-build.txt
	@touch $@
