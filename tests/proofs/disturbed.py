"""An evaluation with outages, blocks, crashes and a judge that fails, resumed, against an undisturbed one.

Five minutes, on pages of this machine in Chromium.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from collection.report.paper_tables import percent
from rmsweb_jax.records.sealing import REPORT
from tests.fleet.watched import Watched, compare
from tests.llm.answers import completion
from tests.llm.prompt_server import PromptServer
from tests.llm.server import Answer
from tests.loopback import PageHandler, serving
from tests.proofs.result import Claim, Figures, Proof, main, table

SITES, EACH, RUNS, WORKERS = 12, 5, 3, 2
TASKS = SITES * EACH
# What happens to each site in the disturbed run, by its number.
UNREACHABLE, BLOCKED, CRASHING, UNREAD, REFUSED = (0, 1), (8,), (3,), (4,), (5,)
# Seconds for which the judge answers nothing at all, from its twentieth call on.
JUDGE_DOWN_S, JUDGE_DOWN_AT = 5.0, 20
WALL = "<title>Just a moment...</title><p>Verify you are human by completing the action below.</p>"
_LAMP = re.compile(r"lamp (\d+) of site-(\d+)")
_ANSWER = re.compile(r"<untrusted_final_answer>\n(.*?)\n</untrusted_final_answer>", re.DOTALL)
_PRICE = re.compile(r"costs (\d+) EUR")


def price(lamp: int, site: int) -> int:
    return 100 * site + 7 * lamp + 3


class World:
    """The sites and the two models; `disturbed` turns the disturbances on.

    Attributes:
      run: whose browsers crash.
    """

    def __init__(self) -> None:
        self.disturbed = False
        self.run: Watched | None = None
        self.killed = self.judge_calls = 0
        self._down_until = 0.0
        self._lock = threading.Lock()

    def handler(self) -> type[PageHandler]:
        world = self

        class Handler(PageHandler):
            def get(self) -> None:
                site = int(self.headers["Host"].split(".")[0].removeprefix("site-"))
                if world.disturbed and site in UNREACHABLE:
                    # Closing without lingering sends RST.
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.connection.close()
                    return
                if world.disturbed and site in CRASHING:
                    world.kill_browsers()
                if world.disturbed and site in BLOCKED:
                    self.reply(WALL)
                elif self.path.startswith("/lamp"):
                    lamp = int(self.path.removeprefix("/lamp"))
                    self.reply(f"<title>Lamp</title><p>Lamp {lamp} costs {price(lamp, site)} EUR.</p>")
                else:
                    links = "".join(f'<li><a href="/lamp{n}">Lamp {n}</a></li>' for n in range(EACH))
                    self.reply(f"<title>Lamps</title><h1>Lamps</h1><ul>{links}</ul>")

        return Handler

    def kill_browsers(self) -> None:
        assert self.run is not None
        for process in self.run.processes("browser"):
            with contextlib.suppress(psutil.Error):
                process.kill()
                self.killed += 1

    def act(self, prompt: str) -> Answer:
        """Opens the lamp's page and reads its price; one task in four is answered wrongly."""
        if _LAMP.search(prompt) is None:
            return completion("{}")  # The call before the run.
        lamp, site = map(int, _found(_LAMP, prompt))
        shown = _PRICE.findall(prompt)
        if not shown:
            index = re.search(rf"\[(\d+)\]<a[^\n]*>\s*Lamp {lamp}\b", prompt)
            action: dict[str, Any] = (
                {"click_element_by_index": {"index": int(index[1])}} if index else {"wait": {"seconds": 0}}
            )
        else:
            wrong = (lamp + site) % 4 == 0
            action = {"done": {"text": f"{int(shown[-1]) + wrong} EUR", "success": True}}
        fields = dict.fromkeys(("evaluation_previous_goal", "memory", "next_goal"), "")
        return completion(json.dumps({**fields, "action": [action]}))

    def judge(self, prompt: str) -> Answer:
        """Knows the prices; disturbed, it is down for a while, unreadable for a site, and refuses another."""
        if _LAMP.search(prompt) is None:
            return completion("SUCCESS")  # The call before the run.
        lamp, site = map(int, _found(_LAMP, prompt))
        with self._lock:
            self.judge_calls += 1
            if self.judge_calls == JUDGE_DOWN_AT:
                self._down_until = time.monotonic() + JUDGE_DOWN_S
        if self.disturbed:
            if time.monotonic() < self._down_until:
                return Answer(503, {"error": {"message": "overloaded"}})
            if site in UNREAD:
                return completion("It may well be so.")
            if site in REFUSED:
                # Azure's words.
                said = "The response was filtered due to the prompt triggering content management policy."
                return Answer(400, {"error": {"message": said, "code": "content_filter"}})
        right = _found(_ANSWER, prompt)[0].strip() == f"{price(lamp, site)} EUR"
        return completion("SUCCESS" if right else "NOT SUCCESS")


def _found(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    match = pattern.search(text)
    assert match is not None, text[:500]
    return match.groups()


def settings(folder: Path, site: str, actor: str, judge: str) -> list[str]:
    lines = [
        {
            "task_id": f"lamps/{number}-{lamp}",
            "website": f"http://site-{number}.test/",
            "objective": f"What is the price of lamp {lamp} of site-{number}?",
        }
        for number in range(SITES)
        for lamp in range(EACH)
    ]
    file = folder / "tasks.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return [
        "--config=configs/evaluate.py:own_tasks",
        f"--config.tasks_file={file}",
        "--config.label=reader",
        "--config.actor.kind=chat",
        "--config.model=reader",
        f"--config.actor.base_url={actor}/v1",
        "--config.actor.calls=1",
        f"--config.guard.hosts={tuple(f'site-{n}.test={site}' for n in range(SITES))!r}",
        "--config.guard.private=('http://*.test',)",
        f"--config.judge.base_url={judge}/v1",
        "--config.judge.api_key_env=",
        "--config.judge.model=assessor",
        "--config.judge.calls=1",
        "--config.limits.max_steps=4",
        "--config.limits.max_blocked=2",
        "--config.browser.width=500",
        "--config.browser.height=320",
        "--config.browser.quiet_ms=200",
        f"--config.fleet.workers={WORKERS}",
        "--config.fleet.crashes=0",
    ]


@contextlib.contextmanager
def serve(world: World) -> Iterator[tuple[str, str, str]]:
    with (
        serving(world.handler()) as site,
        PromptServer(world.act) as actor,
        PromptServer(world.judge) as judge,
    ):
        yield site, actor.url, judge.url


def measure() -> Figures:
    # Short: a socket's path has 107 bytes at most, and Chromium's is some folders below.
    with tempfile.TemporaryDirectory(prefix="") as name:
        folder, world = Path(name), World()
        with serve(world) as addresses:
            flags = settings(folder, *addresses)
            quiet = Watched(folder / "a", flags, module="experiments.evaluate")
            quiet.finish()
            world.run = hurt = Watched(folder / "b", flags, module="experiments.evaluate")
            world.disturbed, world.judge_calls = True, 0
            hurt.finish()
            disturbed = json.loads((hurt.workdir / REPORT).read_bytes())
            said = "\n".join(hurt.last_lines().splitlines()[-2:])
            world.disturbed = False
            (hurt.workdir / REPORT).unlink()
            hurt.finish()
        files = {run: _files(run) for run in (quiet, hurt)}
        compared = compare(quiet.played(), hurt.played())
        return {
            "tasks": TASKS,
            "runs": RUNS,
            "pass_at_1": files[quiet]["report.json"]["pass_at_1"]["mean"],
            "pass_at_1_resumed": files[hurt]["report.json"]["pass_at_1"]["mean"],
            "pass_at_1_disturbed": disturbed["pass_at_1"],
            "message": said.replace(str(hurt.workdir), "WORKDIR"),
            "fates_disturbed": disturbed["fates"],
            "fates_resumed": files[hurt]["report.json"]["fates"],
            "different_files": [file for file in files[quiet] if files[quiet][file] != files[hurt][file]],
            "lost": len(compared.lost),
            "doubled": len(compared.doubled),
            "different_records": len(compared.different),
            "browsers_killed": world.killed,
            "processes_left": len(quiet.left_processes()) + len(hurt.left_processes()),
        }


def _files(run: Watched) -> dict[str, Any]:
    return {
        name: _untimed(json.loads((run.workdir / name).read_bytes()))
        for name in ("results.json", "report.json")
    }


def _untimed(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _untimed(value) for name, value in content.items() if "seconds" not in name}
    return [_untimed(value) for value in content] if isinstance(content, list) else content


def claims(figures: Figures) -> Sequence[Claim]:
    fates, rate, true = (figures[name] for name in ("fates_disturbed", "pass_at_1_disturbed", "pass_at_1"))
    hurt = {name: fates[name] for name in ("unjudged", "blocked", "unreachable", "crashed")}
    faults = f"{figures['lost']} lost, {figures['doubled']} doubled, {figures['different_records']} different"
    changed = figures["different_files"]
    return [
        Claim(
            "the disturbed run meets all four ways to have no result",
            ", ".join(f"{count} {name}" for name, count in hurt.items()),
            all(hurt.values()),
        ),
        Claim(
            "the bounds of its pass@1 hold that of the undisturbed run",
            f"{rate['least']:.1%} to {rate['most']:.1%} hold {true:.1%}",
            rate["least"] <= true <= rate["most"],
        ),
        Claim(
            "resumed without disturbances, results.json and report.json equal those of the undisturbed run",
            ", ".join(changed) or "equal",
            not changed,
        ),
        Claim(
            "and so do its episodes",
            faults,
            not (figures["lost"] or figures["doubled"] or figures["different_records"]),
        ),
        Claim("no process is left", str(figures["processes_left"]), not figures["processes_left"]),
    ]


def tables(figures: Figures) -> str:
    fates = figures["fates_disturbed"]
    rows = [
        ("disturbed", *fates.values(), f"{percent(figures['pass_at_1_disturbed'])} %"),
        ("resumed", *figures["fates_resumed"].values(), f"{figures['pass_at_1_resumed']:.1%}"),
    ]
    return (
        f"{table(('run', *fates, 'pass@1'), rows)}\n\n"
        f"The undisturbed run: pass@1 {figures['pass_at_1']:.1%}. What the disturbed one said last:\n\n"
        f"{textwrap.indent(figures['message'], '    ')}\n"
    )


ABOUT = """\
{tasks} tasks on twelve sites of this machine, each played {runs} times in Chromium by `experiments.evaluate`,
with a model that reads prices (one task in four wrongly) and our outcome judge, whose model knows them. Once
without disturbances; once with: two sites that break every connection, one that asks for a captcha, one at
whose pages all browsers of the run are killed, a judge that answers nothing for five seconds, says what
cannot be read on one site, and refuses another site's prompts. Then the same command again without its
`report.json`, with everything in order.
"""
PROOF = Proof(
    "An evaluation with outages, blocks, crashes and a judge that fails",
    ABOUT,
    measure,
    claims,
    tables,
    browser=True,
)

if __name__ == "__main__":
    main(PROOF)
