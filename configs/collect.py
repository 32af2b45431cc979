"""Reflective collection, and a policy acting on the tasks of an earlier collection.

    python -m experiments.collect --config=configs/collect.py:demo --workdir=runs/demo/collect
    python -m experiments.collect --config=configs/collect.py:demo_policy \
        --config.actor.model=runs/demo/sft/export --config.tasks_from=runs/demo/collect \
        --workdir=runs/demo/collect_policy

Variants: `demo`, `smoke`, `paper` (the paper's rounds and limits, full prompt), `no_reflection` (the
demo without guidance, an ablation); `demo_policy`, `smoke_policy` and `paper_policy` (a policy acts: one
attempt, no reflection).
"""

from __future__ import annotations

from ml_collections import ConfigDict

VARIANTS = ("demo", "smoke", "paper", "no_reflection", "demo_policy", "smoke_policy", "paper_policy")
_PAGES = (
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
_SMOKE_PAGES = tuple(page for page in _PAGES if page not in ("click-link", "click-dialog-2", "focus-text-2"))


def get_config(variant: str = "demo") -> ConfigDict:
    make = {
        "demo": _demo,
        "smoke": _smoke,
        "paper": _paper,
        "no_reflection": _no_reflection,
        "demo_policy": lambda: _policy(_demo()),
        "smoke_policy": lambda: _policy(_smoke()),
        "paper_policy": lambda: _policy(_paper()),
    }
    return make[variant]()


def _demo() -> ConfigDict:
    config = ConfigDict()
    # MiniWoB++ pages and how many training seeds of each, or the tasks of an earlier data set.
    config.pages = _PAGES
    config.first_seed = 0
    config.seeds = 16
    config.tasks_from = ""
    # RMSWeb, section 3.1: at most five rounds, ending early at two successes.
    config.rounds = 5
    config.stop_after = 2
    config.reflection = True
    config.actor = ConfigDict(
        {
            # auto: Gemini when GEMINI_API_KEY is set, else the scripted teacher.
            "kind": "auto",
            "label": "teacher",
            "model": "",
            "base_url": "",
            "api_key_env": "",
            "temperature": 1.0,
            "max_tokens": 2048,
            "timeout_s": 120.0,
            "calls": 5,
            # US dollars for a million tokens.
            "price_prompt": 0.0,
            "price_response": 0.0,
        }
    )
    # The scripted teacher's mistakes: share of episodes, how the kinds share it, what guidance leaves of it.
    config.mistakes = ConfigDict(
        {
            "rate": 0.45,
            "heeded": 0.15,
            "weights": {
                "wrong_index": 0.35,
                "premature_done": 0.25,
                "needless_scroll": 0.15,
                "skipped_field": 0.25,
            },
        }
    )
    # MiniWoB++ pages are 160x210; animations are off, so pages are quiet soon.
    config.browser = ConfigDict({"width": 500, "height": 320, "quiet_ms": 50, "settle_ms": 1000})
    config.prompt = ConfigDict({"style": "compact", "max_actions": 10})
    config.limits = ConfigDict({"max_steps": 10, "max_failures": 3, "max_seconds": 120.0})
    # Processes with a browser each; retries after a worker died, after a browser was lost.
    config.fleet = ConfigDict({"workers": 3, "retries": 2, "crashes": 2})
    return config


def _smoke() -> ConfigDict:
    config = _demo()
    # A policy that learned little would use up any number of steps.
    config.update({"pages": _SMOKE_PAGES, "seeds": 2, "limits": {"max_steps": 5}, "fleet": {"workers": 2}})
    return config


def _paper() -> ConfigDict:
    config = _demo()
    config.update(
        {
            "seeds": 100,
            "actor": {"kind": "gemini", "model": "gemini-3-pro-preview", "max_tokens": 8192},
            "browser": {"width": 1280, "height": 1100, "quiet_ms": 200, "settle_ms": 2000},
            "prompt": {"style": "full"},
            "limits": {"max_steps": 100, "max_seconds": 1800.0},
            "fleet": {"workers": 16},
        }
    )
    return config


def _no_reflection() -> ConfigDict:
    config = _demo()
    config.reflection = False
    return config


def _policy(config: ConfigDict) -> ConfigDict:
    config.update({"pages": (), "rounds": 1, "stop_after": 0, "reflection": False})
    config.update({"actor": {"kind": "policy", "label": "sft", "max_tokens": 256, "timeout_s": 60.0}})
    return config
