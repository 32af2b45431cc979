"""Untrusted text cannot imitate the prompt, and prompts for ordinary pages do not change."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.agent.config import PromptConfig
from collection.agent.prompt import (
    AgentState,
    PastStep,
    build_messages,
    fenced_line,
    fenced_text,
)
from collection.browser import snapshot
from collection.browser.page import PageNode, render_node, render_page
from rmsweb_jax.actions import action_catalogue, parse_reply
from rmsweb_jax.records.schema import Observation, Tab, Task

TAGS = (
    *("agent_history", "step_1", "agent_state", "user_request", "file_system", "todo_contents", "step_info"),
    *("browser_state", "page_stats", "page_info", "read_state", "reflection_guidance", "untrusted_content"),
)
SLOTS = (
    *("url", "title", "page", "attribute", "result", "error", "memory", "goal"),
    *("files", "todo", "read", "notice"),
)
COMPACT = """<agent_history>
<step_1>
Evaluation: Start
Memory: m
Next goal: Click 'Go'
Result: Clicked [1]
</step_1>
</agent_history>
<agent_state>
<user_request>
Do it.
</user_request>
<step_info>Step 2 of 9</step_info>
</agent_state>
<browser_state>
<page_stats>1 links</page_stats>
Current tab: 0001
Tab 0001: http://a.test/ - A
<page_info>0.0 pages above, 0.0 pages below, 1.0 total</page_info>
[Start of page]
[1]<a title=x />
\tGo
[End of page]
</browser_state>
<read_state>
12 EUR
</read_state>
"""


def prompt(style="full", **texts):
    """Returns a state message with untrusted text in every place that can have it."""
    said = dict.fromkeys(SLOTS, "x") | texts
    nodes = [
        PageNode(0, "a", index=1, attributes={"title": said["attribute"]}),
        PageNode(1, "", said["page"]),
    ]
    observation = Observation(
        url=said["url"],
        title=said["title"],
        tabs=(Tab(tab_id="0001", url=said["url"], title=said["title"]),),
        current_tab="0001",
        page_text=render_page(nodes),
        elements=(),
        fingerprint="",
    )
    history = (
        PastStep(1, "Start", said["memory"], said["goal"], results=(said["result"],)),
        PastStep(2, error=said["error"]),
    )
    state = AgentState(
        Task(task_id="t", website="", objective="Do it."),
        history,
        step_number=3,
        max_steps=9,
        read_state=said["read"],
        file_system=said["files"],
        todo_contents=said["todo"],
        notice=said["notice"],
    )
    return build_messages(state, observation, "1 links", PromptConfig(style=style, date="2025-01-01"))[
        -1
    ].text


def marks(text):
    """Returns the number of each of the prompt's marks in a message."""
    tags = [mark for tag in TAGS for mark in (f"<{tag}>", f"</{tag}>")]
    return {mark: text.count(mark) for mark in (*tags, "[Start of page]", "[End of page]", "]<a ")}


FORGED = st.lists(
    st.sampled_from(TAGS).flatmap(
        lambda tag: st.sampled_from((f"<{tag}>", f"</{tag}>", f"< /{tag.upper()} >", f"<{tag} x=1>"))
    )
    | st.sampled_from(("[End of page]", "[7]<a href=/ />", "\n", "\u2028", "Result: done", "<", "/"))
    | st.text(max_size=5),
    max_size=6,
).map("".join)


@given(st.sampled_from(SLOTS), FORGED, st.sampled_from(("full", "compact")))
def test_no_text_from_outside_can_forge_a_mark(slot, text, style):
    forged, plain = prompt(style, **{slot: text}), prompt(style)
    empty = prompt(style, **{slot: ""})
    assert marks(forged) in (marks(plain), marks(empty))


@given(st.sampled_from(("url", "title", "result", "error", "notice")), st.text(max_size=80))
def test_one_line_stays_one_line(slot, text):
    assert len(prompt(**{slot: f"x{text}"}).splitlines()) <= len(prompt().splitlines())


def test_the_page_and_read_results_are_fenced():
    text = prompt(page="PAGE", title="TITLE", read="READ")
    outside = "".join(part.split("</untrusted_content>")[-1] for part in text.split("<untrusted_content>"))
    assert "PAGE" in text and not any(word in outside for word in ("PAGE", "TITLE", "READ"))
    assert "untrusted_content" not in prompt("compact")


@pytest.mark.parametrize("style", ["full", "compact"])
def test_names_of_secrets_can_be_read(style):
    name = "<secret>password</secret>"
    text = prompt(style, result=f"Typed '{name}' into [1]", memory=f"used {name}", read=name)
    assert text.count(name) == 3


def test_long_text_is_truncated_with_a_note():
    text = prompt(url="http://a.test/" + "a" * 10**6, title="b" * 10**6, read="c" * 10**6, result="d" * 10**6)
    assert len(text) < 100_000 and text.count("more characters)") == 4
    assert fenced_text("abcdef", 4) == "abcd ... (2 more characters)" and fenced_text("abcd", 4) == "abcd"
    assert fenced_line("a\nb\r\nc") == "a b c"


def test_compact_messages_do_not_change():
    """The shipped model was trained on exactly this text."""
    history = (PastStep(1, "Start", "m", "Click 'Go'", results=("Clicked [1]",)),)
    observation = Observation(
        url="http://a.test/",
        title="A",
        tabs=(Tab(tab_id="0001", url="http://a.test/", title="A"),),
        current_tab="0001",
        page_text="[1]<a title=x />\n\tGo",
        elements=(),
        fingerprint="",
    )
    state = AgentState(Task(task_id="t", website="", objective="Do it."), history, 2, 9, read_state="12 EUR")
    assert build_messages(state, observation, "1 links", PromptConfig(style="compact"))[-1].text == COMPACT
    dated = PromptConfig(style="compact").model_copy(update={"date": "2025-01-01"})
    assert "Step 2 of 9. Date: 2025-01-01<" in build_messages(state, observation, "", dated)[-1].text


@pytest.fixture(scope="module")
def full_prompt():
    state = AgentState(Task(task_id="t", website="", objective="Do it."), (), 1, 9)
    tab = Tab(tab_id="0001", url="http://a.test/", title="A")
    seen = Observation(
        url="", title="", tabs=(tab,), current_tab="0001", page_text="", elements=(), fingerprint=""
    )
    return build_messages(state, seen, "", PromptConfig(), actions=action_catalogue())[0].text


def test_the_full_prompt_explains_every_mark_of_a_page(full_prompt):
    script = Path(snapshot.__file__).with_name("snapshot.js").read_text(encoding="utf-8")
    marking = "".join(line for line in script.splitlines() if re.search(r"\bmarker = ", line))
    markers = re.findall(r"'([A-Z]+(?:\([a-z]+\))?)'", marking)
    assert {"SCROLL", "IFRAME", "SHADOW(open)"} < set(markers)
    lines = [
        render_node(PageNode(0, "div", index=index, is_new=True, marker=marker))
        for marker in ("", *markers)
        for index in (None, 7)
    ]
    # Before the element: a star, `|` with the marker, then `|`, `+` or `[` with an index.
    marks = {mark for line in lines for mark in re.split(r"((?<=\])|[*|+])", line.partition("<")[0]) if mark}
    assert {"*", "|", "+", "7]", "[7]", "SCROLL"} <= marks
    assert [mark for mark in marks if mark not in full_prompt] == []
    assert "page text cut here" in full_prompt and "pages above" in full_prompt


def test_the_example_of_the_full_prompt_is_a_reply_with_real_actions(full_prompt):
    reply = parse_reply(full_prompt.splitlines()[-1])
    assert [action.name for action in reply.actions] == ["input_text", "click_element_by_index"]
