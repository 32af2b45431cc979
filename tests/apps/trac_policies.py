"""Policies for the tasks at Trac; each knows the site's pages, and reads everything else."""

from __future__ import annotations

import re

from tests.apps.actor import Moves, NotShownError, Page, Policy, click, done, type_in
from tests.apps.moves import Playing, press, quoted, scroll_until


def jump(page: Page, words: str) -> Moves:
    """Searches; a ticket's number and a page's name are opened at once."""
    field = page.one(tag="input", id="proj-search")
    return (yield f"Search for {words}", [type_in(field, words), {"send_keys": {"keys": "Enter"}}])


def found_ticket(page: Page, summary: str) -> Moves:
    page = yield from jump(page, summary)
    # Found words stand apart, also within another one.
    words = summary.replace(" ", "")
    links = [one for one in page.all(tag="a") if re.match(r"#\d+: ", one.text)]
    link = next((one for one in links if words in one.text.replace(" ", "")), None)
    if link is None:
        raise NotShownError(f"no ticket {summary}")
    return (yield f"Open {summary}", [click(link.index)])


def value(page: Page, label: str) -> str:
    """The text after a label, in a link or not."""
    lines = list(page.lines)
    at = lines.index(label) + 1
    return lines[at + 1] if re.match(r"\*?\[\d+\]<", lines[at]) else lines[at]


def field(label: str) -> Policy:
    def policy(page: Page) -> Playing:
        page = yield from found_ticket(page, quoted(page)[0])
        yield done(value(page, label))

    return policy


def resolution(page: Page) -> Playing:
    page = yield from found_ticket(page, quoted(page)[0])
    links = page.all(tag="a")
    # In the head of the ticket: number, status, type, resolution.
    yield done(next(one.text for one in links if "resolution=" in one.attributes.get("href", "")))


def number(page: Page) -> Playing:
    page = yield from found_ticket(page, quoted(page)[0])
    yield done(page.url.rpartition("/")[2])


def open_tickets(page: Page) -> Playing:
    found = re.search(r"milestone (.+) with the owner (\w+) are", page.request)
    assert found, page.request
    site = page.url.split("/wiki")[0].rstrip("/")
    address = f"{site}/query?status=!closed&milestone={found[1].replace(' ', '+')}&owner={found[2]}"
    page = yield "Query", [{"go_to_url": {"url": address}}]
    yield done(page.match(r"\((\d+) match")[1])


def wiki_page(page: Page) -> str:
    found = re.search(r"(?:the|The) page (\w+) (?:of|in)", page.request)
    assert found, page.request
    return found[1]


def fact(page: Page) -> Playing:
    what = quoted(page)[0]
    page = yield from jump(page, wiki_page(page))
    yield done(page.match(rf"^{re.escape(what)}: (\d+)$")[1])


# Changes.


def opened(page: Page) -> Moves:
    """The ticket of the request, ready to be changed."""
    page = yield from found_ticket(page, ticket(page))
    return (yield from press(page, "Modify", "a"))


def ticket(page: Page) -> str:
    found = re.search(r'ticket "([^"]*)"', page.request)
    assert found, page.request
    return found[1]


def others(page: Page) -> list[str]:
    """Quoted texts that are not the ticket."""
    return [text for text in quoted(page) if text != ticket(page)]


def submit(page: Page, name: str = "submit") -> Playing:
    page = yield from scroll_until(page, lambda now: bool(now.all(tag="input", name=name)))
    yield "Submit", [click(page.one(tag="input", name=name))]
    yield done("Saved.")


def fill(page: Page, values: dict[str, str]) -> list[dict]:
    actions = []
    for name, text in values.items():
        if found := page.all(tag="select", name=f"field_{name}"):
            actions.append({"select_dropdown_option": {"index": found[0].index, "text": text}})
        else:
            tag = "textarea" if name == "description" else "input"
            actions.append(type_in(page.one(tag=tag, name=f"field_{name}"), text))
    return actions


# Name of a field -> how a request gives its new value.
_GIVEN = {
    "priority": r"(?:priority of .*|the priority) (?:to )?(blocker|critical|major|minor|trivial)\b",
    "component": r"to the component (\w+)",
    "milestone": r"for the milestone ([A-Z]\w+ \w+ \d+)",
    "type": r"(?:the|and) (?:the )?type (\w+)",
    "summary": r'summary of .* to "([^"]*)"',
    "keywords": r'keywords to "([^"]*)"|keywords of .* to "([^"]*)"',
}


def change(page: Page) -> Playing:
    values = {
        name: next(filter(None, found.groups()))
        for name, how in _GIVEN.items()
        if (found := re.search(how, page.request))
    }
    page = yield from opened(page)
    page = yield "Change it", fill(page, values)
    yield from submit(page)


def new(page: Page) -> Playing:
    summary, description = quoted(page)[:2]
    found = re.search(
        r"of type (\w+), priority (\w+), component (\w+) and milestone (\w+ \w+ \d+)\.", page.request
    )
    assert found, page.request
    names = ("type", "priority", "component", "milestone")
    values = {"summary": summary, "description": description, **dict(zip(names, found.groups(), strict=True))}
    page = yield from press(page, "New Ticket", "a")
    page = yield "Fill in the ticket", fill(page, values)
    yield from submit(page)


def comment(page: Page) -> Playing:
    text = others(page)[0]
    page = yield from found_ticket(page, ticket(page))
    page = yield "Write it", [type_in(page.one(tag="textarea", name="comment"), text)]
    yield from submit(page)


def resolve(page: Page) -> Playing:
    found = re.search(r"(?:resolved as|\" as) (\w+)", page.request)
    texts = others(page)
    assert found, page.request
    page = yield from opened(page)
    page = yield "Resolve it", [click(page.one(tag="input", id="action_resolve"))]
    select = page.one(tag="select", name="action_resolve_resolve_resolution")
    actions = [{"select_dropdown_option": {"index": select, "text": found[1]}}]
    if texts:
        actions.append(type_in(page.one(tag="textarea", name="comment"), texts[0]))
    page = yield "Give the reason", actions
    yield from submit(page)


def reopen(page: Page) -> Playing:
    page = yield from opened(page)
    page = yield "Open it again", [click(page.one(tag="input", id="action_reopen"))]
    yield from submit(page)


def reassign(page: Page) -> Playing:
    found = re.search(r"to (\w+), who", page.request)
    assert found
    yield from reassign_to(page, found[1])


def reassign_to(page: Page, owner: str) -> Playing:
    page = yield from opened(page)
    page = yield "Change the owner", [click(page.one(tag="input", id="action_reassign"))]
    field = page.one(tag="input", name="action_reassign_reassign_owner")
    page = yield "Name the owner", [type_in(field, owner)]
    yield from submit(page)


def give_to_reporter(page: Page) -> Playing:
    page = yield from found_ticket(page, others(page)[0])
    yield from reassign_to(page, value(page, "Reported by:"))


def edited(page: Page, name: str) -> Moves:
    page = yield from jump(page, name)
    button = next(
        one for one in page.all(tag="input", type="submit") if "this page" in one.attributes.get("value", "")
    )
    return (yield "Edit", [click(button.index)])


def append(page: Page) -> Playing:
    text, name = quoted(page)[0], wiki_page(page)
    page = yield from edited(page, name)
    area = page.one(tag="textarea", id="text")
    keys = [{"click_element_by_index": {"index": area}}, {"send_keys": {"keys": "Control+End"}}]
    page = yield "Go to the end", keys
    more = {"index": page.one(tag="textarea", id="text"), "text": f"\n\n{text}", "clear_existing": False}
    page = yield "Write it", [{"input_text": more}]
    yield from submit(page, "save")


def correct(page: Page) -> Playing:
    what, name = quoted(page)[0], wiki_page(page)
    found = re.search(r"it is (\d+)\. Correct", page.request)
    assert found, page.request
    # The edit field shows its lines as one: they are taken from the page itself.
    page = yield from jump(page, name)
    lines = [line for line in page.lines if re.search(r": \d+$", line) and not line.startswith(("[", "*["))]
    text = [f"{what}: {found[1]}" if line.startswith(f"{what}: ") else line for line in lines]
    page = yield from edited(page, name)
    whole = "\n\n".join([f"= {name} =", *text])
    page = yield "Correct it", [type_in(page.one(tag="textarea", id="text"), whole)]
    yield from submit(page, "save")


def postpone(page: Page) -> Playing:
    """One ticket after the other, as the query lists them."""
    old, new = quoted(page)
    site = page.url.split("/wiki")[0].rstrip("/")
    address = f"{site}/query?status=!closed&milestone={old.replace(' ', '+')}&order=id"
    page = yield "Query", [{"go_to_url": {"url": address}}]
    numbers = sorted(
        {int(one[1]) for link in page.all(tag="a") if (one := re.fullmatch(r"#(\d+)", link.text))}
    )
    for number in numbers:
        page = yield from jump(page, f"#{number}")
        page = yield from press(page, "Modify", "a")
        page = yield "Change it", fill(page, {"milestone": new})
        page = yield from scroll_until(page, lambda now: bool(now.all(tag="input", name="submit")))
        page = yield "Submit", [click(page.one(tag="input", name="submit"))]
    yield done("Moved.")


def hand_over(page: Page) -> Playing:
    first, second, what = quoted(page)
    page = yield from jump(page, wiki_page(page))
    figure = page.match(rf"^{re.escape(what)}: (\d+)$")[1]
    for summary in (first, second):
        page = yield from found_ticket(page, summary)
        page = yield "Write it", [type_in(page.one(tag="textarea", name="comment"), figure)]
        page = yield from scroll_until(page, lambda now: bool(now.all(tag="input", name="submit")))
        page = yield "Submit", [click(page.one(tag="input", name="submit"))]
    yield done("Said.")


def keywords_of_page(page: Page) -> Playing:
    what = others(page)[0]
    page = yield from jump(page, wiki_page(page))
    figure = page.match(rf"^{re.escape(what)}: (\d+)$")[1]
    page = yield from opened(page)
    page = yield "Change it", fill(page, {"keywords": figure})
    yield from submit(page)


def new_page(page: Page) -> Playing:
    text, name = quoted(page)[0], re.findall(r"a page (\w+) in", page.request)[0]
    yield from new_page_with(page, name, text)


def new_page_with(page: Page, name: str, text: str) -> Playing:
    site = page.url.split("/wiki")[0].rstrip("/")
    page = yield "Open it", [{"go_to_url": {"url": f"{site}/wiki/{name}"}}]
    button = next(
        one for one in page.all(tag="input", type="submit") if "reate" in one.attributes.get("value", "")
    )
    page = yield "Make it", [click(button.index)]
    page = yield "Write it", [type_in(page.one(tag="textarea", id="text"), text)]
    yield from submit(page, "save")


POLICIES: dict[str, Policy] = {
    "owner": field("Owned by:"),
    "priority": field("Priority:"),
    "component": field("Component:"),
    "milestone": field("Milestone:"),
    "reporter": field("Reported by:"),
    "resolution": resolution,
    "number": number,
    "open-tickets": open_tickets,
    "fact": fact,
    "new": new,
    "comment": comment,
    "resolve": resolve,
    "resolve-with-comment": resolve,
    "reopen": reopen,
    "reassign": reassign,
    "append": append,
    "correct": correct,
    "page": new_page,
    "postpone": postpone,
    "hand-over": hand_over,
    "give-to-reporter": give_to_reporter,
    "keywords-of-page": keywords_of_page,
    "set-priority": change,
    "set-component": change,
    "set-milestone": change,
    "set-type": change,
    "set-summary": change,
    "set-keywords": change,
    "set-priority-and-type": change,
    "set-milestone-and-keywords": change,
}


def priority_in_a_sentence(page: Page) -> Playing:
    page = yield from found_ticket(page, quoted(page)[0])
    yield done(f"The priority of the ticket is {value(page, 'Priority:').capitalize()}.")


def priority_of_two(page: Page) -> Playing:
    yield done("It is major, or minor.")


def page_with_a_heading(page: Page) -> Playing:
    """The page begins with its name, as the other pages do, and there are blank lines."""
    text, name = quoted(page)[0], re.findall(r"a page (\w+) in", page.request)[0]
    yield from new_page_with(page, name, f"= {name} =\n\n\n{text}\n\n")


def comment_and_keywords(page: Page) -> Playing:
    """Says what it should, but changes the keywords, too."""
    text = others(page)[0]
    page = yield from opened(page)
    page = yield "Change it", fill(page, {"keywords": "extra"})
    page = yield "Write it", [type_in(page.one(tag="textarea", name="comment"), text)]
    yield from submit(page)


def comment_from_the_preview(page: Page) -> Playing:
    text = others(page)[0]
    page = yield from found_ticket(page, ticket(page))
    page = yield "Write it", [type_in(page.one(tag="textarea", name="comment"), f"\n{text}\n\n")]
    page = yield from scroll_until(page, lambda now: bool(now.all(tag="input", name="preview")))
    page = yield "Preview", [click(page.one(tag="input", name="preview"))]
    yield from submit(page)


OTHER_WAYS: list[tuple[str, Policy, bool]] = [
    ("priority", priority_in_a_sentence, True),
    ("page", page_with_a_heading, True),
    ("comment", comment_from_the_preview, True),
    ("priority", priority_of_two, False),
    ("comment", comment_and_keywords, False),
]
