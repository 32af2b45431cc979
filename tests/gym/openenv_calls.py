"""What solves two MiniWoB++ tasks, read off an OpenEnv observation."""

from __future__ import annotations

import re
from typing import Any

# A page whose button has an index, and another task for the same server.
TASK, OTHER = "miniwob/click-button", "miniwob/enter-text"


def calls(observation: dict[str, Any]) -> list[str]:
    """The calls that solve a task, from what an agent is shown."""
    goal, page = observation["goal"], observation["page"]
    (text,) = re.findall(r'"([^"]*)"', goal)
    if "button" in goal:
        found = re.search(rf"\[(\d+)\]<button />\s+{re.escape(text)}$", page, re.M)
        assert found, page
        return [f"click('{found[1]}')"]
    field = re.search(r"\[(\d+)\]<input", page)
    button = re.search(r"\[(\d+)\]<button", page)
    assert field and button, page
    return [f"fill('{field[1]}', {text!r})", f"click('{button[1]}')"]
