"""Grounding questions about a page: replies whose action follows from the goal they state.

The labels of a reply's `next_goal` name an element; the action must point at its index. Nothing here says
what to do on a page: goals are drawn at random or dictated word for word by the request.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import random
from collections.abc import Sequence

from collection.browser.page import PageNode
from experiments.studies.tiny_base.corpus.words import random_word

MAX_LABEL_CHARS = 48
_NAMING = ("aria-label", "placeholder", "value", "name", "id")
_TYPED = ("", "text", "password", "email", "search", "tel", "url", "number")


@dataclasses.dataclass(frozen=True)
class NamedElement:
    """An element that a question can be about.

    Attributes:
      action: `click`, `type` or `select`.
      labels: texts that name it and nothing else on the page; the one of the scripted replies is first.
      options: of a select.
    """

    index: int
    action: str
    labels: tuple[str, ...]
    options: tuple[str, ...] = ()


def find_targets(nodes: Sequence[PageNode]) -> list[NamedElement]:
    """The page's elements that some label names uniquely, in page order.

    A label is the element's own visible text, else an attribute (aria-label, placeholder, value, name,
    id), else the adjacent text: before a text field, after a checkbox or radio button.
    """
    named = [(node, _labels(nodes, place)) for place, node in enumerate(nodes) if node.index is not None]
    owners = collections.Counter(label for _, labels in named for label in set(labels))
    targets = []
    for node, labels in named:
        unique = tuple(label for label in labels if owners[label] == 1 and _usable(label))
        if unique and node.index is not None:
            options = tuple(filter(_usable, _options(node))) if node.tag == "select" else ()
            action = _action(node)
            if action != "select" or options:
                targets.append(NamedElement(node.index, action, unique, options))
    return targets


def _usable(label: str) -> bool:
    return 0 < len(label) <= MAX_LABEL_CHARS and not set(label) & set("'\"\\\n\t")


def _action(node: PageNode) -> str:
    if node.tag == "select":
        return "select"
    if node.tag == "textarea" or (node.tag == "input" and node.attributes.get("type", "") in _TYPED):
        return "type"
    return "click"


def _labels(nodes: Sequence[PageNode], place: int) -> list[str]:
    node = nodes[place]
    labels = _own_text(nodes, place)
    is_choice = node.tag == "input" and node.attributes.get("type", "") in ("checkbox", "radio")
    # A choice's `value` is never shown.
    names = _NAMING[:2] + _NAMING[3:] if is_choice else _NAMING
    attributes = [node.attributes[name] for name in names if node.attributes.get(name)]
    adjacent = _adjacent_text(nodes, place, after=is_choice)
    if node.tag in ("input", "select", "textarea"):
        labels += adjacent + attributes if is_choice else attributes + adjacent
    else:
        labels += attributes
    return list(dict.fromkeys(labels))


def _own_text(nodes: Sequence[PageNode], place: int) -> list[str]:
    """The text line under an element, if it is the only one before the next element."""
    lines = []
    for node in nodes[place + 1 :]:
        if node.depth <= nodes[place].depth or node.tag:
            break
        lines.append(node.text)
    return lines if len(lines) == 1 else []


def _adjacent_text(nodes: Sequence[PageNode], place: int, after: bool) -> list[str]:
    other = place + 1 if after else place - 1
    if not 0 <= other < len(nodes) or nodes[other].tag:
        return []
    owner = other - 1
    owned = (
        not after
        and owner >= 0
        and nodes[owner].index is not None
        and nodes[owner].depth < nodes[other].depth
    )
    return [] if owned else [nodes[other].text]


def _options(node: PageNode) -> list[str]:
    """Options of a select; the snapshot joins them with bars."""
    return node.attributes.get("options", "").split("|")


_EVALUATIONS = ("Success", "Failed", "Start")
_SCROLLS = (("Scroll down", True), ("Scroll up", False))


@dataclasses.dataclass(frozen=True)
class GroundingQuestion:
    """One reply to the page.

    Attributes:
      kind: `click`, `type`, `select`, `scroll` or `finish`.
      reply: canonical JSON text.
      learned: character spans of `reply` that the text before them determines.
      index_span: characters of the element's index; None when the action has none.
      choices: number of elements that this kind of action could be about.
      dictated: the request of the page asks for exactly this.
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
    """Text to type into a field: usually one word."""
    return " ".join(random_word(rng) for _ in range(rng.choices((1, 2, 3), (8, 2, 1))[0]))


def goal_for(rng: random.Random, target: NamedElement, targets: Sequence[NamedElement]) -> Goal:
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
    """A goal of scrolling by one page."""
    text, down = rng.choice(_SCROLLS)
    return Goal("scroll", text, {"scroll": {"down": down, "num_pages": 1.0}}, f"{text}.")


def finish_goal() -> Goal:
    """A goal of declaring success."""
    return Goal("finish", "Finish", {"done": {"text": "done", "success": True}}, "Finish.")


def ask(rng: random.Random, goal: Goal, dictated: bool, first_step: bool) -> GroundingQuestion:
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
        # The first character of a label is a free choice, the page determines the rest.
        spans.append((label_at + 1, goal_end))
    return GroundingQuestion(
        goal.kind, reply, tuple(sorted(spans)), _index_span(reply, goal_end), goal.choices, dictated
    )


def recall(target: NamedElement, choices: int) -> GroundingQuestion:
    """A label and its index with nothing between them: the shortest form of a question."""
    begin = len(target.labels[0]) + 1
    reply = f"{target.labels[0]}\t{target.index}"
    span = (begin, len(reply))
    return GroundingQuestion("click", reply, (span,), span, choices)


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
