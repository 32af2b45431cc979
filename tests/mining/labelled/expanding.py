"""Written cases as the records the collector would have made of them."""

from __future__ import annotations

import dataclasses
import json
from urllib.parse import urlsplit

from rmsweb_jax.records.schema import (
    ActionResult,
    CallUsage,
    ExtractionCall,
    ImagePart,
    Message,
    Observation,
    Outcome,
    Step,
    Task,
    TextPart,
    Trajectory,
)
from tests.mining.labelled.observing import observe
from tests.mining.labelled.writing import Draft, Move, NotationError, Page, Run, read_drafts
from tests.mining.labelled.written_actions import read_actions

STEP_LIMIT = 30
DATE = "2026-11-16"
UNUSABLE = "Unusable reply: "
_SYSTEM = "You operate a web browser to carry out a user's request. Answer with one JSON object."
_LATE = "The time limit was reached before the actions were carried out."
_LAST = {"max_steps": "Only done was allowed.", "failures": "Only done was allowed.", "timeout": _LATE}
_VERDICTS = {
    True: "Answer and last pages fulfil the task. SUCCESS",
    False: "The task is not fulfilled. NOT SUCCESS",
}


@dataclasses.dataclass(frozen=True)
class Case:
    """Two runs of one task and the failure mode a person gives them.

    Attributes:
      category: one of the eleven failure modes.
      why: the reason for it, in a sentence.
      score, divergence: for cases told elsewhere, their S_total and 1-based steps (i*, j*).
    """

    name: str
    category: str
    success: Trajectory
    localization: Trajectory
    why: str
    score: float | None = None
    divergence: tuple[int, int] | None = None


def read_cases(category: str, text: str) -> tuple[Case, ...]:
    """The cases of a text in the notation of `tests.mining.labelled.writing`, as records.

    Raises:
      NotationError: a text that is no case.
    """
    return tuple(_case(category, draft) for draft in read_drafts(text))


def _case(category: str, draft: Draft) -> Case:
    if draft.success is None or draft.localization is None or not draft.task or not draft.why:
        raise NotationError(f"{draft.name}: a case needs a task, a reason and two runs")
    runs = (draft.success, draft.localization)
    shown = {move.page for run in runs for move in run.moves} | {page.base for page in draft.pages.values()}
    if idle := draft.pages.keys() - shown:
        raise NotationError(f"{draft.name}: pages that nobody sees: {', '.join(sorted(idle))}")
    limits = [len(run.moves) for run in runs if run.outcome == "max_steps"]
    limit = max(limits, default=STEP_LIMIT)
    return Case(
        name=draft.name,
        category=category,
        success=_trajectory(draft, draft.success, 2, limit),
        localization=_trajectory(draft, draft.localization, 1, limit),
        why=draft.why,
        score=draft.score,
        divergence=draft.divergence,
    )


def _trajectory(draft: Draft, run: Run, attempt: int, limit: int) -> Trajectory:
    host = urlsplit(draft.website).netloc
    task = Task(
        task_id=f"labelled/{draft.name}",
        website=draft.website,
        objective=draft.task,
        constraints=tuple(draft.constraints),
        category=draft.activity,
        site=_site(host),
    )
    steps: list[Step] = []
    history: list[str] = []
    read_state = ""
    for number, move in enumerate(run.moves, start=1):
        shown = _Shown(draft, run, number, limit, history, read_state)
        step = _step(shown, move)
        steps.append(step)
        history.append(_past(step, move))
        read_state = "\n".join(result.output for result in step.results if result.output)
    params = _final(steps)
    success = run is draft.success
    outcome: Outcome = run.outcome  # pyright: ignore[reportAssignmentType] - the record checks it
    judged = outcome == "done" and not run.judged.endswith("UNKNOWN")
    return Trajectory(
        trajectory_id=f"{task.task_id}#teacher-{attempt}",
        task=task,
        actor="teacher",
        model="gemini-3-pro",
        attempt=attempt,
        steps=tuple(steps),
        outcome=outcome,
        detail=run.detail or _detail(draft, run),
        declared_success=params.get("success"),
        final_text=params.get("text", ""),
        success=success,
        judge="outcome" if judged else "",
        judge_text=(run.judged or _VERDICTS[success]) if outcome == "done" else "",
        seconds=1800.0 if outcome == "timeout" else 14.0 * len(steps) + 6.0,
    )


def _site(host: str) -> str:
    """The registrable domain, for the hosts written here."""
    parts = host.split(".")
    return ".".join(parts[-3:] if parts[-2] in ("co", "com", "gov", "org", "ac", "lg") else parts[-2:])


def _detail(draft: Draft, run: Run) -> str:
    if run.outcome not in ("blocked", "captcha") or not run.moves:
        return ""
    return f"the last page: its title says {draft.pages[run.moves[-1].page].title!r}"


def _final(steps: list[Step]) -> dict:
    if not steps or steps[-1].error:
        return {}
    return json.loads(steps[-1].response)["action"][0].get("done", {})


@dataclasses.dataclass(frozen=True)
class _Shown:
    """What a step is shown beside its page."""

    draft: Draft
    run: Run
    number: int
    limit: int
    history: list[str]
    read_state: str

    @property
    def is_last(self) -> bool:
        return self.number == len(self.run.moves)


def _step(shown: _Shown, move: Move) -> Step:
    moves, pages = shown.run.moves, shown.draft.pages
    following = pages[moves[shown.number].page] if not shown.is_last else None
    page = pages[move.page]
    before = pages[moves[shown.number - 2].page] if shown.number > 1 else None
    moved_on = None if following is None else following is not page
    try:
        acts = read_actions(move.actions, page, moved_on)
    except NotationError as problem:
        raise NotationError(f"{shown.draft.name}: {problem}") from problem
    observation = observe(page, before)
    messages = _messages(shown, observation, page)
    failed = shown.number > 1 and "Result: Error" in shown.history[-1]
    body = {
        "evaluation_previous_goal": "Start" if shown.number == 1 else "Failure" if failed else "Success",
        "memory": move.memory,
        "next_goal": move.goal,
        "action": list(acts.actions),
    }
    error = _LAST.get(shown.run.outcome, "") if shown.is_last else ""
    if acts.raw:
        error = f"{UNUSABLE}{_fault(acts.raw)}"
    usage = CallUsage(prompt_tokens=len(messages[-1].text) // 4, response_tokens=90, seconds=4.0, cost=0.002)
    return Step(
        number=shown.number,
        observation=observation,
        messages=messages,
        response=acts.raw or json.dumps(body, ensure_ascii=False, separators=(",", ":")),
        results=() if error else acts.results,
        error=error,
        extractions=tuple(_extraction(query, answer, page) for query, answer in acts.looked_for),
        usage=usage,
    )


def _fault(raw: str) -> str:
    try:
        reply = json.loads(raw)
    except ValueError:
        return "the reply is not valid JSON"
    if not isinstance(reply, dict):
        return "the reply is not a JSON object"
    return f"unknown action {next(iter(reply['action'][0]))!r}"


def _extraction(query: str, answer: str, page: Page) -> ExtractionCall:
    markdown = "\n".join(line.label for line in page.lines)
    prompt = f"<query>\n{query}\n</query>\n<page>\n{markdown}\n</page>"
    return ExtractionCall(messages=(Message(role="user", content=(TextPart(text=prompt),)),), response=answer)


def _messages(shown: _Shown, seen: Observation, page: Page) -> tuple[Message, ...]:
    limits = "".join(f"- {constraint}\n" for constraint in shown.draft.constraints)
    past = f"<agent_history>\n{''.join(shown.history)}</agent_history>\n" if shown.history else ""
    read = f"<read_state>\n{shown.read_state}\n</read_state>\n" if shown.read_state else ""
    count = sum(line.acted_on for line in page.lines)
    links = sum(line.kind == "a" for line in page.lines)
    below = seen.pages_below
    end = f"... {below:.1f} pages below ..." if below >= 0.05 else "[End of page]"
    text = (
        f"{past}<agent_state>\n<user_request>\n{shown.draft.task}\n{limits}</user_request>\n"
        f"<step_info>Step {shown.number} of {shown.limit}. Date: {DATE}</step_info>\n</agent_state>\n"
        f"<browser_state>\n<page_stats>{links} links, {count} interactive, {len(page.lines)} elements"
        f"</page_stats>\nCurrent tab: 0001\n<untrusted_content>\nTab 0001: {seen.url} - {seen.title}\n"
        f"<page_info>0.0 pages above, {below:.1f} pages below, {below + 1:.1f} total</page_info>\n"
        f"[Start of page]\n{seen.page_text}\n{end}\n</untrusted_content>\n</browser_state>\n{read}"
    )
    image = (ImagePart(sha256=seen.screenshot),) if seen.screenshot else ()
    return (
        Message(role="system", content=(TextPart(text=_SYSTEM),)),
        Message(role="user", content=(TextPart(text=text), *image)),
    )


def _past(step: Step, move: Move) -> str:
    told = (
        f"{step.error}\n"
        if step.error
        else f"Evaluation: {_evaluation(step)}\nMemory: {move.memory}\nNext goal: {move.goal}\n"
    )
    results = "".join(_result(result) for result in step.results)
    return f"<step_{step.number}>\n{told}{results}</step_{step.number}>\n"


def _evaluation(step: Step) -> str:
    return json.loads(step.response)["evaluation_previous_goal"]


def _result(result: ActionResult) -> str:
    return f"Result: {'Error: ' if result.error else ''}{result.text}\n"
