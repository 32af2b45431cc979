"""Reflective collection, and a policy acting on the tasks of an earlier collection.

    python -m experiments.collect --config=configs/collect.py:demo --workdir=runs/demo/collect
    python -m experiments.collect --config=configs/collect.py:demo_policy \
        --config.actor.model=runs/demo/sft/export --config.tasks_from=runs/demo/collect \
        --workdir=runs/demo/collect_policy
    python -m experiments.collect --config=configs/collect.py:web_gpt --config.tasks_file=tasks.jsonl \
        --config.actor.cap_usd=20 --workdir=runs/web/collect

Variants: `demo`, `smoke`, `paper` (the paper's rounds and limits, full prompt), `no_reflection` (the
demo without guidance, an ablation), `web` (tasks on live sites: a file of them with `website` and
`objective` in each line; an LLM judges; the guard lets through each task's own site, a site to which its
start page leads, the search engine, and what their pages load from the public internet, as scripts of a CDN);
`paper_gpt`, `web_gpt` (the paper's teacher GPT-5.1, with the key in OPENAI_API_KEY; `paper` and `web` ask
Gemini); `demo_policy`, `smoke_policy`, `paper_policy` and `paper_policy_gpt` (a policy acts: one attempt, no
reflection; the latter two reach the same sites as `web`, and Gemini or GPT-5.1 judges).
`collection.fleet.config.CollectSettings` has all keys with their meaning.
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
# Actors that are policies; `evaluate` has them too.
POLICY = {"kind": "policy", "timeout_s": 600.0}
_SFT = {**POLICY, "label": "sft"}
DEMO_POLICY = {"kind": "policy", "server_settings": serve.DEMO, "max_tokens": 128, "timeout_s": 60.0}
GPT = {
    "kind": "chat",
    "base_url": "https://api.openai.com/v1",
    "api_key_env": "OPENAI_API_KEY",
    "model": "gpt-5.1",
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
# Weeks on other people's sites and models.
LONG_RUN = {"actor": {"outage_hours": 6.0}}
_ACTS = {"pages": (), "rounds": 1, "stop_after": 0, "reflection": False}
# A policy that learned little would use up any number of steps.
_SMOKE_POLICY = {"actor": {**DEMO_POLICY, "label": "sft"}, "limits": {"max_steps": 2}}

VARIANTS = {
    "demo": _DEMO,
    "smoke": (_DEMO, _SMOKE),
    "paper": (_PAPER, LONG_RUN),
    "paper_gpt": (_PAPER, LONG_RUN, {"actor": GPT}),
    "web": (_PAPER, LONG_RUN, _WEB),
    "web_gpt": (_PAPER, LONG_RUN, _WEB, {"actor": GPT}),
    "no_reflection": (_DEMO, {"reflection": False}),
    "demo_policy": (_DEMO, _ACTS, {"actor": {**DEMO_POLICY, "label": "sft"}}),
    "smoke_policy": (_DEMO, _SMOKE, _ACTS, _SMOKE_POLICY),
    "paper_policy": (_WEB, LONG_RUN, _ACTS, {"actor": _SFT, "judge": _PAPER["actor"]}),
    "paper_policy_gpt": (_WEB, LONG_RUN, _ACTS, {"actor": _SFT, "judge": GPT}),
}


def get_config(variant: str = "demo") -> ConfigDict:
    return variant_config(CollectSettings, VARIANTS, variant)
