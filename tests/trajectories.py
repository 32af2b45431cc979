"""Hand-written trajectories for tests: short to write, complete to read."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from rmsweb_jax.records.schema import (
    ActionResult,
    Element,
    ImagePart,
    Message,
    Observation,
    Step,
    Tab,
    Task,
    TextPart,
    Trajectory,
)

# A picture of one pixel.
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010100000000376ef9240000000a49444154789c6360000000"
    "02000148afa4710000000049454e44ae426082"
)
SHOT = hashlib.sha256(PNG).hexdigest()
URL = "http://miniwob.test/login-user.html"
FORM = (("input", "Username"), ("input", "Password"), ("button", "Login"))
CLICK: dict[str, Any] = {"click_element_by_index": {"index": 3}}
TYPE: dict[str, Any] = {"input_text": {"index": 1, "text": "ann"}}
TYPE_PASSWORD: dict[str, Any] = {"input_text": {"index": 2, "text": "xy7"}}
DONE: dict[str, Any] = {"done": {"text": "", "success": True}}
SCROLL: dict[str, Any] = {"scroll": {"down": True, "num_pages": 1.0}}


def reply(*actions: dict[str, Any], memory: str = "") -> str:
    body = {"evaluation_previous_goal": "Success", "memory": memory, "next_goal": "go on"}
    return json.dumps(body | {"action": list(actions)})


def step(
    number: int,
    *actions: dict[str, Any],
    page: str = "form",
    url: str = URL,
    elements: tuple[tuple[str, str], ...] = FORM,
    memory: str = "",
    changed: bool = True,
    failed: bool = False,
    error: str = "",
    response: str | None = None,
    screenshot: str | None = SHOT,
    results: tuple[ActionResult, ...] | None = None,
    result_text: str = "ok",
) -> Step:
    """One step; `page` names its state (its fingerprint)."""
    observation = Observation(
        url=url,
        title="",
        tabs=(Tab(tab_id="0001", url=url, title=""),),
        current_tab="0001",
        page_text=page,
        elements=tuple(
            Element(index=index, tag=tag, text=text) for index, (tag, text) in enumerate(elements, start=1)
        ),
        fingerprint=page,
        screenshot=screenshot,
    )
    if results is None:
        results = tuple(
            ActionResult(action=name, text=result_text, changed=changed, error=failed)
            for action in actions
            for name in action
        )
    image = (ImagePart(sha256=screenshot),) if screenshot else ()
    return Step(
        number=number,
        observation=observation,
        messages=(
            Message(role="system", content=(TextPart(text="You operate a web page."),)),
            Message(role="user", content=(TextPart(text=f"{page} step {number}"), *image)),
        ),
        response=reply(*actions, memory=memory) if response is None else response,
        results=() if error else results,
        error=error,
    )


def trajectory(
    *steps: Step,
    success: bool = True,
    task_id: str = "miniwob/login-user/1",
    actor: str = "teacher",
    attempt: int = 1,
    objective: str = "Log in.",
    constraints: tuple[str, ...] = (),
    site: str = "",
    **changes: Any,
) -> Trajectory:
    task = Task(
        task_id=task_id,
        website=URL,
        objective=objective,
        constraints=constraints,
        environment="miniwob",
        site=site or task_id.split("/")[1],
        seed=1,
    )
    values: dict[str, Any] = {"outcome": "done", "reward": 1.0 if success else -1.0} | changes
    return Trajectory(
        trajectory_id=f"{task_id}#{actor}-{attempt}",
        task=task,
        actor=actor,
        model="scripted",
        attempt=attempt,
        steps=steps,
        success=success,
        **values,
    )


def numbered(*actions: dict[str, Any], **options: Any) -> tuple[Step, ...]:
    """One step for each action, each on a page of its own."""
    return tuple(
        step(number, action, page=f"page {number}", **options)
        for number, action in enumerate(actions, start=1)
    )
