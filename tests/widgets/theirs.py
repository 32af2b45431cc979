"""The targets by browser-use's actions: `-m tests.widgets.theirs ADDRESS CHROMIUM FILE` in its environment.

Each line of the standard input names a target; the answer is a line `REPORT {...}` with what
`ours.Player.play` returns. No model is asked: the moves are those of `tests.widgets.targets`, by the words of
browser-use's own list.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from typing import Any

os.environ |= {"ANONYMIZED_TELEMETRY": "false", "BROWSER_USE_CLOUD_SYNC": "false"}
os.environ |= {"BROWSER_USE_VERSION_CHECK": "false", "BROWSER_USE_CONFIG_DIR": tempfile.mkdtemp()}
os.environ |= {"BROWSER_USE_SETUP_LOGGING": "false"}

from browser_use import BrowserProfile, BrowserSession, Tools
from browser_use.filesystem.file_system import FileSystem

from tests.widgets.targets import TARGETS, Find, Move, NotListedError, Target, locate

ADDRESS, CHROMIUM, FILE = sys.argv[1:4]
# Extensions would be downloaded; all other settings are browser-use's defaults.
PROFILE = BrowserProfile(
    executable_path=CHROMIUM,
    headless=True,
    chromium_sandbox=False,
    enable_default_extensions=False,
    viewport={"width": 1280, "height": 1100},
    args=["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"],
)


class Player:
    """As `ours.Player`, for browser-use."""

    def __init__(self, session: BrowserSession, folder: str) -> None:
        self._session, self._tools = session, Tools()
        self._files = FileSystem(folder)

    async def play(self, target: Target) -> dict[str, Any]:
        await self._tools.navigate(url=f"{ADDRESS}/{target.page}.html", browser_session=self._session)
        played: dict[str, Any] = {"looks": [], "moves": [], "problem": "", "lists": []}
        try:
            for move in target.theirs:
                await self._move(move, played)
        except NotListedError as problem:
            played["problem"] = played["problem"] or str(problem)
        played["state"] = await self._state(target)
        return played

    async def _state(self, target: Target) -> str:
        end = time.monotonic() + 1
        code = f"String((window.state || {{}})[{target.key!r}] ?? '')"
        while (state := await self._value(code)) != target.wanted and time.monotonic() < end:
            await asyncio.sleep(0.1)
        return state

    async def _value(self, code: str) -> str:
        cdp = await self._session.get_or_create_cdp_session()
        answer = await cdp.cdp_client.send.Runtime.evaluate(
            params={"expression": code, "returnByValue": True}, session_id=cdp.session_id
        )
        return answer["result"].get("value", "")

    async def _look(self, played: dict[str, Any]) -> list[str]:
        start = time.perf_counter()
        state = await self._session.get_browser_state_summary(include_screenshot=True)
        text = state.dom_state.llm_representation()
        played["looks"].append(round(1000 * (time.perf_counter() - start)))
        played["lists"].append(text)
        return text.splitlines()

    async def _index(self, find: Find, played: dict[str, Any]) -> int:
        for _ in range(2):
            try:
                return locate(await self._look(played), find)
            except NotListedError:
                await asyncio.sleep(0.5)
        return locate(await self._look(played), find)

    async def _move(self, move: Move, played: dict[str, Any]) -> None:
        start = time.perf_counter()
        index = await self._index(move.find, played) if move.find else 0
        name, params = {
            "click": ("click", {"index": index}),
            "type": ("input", {"index": index, "text": move.text}),
            "select": ("select_dropdown", {"index": index, "text": move.text}),
            "keys": ("send_keys", {"keys": move.text}),
            "upload": ("upload_file", {"index": index, "path": FILE}),
            "script": ("evaluate", {"code": move.text}),
        }[move.name]
        result = await getattr(self._tools, name)(
            browser_session=self._session,
            available_file_paths=[FILE],
            file_system=self._files,
            **params,
        )
        played["moves"].append(round(1000 * (time.perf_counter() - start)))
        if result.error:
            played["problem"] = played["problem"] or str(result.error)


async def main() -> None:
    targets = {target.name: target for target in TARGETS}
    session = BrowserSession(browser_profile=PROFILE)
    await session.start()
    try:
        player = Player(session, tempfile.mkdtemp())
        while name := (await asyncio.to_thread(sys.stdin.readline)).strip():
            try:
                played = await asyncio.wait_for(player.play(targets[name]), 120)
            except Exception as problem:  # One target must not end the run.
                kind = type(problem).__name__
                played = {"state": "", "looks": [], "moves": [], "lists": [], "problem": f"{kind}: {problem}"}
            print("REPORT", json.dumps(played), flush=True)
    finally:
        await session.kill()


asyncio.run(main())
