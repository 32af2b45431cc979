"""What the model is sent: one system message and one user message a step.

History is text inside the user message, never a multi-turn chat, so that every step is a training
sample of its own.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import jinja2

from collection.agent.fence import fenced_line, fenced_text
from rmsweb_jax.records.schema import ImagePart, Message, Observation, Tab, Task, TextPart

GUIDANCE_TAG = "reflection_guidance"
# Records keep the whole address and title in the observation's tabs.
MAX_URL_CHARS = 2_000
MAX_TITLE_CHARS = 300
MAX_READ_CHARS = 60_000
MAX_FILE_STATE_CHARS = 5_000


@dataclasses.dataclass(frozen=True)
class PastStep:
    """What of a finished step stays in `<agent_history>`: the reply without its thinking, and results."""

    number: int
    evaluation_previous_goal: str = ""
    memory: str = ""
    next_goal: str = ""
    error: str = ""
    results: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class PromptConfig:
    """How prompts are written.

    Attributes:
      style: `full` for large models; `compact` for the demo's model, whose context is a few hundred tokens.
      date: shown to the agent; empty is the day of the episode in `full` style and none in `compact`.
    """

    style: str = "full"
    date: str = ""
    max_actions: int = 10


@dataclasses.dataclass(frozen=True)
class AgentState:
    """Everything about an episode that the state message shows beside the page."""

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
    """The chat for one step.

    What comes from outside cannot pass for tags of ours: the page's text where it is written
    (`collection.browser.page_text`), everything else here.

    Args:
      page_stats: counts shown in `<page_stats>`.
      guidance: reflection guidance of the previous round. Only the live message carries it: what is
        recorded is built again without it.
      actions: `name`, `parameters` and `summary` of each action, for the full system prompt.

    Returns:
      The system message and the user message; the screenshot is the last part of the latter.
    """
    text = (
        _environment()
        .get_template("state.j2")
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
            current_tab=observation.current_tab,
            tabs=[_shown_tab(tab) for tab in observation.tabs],
            pages_above=observation.pages_above,
            pages_below=observation.pages_below,
            page_text=observation.page_text,
            guidance=guidance,
            fenced=config.style == "full",
        )
    )
    image = (ImagePart(sha256=observation.screenshot),) if observation.screenshot else ()
    system = _environment().get_template(f"system_{config.style}.j2")
    system_text = system.render(max_actions=config.max_actions, actions=actions)
    return (
        Message(role="system", content=(TextPart(text=system_text.strip()),)),
        Message(role="user", content=(TextPart(text=text), *image)),
    )


def _shown_step(step: PastStep) -> PastStep:
    """A past step that can be told line by line, whatever pages and replies have put into it."""
    return dataclasses.replace(
        step,
        evaluation_previous_goal=_own_words(step.evaluation_previous_goal),
        memory=_own_words(step.memory),
        next_goal=_own_words(step.next_goal),
        error=fenced_line(step.error),
        results=tuple(map(fenced_line, step.results)),
    )


def _own_words(text: str) -> str:
    """What the agent wrote, as long as it is: a page may have told it what to write."""
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
        autoescape=False,  # Chat text, not HTML: escaping would change what the page says.
    )
