"""A model that answers by the plan written in the task: no judgement.

A plan is a list of steps in the request, in square brackets: `[click 1; type 2 text; done]`.
"""

from __future__ import annotations

import json
import re
from typing import Any

_STEP = re.compile(r"<step_info>Step (\d+) of (\d+)")
_PLAN = re.compile(r"<user_request>[^\[]*\[([^\]]*)\]")
DONE = {"done": {"text": "Finished", "success": True}}
STOP = {"done": {"text": "Given up", "success": False}}


def action(step: str) -> dict[str, Any]:
    """Returns one step of a plan as an action."""
    verb, _, rest = step.partition(" ")
    number, _, text = rest.partition(" ")
    match verb:
        case "click":
            return {"click_element_by_index": {"index": int(number)}}
        case "type":
            return {"input_text": {"index": int(number), "text": text}}
        case "keys":
            return {"send_keys": {"keys": rest}}
        case "scroll":
            return {"scroll": {"down": True, "num_pages": 1.0}}
        case "open":
            return {"go_to_url": {"url": rest}}
        case "back":
            return {"go_back": {}}
        case "wait":
            return {"wait": {"seconds": int(number)}}
        case "find":
            return {"scroll_to_text": {"text": rest}}
        case "extract":
            return {"extract_structured_data": {"query": rest or "prices"}}
        case "look":
            return {"scroll_to_text": {"text": "nowhere on the page"}}
    return STOP if verb == "stop" else DONE


def answer(prompt: str) -> str:
    """Returns the reply to a prompt; other requests than an agent's step (extractions) get a sentence."""
    step, plan = _STEP.findall(prompt), _PLAN.findall(prompt)
    if not step or not plan:
        return "There is nothing to be said of this page."
    steps = [part.strip() for part in plan[-1].split(";")]
    number, last = map(int, step[-1])
    given_up = "Only done is allowed" in prompt
    chosen = STOP if given_up or number == last else action(steps[min(number, len(steps)) - 1])
    return json.dumps(
        {"evaluation_previous_goal": "Unknown", "memory": "", "next_goal": "Next", "action": [chosen]}
    )
