"""Moves a reply from the page for which it was written to another page of the same task."""

from __future__ import annotations

from collection.corpus.elements import name_of, role_of
from rmsweb_jax.actions import Action, Reply
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.records.schema import Element, Observation


def move_reply(reply: Reply, source: Observation, target: Observation) -> Reply | None:
    """Returns a reply whose actions name the same elements on another page.

    An element is the same if its role, its name and its place among the elements of that role and name are.

    Returns:
      None if an element is not on the other page.
    """
    actions = []
    for action in reply.executable:
        moved = _move(action, source, target)
        if moved is None:
            return None
        actions.append(moved)
    return reply.model_copy(update={"actions": tuple(actions)})


def _move(action: Action, source: Observation, target: Observation) -> Action | None:
    index = getattr(action.params, "index", None)
    if not index:
        return action
    keys = {element.index: key for key, element in _keyed(source).items()}
    element = _keyed(target).get(keys[index]) if index in keys else None
    if element is None:
        return None
    return normalize_action({action.name: action.params.model_dump() | {"index": element.index}})


def _keyed(page: Observation) -> dict[tuple[str, str, int], Element]:
    """The elements that can be acted on, by role, name and place among their like."""
    found: dict[tuple[str, str, int], Element] = {}
    counts: dict[tuple[str, str], int] = {}
    for element in page.elements:
        if element.index is not None:
            key = role_of(element.tag, element.attributes), name_of(element.text, element.attributes)
            place = counts.get(key, 0)
            counts[key] = place + 1
            found[(*key, place)] = element
    return found
