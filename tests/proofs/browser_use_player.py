"""browser-use on tasks of MiniWoB++, in an environment of its own: `... TASKS OUT`, two JSON files.

TASKS has the model and its server, Chromium, the scripts that start a page's episode and read its reward, and
the tasks. Their results go to OUT; tasks that it has are not played again.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ |= {"ANONYMIZED_TELEMETRY": "false", "BROWSER_USE_CLOUD_SYNC": "false"}
os.environ |= {"BROWSER_USE_VERSION_CHECK": "false", "BROWSER_USE_CONFIG_DIR": tempfile.mkdtemp()}

from browser_use import Agent, Browser, ChatOpenAI, Tools  # pyright: ignore[reportMissingImports]


async def play(given: dict[str, Any], page: str, seed: int) -> dict[str, Any]:
    """Plays a task with at most `given["steps"]` steps."""
    browser = Browser(
        executable_path=given["chromium"],
        headless=True,
        chromium_sandbox=False,
        enable_default_extensions=False,
        keep_alive=True,  # The page is read after the run.
    )
    await browser.start()
    try:
        tab = await browser.get_current_page() or await browser.new_page()
        await tab.goto(f"{given['url']}/{page}.html")
        for _ in range(100):
            if await tab.evaluate("() => document.readyState") == "complete":
                break
            await asyncio.sleep(0.1)
        task = await tab.evaluate(
            f"(...args) => {{ {given['start'].replace('arguments', 'args')} }}", str(seed), 10**8
        )
        agent = Agent(
            task=task,
            browser=browser,
            llm=ChatOpenAI(model=given["model"], base_url=given["server"], api_key="none", temperature=0.2),
            tools=Tools(exclude_actions=given["excluded"]),
            use_vision=False,
            use_judge=False,
            llm_timeout=1800,
            step_timeout=2400,
            **given["settings"],
        )
        begin = time.monotonic()
        history = await agent.run(max_steps=given["steps"])
        seconds = time.monotonic() - begin
        reward = await tab.evaluate(f"() => {{ {given['status']} }}")
    finally:
        await browser.kill()
    outputs = [item.model_output for item in history.history]
    return {
        "reward": float(reward) if reward not in (None, "", "null") else None,
        "claimed": history.is_successful(),
        "steps": len(outputs),
        "valid": sum(output is not None for output in outputs),
        "errors": [error for error in history.errors() if error],
        "seconds": seconds,
    }


async def main() -> None:
    given, out = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    found = json.loads(out.read_text()) if out.exists() else {}
    for page, seed in given["tasks"]:
        if f"{page}/{seed}" not in found:
            found[f"{page}/{seed}"] = await play(given, page, seed)
            print(page, seed, found[f"{page}/{seed}"], flush=True)
            out.write_text(json.dumps(found, indent=1))


asyncio.run(main())
