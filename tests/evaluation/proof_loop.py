"""A policy that is served, evaluated in a real browser and judged; and the same, killed half-way and resumed.

python -m tests.evaluation.proof_loop --policy=runs/demo/rl/export --output=docs/results/evaluation.md
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import re
import tempfile
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from collection.environments.apps.application import Application
from collection.environments.apps.docs_tasks import docs_tasks
from collection.environments.apps.python_docs import PythonDocs
from collection.environments.apps.shop import OscarShop
from collection.environments.apps.shop_tasks import shop_tasks
from collection.environments.apps.tasks import AppTask, Ending
from rmsweb_jax.records.files import write_atomic
from tests.fleet.watched import Compared, Watched, compare
from tests.llm.answers import completion
from tests.llm.prompt_server import PromptServer
from tests.llm.server import Answer

APPLICATIONS, SEEDS, PLAYED_STEPS = Path("build/apps"), (0,), 5
MINIWOB_SEEDS, MINIWOB_PAGES, RUNS = 4, 15, 3
# Longer than the pages' own timers and transitions (a list of suggestions comes after 300 ms), so that a page
# is seen as it stays.
_SETTLED = ("--config.browser.quiet_ms=500", "--config.browser.settle_ms=5000")
_REQUEST = re.compile(r"<user_request>\n(.*?)\n</user_request>", re.DOTALL)
_ANSWER = re.compile(r"<untrusted_final_answer>\n(.*?)\n</untrusted_final_answer>", re.DOTALL)
_ADDRESS = re.compile(r"^Address: (.*)$", re.MULTILINE)
_HOLDS = {True: "yes", False: "NO", None: "-"}
_REPORT = """\
# A policy, served, in a real browser, judged

    make demo proof-evaluation

runs `{command}`, which writes this page. The demo's
policy is served by `experiments.serve`, and `experiments.evaluate` plays every task three times in Chromium,
each browser behind its egress proxy: once straight through, and once killed (SIGKILL to the parent, and with
it to server, workers and browsers) when half of the episodes were on disk, and started again by the same
command.

- **MiniWoB++**: {seeds} held-out seeds of each of the demo's {pages} pages, judged by the pages' own reward.
- **Applications**: Python's documentation and a django-oscar shop on this machine, judged by the outcome
  judge through an API server on loopback, whose stand-in for a model asks the application's own check. The
  policy has seen nothing but MiniWoB++, in windows of 500x320, and has {steps} steps: what is tried here is
  the harness.

A page is looked at when it has not changed for 500 ms, the demo's 50 ms being shorter than what pages wait
for themselves. Logits that rounding changes, as others are decoded beside a reply, may still make an episode
differ.

| benchmark | tasks | episodes | pass@1, % | pass@3, % | unjudged | killed at | seconds, straight and in two |
|---|---|---|---|---|---|---|---|
{rows}

| | measured | holds |
|---|---|---|
{checks}

{machine}
"""


@dataclasses.dataclass(frozen=True)
class Loop:
    """One benchmark, played twice.

    Attributes:
      straight, resumed: `results.json` and `report.json` of either run, without what clocks have measured.
      killed_at: episodes on disk.
      seconds: of either run.
    """

    name: str
    episodes: int
    straight: dict[str, Any]
    resumed: dict[str, Any]
    compared: Compared
    killed_at: int
    seconds: tuple[float, float]
    left: list[str]

    def checks(self) -> list[tuple[str, str, bool | None]]:
        found = self.compared
        changed = [name for name in self.straight if self.straight[name] != self.resumed[name]]
        told = f"{found.wanted} episodes: {len(found.lost)} lost, {len(found.doubled)} doubled"
        return [
            (f"{self.name}: the same episodes", told, not (found.lost or found.doubled)),
            (f"{self.name}: results.json and report.json", ", ".join(changed) or "equal", not changed),
            # A page may be caught in the middle of an animation, and who else is decoded at the time changes
            # logits by rounding; what matters is what is reported.
            (f"{self.name}: records different in anything but seconds", str(len(found.different)), None),
            (f"{self.name}: processes left", str(len(self.left)), not self.left),
        ]

    def row(self) -> str:
        report = self.straight["report.json"]
        passed = [100 * report[f"pass_at_{k}"]["mean"] for k in (1, 3)]
        unjudged = len(report["apart"]["unjudged"])
        seconds = " and ".join(f"{one:.0f}" for one in self.seconds)
        figures = " | ".join(f"{one:.1f}" for one in passed)
        return (
            f"| {self.name} | {report['tasks']} | {self.episodes} | {figures} | {unjudged} "
            f"| {self.killed_at} of {self.episodes} | {seconds} |"
        )


def play_twice(folder: Path, name: str, settings: Sequence[str], episodes: int) -> Loop:
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
    return Loop(
        name,
        episodes,
        _files(straight),
        _files(resumed),
        compare(straight.played(), resumed.played()),
        killed_at,
        (between - begun, time.monotonic() - between),
        [*straight.left_processes(), *resumed.left_processes()],
    )


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
        request, answer, address = (
            found[1] if (found := pattern.search(prompt)) else "" for pattern in (_REQUEST, _ANSWER, _ADDRESS)
        )
        passed = by_request[request.strip()].check(Ending(address, answer))
        return completion(f"The application was asked.\n\n{'SUCCESS' if passed else 'NOT SUCCESS'}")

    return PromptServer(reply)


def app_settings(folder: Path, policy: Path, tasks: Sequence[AppTask], judge: str) -> list[str]:
    """Of `experiments.evaluate`; writes the file of tasks."""
    file = folder / "tasks.jsonl"
    lines = [task.task.model_dump_json(include={"task_id", "website", "objective"}) for task in tasks]
    file.write_text("".join(f"{line}\n" for line in lines))
    applications: dict[str, Application] = {task.application.host: task.application for task in tasks}
    names = tuple(f"{name}={application.address}" for name, application in applications.items())
    return [
        "--config=configs/evaluate.py:apps",
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
        "--config.actor.server=configs/serve.py:demo",
        f"--config.limits.max_steps={PLAYED_STEPS}",
        "--config.fleet.workers=2",
        *_SETTLED,
        f"--config.judge.base_url={judge}/v1",
        "--config.judge.api_key_env=",
        "--config.judge.model=stand-in",
    ]


def prove(folder: Path, policy: Path) -> list[Loop]:
    miniwob = ["--config=configs/evaluate.py:demo", f"--config.model={policy}", "--config.label=rl"]
    miniwob += [f"--config.seeds={MINIWOB_SEEDS}", *_SETTLED]
    loops = [play_twice(folder / "m", "MiniWoB++", miniwob, RUNS * MINIWOB_SEEDS * MINIWOB_PAGES)]
    docs, shop = PythonDocs(APPLICATIONS), OscarShop(APPLICATIONS)
    for application in (docs, shop):
        application.prepare()
    with docs, shop:
        tasks = [task for seed in SEEDS for task in (*docs_tasks(docs, seed), *shop_tasks(shop, seed))]
        with judge_by(tasks) as judge:
            settings = app_settings(folder, policy, tasks, judge.url)
            loops.append(play_twice(folder / "p", "applications", settings, episodes=RUNS * len(tasks)))
    return loops


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", type=Path, required=True, help="a model folder, as the demo exports")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="") as folder:
        loops = prove(Path(folder), options.policy.resolve())
    checks = [check for loop in loops for check in loop.checks()]
    text = _REPORT.format(
        command=f"python -m tests.evaluation.proof_loop --policy={options.policy} --output={options.output}",
        steps=PLAYED_STEPS,
        seeds=MINIWOB_SEEDS,
        pages=MINIWOB_PAGES,
        rows="\n".join(loop.row() for loop in loops),
        checks="\n".join(f"| {what} | {told} | {_HOLDS[holds]} |" for what, told, holds in checks),
        machine=f"Python {platform.python_version()}, jax {metadata.version('jax')}, 2 workers.",
    )
    for loop in loops:
        for difference in loop.compared.different[:10]:
            print(difference)
    print(text)
    write_atomic(options.output, text.encode())
    if any(holds is False for _, _, holds in checks):
        raise SystemExit("error: not every line holds")


if __name__ == "__main__":
    main()
