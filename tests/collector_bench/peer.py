"""BrowserGym in an environment of its own under `build/`, with the machine's Chromium."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collection.browser.driver import FLAGS
from collection.browser.processes import find_program

FOLDER = Path("build/browsergym")
PACKAGES = ("browsergym-core==0.14.3", "browsergym-miniwob==0.14.3", "miniwob==1.1.0", "playwright==1.44.0")
_DONE = FOLDER / ".installed"


class BrowserGym:
    """The peer's process; used with `with`.

    Args:
      root: where MiniWoB++ is served.
      number: of this process among those that run at once, for its log.
    """

    def __init__(self, root: str, number: int = 0) -> None:
        _install()
        environment = {
            **os.environ,
            "MINIWOB_URL": f"{root}/miniwob/",
            "PLAYWRIGHT_BROWSERS_PATH": str((FOLDER / "browsers").resolve()),
        }
        self._log_path = FOLDER / f"peer-{number}.log"
        self._log = self._log_path.open("w", encoding="utf-8")
        self._process = subprocess.Popen(
            [FOLDER / "bin/python", Path(__file__).with_name("browsergym_peer.py")],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def __enter__(self) -> BrowserGym:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._log.close()

    def play(self, page: str, seed: int, rounds: int, delay: float) -> dict[str, Any]:
        """Seconds of a reset and of each kind of step.

        Raises:
          SystemExit: the peer has ended.
        """
        return self._ask({"page": page, "seed": seed, "rounds": rounds, "delay": delay})

    def play_episodes(self, page: str, seeds: Sequence[int]) -> dict[str, Any]:
        """Rewards, steps, failed steps and seconds of whole episodes; see `browsergym_peer.play_episodes`.

        Raises:
          SystemExit: the peer has ended.
        """
        return self._ask({"page": page, "seeds": list(seeds)})

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            sys.exit(f"error: BrowserGym ended at {order}; see {self._log_path}")
        return json.loads(answer)


def _install() -> None:
    if _DONE.exists():
        return
    print(f"installing {', '.join(PACKAGES)} into {FOLDER} (once)", flush=True)
    subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
    subprocess.run(
        [FOLDER / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    # Playwright uses a browser in the folder where it would have installed its own.
    program = FOLDER / "browsers/chromium-1117/chrome-linux/chrome"
    program.parent.mkdir(parents=True, exist_ok=True)
    chromium = find_program("", ("chromium", "chromium-browser", "google-chrome"))
    flags = shlex.join(flag for flag in FLAGS if flag != "--hide-scrollbars")
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(str(chromium))} {flags} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    _DONE.touch()
