"""OpenEnv's validator and client at our server, next to BrowserGym's speed. Ten minutes, an idle machine.

openenv, with this package, and BrowserGym are installed into environments of their own in build/.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from collection.environments.miniwob import MiniWobServer
from rmsweb_jax.processes import ChildProcess
from tests.collector_bench.peer import PACKAGES, BrowserGym
from tests.gym.openenv_calls import OTHER, TASK
from tests.proofs.result import ROOT, Claim, Figures, Proof, main, table

VERSION = "0.10.0"
ENVIRONMENT = ROOT / "build/openenv"
SESSIONS, EPISODES = 16, 6


def install() -> Path:
    """Returns the interpreter of an environment with openenv and this package."""
    python, stamp = ENVIRONMENT / "bin/python", ENVIRONMENT / VERSION
    if not stamp.exists():
        for command in (
            (sys.executable, "-m", "venv", "--clear", ENVIRONMENT),
            (python, "-m", "pip", "install", "--quiet", f"openenv=={VERSION}", "-e", ".[collect]"),
        ):
            subprocess.run([str(part) for part in command], cwd=ROOT, check=True)
        stamp.touch()
    return python


@contextlib.contextmanager
def serving(python: Path, *flags: str) -> Iterator[tuple[str, int]]:
    """Yields the address and the process id of a server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(python), "-m", "collection.gym.openenv_server", f"--port={port}", *flags]
    url = f"http://127.0.0.1:{port}"
    with (
        tempfile.TemporaryDirectory() as folder,
        ChildProcess("openenv server", command, Path(folder, "log"), cwd=ROOT) as server,
    ):
        while not _answers(url):
            if server.wait(0.2) is not None:
                raise server.failure()
        yield url, server.pid


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as response:
            return response.status == 200
    except OSError:
        return False


def validate(*arguments: str) -> dict[str, str]:
    """Check -> result, as OpenEnv's validator prints them; the verdict last."""
    command = [str(ENVIRONMENT / "bin/openenv"), "validate", *arguments]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    found = {}
    for line in printed.splitlines():
        words = line.split()
        if words[:1] == ["Verdict:"]:
            found["verdict"] = words[1]
        elif len(words) > 1 and words[0] in ("PASS", "FAIL", "WARN", "SKIP"):
            found[words[1]] = words[0]
    return found


def measure_browsergym() -> dict[str, Any]:
    """Plays the same pages in as many BrowserGym processes at once, and then in one after the other."""
    pages = [name.partition("/")[2] for name in (TASK, OTHER)]
    with contextlib.ExitStack() as stack:
        root = f"http://127.0.0.1:{stack.enter_context(MiniWobServer()).port}"
        peers = [stack.enter_context(BrowserGym(root, number)) for number in range(SESSIONS)]

        def play(number: int) -> dict[str, Any]:
            first = 100 * number
            return peers[number].play_episodes(pages[number % 2], range(first, first + EPISODES))

        with ThreadPoolExecutor(SESSIONS) as pool:
            played = list(pool.map(play, range(SESSIONS)))
        alone = [play(number) for number in range(len(pages))]
    return {
        **_rates(played, max(one["seconds"] for one in played)),
        "oracle": _paid(played, "oracle"),
        "failed": sum(one["failed"] for one in played),
        "alone": _rates(alone, sum(one["seconds"] for one in alone)),
        "alone_oracle": _paid(alone, "oracle"),
        "alone_failed": sum(one["failed"] for one in alone),
    }


def _rates(played: Sequence[dict[str, Any]], seconds: float) -> dict[str, float]:
    episodes = sum(len(found) for one in played for found in one["rewards"].values())
    steps = sum(one["steps"] for one in played)
    return {"steps_per_s": steps / seconds, "episodes_per_s": episodes / seconds}


def _paid(played: Sequence[dict[str, Any]], policy: str) -> list[float]:
    """Sum of a policy's rewards, and number of its episodes."""
    rewards = [reward for one in played for reward in one["rewards"][policy]]
    return [sum(rewards), len(rewards)]


def measure() -> Figures:
    python = install()
    static = validate("collection/gym", "--level", "static")
    with serving(python, f"--sessions={SESSIONS}") as (url, server):
        checked = validate("--url", url)
        command = [str(python), "-m", "tests.gym.openenv_sessions", url, str(server)]
        done = subprocess.run(
            [*command, str(SESSIONS), str(EPISODES)], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
        )
        played = json.loads(done.stdout.splitlines()[-1])
    deadline = time.monotonic() + 30
    while (left := _browsers()) and time.monotonic() < deadline:
        time.sleep(1)
    sessions, alone = played["played"], played["alone"]
    return {
        "static": static,
        "url": checked,
        "sessions": SESSIONS,
        "oracle": _paid(sessions, "oracle"),
        "null": _paid(sessions, "null"),
        **_rates(sessions, max(one["seconds"] for one in sessions)),
        "alone": _rates([alone], alone["seconds"]),
        "alone_oracle": _paid([alone], "oracle"),
        "server_mb": played["memory_mb"],
        "refused": played["refused"],
        "lost": played["lost"],
        "processes_left": len(left),
        "browsergym": measure_browsergym(),
    }


def _browsers() -> list[int]:
    """Processes that a server of this environment has left."""
    return [
        one.pid
        for one in psutil.process_iter(["cmdline"])
        if "collection.gym.openenv_server" in " ".join(one.info["cmdline"] or ())
    ]


def claims(figures: Figures) -> list[Claim]:
    static, url, lost = figures["static"], figures["url"], figures["lost"]

    def passed(found: dict[str, str]) -> str:
        checks = [result for name, result in found.items() if name != "verdict"]
        return f"{found.get('verdict')}: {checks.count('PASS')} of {len(checks)}"

    solved, paid, peer = figures["oracle"], figures["null"], figures["browsergym"]
    return [
        Claim("`openenv validate --level static`", passed(static), static.get("verdict") == "PASS"),
        Claim("`openenv validate --url`", passed(url), url.get("verdict") == "PASS"),
        Claim(
            f"{figures['sessions']} sessions at once: who solves a task is paid 1",
            _share(solved),
            solved[0] == solved[1],
        ),
        Claim("who does nothing is paid 0", _share(paid), not paid[0]),
        Claim(
            f"{figures['sessions']} sessions at once: more episodes/s and steps/s than BrowserGym",
            f"{figures['episodes_per_s']:.1f} and {peer['episodes_per_s']:.1f}; "
            f"{figures['steps_per_s']:.1f} and {peer['steps_per_s']:.1f}",
            all(figures[rate] > peer[rate] for rate in ("episodes_per_s", "steps_per_s")),
        ),
        Claim("a session over the limit is refused", figures["refused"], bool(figures["refused"])),
        Claim(
            "a browser that is killed is an error, no reward; the next episode is played",
            f"{lost['failed']}; then {lost['next_reward']:g}",
            bool(lost["failed"]) and lost["next_reward"] == 1,
        ),
        Claim("no server is left", str(figures["processes_left"]), not figures["processes_left"]),
    ]


def tables(figures: Figures) -> str:
    peer = figures["browsergym"]
    sides, some = (figures, peer), f"{figures['sessions']} sessions"
    rows = [
        ("episodes/s, one session", *(f"{one['alone']['episodes_per_s']:.2f}" for one in sides)),
        (f"episodes/s, {some}", *(f"{one['episodes_per_s']:.2f}" for one in sides)),
        ("steps/s, one session", *(f"{one['alone']['steps_per_s']:.2f}" for one in sides)),
        (f"steps/s, {some}", *(f"{one['steps_per_s']:.2f}" for one in sides)),
        ("solved by calls that solve the task, one session", *(_share(one["alone_oracle"]) for one in sides)),
        (f"solved by calls that solve the task, {some}", *(_share(one["oracle"]) for one in sides)),
        ("steps with an error, one session", "", f"{peer['alone_failed']}"),
        (f"steps with an error, {some}", "", f"{peer['failed']}"),
        ("memory of the server without browsers, MB", f"{figures['server_mb']:.0f}", ""),
    ]
    checks = [(name, result) for name, result in (figures["static"] | figures["url"]).items()]
    return "\n\n".join(
        (table(("", "ours", "BrowserGym"), rows), table(("check of `openenv validate`", "result"), checks))
    )


def _share(counts: list[float]) -> str:
    return f"{counts[0]:g} of {counts[1]:g}"


ABOUT = f"""\
OpenEnv {VERSION}'s own validator checks `collection.gym.openenv_server`, and its generic client plays there.
Each session has a Chromium of its own behind the guard, and plays {EPISODES} seeds of two MiniWoB++ pages
twice: once by calls that solve the task, read off the observation, and once by `send_msg_to_user` alone. The
validator's runtime level needs Docker, which is not here, and it does not implement its semantic level: the
rewards below check that.

BrowserGym ({", ".join(PACKAGES[:2])}) plays as many episodes of the same pages in the same Chromium: each
session in a process of its own, with one of the pages, without a server between and in a smaller window. Its
delays (0.5 s before an observation, 0.1 s in each operation) are left out, and a page may load for 60 s.

Seconds include resets, looks and screenshots. BrowserGym starts its two browsers anew at each reset, which
takes most of its time here: [the collector's speed](collector_speed.md) compares steps alone. Our message
that ends a solved task is not counted as a step. Actions of BrowserGym fail after 0.5 s.
"""
PROOF = Proof("OpenEnv", ABOUT, measure, claims, tables, browser=True)

if __name__ == "__main__":
    main(PROOF)
