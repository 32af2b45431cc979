"""What an element of a page is called: its role and its name, which stay the same when its index changes."""

from __future__ import annotations

from collections.abc import Mapping

# What people see or hear, in this order, where an element has no text.
_LABELS = ("aria-label", "placeholder", "title", "alt")
# What distinguishes elements without any label. Not the value, which an agent changes.
_IDENTIFIERS = ("name", "id")
# Types of input elements that show their value as their label.
_BUTTONS = frozenset(("submit", "button", "reset"))


def role_of(tag: str, attributes: Mapping[str, str]) -> str:
    """Returns the role that the page gives an element, otherwise its tag and type: `input checkbox`."""
    return attributes.get("role") or " ".join(filter(None, (tag, attributes.get("type", ""))))


def label_of(text: str, attributes: Mapping[str, str]) -> str:
    """Returns the words by which people know an element; empty if it has none."""
    if not text and attributes.get("type") in _BUTTONS:
        text = attributes.get("value", "")
    return text or _first(attributes, _LABELS)


def name_of(text: str, attributes: Mapping[str, str]) -> str:
    """Returns an element's label, or without one its name or id in the page's source; may be empty."""
    return label_of(text, attributes) or _first(attributes, _IDENTIFIERS)


def _first(attributes: Mapping[str, str], keys: tuple[str, ...]) -> str:
    return next((attributes[key] for key in keys if attributes.get(key)), "")
