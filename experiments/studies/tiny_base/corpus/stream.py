"""An endless, seeded stream of prompts with questions, for training and scoring the base."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Sequence

from collection.agent.config import PromptConfig
from collection.agent.prompt import AgentState, PastStep, build_messages
from collection.browser.page import PageNode, render_page
from experiments.studies.tiny_base.corpus.pages import generate_page, plain_page
from experiments.studies.tiny_base.corpus.questions import (
    Goal,
    GroundingQuestion,
    NamedElement,
    ask,
    find_targets,
    finish_goal,
    goal_for,
    random_text,
    recall,
    scroll_goal,
)
from experiments.studies.tiny_base.corpus.words import load_words, random_word
from rmsweb_jax.records.schema import Message, Observation, Tab, Task

_DICTATED_SHARE = 0.25
_FREE_SHARE = 0.06
_GOAL_MARK = '","next_goal":"'


@dataclasses.dataclass(frozen=True)
class PromptPage:
    """The page of a prompt: generated, or recorded in the browser.

    Attributes:
      screenshot: SHA-256 of the picture, empty without one.
    """

    nodes: tuple[PageNode, ...]
    text: str
    url: str = ""
    title: str = ""
    tab_id: str = ""
    stats: str = ""
    objective: str = ""
    screenshot: str = ""
    pages_above: float = 0.0
    pages_below: float = 0.0


@dataclasses.dataclass(frozen=True)
class GroundingPrompt:
    """A page in a prompt, and the elements that can be asked about.

    Attributes:
      messages: the chat; None for a bare page, whose `text` alone is the prompt.
      dictated: the goal that the request spells out; None when the request has nothing to do with the page.
    """

    text: str
    messages: tuple[Message, ...] | None
    targets: tuple[NamedElement, ...]
    dictated: Goal | None
    first_step: bool


def generated(rng: random.Random, low: int, high: int) -> PromptPage:
    """A generated page with `low` to `high` elements."""
    nodes = tuple(generate_page(rng, rng.randint(low, high)))
    words = load_words()
    name = rng.choice(words.page).lower()
    title = " ".join(rng.choice(words.page) for _ in range(rng.randint(1, 3)))
    return PromptPage(
        nodes=nodes,
        text=render_page(nodes),
        url=f"http://miniwob.test/{name}-{rng.choice(words.page).lower()}.html",
        title=title,
        tab_id=f"{rng.choices((1, rng.randint(2, 20)), (3, 1))[0]:04d}",
        stats=_page_stats(rng, nodes),
    )


def plain(rng: random.Random, low: int, high: int) -> PromptPage:
    """A page of plain one-word elements."""
    nodes = tuple(plain_page(rng, rng.randint(low, high)))
    return PromptPage(nodes, render_page(nodes))


def bare_prompt(page: PromptPage) -> GroundingPrompt | None:
    """The element lines alone, for the start of the curriculum; None with fewer than two elements."""
    targets = tuple(find_targets(page.nodes))
    return (
        GroundingPrompt(page.text + "\n", None, targets, None, first_step=True) if len(targets) > 1 else None
    )


def state_prompt(rng: random.Random, page: PromptPage, fewest: int = 2) -> GroundingPrompt | None:
    """The page as the agent sees it, with a request and perhaps a history.

    Returns:
      None when fewer than `fewest` elements can be asked about.
    """
    targets = tuple(find_targets(page.nodes))
    if len(targets) < fewest:
        return None
    dictated = None
    objective = page.objective or _idle_request(rng)
    if rng.random() < 0.75:
        dictated = _free_goal(rng) if rng.random() < 0.1 else goal_for(rng, rng.choice(targets), targets)
        objective = dictated.request
    history = _history(rng) if rng.random() < 0.5 else ()
    limit = rng.choice((5, 8, 10, 12, 15, 20))
    tab = Tab(tab_id=page.tab_id, url=page.url, title=page.title)
    observation = Observation(
        url=page.url,
        title=page.title,
        tabs=(tab,),
        current_tab=page.tab_id,
        page_text=page.text,
        elements=(),
        fingerprint="",
        screenshot=page.screenshot or None,
        pages_above=page.pages_above,
        pages_below=page.pages_below,
    )
    task = Task(task_id="base", website=page.url, objective=objective)
    state = AgentState(task, history, len(history) + 1, max(limit, len(history) + 1))
    messages = build_messages(state, observation, page.stats, PromptConfig(style="compact"))
    return GroundingPrompt("", messages, targets, dictated, first_step=not history)


def questions(rng: random.Random, prompt: GroundingPrompt) -> Iterator[tuple[GroundingQuestion, int]]:
    """Yields questions about a page without end, each element once before any again.

    Yields:
      A question and the first character of its reply to keep: a bare page's replies begin with the goal.
    """
    order: list[NamedElement] = []
    bare = prompt.messages is None
    while True:
        dictated = prompt.dictated is not None and rng.random() < _DICTATED_SHARE
        if dictated and prompt.dictated is not None:
            goal = prompt.dictated
        elif not bare and rng.random() < _FREE_SHARE:
            goal = _free_goal(rng)
        else:
            order = order or rng.sample(prompt.targets, len(prompt.targets))
            goal = goal_for(rng, order.pop(), prompt.targets)
        question = ask(rng, goal, dictated, prompt.first_step)
        yield question, question.reply.index(_GOAL_MARK) + len(_GOAL_MARK) if bare else 0


def recalls(rng: random.Random, prompt: GroundingPrompt) -> Iterator[tuple[GroundingQuestion, int]]:
    """Yields label-index pairs without end, in the form of `questions`."""
    while True:
        for target in rng.sample(prompt.targets, len(prompt.targets)):
            yield recall(target, len(prompt.targets)), 0


def _free_goal(rng: random.Random) -> Goal:
    return finish_goal() if rng.random() < 0.5 else scroll_goal(rng)


def _idle_request(rng: random.Random) -> str:
    return " ".join(random_word(rng) for _ in range(rng.randint(3, 14))) + "."


def _history(rng: random.Random) -> tuple[PastStep, ...]:
    """Earlier steps in the words of the demo's agent, unrelated to the page."""
    steps, memory = [], ""
    for number in range(1, rng.choices((1, 2, 3, 4), (4, 3, 2, 1))[0] + 1):
        label, text, index = random_text(rng), random_text(rng), rng.randint(1, 40)
        goal, after, result = rng.choice(
            (
                (f"Click '{label}'", f"clicked {label}", f"Clicked [{index}]"),
                (f"Type '{text}' into '{label}'", f"typed {label}", f"Typed {text!r} into [{index}]"),
                (f"Select '{text}' in '{label}'", f"selected {text}", f"Selected {text!r} in [{index}]"),
            )
        )
        evaluation = "Start" if number == 1 else rng.choice(("Success", "Success", "Failed"))
        steps.append(PastStep(number, evaluation, memory, goal, results=(result,)))
        memory = after
    return tuple(steps)


def _page_stats(rng: random.Random, nodes: Sequence[PageNode]) -> str:
    indexed = [node for node in nodes if node.index is not None]
    links = sum(node.tag == "a" for node in indexed)
    return f"{links} links, {len(indexed)} interactive, {rng.randint(len(nodes), 3 * len(nodes))} elements"
