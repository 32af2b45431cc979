"""browser-use's agent with its own `ChatOpenAI`, one episode in Chromium: `... URL MODEL PAGE CHROMIUM`.

Prints what the agent parsed and executed. The policy behind the server need not understand the prompt.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile

os.environ |= {"ANONYMIZED_TELEMETRY": "false", "BROWSER_USE_CLOUD_SYNC": "false"}
os.environ |= {"BROWSER_USE_VERSION_CHECK": "false", "BROWSER_USE_CONFIG_DIR": tempfile.mkdtemp()}

import checks
from browser_use import Agent, BrowserProfile, ChatOpenAI

URL, MODEL, PAGE, CHROMIUM = sys.argv[1:5]
STEPS = 4


async def episode() -> tuple[list[str], list[str]]:
    """Plays; returns the actions of replies that were parsed, and those that ran without an error."""
    agent = Agent(
        task="Open the form and send it.",
        llm=ChatOpenAI(model=MODEL, base_url=URL, api_key="none"),
        browser_profile=BrowserProfile(
            executable_path=CHROMIUM,
            headless=True,
            chromium_sandbox=False,
            enable_default_extensions=False,
            # What the policy draws may be any address.
            args=["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"],
        ),
        initial_actions=[{"navigate": {"url": PAGE, "new_tab": False}}],
        # The policy reads slowly on a CPU.
        llm_timeout=900,
        step_timeout=1200,
    )
    history = await agent.run(max_steps=STEPS)
    parsed, executed = [], []
    for item in history.history:
        print(item.model_output, item.result, file=sys.stderr)
        # The first entry is our own `initial_actions`, which no model chose.
        if item.model_output is None or item.metadata is None or item.metadata.step_number == 0:
            continue
        names = [next(iter(action.model_dump(exclude_none=True)), "") for action in item.model_output.action]
        parsed += names
        executed += [name for name, result in zip(names, item.result, strict=False) if not result.error]
    return parsed, executed


def play() -> str:
    parsed, executed = asyncio.run(episode())
    assert executed, (parsed, executed)
    return f"parsed {', '.join(parsed)}; ran without an error: {', '.join(executed)}"


checks.run("browser-use", {"an episode in Chromium with ChatOpenAI's defaults": play})
