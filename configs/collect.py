"""Reflective collection, and a policy acting on the tasks of an earlier collection.

    python -m experiments.collect --config=configs/collect.py:demo --workdir=runs/demo/collect
    python -m experiments.collect --config=configs/collect.py:demo_policy \
        --config.actor.model=runs/demo/sft/export --config.tasks_from=runs/demo/collect \
        --workdir=runs/demo/collect_policy
    python -m experiments.collect --config=configs/collect.py:local --config.actor.model=MODEL \
        --workdir=runs/local/collect
    python -m experiments.collect --config=configs/collect.py:web_gpt --config.tasks_file=tasks.jsonl \
        --config.actor.cap_usd=20 --workdir=runs/web/collect
"""

from __future__ import annotations

from ml_collections import ConfigDict

from collection.fleet.config import CollectSettings
from configs import serve
from rmsweb_jax.settings import variant_config

PAGES = (
    "click-button",
    "click-checkboxes",
    "click-collapsible",
    "click-dialog-2",
    "click-link",
    "click-option",
    "click-tab",
    "choose-list",
    "enter-password",
    "enter-text",
    "focus-text-2",
    "login-user",
    "navigate-tree",
    "search-engine",
    "use-autocomplete",
)
SMOKE_PAGES = tuple(page for page in PAGES if page not in ("click-link", "click-dialog-2", "focus-text-2"))

# How episodes are played, also of configs/evaluate.py. MiniWoB++ pages are 160x210; animations are off, so
# pages are quiet soon.
DEMO_EPISODES = {
    "browser": {"width": 500, "height": 320, "quiet_ms": 50, "settle_ms": 1000},
    "prompt": {"style": "compact"},
    "limits": {"max_steps": 10, "max_seconds": 120.0},
    "fleet": {"workers": 3},
}
SMOKE_EPISODES = {"limits": {"max_steps": 5}, "fleet": {"workers": 2}}
# Actors that are policies; `evaluate` has the demo's too.
_SFT = {"kind": "policy", "timeout_s": 600.0, "label": "sft"}
DEMO_POLICY = {"kind": "policy", "server_settings": serve.DEMO, "max_tokens": 128, "timeout_s": 60.0}
GPT = {
    "kind": "chat",
    "base_url": "https://api.openai.com/v1",
    "api_key_env": "OPENAI_API_KEY",
    "model": "gpt-5.1",
    # It takes its own temperature alone.
    "parameters": {"temperature": None},
}
SEARCH_URLS = {"duckduckgo": "https://duckduckgo.com/?q={query}"}

_PAPER = {
    "pages": PAGES,
    "actor": {"kind": "gemini", "model": "gemini-3-pro-preview", "max_tokens": 8192},
}
_DEMO = {"pages": PAGES, "seeds": 16, **DEMO_EPISODES}
_SMOKE = {"pages": SMOKE_PAGES, "seeds": 1, **SMOKE_EPISODES}
_WEB = {
    "pages": (),
    "browser": {"user_agent": "desktop"},
    "judge": {"kind": "actor"},
    "guard": {
        "task_site": True,
        "allowed": ("duckduckgo.com", "*.duckduckgo.com"),
        "subresources": "public",
        "redirects": "start",
        "robots": "obey",
    },
    "fleet": {"workers": 4},
    "search_urls": SEARCH_URLS,
}
# A small model that takes text alone, at the address of llama.cpp's server. It reads and writes slowly on a
# CPU, and at the default temperature it forgets the form.
_LOCAL = {
    "seeds": 2,
    "rounds": 2,
    "stop_after": 1,
    "actor": {
        "kind": "chat",
        "base_url": "http://127.0.0.1:8080/v1",
        "max_tokens": 512,
        "temperature": 0.2,
        "timeout_s": 600.0,
    },
    "prompt": {"style": "full", "screenshot": False},
    "judge": {"screenshots": False},
    "limits": {"max_steps": 6, "max_seconds": 1800.0},
    "fleet": {"workers": 1},
}
# Weeks on other people's sites and models.
LONG_RUN = {"actor": {"outage_hours": 6.0}}
_ACTS = {"pages": (), "rounds": 1, "stop_after": 0, "reflection": False}
# A policy that learned little would use up any number of steps.
_DEMO_ACTOR = {**DEMO_POLICY, "label": "sft"}
_SMOKE_POLICY = {"actor": _DEMO_ACTOR, "limits": {"max_steps": 2}}

# On live sites: a judge decides, and the guard lets through a task's own site, one to which its start page
# leads, the search engine, and what their pages load from the public internet, as scripts of a CDN.
VARIANTS = {
    "demo": ("the demo's pages of MiniWoB++, 16 seeds each", _DEMO),
    "smoke": ("a minute of it", _DEMO, _SMOKE),
    "paper": ("the paper's rounds on the demo's pages, with the full prompt; Gemini acts", _PAPER, LONG_RUN),
    "paper_gpt": ("the same with GPT-5.1, the key in OPENAI_API_KEY", _PAPER, LONG_RUN, {"actor": GPT}),
    "web": ("tasks_file's tasks on live sites; Gemini acts and judges", _PAPER, LONG_RUN, _WEB),
    "web_gpt": ("the same with GPT-5.1", _PAPER, LONG_RUN, _WEB, {"actor": GPT}),
    "local": (
        "the demo's pages, two seeds each; a text model at 127.0.0.1:8080 acts (docs/local_models.md)",
        _DEMO,
        _LOCAL,
    ),
    "no_reflection": ("the demo without guidance, an ablation", _DEMO, {"reflection": False}),
    "demo_policy": ("a policy acts: one attempt, no reflection", _DEMO, _ACTS, {"actor": _DEMO_ACTOR}),
    "smoke_policy": ("a minute of it", _DEMO, _SMOKE, _ACTS, _SMOKE_POLICY),
    "paper_policy": (
        "a policy acts on live sites; Gemini judges",
        *(_WEB, LONG_RUN, _ACTS, {"actor": _SFT, "judge": _PAPER["actor"]}),
    ),
    "paper_policy_gpt": (
        "a policy acts on live sites; GPT-5.1 judges",
        *(_WEB, LONG_RUN, _ACTS, {"actor": _SFT, "judge": GPT}),
    ),
}


def get_config(variant: str = "demo") -> ConfigDict:
    return variant_config(CollectSettings, VARIANTS, variant)
