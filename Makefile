# `make demo` runs the whole recipe on embedded defaults; `make lint test` checks and tests everything.
# Both set up what they need (a virtual environment, pinned packages, Chromium) and skip what is there.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO ?= demo
BASE ?= tiny
WORKDIR ?= runs/$(DEMO)

# Without compiled modules each process compiles what it imports anew: a training stage five seconds of it.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo online docs test slow check fuzz lint wheel-smoke base browser-policy proofs clean
.DELETE_ON_ERROR:

demo: $(VENV)/.demo chromium
	$(BIN)/python -m experiments.demo --variant=$(DEMO) --workdir=$(WORKDIR)

# Online reinforcement learning from the demo's SFT policy, in half an hour on two cores.
online: demo
	$(BIN)/python -m experiments.train_rl --config=configs/rl.py:online --config.model=$(WORKDIR)/sft/export \
	  --config.prompts=$(WORKDIR)/mine/prompts --workdir=$(WORKDIR)/online

# Four processes for two cores, since browsers and lost hosts are waited for; a file at a time and in the
# order of tests/conftest.py: the longest first. Packages and Chromium are installed side by side.
test:
	@$(MAKE) --no-print-directory -j 2 $(VENV)/.dev chromium
	$(compiled)
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder

# The tests that `make test` leaves out: twenty minutes on two cores.
slow: $(VENV)/.dev chromium
	$(BIN)/python -m pytest -n 4 --dist loadfile -m slow

# Lint, types and the tests that need neither browser nor compiler: a minute and a half on two cores.
FAST := actions corpus formats judges records tasks test_house.py test_settings.py
check: $(VENV)/.dev
	@$(BIN)/ruff check .
	$(compiled)
	@$(BIN)/pyright --pythonpath $(BIN)/python & types=$$!; \
	  $(BIN)/python -m pytest -n 2 $(addprefix tests/,$(FAST)); tests=$$?; wait $$types && exit $$tests

# The first time, one process compiles the modules: each of the tests' processes would compile all of them, since
# they import the same ones at the same time.
define compiled
@test $(VENV)/.compiled -nt $(VENV)/.dev || { $(BIN)/python -m pytest --collect-only -qq; touch $(VENV)/.compiled; } >/dev/null 2>&1
endef

# New examples for the property tests, for so many seconds; what fails is printed as a case to keep.
SECONDS ?= 3600
fuzz: $(VENV)/.dev
	@$(BIN)/python -m tests.fuzz --seconds=$(SECONDS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python

# The wheel in an empty environment and folder: the recipe and README's commands at smoke size, ten minutes.
wheel-smoke: $(VENV)/.dev chromium
	$(BIN)/python -m tests.packaging.smoke

# The site in build/site; and all commands and Python of its pages: parsed, and run where this needs no key, pod or
# real weights, from a small demo.
docs: $(VENV)/.dev chromium
	$(BIN)/python -m mkdocs build --strict
	$(MAKE) --no-print-directory demo DEMO=smoke
	$(BIN)/python -m tests.docs.blocks runs/smoke build/docs

# As root, for every Chromium of this machine, yours included: it then opens no files and no settings, keeps no
# passwords and takes no extensions. Only where a browser cannot be given a policy of its own.
browser-policy:
	for folder in /etc/chromium /etc/opt/chrome; do if [ -d $$folder ]; then \
	  install -v -D -m 644 collection/browser/guard/etc_chromium/policies/managed/rmsweb-jax.json \
	  $$folder/policies/managed/rmsweb-jax.json; fi; done

# The demo's base model from nothing: hours on a CPU, minutes on a GPU.
base: $(VENV)/.demo chromium
	$(BIN)/python -m experiments.studies.tiny_base.run --config=configs/studies/tiny_base.py:$(BASE) \
	  --workdir=runs/base_$(BASE)

# The proofs, and what each measures.
proofs:
	@grep -m 1 '^"""' $$(grep -lE '^ +publish\(' tests/proofs/*.py) $$(ls tests/proofs/*/__init__.py) | \
	  sed -E 's,^tests/proofs/(\w+)(/__init__)?\.py:"*,make proof-\1: ,; s,"*$$,,'

# Measures a proof, and writes docs/results/NAME.json and NAME.md. A proof that is a package prints its pages and writes
# nothing; MODULES="browser driver" runs only these of its modules.
proof-%: $(VENV)/.dev chromium
	@ls tests/proofs/$(subst -,_,$*).py tests/proofs/$(subst -,_,$*)/__main__.py 2>/dev/null | grep -q . || \
	  { echo "error: no proof $*: see make proofs" >&2; exit 1; }
	@$(BIN)/python -m tests.proofs.$(subst -,_,$*) $(MODULES)

clean:
	rm -rf $(VENV) runs build *.egg-info .pytest_cache .ruff_cache

# By uv, which is fast; by pip where uv fails, as with an index that only pip's settings name. Python compiles
# the modules that it imports; compiling all that are installed takes a minute.
PACKAGES = -c constraints.txt -e '.[$(EXTRAS)]'
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check
define install
@echo "installing packages (once): $(EXTRAS)"
@{ $(PIP) -c constraints.txt uv && $(BIN)/uv pip install --quiet --python $(BIN)/python $(PACKAGES) || $(PIP) $(PACKAGES); } \
  >$(VENV)/pip.log 2>&1 || { tail -n 3 $(VENV)/pip.log >&2; \
  echo "error: packages could not be installed (log: $(VENV)/pip.log)" >&2; exit 1; }
@touch $(or $(STAMPS),$@)
endef

.PHONY: chromium
chromium:
	@sh scripts/ensure_chromium.sh

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: Python 3.11 or newer is needed; call make PYTHON=/path/to/python3.13" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "error: $(PYTHON) cannot make a virtual environment (Debian: apt-get install python3-venv)" >&2; exit 1; }

# The stamps say what is installed, so a second `make` does nothing. `dev` has all that the demo needs.
$(VENV)/.demo: EXTRAS := collect,train
$(VENV)/.dev: EXTRAS := dev
$(VENV)/.demo $(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt
	$(install)

$(VENV)/.dev: STAMPS = $@ $(VENV)/.demo
