"""A policy on benchmarks, every task three times.

    python -m experiments.evaluate --config=configs/evaluate.py:demo --config.label=sft \
        --config.model=runs/demo/sft/export --workdir=runs/demo/evaluate/sft
    python -m experiments.evaluate --config=configs/evaluate.py:webtailbench --config.label=sft \
        --config.model=runs/sft/export --config.tasks_file=WebTailBench.jsonl --config.judge.official=fara \
        --config.training=data/collect --workdir=runs/webtailbench/sft

`own_tasks` may be at a server on this machine:
`--config.guard.hosts="('shop.test=127.0.0.1:8000',)" --config.guard.private="('http://shop.test',)"`.
`--config.actor.kind=scripted` evaluates the scripted teacher, `gemini` or `chat` a model behind an API.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from collection.evaluation.config import BENCHMARKS
from configs.collect import (
    DEMO_EPISODES,
    DEMO_POLICY,
    LONG_RUN,
    PAGES,
    SEARCH_URLS,
    SMOKE_EPISODES,
    SMOKE_PAGES,
)
from rmsweb_jax.settings import variant_config

# What an agent sees and may do is what it was trained on.
_DEMO = {"pages": PAGES, "seeds": 10, "actor": DEMO_POLICY, **DEMO_EPISODES}
# A policy that learned so little solves nothing in more steps, nor shows more on all pages. A worker takes
# longer to begin than to play these.
_SMOKE = {
    **SMOKE_EPISODES,
    "pages": SMOKE_PAGES[::6],
    "seeds": 1,
    "limits": {"max_steps": 2},
    "fleet": {"workers": 1},
}

# RMSWeb, appendix: one GPT-4o is behind the judges of all benchmarks.
_JUDGED = {
    "judge": {
        "kind": "chat",
        "model": "gpt-4o",
        "base_url": "https://api.openai.com/v1",
        "api_key_env": "OPENAI_API_KEY",
    }
}
_LIVE = {
    **_JUDGED,
    **LONG_RUN,
    # All that is public: tasks go from site to site, and pages need their CDNs.
    "guard": {"allowed": ("*",), "task_site": True},
    # RMSWeb, appendix: a desktop Chrome, with a window.
    "browser": {"user_agent": "desktop", "headed": True},
    "search_urls": SEARCH_URLS,
}
# The paper's own exception: the agent string trips that site's defences.
_VOYAGER = (
    _LIVE,
    {"browser": {"user_agents": ("dictionary.cambridge.org=",)}, "refresh": {"ask": True}},
)
# All tasks start at one page, which 16 episodes may share.
_TAIL = (_LIVE, {"fleet": {"max_per_site": 16, "site_interval_s": 1.0}, "refresh": {"ask": True}})
# Whole sites that are not trained on.
_APPS = {"applications": ("wiki", "roundup")}
# They are yours to load.
_OWN_TASKS = {"fleet": {"max_per_site": 16, "site_interval_s": 0.0}}


def _method(name: str) -> dict[str, dict[str, str]]:
    return {"judge": {"method": name}}


VARIANTS = {
    "demo": ("held-out seeds of the demo's pages of MiniWoB++", _DEMO),
    "smoke": ("a minute of it", _DEMO, _SMOKE),
    "paper": ("MiniWoB++ with the browser, prompt and limits of live sites", {"pages": PAGES}),
    "miniwob": ("the same", {"pages": PAGES}),
    # Official judges, of whose code judge.official is a checkout (docs/evaluate.md).
    "webvoyager": ("WebVoyager, judged by its own auto_eval", *_VOYAGER, _method("webvoyager")),
    "online_mind2web": ("Online-Mind2Web, judged by its own WebJudge", _LIVE, _method("webjudge")),
    "webtailbench": ("WebTailBench, judged by its own verifier", *_TAIL, _method("universal_verifier")),
    "paper,webvoyager": ("WebVoyager by the paper's judge, browser-use's", *_VOYAGER, _method("browser_use")),
    "paper,webtailbench": ("WebTailBench by the same, as in the paper", *_TAIL, _method("browser_use")),
    "apps": ("the applications that `configs/rl.py:8b,online` does not play", _APPS),
    "demo,apps": ("the same with the demo's policy", {"actor": DEMO_POLICY, **DEMO_EPISODES}, _APPS),
    "own_tasks": ("a file of your own tasks, judged by GPT-4o", _JUDGED, _OWN_TASKS),
    "own": ("tasks of a function of your own, benchmark=module:name", _OWN_TASKS),
}


def get_config(variant: str = "demo") -> ConfigDict:
    name = variant.rpartition(",")[2]
    return variant_config(BENCHMARKS.get(name, BENCHMARKS["miniwob"]), VARIANTS, variant)
