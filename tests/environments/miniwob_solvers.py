"""Hand-written solutions of MiniWoB++ pages that use only an agent's observations and actions."""

from __future__ import annotations

import re
from collections.abc import Callable

from collection.browser.action_types import ActionContext
from collection.browser.actions import execute
from collection.browser.page import PageNode, Snapshot
from collection.browser.session import Browser
from collection.browser.snapshot import take_snapshot
from rmsweb_jax.actions.parse import normalize_action


class Hand:
    """Takes a snapshot before every action, stores the objective and counts actions."""

    def __init__(self, browser: Browser, objective: str) -> None:
        self.browser, self.objective = browser, objective
        self.quoted = re.findall(r'"([^"]*)"', objective)
        self.actions = 0

    def look(self) -> Snapshot:
        return take_snapshot(self.browser)

    def do(self, name: str, **params: object) -> None:
        self.actions += 1
        result = execute(self.browser, normalize_action({name: params}), ActionContext())
        assert not result.error, result.text

    def find(self, text: str) -> int | None:
        return next((index for index, target in self.look().targets.items() if target.text == text), None)

    def click(self, text: str) -> None:
        index = self.find(text)
        assert index is not None, f"{text!r} is not in\n{self.look().page_text}"
        self.do("click_element_by_index", index=index)

    def fields(self) -> list[int]:
        """Returns the indices of the text fields, in page order."""
        return [i for i, target in self.look().targets.items() if target.tag in ("input", "textarea")]

    def type(self, number: int, text: str) -> None:
        self.do("input_text", index=self.fields()[number], text=text)

    def labelled(self, label: str) -> int:
        """Returns the field before the text line `label`."""
        nodes: list[PageNode] = list(self.look().nodes)
        at = next(n for n, node in enumerate(nodes) if node.text == label)
        index = nodes[at - 1].index
        assert index is not None
        return index


def click_quoted(hand: Hand) -> None:
    hand.click(hand.quoted[0])


def enter_text(hand: Hand) -> None:
    hand.type(0, hand.quoted[0])
    hand.click("Submit")


def enter_password(hand: Hand) -> None:
    hand.type(0, hand.quoted[0])
    hand.type(1, hand.quoted[0])
    hand.click("Submit")


def login_user(hand: Hand) -> None:
    hand.type(0, hand.quoted[0])
    hand.type(1, hand.quoted[1])
    hand.click("Login")


def focus_text(hand: Hand) -> None:
    number = re.search(r"the (\d)", hand.objective)
    hand.do("click_element_by_index", index=hand.fields()[int(number[1]) - 1 if number else 0])


def click_dialog(hand: Hand) -> None:
    if hand.quoted[0] != "x":
        return hand.click(hand.quoted[0])
    close = next(node.index for node in hand.look().nodes if node.attributes.get("title") == "Close")
    return hand.do("click_element_by_index", index=close)


def click_tab(hand: Hand) -> None:
    tab = re.search(r"Tab #\d", hand.objective)
    assert tab
    hand.click(tab[0])


def click_chosen(hand: Hand) -> None:
    wanted = re.fullmatch(r"Select (.*) and click Submit\.", hand.objective)
    assert wanted
    for label in wanted[1].split(", "):
        if label != "nothing":
            hand.do("click_element_by_index", index=hand.labelled(label))
    hand.click("Submit")


def choose_list(hand: Hand) -> None:
    wanted = re.fullmatch(r"Select (.*) from the list and click Submit\.", hand.objective)
    assert wanted
    hand.do("select_dropdown_option", index=1, text=wanted[1])
    hand.click("Submit")


def use_autocomplete(hand: Hand) -> None:
    start, end = hand.quoted[0], hand.quoted[1] if len(hand.quoted) > 1 else ""
    hand.type(0, start)
    # The list comes 0.3 s after the last key.
    while not (offers := [target for target in hand.look().targets.values() if target.tag == "li"]):
        pass
    hand.click(next(offer.text for offer in offers if offer.text.endswith(end)))
    hand.click("Submit")


def search_engine(hand: Hand) -> None:
    number = int(re.search(r"the (\d+)", hand.objective)[1])
    hand.type(0, hand.quoted[0])
    hand.click("Search")
    seen = 0
    while True:
        links = [(i, t.text) for i, t in hand.look().targets.items() if t.tag == "a"]
        results = [(i, text) for i, text in links if not re.fullmatch(r"\d+|[<>]", text)]
        if seen + len(results) >= number:
            return hand.do("click_element_by_index", index=results[number - seen - 1][0])
        seen += len(results)
        hand.click(">")


def open_until_found(opener: Callable[[PageNode], bool]) -> Callable[[Hand], None]:
    """Opens one closed part after another until the quoted text can be clicked."""

    def solve(hand: Hand) -> None:
        tried: set[str] = set()
        while hand.find(hand.quoted[0]) is None:
            snapshot = hand.look()
            parts = [n.index for n in snapshot.nodes if n.index and opener(n)]
            closed = [i for i in parts if snapshot.targets[i].text not in tried]
            assert closed, snapshot.page_text
            tried.add(snapshot.targets[closed[0]].text)
            hand.do("click_element_by_index", index=closed[0])
        hand.click(hand.quoted[0])

    return solve


def click_collapsible(hand: Hand) -> None:
    section = next(n.index for n in hand.look().nodes if n.attributes.get("aria-expanded") == "false")
    hand.do("click_element_by_index", index=section)
    hand.click("Submit")


def click_link(hand: Hand) -> None:
    hand.click(hand.quoted[0])


def click_widget(hand: Hand) -> None:
    kind = {"text": "input", "checkbox": "checkbox", "radio": "radio"}.get(hand.quoted[0], hand.quoted[0])
    for node in hand.look().nodes:
        if (
            node.index
            and kind in (node.attributes.get("type"), node.tag)
            and (node.tag != "input" or kind != "input" or "type" not in node.attributes)
        ):
            return hand.do("click_element_by_index", index=node.index)
    raise AssertionError(hand.look().page_text)


def enter_date(hand: Hand) -> None:
    found = re.search(r"(\d\d)/(\d\d)/(\d{4})", hand.objective)
    assert found
    hand.type(0, f"{found[3]}-{found[1]}-{found[2]}")
    hand.click("Submit")


def simple_arithmetic(hand: Hand) -> None:
    problem = next(n.text for n in hand.look().nodes if "=" in n.text)
    left, operator, right = re.findall(r"\d+|[-+x]", problem)[:3]
    value = {"+": int(left) + int(right), "-": int(left) - int(right), "x": int(left) * int(right)}[operator]
    hand.type(0, str(value))
    hand.click("Submit")


def click_scroll_list(hand: Hand) -> None:
    wanted = re.fullmatch(r"Select (.*) from the scroll list and click Submit\.", hand.objective)
    assert wanted
    for option in wanted[1].split(", "):
        hand.do("select_dropdown_option", index=1, text=option)
    hand.click("Submit")


def scroll_text(hand: Hand) -> None:
    down = "bottom" in hand.objective
    hand.do("scroll", down=down, num_pages=50, frame_element_index=1)
    hand.click("Submit")


DEMO: dict[str, Callable[[Hand], None]] = {
    "click-button": click_quoted,
    "click-link": click_link,
    "click-tab": click_tab,
    "click-tab-2-easy": open_until_found(lambda n: n.tag == "a"),
    "click-dialog-2": click_dialog,
    "focus-text-2": focus_text,
    "enter-text": enter_text,
    "enter-password": enter_password,
    "login-user": login_user,
    "click-checkboxes": click_chosen,
    "click-option": click_chosen,
    "choose-list": choose_list,
    "search-engine": search_engine,
    "use-autocomplete": use_autocomplete,
    "navigate-tree": open_until_found(lambda n: n.tag == "span"),
    "click-collapsible": click_collapsible,
}
MORE: dict[str, Callable[[Hand], None]] = {
    "click-tab-2": open_until_found(lambda n: n.tag == "a"),
    "click-collapsible-2": open_until_found(lambda n: n.tag == "h3"),
    "click-checkboxes-large": click_chosen,
    "click-checkboxes-transfer": click_chosen,
    "click-test": lambda hand: hand.click("Click Me!"),
    "click-widget": click_widget,
    "focus-text": focus_text,
    "enter-text-dynamic": enter_text,
    "enter-date": enter_date,
    "simple-arithmetic": simple_arithmetic,
    "click-scroll-list": click_scroll_list,
    "scroll-text-2": scroll_text,
    "unicode-test": click_quoted,
}
