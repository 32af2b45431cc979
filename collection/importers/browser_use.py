"""Imports histories of browser-use (`agent.save_history`, `AgentHistoryList.save_to_file`).

Supports versions 0.1 (`model_output.current_state`), 0.6-0.7.10 (the family whose actions ours follow) and
0.9 (`state_message`, `judgement`); upstream code: `browser_use/agent/views.py`, `AgentHistory`.
A history does not contain the model input. Version 0.9 stores the text of each state, from which we rebuild
the messages that our agent would have sent. Steps without it have no messages and cannot be trained on.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from collection.agent.config import PromptConfig
from collection.agent.prompt import AgentState, PastStep, build_messages
from collection.importers.browser_use_actions import map_action
from collection.importers.browser_use_format import History, Item, Result, State, brain_of, tab_of
from collection.importers.common import (
    UNKNOWN_MODEL,
    BrokenRunError,
    RunContext,
    UnmappedError,
    fingerprint,
    read_json,
    store_file,
    store_screenshot,
    validated,
)
from collection.importers.state_message import StateMessage, page_elements, parse_state_message
from collection.tasks.websites import site_of
from rmsweb_jax.actions import Action, action_catalogue
from rmsweb_jax.records.schema import (
    ActionResult,
    CallUsage,
    Message,
    Observation,
    Outcome,
    Step,
    Task,
    Trajectory,
)

SOURCE = "browser-use"
_TEXTS = ("evaluation_previous_goal", "memory", "next_goal")
_READS = ("extract_structured_data",)


def find_runs(folder: Path) -> Iterator[tuple[str, Path]]:
    """Finds histories: every JSON file counts as one, and its path is its name."""
    for path in sorted(folder.rglob("*.json")):
        yield path.relative_to(folder).with_suffix("").as_posix(), path


def read_run(name: str, path: Path, attempt: int, context: RunContext) -> Trajectory:
    """Reads one history.

    Raises:
      BrokenRunError: the file is not a history, or has no step.
    """
    raw = read_json(path)
    if not isinstance(raw, dict) or "history" not in raw:
        raise BrokenRunError(f"{path.name} is not a browser-use history (no key 'history')")
    items = validated(History, raw, path.name).history
    # Step 0 holds the actions that the user configured to run first; the model did not choose them.
    played = [item for item in items if item.metadata is None or item.metadata.step_number != 0]
    if len(played) < len(items):
        context.notes.left_out["initial_actions"] += len(items) - len(played)
    if not played:
        raise BrokenRunError(f"{path.name} has no step")
    return _Reader(name, path, played, context).trajectory(attempt)


class _Reader:
    """Converts one history to a trajectory."""

    def __init__(self, name: str, path: Path, items: Sequence[Item], context: RunContext):
        self._folder, self._items = path.parent, items
        self._context, self._notes = context, context.notes
        self._states = [parse_state_message(item.state_message or "") for item in items]
        self._observations = [self._observe(number) for number in range(len(items))]
        self._task = self._describe(name, path)
        self._history: list[PastStep] = []
        self._read_state = ""

    def trajectory(self, attempt: int) -> Trajectory:
        steps = tuple(self._step(position) for position in range(len(self._items)))
        last = self._items[-1].result[-1] if self._items[-1].result else Result()
        given = self._context.info(*self._names).success
        verdict = last.judgement.verdict if last.judgement else given
        judge = "" if verdict is None else f"{SOURCE} judge" if last.judgement else "given"
        outcome: Outcome = "done" if last.is_done else "failures" if last.error else "max_steps"
        self._notes.lacks("model", *([] if last.is_done else ["outcome"]), *([] if judge else ["success"]))
        return Trajectory(
            trajectory_id=f"{self._task.task_id}#{self._context.actor}-{attempt}",
            task=self._task,
            actor=self._context.actor,
            model=UNKNOWN_MODEL,
            attempt=attempt,
            steps=steps,
            outcome=outcome,
            detail=f"messages rebuilt for {self._notes.rebuilt} of {len(steps)} steps",
            declared_success=last.success if last.is_done else None,
            final_text=(last.extracted_content or "") if last.is_done else "",
            # As for our own runs: declared by the agent and passed by a judge.
            success=bool(last.is_done and last.success and verdict),
            judge=judge,
            seconds=self._seconds(),
            source=SOURCE,
            missing=tuple(sorted(self._notes.missing)),
        )

    def _describe(self, name: str, path: Path) -> Task:
        # A tasks file may name a run by its path, its folder or its file.
        self._names = (name, path.parent.name, path.stem)
        info = self._context.info(*self._names)
        stated = next((state.objective for state in self._states if state and state.objective), "")
        visited = (item.state.url or "" for item in self._items)
        website = info.website or next((url for url in visited if url.startswith("http")), "")
        objective = info.objective or stated
        self._notes.lacks(*([] if objective else ["task.objective"]), *([] if website else ["task.website"]))
        return Task(task_id=f"{SOURCE}/{name}", website=website, objective=objective, site=site_of(website))

    def _observe(self, position: int) -> Observation:
        item, state = self._items[position], self._states[position]
        screenshot = self._screenshot(item.state)
        tabs = tuple(tab_of(tab) for tab in item.state.tabs)
        url, title = item.state.url or "", item.state.title or ""
        same = [tab.tab_id for tab in tabs if (tab.url, tab.title) == (url, title)]
        current = (state.current_tab if state else "") or (same[0] if len(same) == 1 else "")
        text = state.page_text if state else ""
        found = {"url": url, "current_tab": current, "screenshot": screenshot}
        self._notes.lacks(*[f"steps.observation.{key}" for key, value in found.items() if not value])
        if state is None:
            unknown = ("page_text", "elements", "pages_above", "pages_below")
            self._notes.lacks(*[f"steps.observation.{key}" for key in unknown])
        return Observation(
            url=url,
            title=title,
            tabs=tabs,
            current_tab=current,
            page_text=text,
            elements=page_elements(text),
            fingerprint=fingerprint(url, text, screenshot, position + 1),
            screenshot=screenshot,
            pages_above=state.pages_above if state else 0.0,
            pages_below=state.pages_below if state else 0.0,
        )

    def _screenshot(self, state: State) -> str | None:
        images = self._context.images
        if state.screenshot:
            try:
                # A data URL, or bare base64.
                data = base64.b64decode(state.screenshot.rpartition("base64,")[2], validate=True)
            except (binascii.Error, ValueError):
                return None
            return store_screenshot(images, data)
        if not state.screenshot_path:
            return None
        # The recorded path is from the machine that ran the agent; the file may have moved with its history.
        name = PurePosixPath(state.screenshot_path.replace("\\", "/")).name
        near = (self._folder / "screenshots" / name, self._folder / name)
        return store_file(images, (*near, self._folder / state.screenshot_path))

    def _step(self, position: int) -> Step:
        item = self._items[position]
        observation = self._observations[position]
        response, actions, error = self._reply(item)
        results = self._results(position, actions) if not error else ()
        step = Step(
            number=position + 1,
            observation=observation,
            messages=self._messages(position),
            response=response,
            results=results,
            error=error,
            usage=self._usage(item),
        )
        output = item.model_output or {}
        texts = {key: str(brain_of(output).get(key) or "") for key in _TEXTS}
        lines = tuple(f"Error: {result.text}" if result.error else result.text for result in results)
        self._history.append(PastStep(position + 1, **texts, error=error, results=lines))
        self._read_state = "\n".join(result.output for result in results if result.output)
        return step

    def _reply(self, item: Item) -> tuple[str, list[Action], str]:
        """Returns the response, its actions, and the reason if it has none."""
        if item.model_output is None:
            error = next((result.error for result in item.result if result.error), "")
            self._notes.lacks("steps.response")
            return "", [], f"No model output was recorded. {error}".strip()
        raw = json.dumps(item.model_output, ensure_ascii=False)
        listed = item.model_output.get("action")
        if not isinstance(listed, list) or not listed:
            return raw, [], "Unusable reply: no action"
        try:
            actions = [map_action(action) for action in listed]
        except UnmappedError as error:
            self._notes.not_mapped[error.name] += 1
            return raw, [], f"No counterpart for action {error.name!r}: {error.reason}"
        brain = brain_of(item.model_output)
        texts = [brain.get(key) for key in _TEXTS]
        self._notes.lacks(
            *[
                f"steps.response.{key}"
                for key, text in zip(_TEXTS, texts, strict=True)
                if not isinstance(text, str)
            ]
        )
        thinking = brain.get("thinking")
        reply = self._notes.reply(
            *[text if isinstance(text, str) else "" for text in texts],
            actions=actions,
            thinking=thinking if isinstance(thinking, str) else None,
        )
        return reply, actions, ""

    def _results(self, position: int, actions: Sequence[Action]) -> tuple[ActionResult, ...]:
        changed = self._changed(position)
        found = self._items[position].result[: len(actions)]
        if not found:
            self._notes.lacks("steps.results")
        if any(action.name in _READS for action in actions[: len(found)]):
            self._notes.lacks("steps.extractions")
        results = []
        for action, result in zip(actions, found, strict=False):
            content = result.extracted_content or ""
            once = result.include_extracted_content_only_once
            # Content with `once` is shown in the next step only (`read_state`), so it is output, not history.
            text = result.error or result.long_term_memory or ("" if once else content)
            results.append(
                ActionResult(
                    action=action.name,
                    text=text,
                    error=bool(result.error),
                    changed=changed and not result.error and not action.params.passive,
                    output=content if once else "",
                )
            )
        return tuple(results)

    def _changed(self, position: int) -> bool:
        """Returns True if the page differs at the next step; histories do not record this per action."""
        if position + 1 == len(self._items):
            return False
        if self._states[position] is None or self._states[position + 1] is None:
            self._notes.lacks("steps.results.changed")
            return False
        now, then = self._observations[position], self._observations[position + 1]
        return now.fingerprint != then.fingerprint or len(now.tabs) != len(then.tabs)

    def _messages(self, position: int) -> tuple[Message, ...]:
        """Rebuilds our messages for this state; returns none if the history does not contain enough of it."""
        state = self._states[position]
        if state is None or not state.faithful or not self._task.objective:
            self._notes.lacks("steps.messages")
            return ()
        self._notes.rebuilt += 1
        return build_messages(
            self._agent_state(position, state),
            self._observations[position],
            state.page_stats,
            PromptConfig(style="full", date=state.date),
            actions=action_catalogue(),
        )

    def _agent_state(self, position: int, state: StateMessage) -> AgentState:
        return AgentState(
            task=self._task,
            history=tuple(self._history),
            step_number=position + 1,
            max_steps=state.max_steps or len(self._items),
            read_state=state.read_state or self._read_state,
            file_system=state.file_system,
            todo_contents=state.todo_contents,
        )

    def _usage(self, item: Item) -> CallUsage:
        tokens = item.metadata.input_tokens if item.metadata else None
        self._notes.lacks(*(["steps.usage"] if tokens is None else []))
        return CallUsage(prompt_tokens=tokens or 0)

    def _seconds(self) -> float:
        known = [item.metadata for item in self._items if item.metadata]
        spans = [(data.step_end_time or 0.0) - (data.step_start_time or 0.0) for data in known]
        self._notes.lacks(*([] if known else ["seconds"]))
        return max(0.0, sum(spans))
