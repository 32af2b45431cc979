"""The demo's policy, served and evaluated in a real browser, straight through and killed half-way.

Ten minutes after the demo, which it runs or resumes; the applications are those of `make proof-apps`.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collection.environments.apps.application import Application
from collection.environments.apps.docs.site import PythonDocs
from collection.environments.apps.oscar.site import OscarShop
from collection.environments.apps.suite import find_task
from collection.environments.apps.tasks import AppTask, Ending
from configs import serve
from tests.fleet.watched import Watched, compare
from tests.llm.answers import completion
from tests.llm.prompt_server import PromptServer
from tests.llm.server import Answer
from tests.proofs.result import Claim, Figures, Proof, demo_run, main, table

APPLICATIONS, SEEDS, PLAYED_STEPS = Path("build/apps"), (0,), 5
TEMPLATES = {
    PythonDocs: ("module-page", "default-value", "new-in", "chapter"),
    OscarShop: ("guest-order", "two-products", "comparison", "out-of-stock", "too-few", "cheapest"),
}
MINIWOB_SEEDS, MINIWOB_PAGES, RUNS = 4, 15, 3
# Longer than the pages' own timers and transitions (a list of suggestions comes after 300 ms), so that a page
# is seen as it stays.
_SETTLED = ("--config.browser.quiet_ms=500", "--config.browser.settle_ms=5000")
_REQUEST = re.compile(r"<user_request>\n(.*?)\n</user_request>", re.DOTALL)
_ANSWER = re.compile(r"<untrusted_final_answer>\n(.*?)\n</untrusted_final_answer>", re.DOTALL)
_ADDRESS = re.compile(r"^Address: (.*)$", re.MULTILINE)


def play_twice(folder: Path, name: str, settings: Sequence[str], episodes: int) -> dict[str, Any]:
    """Straight through, then killed half-way and resumed."""
    begun = time.monotonic()
    straight = Watched(folder / "a", settings, module="experiments.evaluate")
    straight.finish()
    between = time.monotonic()
    resumed = Watched(folder / "b", settings, module="experiments.evaluate")
    resumed.start()
    resumed.until(lambda: resumed.count_episodes() >= episodes // 2, seconds=3600)
    assert resumed.process is not None
    resumed.process.kill()
    resumed.wait()
    killed_at = resumed.count_episodes()
    resumed.finish()
    reports, others = _files(straight), _files(resumed)
    compared = compare(straight.played(), resumed.played())
    print(*compared.different[:10], sep="\n")
    report = reports["report.json"]
    return {
        "benchmark": name,
        "tasks": report["tasks"],
        "episodes": episodes,
        "pass_at_1": report["pass_at_1"]["mean"],
        "pass_at_3": report["pass_at_3"]["mean"],
        "unjudged": len(report["apart"]["unjudged"]),
        "killed_at": killed_at,
        "seconds": [round(between - begun), round(time.monotonic() - between)],
        "lost": len(compared.lost),
        "doubled": len(compared.doubled),
        # A page may be caught in the middle of an animation, and who else is decoded at the time changes
        # logits by rounding; what matters is what is reported.
        "different_records": len(compared.different),
        "different_files": [file for file in reports if reports[file] != others[file]],
        "processes_left": len(straight.left_processes()) + len(resumed.left_processes()),
    }


def _files(run: Watched) -> dict[str, Any]:
    names = ("results.json", "report.json")
    return {name: _untimed(json.loads((run.workdir / name).read_bytes())) for name in names}


def _untimed(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _untimed(value) for name, value in content.items() if "seconds" not in name}
    return [_untimed(value) for value in content] if isinstance(content, list) else content


def judge_by(tasks: Sequence[AppTask]) -> PromptServer:
    """An endpoint that says of each episode what the application's own check says."""
    by_request = {task.task.objective: task for task in tasks}

    def reply(prompt: str) -> Answer:
        if _REQUEST.search(prompt) is None:
            return completion("SUCCESS")  # The call before the run.
        request, answer, address = (
            found[1] if (found := pattern.search(prompt)) else "" for pattern in (_REQUEST, _ANSWER, _ADDRESS)
        )
        passed = by_request[request.strip()].check(Ending(address, answer))
        return completion(f"The application was asked.\n\n{'SUCCESS' if passed else 'NOT SUCCESS'}")

    return PromptServer(reply)


def app_settings(folder: Path, policy: Path, tasks: Sequence[AppTask], judge: str) -> list[str]:
    """Flags for `experiments.evaluate`; writes the file of tasks."""
    file = folder / "tasks.jsonl"
    lines = [task.task.model_dump_json(include={"task_id", "website", "objective"}) for task in tasks]
    file.write_text("".join(f"{line}\n" for line in lines))
    applications: dict[str, Application] = {task.application.host: task.application for task in tasks}
    names = tuple(f"{name}={application.address}" for name, application in applications.items())
    return [
        "--config=configs/evaluate.py:own_tasks",
        f"--config.model={policy}",
        "--config.label=rl",
        f"--config.tasks_file={file}",
        f"--config.guard.hosts={names!r}",
        f"--config.guard.private={tuple(one.url for one in applications.values())!r}",
        # What the demo's policy was trained to see and to write.
        "--config.prompt.style=compact",
        "--config.browser.width=500",
        "--config.browser.height=320",
        "--config.actor.max_tokens=128",
        f"--config.actor.server_settings={serve.DEMO!r}",
        f"--config.limits.max_steps={PLAYED_STEPS}",
        "--config.fleet.workers=2",
        *_SETTLED,
        f"--config.judge.base_url={judge}/v1",
        "--config.judge.api_key_env=",
        "--config.judge.model=stand-in",
    ]


def play(folder: Path, policy: Path) -> list[dict[str, Any]]:
    miniwob = ["--config=configs/evaluate.py:demo", f"--config.model={policy}", "--config.label=rl"]
    miniwob += [f"--config.seeds={MINIWOB_SEEDS}", *_SETTLED]
    benchmarks = [play_twice(folder / "m", "MiniWoB++", miniwob, RUNS * MINIWOB_SEEDS * MINIWOB_PAGES)]
    docs, shop = PythonDocs(APPLICATIONS), OscarShop(APPLICATIONS)
    for application in (docs, shop):
        application.prepare()
    with docs, shop:
        tasks = [
            find_task(one, f"{one.name}/{name}/{seed}")
            for seed in SEEDS
            for one in (docs, shop)
            for name in TEMPLATES[type(one)]
        ]
        with judge_by(tasks) as judge:
            settings = app_settings(folder, policy, tasks, judge.url)
            benchmarks.append(play_twice(folder / "p", "applications", settings, episodes=RUNS * len(tasks)))
    return benchmarks


def measure() -> Figures:
    policy = demo_run() / "rl/export"
    # Short: a socket's path has 107 bytes at most, and Chromium's is some folders below.
    with tempfile.TemporaryDirectory(prefix="") as folder:
        benchmarks = play(Path(folder), policy.resolve())
    sizes = {"miniwob_seeds": MINIWOB_SEEDS, "miniwob_pages": MINIWOB_PAGES, "app_steps": PLAYED_STEPS}
    return {**sizes, "benchmarks": benchmarks}


def claims(figures: Figures) -> list[Claim]:
    found = []
    for row in figures["benchmarks"]:
        name, left = row["benchmark"], row["processes_left"]
        faults = f"{row['episodes']} episodes: {row['lost']} lost, {row['doubled']} doubled"
        changed = row["different_files"]
        found += [
            Claim(
                f"{name}: a killed and resumed evaluation has the same episodes",
                f"{faults}; {row['different_records']} records differ in more than seconds",
                not (row["lost"] or row["doubled"]),
            ),
            Claim(
                f"{name}: and the same results.json and report.json",
                ", ".join(changed) or "equal",
                not changed,
            ),
            Claim(f"{name}: no process is left", str(left), not left),
        ]
    return found


def tables(figures: Figures) -> str:
    rows = [
        (
            *(row[name] for name in ("benchmark", "tasks", "episodes")),
            *(f"{row[name]:.1%}" for name in ("pass_at_1", "pass_at_3")),
            *(row["unjudged"], f"{row['killed_at']} of {row['episodes']}"),
            " and ".join(map(str, row["seconds"])),
        )
        for row in figures["benchmarks"]
    ]
    head = (
        "benchmark",
        "tasks",
        "episodes",
        "pass@1",
        "pass@3",
        "unjudged",
        "killed at",
        "seconds, both runs",
    )
    return table(head, rows)


ABOUT = """\
The demo's policy is served by `experiments.serve`, and `experiments.evaluate` plays every task three times
in Chromium, each browser behind its egress proxy: once uninterrupted, and once killed (SIGKILL to the
parent, and with it to server, workers and browsers) when half of the episodes were on disk, and started
again by the same command.

- **MiniWoB++**: {miniwob_seeds} held-out seeds of each of the demo's {miniwob_pages} pages, judged by the
  pages' own reward.
- **applications**: Python's documentation and a django-oscar shop on this machine, judged by the outcome
  judge through an API server on loopback, whose stand-in for a model asks the application's own check. The
  policy has seen nothing but MiniWoB++, in windows of 500x320, and has {app_steps} steps: this tests the
  harness.

A page is observed when it has not changed for 500 ms, since the demo's 50 ms are shorter than what pages
wait for themselves. An episode may still differ where rounding changes logits, because other requests share
a batch.
"""
PROOF = Proof(
    "Evaluation of a served policy, killed and resumed",
    ABOUT,
    measure,
    claims,
    tables,
    ("jax",),
    browser=True,
)

if __name__ == "__main__":
    main(PROOF)
