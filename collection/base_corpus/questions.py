"""Grounding questions about a page: replies whose action follows from the goal they state.

The labels of a reply's `next_goal` name an element; the action must point at its index. Nothing here
says what to do on a page: goals are drawn at random or dictated word for word by the request.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Sequence

from collection.base_corpus.targets import Target
from collection.base_corpus.words import random_word

_EVALUATIONS = ("Success", "Failed", "Start")
_SCROLLS = (("Scroll down", True), ("Scroll up", False))


@dataclasses.dataclass(frozen=True)
class Question:
    """One reply to the page.

    Attributes:
      kind: `click`, `type`, `select`, `scroll` or `finish`.
      reply: canonical JSON text.
      learned: character spans of `reply` that can be known from what stands before them.
      index_span: characters of the element's index; None when the action has none.
      choices: elements of the page that the same kind of action could be about.
      dictated: the request of the page asks for just this.
    """

    kind: str
    reply: str
    learned: tuple[tuple[int, int], ...]
    index_span: tuple[int, int] | None
    choices: int
    dictated: bool = False


@dataclasses.dataclass(frozen=True)
class Goal:
    """A goal and the action that reaches it."""

    kind: str
    next_goal: str
    action: dict[str, dict[str, object]]
    request: str
    label: str = ""
    choices: int = 1


def random_text(rng: random.Random) -> str:
    """What is typed into fields: usually one word."""
    return " ".join(random_word(rng) for _ in range(rng.choices((1, 2, 3), (8, 2, 1))[0]))


def goal_for(rng: random.Random, target: Target, targets: Sequence[Target]) -> Goal:
    """A goal about `target`, named by its first label half of the time."""
    label = target.labels[0] if rng.random() < 0.5 else rng.choice(target.labels)
    index, choices = target.index, sum(other.action == target.action for other in targets)
    quote = rng.choice('""\'')
    if target.action == "type" and rng.random() < 0.85:
        text = random_text(rng)
        action: dict[str, dict[str, object]] = {"input_text": {"index": index, "text": text}}
        request = rng.choice(
            (
                f"Type {quote}{text}{quote} into {quote}{label}{quote}.",
                f"Enter {quote}{text}{quote} into {label}.",
            )
        )
        return Goal("type", f"Type '{text}' into '{label}'", action, request, label, choices)
    if target.action == "select" and rng.random() < 0.85:
        option = rng.choice(target.options)
        action = {"select_dropdown_option": {"index": index, "text": option}}
        request = f"Select {quote}{option}{quote} in {quote}{label}{quote}."
        return Goal("select", f"Select '{option}' in '{label}'", action, request, label, choices)
    request = rng.choice(
        (
            f"Click on the {quote}{label}{quote} {rng.choice(('button', 'link', 'tab', 'element'))}.",
            f"Click {quote}{label}{quote}.",
            f"Click on {label}.",
        )
    )
    action = {"click_element_by_index": {"index": index}}
    return Goal("click", f"Click '{label}'", action, request, label, len(targets))


def scroll_goal(rng: random.Random) -> Goal:
    """Scrolling by a page, whatever the page shows."""
    text, down = rng.choice(_SCROLLS)
    return Goal("scroll", text, {"scroll": {"down": down, "num_pages": 1.0}}, f"{text}.")


def finish_goal() -> Goal:
    """Declaring success, whatever the page shows."""
    return Goal("finish", "Finish", {"done": {"text": "done", "success": True}}, "Finish.")


def ask(rng: random.Random, goal: Goal, dictated: bool, first_step: bool) -> Question:
    """The reply that states `goal`.

    Args:
      dictated: the page's request asks for the goal: then the goal itself is learned too.
      first_step: no history: the evaluation is `Start` and the memory empty.
    """
    evaluation = "Start" if first_step else rng.choices(_EVALUATIONS, (6, 3, 1))[0]
    memory = "" if first_step else _random_memory(rng)
    reply = _render(evaluation, memory, goal)
    goal_at = reply.index('","next_goal":"') + len('","next_goal":"')
    goal_end = goal_at + len(json.dumps(goal.next_goal, ensure_ascii=False)) - 2
    spans = [(goal_end, len(reply))]
    if dictated:
        spans.append((goal_at, goal_end))
        spans += [(0, goal_at)] if first_step else []
    elif goal.label:
        label_at = reply.index(f"'{goal.label}'", goal_at) + 1
        # How a label begins is a free choice, the rest of it can be read off the page.
        spans.append((label_at + 1, goal_end))
    return Question(
        goal.kind, reply, tuple(sorted(spans)), _index_span(reply, goal_end), goal.choices, dictated
    )


def recall(target: Target, choices: int) -> Question:
    """A label and its index, nothing between them: the shortest form of the question."""
    begin = len(target.labels[0]) + 1
    reply = f"{target.labels[0]}\t{target.index}"
    span = (begin, len(reply))
    return Question("click", reply, (span,), span, choices)


def _random_memory(rng: random.Random) -> str:
    verb = rng.choice(("", "typed ", "clicked ", "selected "))
    return verb + random_text(rng) if verb else ""


def _render(evaluation: str, memory: str, goal: Goal) -> str:
    reply = {
        "evaluation_previous_goal": evaluation,
        "memory": memory,
        "next_goal": goal.next_goal,
        "action": [goal.action],
    }
    return json.dumps(reply, ensure_ascii=False, separators=(",", ":"))


def _index_span(reply: str, start: int) -> tuple[int, int] | None:
    marker = '":{"index":'
    at = reply.find(marker, start)
    if at < 0:
        return None
    begin = end = at + len(marker)
    while reply[end].isdigit():
        end += 1
    return begin, end
