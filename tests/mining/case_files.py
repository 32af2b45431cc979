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
    CallUsage,
    Element,
    ExtractionCall,
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
DATE = "2026-11-16"
UNUSABLE = "Unusable reply: "
_SYSTEM = "You operate a web browser to carry out a user's request. Answer with one JSON object."
_VERDICTS = {
    True: "Answer and last pages fulfil the task. SUCCESS",
    False: "The task is not fulfilled. NOT SUCCESS",
}
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
        kinds = [kind for kind in KINDS if kind in written]
        if len(kinds) != 1:
            raise ValueError(f"{written}: an element is one of {', '.join(KINDS)}")
        rest = {name: value for name, value in written.items() if name != kinds[0]}
        return {"kind": kinds[0], "label": written[kinds[0]], **rest}

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

    @model_validator(mode="after")
    def _pages_are_used(self) -> WrittenCase:
        used = {step.page for run in (self.success, self.localization) for step in run.steps}
        if used != self.pages.keys():
            raise ValueError(f"{self.name}: these pages are unknown or unused: {used ^ self.pages.keys()}")
        return self


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
    return tuple(case for file in files for case in read_cases(file.read_text()))


def read_cases(text: str) -> Iterator[Case]:
    """The cases of a file.

    Raises:
      ValidationError: a case with an unknown key, element or page.
    """
    for item in yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
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
        judge="outcome" if run.outcome == "done" and not run.judge_text.endswith("UNKNOWN") else "",
        judge_text=(run.judge_text or _VERDICTS[success]) if run.outcome == "done" else "",
        seconds=1800.0 if run.outcome == "timeout" else 14.0 * len(steps) + 6.0,
    )


def _step(case: WrittenCase, run: WrittenRun, number: int, before: list[Step]) -> Step:
    step = run.steps[number - 1]
    page = case.pages[step.page]
    observation = _observation(page, case.pages[run.steps[number - 2].page] if before else None)
    state = _state_message(case, run, page, observation, before)
    image = (ImagePart(sha256=observation.screenshot),) if observation.screenshot else ()
    return Step(
        number=number,
        observation=observation,
        messages=(
            Message(role="system", content=(TextPart(text=_SYSTEM),)),
            Message(role="user", content=(TextPart(text=state), *image)),
        ),
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
        extractions=tuple(
            _extraction(action.params["query"], action.output, page)
            for action in step.actions
            if action.name == "extract_structured_data" and not action.error
        ),
        usage=CallUsage(prompt_tokens=len(state) // 4, response_tokens=90, seconds=4.0, cost=0.002),
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


def _extraction(query: str, answer: str, page: WrittenPage) -> ExtractionCall:
    markdown = "\n".join(element.label for element in page.elements)
    prompt = f"<query>\n{query}\n</query>\n<page>\n{markdown}\n</page>"
    return ExtractionCall(messages=(Message(role="user", content=(TextPart(text=prompt),)),), response=answer)


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
    # One page in 256 has no screenshot.
    shot = None if fingerprint.startswith("00") else hashlib.sha256(f"png {fingerprint}".encode()).hexdigest()
    return Observation(
        url=page.url,
        title=page.title,
        tabs=(Tab(tab_id="0001", url=page.url, title=page.title),),
        current_tab="0001",
        page_text="\n".join(lines),
        elements=tuple(elements),
        fingerprint=fingerprint[:32],
        screenshot=shot,
        pages_below=page.pages_below,
    )


def _state_message(
    case: WrittenCase, run: WrittenRun, page: WrittenPage, seen: Observation, before: list[Step]
) -> str:
    constraints = "".join(f"- {constraint}\n" for constraint in case.constraints)
    history = "".join(_past(step, was) for step, was in zip(run.steps, before, strict=False))
    past = f"<agent_history>\n{history}</agent_history>\n" if history else ""
    outputs = [result.output for result in before[-1].results if result.output] if before else []
    read = "<read_state>\n" + "\n".join(outputs) + "\n</read_state>\n" if outputs else ""
    count = sum(element.indexed for element in page.elements)
    links = sum(element.kind == "a" for element in page.elements)
    below = seen.pages_below
    end = f"... {below:.1f} pages below ..." if below >= 0.05 else "[End of page]"
    return (
        f"{past}<agent_state>\n<user_request>\n{case.task}\n{constraints}</user_request>\n"
        f"<step_info>Step {len(before) + 1} of {case.step_limit}. Date: {DATE}</step_info>\n</agent_state>\n"
        f"<browser_state>\n<page_stats>{links} links, {count} interactive, {len(page.elements)} elements"
        f"</page_stats>\nCurrent tab: 0001\n<untrusted_content>\nTab 0001: {seen.url} - {seen.title}\n"
        f"<page_info>0.0 pages above, {below:.1f} pages below, {below + 1:.1f} total</page_info>\n"
        f"[Start of page]\n{seen.page_text}\n{end}\n</untrusted_content>\n</browser_state>\n{read}"
    )


def _past(step: WrittenStep, was: Step) -> str:
    results = "".join(f"Result: {'Error: ' if result.error else ''}{result.text}\n" for result in was.results)
    if was.error:
        return f"<step_{was.number}>\n{was.error}\n{results}</step_{was.number}>\n"
    evaluation = json.loads(was.response)["evaluation_previous_goal"]
    decided = f"Evaluation: {evaluation}\nMemory: {step.memory}\nNext goal: {step.goal}\n"
    return f"<step_{was.number}>\n{decided}{results}</step_{was.number}>\n"


def pair_of(case: Case) -> RunPair:
    return RunPair("primary", parse_run(case.success), parse_run(case.localization))
