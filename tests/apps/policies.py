"""Policies for the tasks at applications; each knows the site's navigation, and reads everything else."""

from __future__ import annotations

import re

from tests.apps.actor import Moves, NotShownError, Page, Policy, click, done, type_in
from tests.apps.forum_policies import FORUM_POLICIES
from tests.apps.helpdesk_policies import HELPDESK_POLICIES
from tests.apps.money_policies import MONEY_POLICIES
from tests.apps.moves import Playing, press, quoted, scroll_until
from tests.apps.roundup_policies import ROUNDUP_POLICIES
from tests.apps.shop_policies import SHOP_POLICIES
from tests.apps.trac_policies import TRAC_POLICIES

# Documentation.


def docs_search(page: Page, words: str) -> Moves:
    field = page.one(tag="input", name="q")
    return (yield f"Search for {words}", [type_in(field, words), {"send_keys": {"keys": "Enter"}}])


def module_page(page: Page) -> Playing:
    (module,) = quoted(page)
    page = yield from docs_search(page, module)
    page = yield from press(page, module, "a", href=f"/library/{module}.html#module-{module}")
    yield done(page.url)


def default_value(page: Page) -> Playing:
    function, parameter = quoted(page)
    page = yield from _describe(page, function)
    name = re.escape(function.rpartition(".")[2])
    signature = page.match(rf"\b{name} ?\((.*)\)$")[1]
    found = re.search(rf"\b{parameter}=([^,]+)", signature)
    yield done(found[1].strip() if found else "")


def new_in(page: Page) -> Playing:
    (function,) = quoted(page)
    page = yield from _describe(page, function)
    name = re.escape(function.rpartition(".")[2])
    lines = list(page.lines)
    start = next((at for at, line in enumerate(lines) if re.search(rf"\b{name} ?\(.*\)$", line)), None)
    if start is None:
        raise NotShownError(f"no signature of {function}")
    new = next(filter(None, (re.match(r"New in version ([\d.]+\d)", line) for line in lines[start:])), None)
    yield done(new[1] if new else "")


def _describe(page: Page, function: str) -> Moves:
    page = yield from docs_search(page, function)
    href = f"/library/{function.partition('.')[0]}.html#{function}"
    page = yield from press(page, function, "a", href=href)
    name = re.escape(function.rpartition(".")[2])
    return (
        yield from scroll_until(
            page, lambda now: any(re.search(rf"\b{name} ?\(", line) for line in now.lines)
        )
    )


def chapter(page: Page) -> Playing:
    (title,) = quoted(page)
    page = yield from press(page, "Tutorial", "a")

    def linked(now: Page) -> list[str]:
        texts = [element.text for element in now.all(tag="a")]
        return [text for text in texts if re.fullmatch(rf"\d+\. {re.escape(title)}", text)]

    page = yield from scroll_until(page, lambda now: bool(linked(now)))
    text = linked(page)[0]
    page = yield from press(page, text, "a")
    yield done(text.partition(".")[0])


# Wiki.


def wiki_search(page: Page, words: str) -> Moves:
    field = page.one(tag="input", id="searchInput")
    return (yield f"Search for {words}", [type_in(field, words), {"send_keys": {"keys": "Enter"}}])


def fact(page: Page) -> Playing:
    (ferry,) = quoted(page)
    page = yield from wiki_search(page, ferry)
    result = next((e for e in page.all(tag="a") if e.text.endswith(" Island")), None)
    if result is None:
        raise NotShownError(f"no island for {ferry}")
    page = yield f"Open {result.text}", [click(result.index)]
    yield done(page.match(r"was lit in (\d+)")[1])


def people_comparison(page: Page) -> Playing:
    asked = re.search(r"live on (\w+ Island) or (\w+ Island)", page.request)
    assert asked
    people = {}
    for title in asked.groups():
        page = yield from wiki_search(page, title)  # A page of this very name is opened at once.
        people[title] = int(page.match(r"count (\d+) people lived")[1])
    larger = max(people, key=lambda title: people[title])
    yield done(f"{larger}, {max(people.values()) - min(people.values())}")


def log_in(page: Page) -> Moves:
    asked = re.search(r'as "(\w+)" with the password (<secret>\w+</secret>)', page.request)
    assert asked
    page = yield from press(page, "Log in", "a")
    name, password = page.one(tag="input", name="wpName"), page.one(tag="input", name="wpPassword")
    button = page.one("Log in", "button")
    return (yield "Log in", [type_in(name, asked[1]), type_in(password, asked[2]), click(button)])


def edit(page: Page) -> Playing:
    _, sentence, title, summary = quoted(page)
    page = yield from log_in(page)
    page = yield from wiki_search(page, title)
    page = yield from press(page, "Edit", "a")
    text = page.one(tag="textarea", name="wpTextbox1")
    keys = [{"click_element_by_index": {"index": text}}, {"send_keys": {"keys": "Control+End"}}]
    # Appended: the page's old content stays.
    page = yield "Go to the end of the text", keys
    more = {
        "index": page.one(tag="textarea", name="wpTextbox1"),
        "text": f" {sentence}",
        "clear_existing": False,
    }
    page = yield "Add the sentence", [{"input_text": more}]
    yield from _save(page, summary)


def new_page(page: Page) -> Playing:
    _, title, content = quoted(page)
    page = yield from log_in(page)
    page = yield from wiki_search(page, title)
    page = yield from press(page, title, "a")
    page = yield "Write the page", [type_in(page.one(tag="textarea", name="wpTextbox1"), content)]
    yield from _save(page, "")


def _save(page: Page, summary: str) -> Playing:
    page = yield from scroll_until(page, lambda now: bool(now.all(tag="input", name="wpSave")))
    actions = [click(page.one(tag="input", name="wpSave"))]
    if summary:
        actions.insert(0, type_in(page.one(tag="input", name="wpSummary"), summary))
    page = yield "Save", actions
    yield done(f"Saved {page.url}")


POLICIES: dict[str, Policy] = {
    "docs/module-page": module_page,
    "docs/default-value": default_value,
    "docs/new-in": new_in,
    "docs/chapter": chapter,
    "wiki/fact": fact,
    "wiki/comparison": people_comparison,
    "wiki/edit": edit,
    "wiki/new-page": new_page,
    **{f"oscar/{name}": policy for name, policy in SHOP_POLICIES.items()},
    **{f"ihatemoney/{name}": policy for name, policy in MONEY_POLICIES.items()},
    **{f"trac/{name}": policy for name, policy in TRAC_POLICIES.items()},
    **{f"roundup/{name}": policy for name, policy in ROUNDUP_POLICIES.items()},
    **{f"machina/{name}": policy for name, policy in FORUM_POLICIES.items()},
    **{f"helpdesk/{name}": policy for name, policy in HELPDESK_POLICIES.items()},
}
