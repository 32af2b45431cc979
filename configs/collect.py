"""Reflective collection, and a policy acting on the tasks of an earlier collection.

    python -m experiments.collect --config=configs/collect.py:demo --workdir=runs/demo/collect
    python -m experiments.collect --config=configs/collect.py:demo_policy \
        --config.actor.model=runs/demo/sft/export --config.tasks_from=runs/demo/collect \
        --workdir=runs/demo/collect_policy
    python -m experiments.collect --config=configs/collect.py:web --config.tasks_file=tasks.jsonl \
        --config.actor.cap_usd=20 --config.actor.price_prompt=2 --config.actor.price_response=12 \
        --workdir=runs/web/collect

Variants: `demo`, `smoke`, `paper` (the paper's rounds and limits, full prompt), `no_reflection` (the
demo without guidance, an ablation), `web` (tasks on live sites: a file of them with `website` and
`objective` in each line; an LLM judges; the guard lets through each task's own site and the search engine,
and pages that need others, such as a CDN, want `--config.guard.allowed="('*',)"`, all that is public);
`demo_policy`, `smoke_policy` and `paper_policy` (a policy acts: one attempt, no reflection).
"""

from __future__ import annotations

from ml_collections import ConfigDict

VARIANTS = ("demo", "smoke", "paper", "web", "no_reflection", "demo_policy", "smoke_policy", "paper_policy")
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
        "web": _web,
        "no_reflection": _no_reflection,
        "demo_policy": lambda: _policy("demo"),
        "smoke_policy": lambda: _policy("smoke"),
        "paper_policy": lambda: _policy("paper"),
    }
    return make[variant]()


def actor(kind: str, **settings: object) -> ConfigDict:
    """The section of a model that acts or writes; `settings` are added or replace what is here."""
    return ConfigDict(
        {
            "kind": kind,
            "model": "",
            "base_url": "",
            "api_key_env": "",
            "temperature": 1.0,
            "max_tokens": 2048,
            "timeout_s": 120.0,
            "calls": 5,
            # auto, schema, json or off: how replies are held to their JSON schema.
            "structured": "auto",
            # Of the whole run; 0: no limit. A cap needs prices: US dollars for a million tokens.
            "requests_per_minute": 0.0,
            "tokens_per_minute": 0.0,
            "cap_usd": 0.0,
            "price_prompt": 0.0,
            "price_cached": 0.0,
            "price_response": 0.0,
        }
        | settings
    )


def judge(kind: str, method: str = "outcome") -> ConfigDict:
    """The section of a judge: kind none, actor (its model), gemini or chat."""
    return ConfigDict(
        {
            "kind": kind,
            # outcome (last page, last screenshots), webjudge (key points, screenshots that matter), rubric
            # (points for each line of a task's rubric, and a verdict).
            "method": method,
            # Whether it is shown a benchmark's reference answer, where there is one.
            "reference": False,
            "model": "",
            "base_url": "",
            "api_key_env": "",
            "max_tokens": 2048,
            "timeout_s": 120.0,
            "calls": 5,
            "structured": "auto",
            "price_prompt": 0.0,
            "price_cached": 0.0,
            "price_response": 0.0,
        }
    )


def _demo() -> ConfigDict:
    config = ConfigDict()
    # MiniWoB++ pages and how many training seeds of each, or the tasks of an earlier data set, or a JSONL
    # file of tasks on live pages.
    config.pages = _PAGES
    config.first_seed = 0
    config.seeds = 16
    config.tasks_from = ""
    config.tasks_file = ""
    # RMSWeb, section 3.1: at most five rounds, ending early at two successes.
    config.rounds = 5
    config.stop_after = 2
    config.reflection = True
    # auto: Gemini when GEMINI_API_KEY is set, else the scripted teacher.
    config.actor = actor("auto", label="teacher")
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
    # MiniWoB++ pages are 160x210; animations are off, so pages are quiet soon. Browsers are here, or behind
    # the Selenium Grid at grid_url, whose nodes must reach the workers' proxies.
    config.browser = ConfigDict(
        {"width": 500, "height": 320, "quiet_ms": 50, "settle_ms": 1000, "grid_url": ""}
    )
    config.prompt = ConfigDict({"style": "compact", "max_actions": 10})
    # `max_blocked` looks in a row at a captcha or a refusal end an episode on live pages.
    config.limits = ConfigDict({"max_steps": 10, "max_failures": 3, "max_seconds": 120.0, "max_blocked": 5})
    # What browsers may reach; MiniWoB++ allows its own pages itself. Every request goes through a proxy that
    # refuses the rest; `proxy` False judges addresses of pages alone.
    config.guard = ConfigDict(
        {
            "allowed": (),
            "private": (),
            "task_site": False,
            "proxy": True,
            # Where the proxies wait: for a grid on other machines, an address of this one that they reach.
            "listen": "127.0.0.1",
            # A response as it comes and unpacked, a request's body, all that comes down a tunnel.
            "max_response_mb": 64.0,
            "max_expanded_mb": 256.0,
            "max_expansion": 200.0,
            "max_upload_mb": 16.0,
            "max_tunnel_mb": 512.0,
            # To reach a host, without a byte, of one response or tunnel.
            "connect_seconds": 10.0,
            "idle_seconds": 60.0,
            "total_seconds": 300.0,
        }
    )
    # Who says whether an episode on live pages was a success.
    config.judge = judge("none")
    # Of live pages: search engines by name, and whether the agent may run scripts.
    config.search_urls = ConfigDict({})
    config.allow_js = False
    # Environment variables whose values the agent may type as <secret>NAME</secret> and never sees.
    config.secrets = ()
    config.fleet = ConfigDict(
        {
            # local: processes here; ray: actors on the cluster at ray_address (empty: started here), whose
            # machines share the workdir.
            "engine": "local",
            "ray_address": "",
            # Each with a browser. Retries after a worker died, after a browser was lost.
            "workers": 3,
            "retries": 2,
            "crashes": 2,
            # Of each site on the live web: episodes at once, seconds between their starts, and how long it
            # is left alone after it refused one, doubled each time.
            "max_per_site": 2,
            "site_interval_s": 5.0,
            "backoff_s": 60.0,
            "backoff_max_s": 3600.0,
            # A browser is replaced between episodes.
            "browser_max_age_s": 1800.0,
            "browser_max_mb": 1500.0,
            "browser_max_episodes": 200,
            # What running episodes have left after SIGTERM.
            "drain_seconds": 30.0,
        }
    )
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


def _web() -> ConfigDict:
    config = _paper()
    config.update(
        {
            "pages": (),
            "judge": {"kind": "actor"},
            "guard": {"task_site": True, "allowed": ("duckduckgo.com", "*.duckduckgo.com")},
            "fleet": {"workers": 4},
        }
    )
    config.search_urls = ConfigDict({"duckduckgo": "https://duckduckgo.com/?q={query}"})
    return config


def _no_reflection() -> ConfigDict:
    config = _demo()
    config.reflection = False
    return config


def _policy(size: str) -> ConfigDict:
    config = {"demo": _demo, "smoke": _smoke, "paper": _paper}[size]()
    config.update({"pages": (), "rounds": 1, "stop_after": 0, "reflection": False})
    config.actor = policy(size, label="sft")
    return config


def policy(size: str, **settings: object) -> ConfigDict:
    """The section of a policy that is served here; `settings` as for `actor`."""
    if size == "paper":
        own = {"server": "configs/serve.py:8b", "max_tokens": 2048, "timeout_s": 600.0}
    else:
        own = {"server": "configs/serve.py:demo", "max_tokens": 128, "timeout_s": 60.0}
    # `server`: the server's own settings, FILE:VARIANT.
    return actor("policy", **own | settings)
