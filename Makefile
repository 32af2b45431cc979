# `make demo` runs the whole recipe on embedded defaults; `make test` checks and tests everything.
# Both set up what they need (a virtual environment, pinned packages, Chromium) and skip what is there.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO ?= demo
WORKDIR ?= runs/$(DEMO)
BENCHMARKS ?= tiny 2b

.PHONY: demo test lint base browser-policy clean \
  proof-ablations proof-apps proof-benchmark proof-collector-kill proof-contamination proof-data \
  proof-demo-mining \
  proof-evaluation proof-hostile proof-judges proof-kill proof-llm proof-loading proof-mining \
  proof-mining-speed proof-miniwob \
  proof-ray proof-reflection proof-resume proof-reward proof-rl-resume proof-rows proof-sampler \
  proof-serving proof-tpu proof-verl proof-vllm
.DELETE_ON_ERROR:

demo: $(VENV)/.demo chromium
	$(BIN)/python -m experiments.demo --variant=$(DEMO) --workdir=$(WORKDIR)

# Three processes for two cores, since browsers are waited for; a file at a time and in the order of
# tests/conftest.py: the longest first.
test: lint chromium
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python

# As root, for every Chromium of this machine; only where a browser cannot be given a policy of its own.
browser-policy: $(VENV)/.demo
	$(BIN)/python -m collection.browser.guard.managed --install

# The demo's base model from nothing: hours on a CPU, minutes on a GPU.
base: $(VENV)/.demo chromium
	$(BIN)/python -m experiments.make_base --workdir=runs/base

# Episodes at real applications on loopback, downloaded and unpacked into build/apps (Debian 12): five minutes.
proof-apps: $(VENV)/.dev chromium
	$(BIN)/python -m tests.apps.proof_apps --output=docs/results/apps.md

# An episode at each page of a hostile site: what came of it, who reached what, where secrets went.
proof-hostile: $(VENV)/.dev chromium
	$(BIN)/python -m tests.hostile.proof --output=docs/results/hostile.md

# 100 kills while records are written, and whether any was lost, doubled or spoilt.
proof-kill: $(VENV)/.dev
	@sh scripts/proof_kill.sh $(BIN)/python

# Padding, the input pipeline by itself and file formats, on two cores of an idle machine: ten minutes.
proof-data: $(VENV)/.dev chromium
	$(BIN)/python -m experiments.benchmark_data --config=configs/benchmark_data.py:default --table=docs/results/data.md

# What the model wrapper makes of each answer of an API, from the clients' own libraries: seconds.
proof-llm: $(VENV)/.dev
	$(BIN)/python -m tests.llm.proof_llm --output=docs/results/llm.md

# Steps a second beside BrowserGym's, looks at large pages, episodes an hour: ten minutes on an idle
# machine. BrowserGym is installed into build/, not into the environment.
proof-collector-speed: $(VENV)/.dev chromium
	$(BIN)/python -m tests.collector_bench.proof_speed --output=docs/results/collector.md

# Mining on generated pairs whose divergence is known, and on pairs labelled by hand: two minutes.
proof-mining: $(VENV)/.dev
	$(BIN)/python -m tests.mining.proof_mining --output=docs/results/mining.md

# MiniWoB++ pages that scripted policies solve from what an agent is shown: a minute.
proof-miniwob: $(VENV)/.dev chromium
	$(BIN)/python -m tests.collection.proof_miniwob --output=docs/results/miniwob.md

# The miner on generated pools of three sizes, to 30,000 runs: ten minutes on an idle machine.
proof-mining-speed: $(VENV)/.dev
	$(BIN)/python -m tests.mining.proof_speed --output=docs/results/mining_speed.md

# Peak host memory while a checkpoint in the shape of Qwen3-VL-2B is loaded.
proof-loading: $(VENV)/.dev
	@sh scripts/proof_loading.sh $(BIN)/python

# A collecting run of which everything is killed in turn, 100 times, and a long one: twenty minutes.
proof-collector-kill: $(VENV)/.dev chromium
	$(BIN)/python -m tests.fleet.proof_kill --output=docs/results/collector_kill.md

# The same run by the local pool, on Ray and on a Selenium Grid; Ray and the grid are put into build/. Java.
proof-ray: $(VENV)/.dev chromium
	$(BIN)/python -m tests.fleet.proof_ray --output=docs/results/ray.md

# Collecting with and without reflection, by a teacher whose mistakes are drawn: a quarter of an hour.
proof-reflection: $(VENV)/.dev chromium
	$(BIN)/python -m tests.fleet.proof_reflection --output=docs/results/reflection.md

# Fine-tuning runs that are killed, or change workers and hosts, against one that runs straight through.
proof-resume: $(VENV)/.dev
	$(BIN)/python -m tests.sft.proof_resume --output=docs/results/resume.md

# RL runs that are killed, or spread over devices and processes, against one that runs straight through.
proof-rl-resume: $(VENV)/.dev
	$(BIN)/python -m tests.rl.proof_resume --output=docs/results/rl_resume.md

# Responses that the reward scores in a second on one core: about a minute.
proof-reward: $(VENV)/.dev
	$(BIN)/python -m tests.actions.proof_reward --output=docs/results/reward.md

# Losses and advantages beside verl's own functions; verl is installed into build/, not into the environment.
proof-verl: $(VENV)/.dev
	$(BIN)/python -m tests.parity.verl_losses --output=docs/results/verl.md

# A prompt once with its responses, against a row for each response: tokens and time, a quarter of an hour.
proof-rows: $(VENV)/.dev
	$(BIN)/python -m tests.rl.proof_rows --output=docs/results/rows.md

# Sampling beside transformers' `generate`, on an idle machine.
proof-sampler: $(VENV)/.dev
	$(BIN)/python -m tests.rl.proof_sampler --output=docs/results/sampler.md

# Planted repetitions of benchmark questions among 100,000 tasks; DATA=FOLDER takes the benchmarks' own files.
proof-contamination: $(VENV)/.dev
	$(BIN)/python -m tests.tasks.proof_contamination $(if $(DATA),--data=$(DATA)) --output=docs/results/contamination.md

# The demo's policy, served and evaluated in a real browser, straight through and killed half-way: ten
# minutes after the demo; the applications are those of proof-apps.
proof-evaluation: $(VENV)/.dev chromium
	$(BIN)/python -m experiments.demo --variant=demo --workdir=runs/demo
	$(BIN)/python -m tests.evaluation.proof_loop --policy=runs/demo/rl/export --output=docs/results/evaluation.md

# The demo's policy at vLLM, merged and as adapters: the same greedy replies and the same evaluation as at
# our own server. Ten minutes after the demo; vLLM is installed into build/, not into the environment.
proof-vllm: $(VENV)/.dev chromium
	$(BIN)/python -m experiments.demo --variant=demo --workdir=runs/demo
	$(BIN)/python -m tests.serve.proof_vllm --run=runs/demo --output=docs/results/vllm.md

# What each judge makes of recorded words, through the clients' own libraries: seconds.
proof-judges: $(VENV)/.dev
	$(BIN)/python -m tests.judges.proof_judges --output=docs/results/judges.md

# Tokens a second and latency beside `transformers serve`, on an idle machine: ten minutes. What that needs
# is installed into build/, not into the environment.
proof-serving: $(VENV)/.dev
	$(BIN)/python -m tests.serve.proof_serving --output=docs/results/serving.md

# The full recipe and its variants on the demo's corpus, three seeds each, trained and played: about an
# hour on two cores. Run again, it continues.
proof-ablations: $(VENV)/.demo chromium
	$(BIN)/python -m experiments.demo --variant=demo --workdir=runs/demo
	$(BIN)/python -m experiments.ablations --config=configs/ablations.py:demo --workdir=runs/ablations

# Which of the teacher's drawn mistakes the miner finds in the demo's runs; seconds, after the demo.
proof-demo-mining: $(VENV)/.dev chromium
	$(BIN)/python -m experiments.demo --variant=demo --workdir=runs/demo
	$(BIN)/python -m tests.mining.proof_demo_mining --run=runs/demo --output=docs/results/demo_mining.md

# What the paper's runs need of TPU slices, from the real compiler and no TPU: about an hour.
proof-tpu: $(VENV)/.dev
	@sh scripts/proof_tpu.sh $(BIN)/python

# Speed and memory beside transformers + PEFT, on an idle machine; BENCHMARKS=8b on a GPU.
proof-benchmark: $(VENV)/.dev
	@set -e; for variant in $(BENCHMARKS); do \
	  $(BIN)/python -m experiments.benchmark --config=configs/benchmark.py:$$variant \
	    --output=docs/results/benchmark/$$variant.json --table=docs/results/benchmark.md; done

clean:
	rm -rf $(VENV) runs build *.egg-info .pytest_cache .ruff_cache

define install
@echo "installing packages (once): $(EXTRAS)"
@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]' \
  >$(VENV)/pip.log 2>&1 || { tail -n 3 $(VENV)/pip.log >&2; \
  echo "error: packages could not be installed (log: $(VENV)/pip.log)" >&2; exit 1; }
@touch $@
endef

.PHONY: chromium
chromium:
	@sh scripts/ensure_chromium.sh

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: Python 3.11 or newer is needed; call make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "error: $(PYTHON) cannot make a virtual environment (Debian: apt-get install python3-venv)" >&2; exit 1; }

# The stamps hold what was installed, so a second `make` does nothing.
$(VENV)/.demo: EXTRAS := collect,train
$(VENV)/.demo: $(BIN)/python setup.py constraints.txt
	$(install)

$(VENV)/.dev: EXTRAS := dev
$(VENV)/.dev: $(VENV)/.demo
	$(install)
