"""Neutralisation of untrusted text next to text of the prompt."""

from __future__ import annotations

import re
from importlib import resources

from hypothesis import given
from hypothesis import strategies as st

from collection.browser.page import RESERVED_TAGS, PageNode, neutralize, render_node

PIECES = st.sampled_from(
    ["Start of page", " ", *"</>[]|*", "12", "browser_state", "step_3", "SHADOW(open)", "SCROLL+"]
)
TEXTS = st.lists(PIECES | st.text(max_size=3), max_size=12).map("".join)


@given(TEXTS)
def test_neutralized_text_is_stable_and_can_be_encoded(text: str) -> None:
    neutral = neutralize(text)
    assert neutralize(neutral) == neutral
    neutral.encode()


@given(TEXTS, TEXTS)
def test_no_text_passes_for_a_line_or_tag(text: str, value: str) -> None:
    tag = re.compile(rf"<\s*/?\s*(?:{'|'.join(RESERVED_TAGS)})\b", re.IGNORECASE)
    line = render_node(PageNode(depth=1, tag="", text=text))
    assert not re.match(r"\s*\*?(?:\|[\w()]+[+|])?\[?(?:\d+\])?<\w", line) or not re.search(
        r"[\]|]\s*<", line
    )
    element = render_node(PageNode(depth=0, tag="a", index=1, attributes={"title": value}))
    for written in (line, element):
        assert "\n" not in written and not tag.search(written) and "<|" not in written
    assert len(re.findall(r"\d\]<", element)) == 1


def test_ordinary_text_stays() -> None:
    ordinary = ("a < b", "x[1] <y", "if (a<b)", "<b>bold</b>", "<systematic>", "naïve 日本語 👍", "[1] note")
    for text in ordinary:
        assert neutralize(text) == text


def test_every_tag_of_the_state_message_is_reserved() -> None:
    template = resources.files("collection.agent").joinpath("prompts/state.j2").read_text(encoding="utf-8")
    tags = set(re.findall(r"</?([a-z_]+)(?=[>\s{])", template))
    assert tags
    for tag in tags:
        name = "step_1" if tag == "step_" else tag
        assert any(re.fullmatch(one, name) for one in RESERVED_TAGS), tag
