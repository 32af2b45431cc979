"""A policy on benchmarks, every task three times.

    python -m experiments.evaluate --config=configs/evaluate.py:demo --config.label=sft \
        --config.model=runs/demo/sft/export --workdir=runs/demo/evaluate/sft
    python -m experiments.evaluate --config=configs/evaluate.py:webtailbench --config.label=sft \
        --config.model=runs/sft/export --config.tasks_file=WebTailBench.jsonl \
        --config.training=data/collect --workdir=runs/webtailbench/sft

Variants: `demo`, `smoke` and `miniwob` (held-out MiniWoB++ seeds; `miniwob` with the paper's browser, prompt
and limits, also called `paper`); `webvoyager`, `online_mind2web` and `webtailbench` (on the live web, from
the benchmarks' own files, with a judge at OpenAI's API unless `config.judge` says otherwise); `apps` (a file
of your own tasks, for example at applications on this machine:
`--config.guard.hosts="('shop.test=127.0.0.1:8000',)" --config.guard.private="('http://shop.test',)"`).
`--config.actor.kind=scripted` evaluates the scripted teacher, `gemini` or `chat` a model behind an API.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from configs import collect

VARIANTS = ("demo", "smoke", "paper", "miniwob", "webvoyager", "online_mind2web", "webtailbench", "apps")
_SEEDS = {"demo": 10, "smoke": 1, "paper": 20, "miniwob": 20}


def get_config(variant: str = "demo") -> ConfigDict:
    if variant not in VARIANTS:
        raise KeyError(f"unknown variant {variant!r}: one of {', '.join(VARIANTS)}")
    if variant in _SEEDS:
        return _miniwob(variant)
    return {
        "webvoyager": _webvoyager,
        "online_mind2web": _online_mind2web,
        "webtailbench": _webtailbench,
        "apps": _apps,
    }[variant]()


def _base(size: str) -> ConfigDict:
    # What an agent sees and may do is what it was trained on.
    source = collect.get_config(size).to_dict()
    config = ConfigDict()
    # What the policy is called in records and tables, and its folder (or "tiny_base").
    config.label = "base"
    config.model = "tiny_base"
    # Ids of some of the benchmark's tasks; none: all.
    config.task_ids = ()
    # Data sets and files of the tasks that the policy was trained on, separated by commas: the report says
    # which of them repeat the benchmark. Empty: not checked.
    config.training = ""
    # RMSWeb, section 4: every task exactly three times.
    config.runs = 3
    # Of the bootstrap.
    config.seed = 0
    # policy: `model`, served here; scripted, gemini or chat: as in configs/collect.py.
    config.actor = collect.policy(size, temperature=0.6)
    del config.actor.model  # It is `model` above.
    # 16 episodes at once in the paper's size.
    for section in ("browser", "guard", "prompt", "limits", "fleet"):
        config[section] = ConfigDict(source[section])
    config.secrets = source["secrets"]
    return config


def _miniwob(variant: str) -> ConfigDict:
    size = "paper" if variant == "miniwob" else variant
    config = _base(size)
    config.benchmark = "miniwob"
    config.pages = collect.get_config(size).pages
    # Nothing is trained on seeds from a million on.
    config.first_seed = 1_000_000
    config.seeds = _SEEDS[variant]
    if variant == "smoke":
        # What little it has trained solves nothing in more steps either.
        config.update({"limits": {"max_steps": 2}})
    return config


def _live(benchmark: str) -> ConfigDict:
    config = _base("paper")
    config.benchmark = benchmark
    # The benchmark's own file.
    config.tasks_file = ""
    config.update(
        {
            # All that is public: tasks go from site to site, and pages need their CDNs.
            "guard": {"allowed": ("*",), "task_site": True},
            # RMSWeb, appendix: a desktop Chrome's user agent. `user_agents` are of tasks that start on a host
            # or below it, as HOST=AGENT; "HOST=" leaves them the browser's own.
            "browser": {"user_agent": "desktop", "user_agents": ()},
        }
    )
    config.search_urls = ConfigDict({"duckduckgo": "https://duckduckgo.com/?q={query}"})
    config.judge = _judge("outcome")
    return config


def _judge(method: str) -> ConfigDict:
    """RMSWeb, appendix: one GPT-4o judges all benchmarks, each by its own method."""
    source = collect.get_config("paper").to_dict()["judge"]
    settings = {
        "kind": "chat",
        "method": method,
        "model": "gpt-4o",
        "base_url": "https://api.openai.com/v1",
        "api_key_env": "OPENAI_API_KEY",
        "price_prompt": 2.5,
        "price_cached": 1.25,
        "price_response": 10.0,
    }
    return ConfigDict(source | settings)


def _refresh() -> ConfigDict:
    """How days that have passed are moved (collection/evaluation/dates/moving.py)."""
    config = ConfigDict()
    # YYYY-MM-DD; empty: the day on which the run is begun.
    config.today = ""
    # From then to the earliest day of a prompt, at least.
    config.lead_days = 14
    # Who is asked about prompts with days that no rule takes for bound to them: none, gemini or chat.
    config.ask = collect.actor("none", label="dates", temperature=0.0)
    return config


def _webvoyager() -> ConfigDict:
    config = _live("webvoyager")
    # A JSON list of the ids that are left out, and the answers that the judge is shown; either may be "".
    config.excluded_file = ""
    config.references_file = ""
    config.refresh = _refresh()
    # The paper's own exception: the agent string trips that site's defences.
    config.update({"browser": {"user_agents": ("dictionary.cambridge.org=",)}})
    return config


def _online_mind2web() -> ConfigDict:
    config = _live("online_mind2web")
    # Of a task that names no website.
    config.start_page = "https://duckduckgo.com/"
    config.judge = _judge("webjudge")
    return config


def _webtailbench() -> ConfigDict:
    config = _live("webtailbench")
    config.start_page = "https://duckduckgo.com/"
    config.refresh = _refresh()
    # All tasks start at one page, which 16 episodes may share.
    config.update({"fleet": {"max_per_site": 16, "site_interval_s": 1.0}})
    return config


def _apps() -> ConfigDict:
    config = _base("paper")
    config.benchmark = "apps"
    config.tasks_file = ""
    config.judge = _judge("outcome")
    config.update(
        {
            # Names of applications on this machine, as NAME=127.0.0.1:PORT; `private` lets browsers go there.
            "guard": {"hosts": ()},
            # They are yours to load.
            "fleet": {"max_per_site": 16, "site_interval_s": 0.0, "backoff_s": 0.0},
        }
    )
    return config
