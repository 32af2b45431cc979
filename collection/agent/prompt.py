"""Prompt construction: one system message and one user message per step.

History is text inside the user message, not a multi-turn chat, so that every step is an independent
training sample.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import re
from collections.abc import Sequence

import jinja2
from PIL import Image

from collection.agent.config import PromptConfig
from collection.browser.page import neutralize
from collection.llm.model import ImageSource
from rmsweb_jax.records.schema import ImagePart, Message, Observation, Tab, Task, TextPart

# Limits on text whose length a page, a file or a tool controls. Records keep the full text.
MAX_LINE_CHARS = 4_000
MAX_URL_CHARS = 2_000
MAX_TITLE_CHARS = 300
MAX_READ_CHARS = 60_000
MAX_FILE_STATE_CHARS = 5_000
GUIDANCE_TAG = "reflection_guidance"
# Placeholder of a secret. It has to survive neutralisation: the agent copies it into its actions.
_PLACEHOLDER = re.compile(r"(<secret>[^<>\s]+</secret>)")


def fenced_text(text: str, limit: int) -> str:
    """Truncates untrusted text and neutralises tags of the prompt in it; secret placeholders stay."""
    left = len(text) - limit
    kept = "".join(
        piece if number % 2 else neutralize(piece)
        for number, piece in enumerate(_PLACEHOLDER.split(text[:limit] if left > 0 else text))
    )
    return kept if left <= 0 else f"{kept} ... ({left} more characters)"


def fenced_line(text: str, limit: int = MAX_LINE_CHARS) -> str:
    """Does the same on one line, so that the text cannot imitate a line of the prompt."""
    return fenced_text(" ".join(text.splitlines()), limit)


@dataclasses.dataclass(frozen=True)
class PastStep:
    """A finished step as shown in `<agent_history>`: the reply without its thinking, and the results."""

    number: int
    evaluation_previous_goal: str = ""
    memory: str = ""
    next_goal: str = ""
    error: str = ""
    results: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class AgentState:
    """State of an episode that the state message shows in addition to the page."""

    task: Task
    history: Sequence[PastStep]
    step_number: int
    max_steps: int
    read_state: str = ""
    file_system: str = ""
    todo_contents: str = ""
    notice: str = ""


def build_messages(
    state: AgentState,
    observation: Observation,
    page_stats: str,
    config: PromptConfig,
    guidance: str = "",
    actions: Sequence[dict[str, str]] = (),
) -> tuple[Message, ...]:
    """Builds the chat for one step.

    Untrusted text is neutralised so that it cannot imitate the prompt's tags: page text when it is
    rendered (`collection.browser.page`), all other text here.

    Args:
      page_stats: counts shown in `<page_stats>`; in the style `screenshot`, which shows neither them nor the
        page's lines, `screenshot_size`.
      guidance: reflection guidance of the previous round. Only the live message contains it; the recorded
        message is built without it.
      actions: `name`, `parameters` and `summary` of each action, for the full system prompt.

    Returns:
      The system message and the user message; the screenshot, if it is shown, is the last part of the latter.
    """
    text = (
        _environment()
        .get_template("state_screenshot.j2" if config.style == "screenshot" else "state.j2")
        .render(
            history=[_shown_step(step) for step in state.history],
            objective=state.task.objective,
            constraints=state.task.constraints,
            step_number=state.step_number,
            max_steps=state.max_steps,
            date=config.date,
            notice=fenced_line(state.notice),
            file_system=fenced_text(state.file_system, MAX_FILE_STATE_CHARS),
            todo_contents=fenced_text(state.todo_contents, MAX_FILE_STATE_CHARS),
            read_state=fenced_text(state.read_state, MAX_READ_CHARS),
            page_stats=page_stats,
            url=fenced_line(observation.url, MAX_URL_CHARS),
            title=fenced_line(observation.title, MAX_TITLE_CHARS),
            current_tab=observation.current_tab,
            tabs=[_shown_tab(tab) for tab in observation.tabs],
            pages_above=observation.pages_above,
            pages_below=observation.pages_below,
            page_text=observation.page_text,
            guidance=guidance,
            fenced=config.style == "full",
        )
    )
    shot = observation.screenshot if config.screenshot else None
    image = (ImagePart(sha256=shot),) if shot else ()
    return (
        Message(role="system", content=(TextPart(text=system_text(config, actions)),)),
        Message(role="user", content=(TextPart(text=text), *image)),
    )


def screenshot_size(observation: Observation, images: ImageSource) -> str:
    """Says how large a screenshot is; empty if there is none."""
    if observation.screenshot is None:
        return ""
    with Image.open(io.BytesIO(images.get(observation.screenshot))) as image:
        return f"{image.width} by {image.height} pixels"


def system_text(config: PromptConfig, actions: Sequence[dict[str, str]] = ()) -> str:
    """Returns the text of the system message, which is the same at every step; `actions` as above."""
    system = _environment().get_template(f"system_{config.style}.j2")
    text = system.render(max_actions=config.max_actions, actions=actions, screenshot=config.screenshot)
    return text.strip()


def _shown_step(step: PastStep) -> PastStep:
    """Neutralises the text of a past step, each field on its own line."""
    return dataclasses.replace(
        step,
        # The agent's own text is not truncated, but a page may have influenced it.
        evaluation_previous_goal=_neutralized(step.evaluation_previous_goal),
        memory=_neutralized(step.memory),
        next_goal=_neutralized(step.next_goal),
        error=fenced_line(step.error),
        results=tuple(map(fenced_line, step.results)),
    )


def _neutralized(text: str) -> str:
    return fenced_text(text, len(text))


def _shown_tab(tab: Tab) -> Tab:
    url, title = fenced_line(tab.url, MAX_URL_CHARS), fenced_line(tab.title, MAX_TITLE_CHARS)
    return tab.model_copy(update={"url": url, "title": title})


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("collection.agent", "prompts"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # The output is chat text, not HTML: escaping would change the page's text.
    )
