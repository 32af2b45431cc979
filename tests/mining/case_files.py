"""Pairs of runs written by hand, each with the failure mode that a person gives it.

The cases are YAML lists under `tests/mining/cases`. `tuned` holds the cases that the rules were written and
tuned by, `held_out` three of each failure mode that nothing was tuned by, and `paper.yaml` the four
contrasts of RMSWeb's table of mined pairs. A case in short:

    - name: socks-in-the-bag
      category: endpoint_incomplete
      why: The socks are found, but never put into the bag.
      activity: E-Commerce
      website: https://www.example.com/
      site: example.com
      task: Put one pair of grey socks into the bag.
      pages:
        home:
          url: https://www.example.com/
          title: Example shop
          elements:
            - {h1: Welcome}
            - {input: Search, value: socks}
      success:
        steps:
          - page: home
            memory: Start.
            goal: Search.
            actions:
              - {send_keys: {keys: Enter}, result: Pressed Enter, changed: true}
      localization:
        outcome: max_steps
        steps: ...

An element is one of `KINDS` with its label; elements with a role are numbered from 1. An action has a
`result` or an `error`. A step has an `error` of its own where its actions were not carried out, and a
`reply` where the model's answer could not be used.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, model_validator

from collection.mining.runs import RunPair, parse_run
from rmsweb_jax.records.schema import (
    ActionResult,
    Element,
    ImagePart,
    Message,
    Observation,
    Outcome,
    Step,
    Tab,
    Task,
    TextPart,
    Trajectory,
)

FOLDER = Path(__file__).parent / "cases"
_PLAIN = ("h1", "p", "li", "td")
_TEXT = ("a", "button", "tab", "option", "div")
# Where a field has its label: the attribute, and those that every field of the kind has.
_FIELDS = {
    "input": ("placeholder", {"type": "text"}),
    "password": ("placeholder", {"type": "password"}),
    "textarea": ("placeholder", {}),
    "date": ("aria-label", {"type": "date"}),
    "checkbox": ("aria-label", {"type": "checkbox"}),
    "radio": ("aria-label", {"type": "radio"}),
    "select": ("aria-label", {}),
}
_TAGS = {
    "tab": "a",
    "option": "div",
    "password": "input",
    "date": "input",
    "checkbox": "input",
    "radio": "input",
}
_ROLES = {"tab": {"role": "tab"}, "option": {"role": "option"}}
KINDS = (*_PLAIN, *_TEXT, *_FIELDS)


class _Part(BaseModel):
    """Part of a case file; a misspelled key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class WrittenElement(_Part):
    kind: str
    label: str
    value: str = ""
    checked: bool = False

    @model_validator(mode="before")
    @classmethod
    def _from_kind(cls, written: dict[str, Any]) -> dict[str, Any]:
        kind = next(kind for kind in KINDS if kind in written)
        rest = {name: value for name, value in written.items() if name != kind}
        return {"kind": kind, "label": written[kind], **rest}

    @property
    def indexed(self) -> bool:
        return self.kind not in _PLAIN

    @property
    def tag(self) -> str:
        return _TAGS.get(self.kind, self.kind)

    @property
    def text(self) -> str:
        return "" if self.kind in _FIELDS else self.label

    @property
    def attributes(self) -> dict[str, str]:
        label, attributes = _FIELDS.get(self.kind, ("", _ROLES.get(self.kind, {})))
        return (
            attributes
            | ({"checked": "true"} if self.checked else {})
            | ({"value": self.value} if self.value else {})
            | ({label: self.label} if label else {})
        )


class WrittenPage(_Part):
    url: str
    title: str
    pages_below: float = 0.0
    elements: tuple[WrittenElement, ...] = ()


class WrittenAction(_Part):
    name: str
    params: dict[str, Any]
    result: str = ""
    error: str = ""
    output: str = ""
    changed: bool = False

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, written: dict[str, Any]) -> dict[str, Any]:
        # The action's own name comes first, as in a reply.
        (name, params), *rest = written.items()
        return {"name": name, "params": params, **dict(rest)}


class WrittenStep(_Part):
    page: str
    memory: str
    goal: str
    actions: tuple[WrittenAction, ...] = ()
    reply: str = ""
    error: str = ""


class WrittenRun(_Part):
    outcome: Outcome = "done"
    detail: str = ""
    judge_text: str = ""
    steps: tuple[WrittenStep, ...]


class WrittenCase(_Part):
    """A case as its file has it."""

    name: str
    category: str
    why: str
    score: float | None = None
    divergence: tuple[int, int] | None = None
    activity: str
    website: str
    site: str
    task: str
    constraints: tuple[str, ...] = ()
    step_limit: int = 30
    pages: dict[str, WrittenPage]
    success: WrittenRun
    localization: WrittenRun


@dataclasses.dataclass(frozen=True)
class Case:
    """Two runs of one task and the failure mode that a person gives them.

    Attributes:
      category: one of the eleven failure modes.
      why: the reason for it, in a sentence.
      score, divergence: of the paper's contrasts, S_total and the 1-based steps (i*, j*).
    """

    name: str
    category: str
    success: Trajectory
    localization: Trajectory
    why: str
    score: float | None = None
    divergence: tuple[int, int] | None = None


@functools.cache
def load_cases(name: str) -> tuple[Case, ...]:
    """The cases of `tuned`, `held_out` or `paper`."""
    path = FOLDER / name
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path.with_suffix(".yaml")]
    return tuple(case for file in files for case in _read(file))


def _read(file: Path) -> Iterator[Case]:
    for item in yaml.load(file.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        case = WrittenCase.model_validate(item)
        runs = _trajectory(case, case.success, 2), _trajectory(case, case.localization, 1)
        yield Case(case.name, case.category, *runs, case.why, case.score, case.divergence)


def _trajectory(case: WrittenCase, run: WrittenRun, attempt: int) -> Trajectory:
    task = Task(
        task_id=f"labelled/{case.name}",
        website=case.website,
        objective=case.task,
        constraints=case.constraints,
        category=case.activity,
        site=case.site,
    )
    steps: list[Step] = []
    for number in range(1, len(run.steps) + 1):
        steps.append(_step(case, run, number, steps))
    last = [action for step in run.steps[-1:] if not step.error for action in step.actions]
    final = next((action.params for action in last if action.name == "done"), {})
    success = run is case.success
    return Trajectory(
        trajectory_id=f"{task.task_id}#teacher-{attempt}",
        task=task,
        actor="teacher",
        model="gemini-3-pro",
        attempt=attempt,
        steps=tuple(steps),
        outcome=run.outcome,
        detail=run.detail,
        declared_success=final.get("success"),
        final_text=final.get("text", ""),
        success=success,
        judge="outcome" if run.outcome == "done" else "",
        judge_text=run.judge_text,
    )


def _step(case: WrittenCase, run: WrittenRun, number: int, before: list[Step]) -> Step:
    step = run.steps[number - 1]
    page = case.pages[step.page]
    observation = _observation(page, case.pages[run.steps[number - 2].page] if before else None)
    image = ImagePart(sha256=observation.screenshot or "")
    # The recorded prompt: the request, what the run said so far, and the page.
    said = "".join(f"{was.response}\n" for was in before)
    state = "\n".join((case.task, *case.constraints, said, observation.page_text))
    return Step(
        number=number,
        observation=observation,
        messages=(Message(role="user", content=(TextPart(text=state), image)),),
        response=step.reply or _reply(step, before),
        results=tuple(
            ActionResult(
                action=action.name,
                text=action.error or action.result,
                error=bool(action.error),
                changed=action.changed,
                output=action.output,
            )
            for action in step.actions
            if not step.error
        ),
        error=step.error,
    )


def _reply(step: WrittenStep, before: list[Step]) -> str:
    failed = bool(before) and any(result.error for result in before[-1].results)
    body = {
        "evaluation_previous_goal": "Failure" if failed else "Success" if before else "Start",
        "memory": step.memory,
        "next_goal": step.goal,
        "action": [{action.name: action.params} for action in step.actions],
    }
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def _observation(page: WrittenPage, before: WrittenPage | None) -> Observation:
    """The page as the agent sees it; a star marks what the last step's page, `before`, did not have."""
    same_page = before if before is not None and before.url == page.url else page
    lines: list[str] = []
    plain: list[str] = [page.url]
    elements: list[Element] = []
    for item in page.elements:
        tag, attributes = item.tag, item.attributes
        if item.indexed:
            index = sum(element.index is not None for element in elements) + 1
            written = f"<{tag}{''.join(f' {key}={value}' for key, value in attributes.items())} />"
            lines.append(f"{'' if item in same_page.elements else '*'}[{index}]{written}")
            plain.append(written)
            elements.append(Element(index=index, tag=tag, text=item.text, attributes=attributes))
        if item.text:
            lines.append("\t" * item.indexed + item.text)
            plain.append(lines[-1])
            elements.append(Element(index=None, tag=tag, text=item.text))
    fingerprint = hashlib.sha256("\n".join(plain).encode()).hexdigest()
    return Observation(
        url=page.url,
        title=page.title,
        tabs=(Tab(tab_id="0001", url=page.url, title=page.title),),
        current_tab="0001",
        page_text="\n".join(lines),
        elements=tuple(elements),
        fingerprint=fingerprint[:32],
        screenshot=hashlib.sha256(f"png {fingerprint}".encode()).hexdigest(),
        pages_below=page.pages_below,
    )


def pair_of(case: Case) -> RunPair:
    return RunPair("primary", parse_run(case.success), parse_run(case.localization))
