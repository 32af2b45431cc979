"""Policies for the tasks at Roundup; each knows the site's pages, and reads everything else."""

from __future__ import annotations

import re

from tests.apps.actor import Moves, NotShownError, Page, Policy, click, done, type_in
from tests.apps.moves import Playing, press, quoted, scroll_until


def searched(page: Page, words: str) -> Moves:
    field, button = page.one(tag="input", id="search-text"), page.one(tag="input", id="submit")
    return (yield f"Search for {words}", [type_in(field, words), click(button)])


def found(page: Page, title: str) -> Moves:
    page = yield from searched(page, title)
    return (yield from press(page, title, "a"))


def numbered(page: Page, number: str) -> Moves:
    field, button = page.one(tag="input", name="@number"), page.one(tag="input", value="Show issue:")
    return (yield f"Show issue {number}", [type_in(field, number), click(button)])


def wish(page: Page, pattern: str) -> str:
    """What the request gives where the pattern has a group."""
    match = re.search(pattern, page.request)
    if match is None:
        raise NotShownError(f"nothing like {pattern} in the request")
    return match[1]


def opened(page: Page) -> Moves:
    """The issue of the request."""
    return (yield from found(page, wish(page, r'issue "([^"]*)"')))


def value(page: Page, name: str) -> str:
    """What a field of the form holds."""
    field = next((one for one in page.all() if one.attributes.get("name") == name), None)
    if field is None:
        raise NotShownError(f"no field {name} at {page.url}")
    return field.attributes.get("value", "")


def number_of(page: Page) -> str:
    return re.findall(r"issue(\d+)", page.url)[0]


# Questions.


def field(name: str) -> Policy:
    def policy(page: Page) -> Playing:
        page = yield from opened(page)
        yield done(value(page, name))

    return policy


def number(page: Page) -> Playing:
    page = yield from opened(page)
    yield done(number_of(page))


def creator(page: Page) -> Playing:
    page = yield from opened(page)
    page = yield from scroll_until(page, lambda now: any("Created on" in line for line in now.lines))
    yield done(page.match(r"Created on .* by ([\w.]+), last")[1])


def superseder(page: Page) -> Playing:
    page = yield from opened(page)
    yield done(value(page, "superseder") or number_of(page))


def file_name(page: Page) -> Playing:
    page = yield from opened(page)
    page = yield from scroll_until(page, lambda now: bool(files(now)))
    yield done(files(page)[0])


def files(page: Page) -> list[str]:
    links = [one for one in page.all(tag="a") if re.match(r"/file\d+/", one.attributes.get("href", ""))]
    return [one.text for one in links]


def last_author(page: Page) -> Playing:
    """The last message comes first."""
    page = yield from opened(page)
    page = yield from scroll_until(page, lambda now: any(line.startswith("Author: ") for line in now.lines))
    yield done(page.match(r"^Author: ([\w.]+)$")[1])


def phone_of(page: Page, login: str) -> Moves:
    """Opens the list of users, and the user."""
    page = yield from press(page, "User List", "a")
    return (yield from press(page, login, "a"))


def assignee_phone(page: Page) -> Playing:
    page = yield from opened(page)
    page = yield from phone_of(page, value(page, "assignedto"))
    yield done(value(page, "phone"))


def phone(page: Page) -> Playing:
    names = re.findall(r"(?:has|of) ([A-Z]\w+ [A-Z]\w+)", page.request)
    page = yield from press(page, "User List", "a")
    lines = list(page.lines)
    name = next(name for name in names if name in lines)
    yield done(next(line for line in lines[lines.index(name) :] if re.fullmatch(r"\d+-555-\d+", line)))


_FIGURE = r"says that the [a-z ]+ (\d+)"


def figure(page: Page) -> Moves:
    """The page, once it shows a message with a figure."""
    page = yield from opened(page)
    return (yield from scroll_until(page, lambda now: any(re.search(_FIGURE, line) for line in now.lines)))


def fact(page: Page) -> Playing:
    page = yield from figure(page)
    yield done(page.match(_FIGURE)[1])


def said(page: Page) -> Playing:
    """The search finds words; the message is the one with just these."""
    text = quoted(page)[0]
    page = yield from searched(page, text)
    links = [one for one in page.all(tag="a") if re.match(r"/issue\d+", one.attributes.get("href", ""))]
    for title in [one.text for one in links]:
        page = yield from press(page, title, "a")
        if text in page.lines:
            yield done(number_of(page))
        page = yield "Go back", [{"go_back": {}}]


_LOGIN = r"([a-z]+(?:\.[a-z]+)?)"
# Name of a field of the search -> how a request gives it.
_FILTERS = {
    "status": r"the status (?!of)([\w-]+)",
    "keyword": r'keyword "([^"]*)"',
    "assignedto": f"assigned to {_LOGIN}",
    "priority": r"priority (\w+)",
}


def filtered(page: Page, name: str = "") -> Moves:
    wishes = {one: match[1] for one, how in _FILTERS.items() if (match := re.search(how, page.request))}
    if "not resolved" in page.request:
        wishes["status"] = "not resolved"
    page = yield from press(page, "Search", "a")
    actions = [choice(page, one, text) for one, text in wishes.items()]
    if name:
        actions.append(type_in(page.one(tag="input", name="@queryname"), name))
    page = yield "Choose", actions
    page = yield from scroll_until(page, lambda now: len(now.all(tag="input", value="Search")) > 1)
    return (yield "Search", [click(page.all(tag="input", value="Search")[-1].index)])


def choice(page: Page, name: str, text: str) -> dict:
    return {"select_dropdown_option": {"index": page.one(tag="select", name=name), "text": text}}


def total(page: Page) -> str:
    return next((found[1] for line in page.lines if (found := re.search(r"out of (\d+)$", line))), "0")


def count(page: Page) -> Playing:
    page = yield from filtered(page)
    yield done(total(page))


def saved_count(page: Page) -> Playing:
    page = yield from press(page, quoted(page)[0], "a")
    yield done(total(page))


# Changes.


def submit(page: Page) -> Moves:
    page = yield from scroll_until(page, lambda now: bool(now.all(tag="input", name="submit_button")))
    return (yield "Submit", [click(page.one(tag="input", name="submit_button"))])


def filled(page: Page, **values: str) -> Moves:
    """Fills in the form of the page, and submits it."""
    actions = []
    for name, text in values.items():
        if page.all(tag="select", name=name):
            actions.append(choice(page, name, text))
        else:
            tag = "textarea" if name == "@note" else "input"
            actions.append(type_in(page.one(tag=tag, name=name), text))
    page = yield "Fill in", actions
    return (yield from submit(page))


# Name of a field -> how a request gives its new value.
_GIVEN = {
    "title": r'(?:title of the issue "[^"]*" to|new issue) "([^"]*)"',
    "priority": r'(?:priority of the issue "[^"]*" to|with the priority|: priority) (\w+)',
    "status": r'(?:status(?: of the issue "[^"]*")? to|, status) ([a-z-]+)',
    "assignedto": rf'(?:Assign the issue "[^"]*" to|assigned to|assign it to) {_LOGIN}[.,]',
    "@note": r'message "([^"]*)"(?:,| to|:)',
    "keyword": r'with the keyword "([^"]*)"',
}


def wishes(page: Page) -> dict[str, str]:
    return {name: match[1] for name, how in _GIVEN.items() if (match := re.search(how, page.request))}


def change(page: Page) -> Playing:
    values = wishes(page)
    page = yield from opened(page)
    yield from filled(page, **values)
    yield done("Saved.")


def unassign(page: Page) -> Playing:
    page = yield from opened(page)
    yield from filled(page, assignedto="- no selection -")
    yield done("Saved.")


def added(name: str, pattern: str) -> Policy:
    """Adds a name to a field with a list."""

    def policy(page: Page) -> Playing:
        new = wish(page, pattern)
        page = yield from opened(page)
        names = [one for one in value(page, name).split(",") if one]
        yield from filled(page, **{name: ",".join([*names, new])})
        yield done("Saved.")

    return policy


def removed(name: str, pattern: str) -> Policy:
    """Takes a name from a field with a list."""

    def policy(page: Page) -> Playing:
        old = wish(page, pattern)
        page = yield from opened(page)
        names = [one for one in value(page, name).split(",") if one != old]
        yield from filled(page, **{name: ",".join(names)})
        yield done("Saved.")

    return policy


def hand_back(page: Page) -> Playing:
    _, text = quoted(page)
    priority = wish(page, r"priority to (\w+)")
    page = yield from opened(page)
    page = yield from scroll_until(page, lambda now: text in now.lines)
    lines = list(page.lines)
    authors = [line for line in lines[: lines.index(text)] if line.startswith("Author: ")]
    yield from filled(page, assignedto=authors[-1].removeprefix("Author: "), priority=priority)
    yield done("Saved.")


def remove_message(page: Page) -> Playing:
    """The button is above the message."""
    text = quoted(page)[0]
    page = yield from opened(page)
    page = yield from scroll_until(page, lambda now: text in now.lines)
    lines = list(page.lines)
    buttons = re.findall(r"\[(\d+)\]<input[^>]*value=remove", "\n".join(lines[: lines.index(text)]))
    yield "Remove it", [click(int(buttons[-1]))]
    yield done("Removed.")


def remove_file(page: Page) -> Playing:
    page = yield from opened(page)
    page = yield from scroll_until(page, lambda now: bool(files(now)))
    link = page.one(files(page)[0], "a")
    buttons = [one.index for one in page.all(tag="input", value="remove") if one.index > link]
    yield "Remove it", [click(buttons[0])]
    yield done("Removed.")


def rename_file(page: Page) -> Playing:
    name = wish(page, r" to ([\w.-]+\.txt)\.")
    page = yield from opened(page)
    page = yield from scroll_until(page, lambda now: bool(files(now)))
    links = [one for one in page.all("edit", "a") if one.attributes.get("href", "").startswith("/file")]
    page = yield "Edit the file", [click(links[0].index)]
    yield from filled(page, name=name)
    yield done("Renamed.")


def reported(page: Page, values: dict[str, str]) -> Moves:
    link = next(
        one for one in page.all("Create New", "a") if one.attributes.get("href", "").startswith("/issue")
    )
    page = yield "Report an issue", [click(link.index)]
    return (yield from filled(page, **values))


def new(page: Page) -> Playing:
    yield from reported(page, wishes(page))
    yield done("Reported.")


def supersede(page: Page) -> Playing:
    old, replacing = quoted(page)
    page = yield from found(page, replacing)
    number = number_of(page)
    page = yield from found(page, old)
    yield from filled(page, superseder=number, status="resolved")
    yield done("Replaced.")


def new_superseder(page: Page) -> Playing:
    old = quoted(page)[1]
    page = yield from reported(page, wishes(page))
    number = number_of(page)
    page = yield from found(page, old)
    yield from filled(page, superseder=number)
    yield done("Reported.")


def ensure(page: Page) -> Playing:
    title = quoted(page)[0]
    priority = wish(page, r"its priority to (\w+)")
    page = yield from searched(page, title)
    if page.all(title, "a"):
        page = yield from press(page, title, "a")
        yield from filled(page, priority=priority)
    else:
        yield from reported(page, {"title": title, "priority": priority})
    yield done("Done.")


def keywords_page(page: Page) -> Moves:
    return (yield from press(page, "Edit Existing", "a"))


def keyword_if_missing(page: Page) -> Playing:
    keyword = quoted(page)[1]
    page = yield from keywords_page(page)
    if not page.all(keyword, "a"):
        page = yield from filled(page, name=keyword)
    page = yield from opened(page)
    yield from filled(page, keyword=keyword)
    yield done("Done.")


def new_keyword(page: Page) -> Playing:
    keyword = quoted(page)[0]
    page = yield from keywords_page(page)
    yield from filled(page, name=keyword)
    yield done("Created.")


def rename_keyword(page: Page) -> Playing:
    old, new_name = quoted(page)
    page = yield from keywords_page(page)
    page = yield from press(page, old, "a")
    yield from filled(page, name=new_name)
    yield done("Renamed.")


def own_phone(page: Page) -> Playing:
    text = wish(page, r"to ([\d-]+)\.")
    page = yield from press(page, "Your Details", "a")
    yield from filled(page, phone=text)
    yield done("Changed.")


def organisation(page: Page) -> Playing:
    """The login name is a link before the name."""
    realname, text = wish(page, r"^(\w+ \w+) has moved"), wish(page, r"this user to ([\w ]+)\.")
    page = yield from press(page, "User List", "a")
    lines = list(page.lines)
    links = re.findall(r"\[(\d+)\]<a", "\n".join(lines[: lines.index(realname)]))
    page = yield "Open the user", [click(int(links[-1]))]
    yield from filled(page, organisation=text)
    yield done("Changed.")


def added_person(page: Page) -> Moves:
    realname, username, place = quoted(page)[:3]
    address = wish(page, r"address (\S+);")
    page = yield from press(page, "Add User", "a")
    return (
        yield from filled(page, realname=realname, username=username, organisation=place, address=address)
    )


def new_person(page: Page) -> Playing:
    username, *titles = quoted(page)[1::2]
    page = yield from added_person(page)
    if titles:
        page = yield from found(page, titles[0])
        yield from filled(page, assignedto=username)
    yield done("Added.")


def onboard(page: Page) -> Playing:
    _, username, _, keyword, _ = quoted(page)
    values = {**wishes(page), "assignedto": username, "keyword": keyword}
    page = yield from added_person(page)
    page = yield from keywords_page(page)
    page = yield from filled(page, name=keyword)
    yield from reported(page, values)
    yield done("Added all three.")


def save_query(page: Page) -> Playing:
    yield from filtered(page, quoted(page)[0])
    yield done("Saved.")


def queries(page: Page) -> Moves:
    """Opens the table of queries; a query's link there is the second one of the page."""
    return (yield from press(page, "edit", "a", href="/query?@template=edit"))


def delete_query(page: Page) -> Playing:
    name = quoted(page)[0]
    page = yield from queries(page)
    link = page.all(name, "a")[-1].index
    buttons = [one.index for one in page.all(tag="input", value="Delete") if one.index > link]
    yield "Delete it", [click(buttons[0])]
    yield done("Deleted.")


def leave_out(page: Page) -> Playing:
    name = quoted(page)[0]
    page = yield from queries(page)
    link = page.all(name, "a")[-1].index
    selects = [one.index for one in page.all(tag="select") if one.index > link]
    actions = [{"select_dropdown_option": {"index": selects[0], "text": "remove"}}]
    page = yield "Remove it", actions
    yield "Save", [click(page.one(tag="input", value="Save Selection"))]
    yield done("Removed.")


def two(page: Page) -> Playing:
    first, second = quoted(page)
    priority, status = wish(page, r'" to (\w+), and'), wish(page, r'" to ([\w-]+)\.')
    page = yield from found(page, first)
    page = yield from filled(page, priority=priority)
    page = yield from found(page, second)
    yield from filled(page, status=status)
    yield done("Changed both.")


def same_as(page: Page) -> Playing:
    second, first = quoted(page)
    page = yield from found(page, first)
    values = {name: value(page, name) for name in ("priority", "assignedto")}
    page = yield from found(page, second)
    yield from filled(page, **values)
    yield done("Changed.")


def pass_on(page: Page) -> Playing:
    _, *titles = quoted(page)
    page = yield from figure(page)
    text = page.match(_FIGURE)[1]
    for title in titles:
        page = yield from found(page, title)
        page = yield from filled(page, **{"@note": text})
    yield done("Passed on.")


def note_phone(page: Page) -> Playing:
    title = quoted(page)[0]
    page = yield from opened(page)
    page = yield from phone_of(page, value(page, "assignedto"))
    text = value(page, "phone")
    page = yield from found(page, title)
    yield from filled(page, **{"@note": text})
    yield done("Written.")


def listed(page: Page) -> list[str]:
    """The numbers of the issues that a search has found."""
    links = [one.attributes.get("href", "") for one in page.all(tag="a")]
    return list(dict.fromkeys(found[1] for one in links if (found := re.fullmatch(r"/issue(\d+)", one))))


def every(name: str, pattern: str) -> Policy:
    """Changes a field of all issues that a search finds."""

    def policy(page: Page) -> Playing:
        new_value = wish(page, pattern)
        page = yield from filtered(page)
        for each in listed(page):
            page = yield from numbered(page, each)
            page = yield from filled(page, **{name: new_value})
        yield done("Changed all.")

    return policy


POLICIES: dict[str, Policy] = {
    "priority": field("priority"),
    "status": field("status"),
    "assignee": field("assignedto"),
    "number": number,
    "creator": creator,
    "keyword": field("keyword"),
    "superseder": superseder,
    "superseder-or-itself": superseder,
    "file": file_name,
    "last-author": last_author,
    "assignee-phone": assignee_phone,
    "fact": fact,
    "said": said,
    "count-status": count,
    "count-keyword": count,
    "count-open": count,
    "saved-query": saved_count,
    "phone": phone,
    "phone-of-either": phone,
    "set-priority": change,
    "set-status": change,
    "set-both": change,
    "rename": change,
    "assign": change,
    "unassign": unassign,
    "add-keyword": added("keyword", r'keyword "([^"]*)"'),
    "remove-keyword": removed("keyword", r'keyword "([^"]*)"'),
    "add-nosy": added("nosy", f"Add {_LOGIN}"),
    "remove-nosy": removed("nosy", f"Take {_LOGIN}"),
    "supersede": supersede,
    "note": change,
    "note-and-status": change,
    "note-and-assign": change,
    "hand-back": hand_back,
    "remove-message": remove_message,
    "remove-file": remove_file,
    "rename-file": rename_file,
    "new": new,
    "new-with-all": new,
    "new-superseder": new_superseder,
    "ensure": ensure,
    "keyword-if-missing": keyword_if_missing,
    "new-keyword": new_keyword,
    "rename-keyword": rename_keyword,
    "own-phone": own_phone,
    "organisation": organisation,
    "new-person": new_person,
    "new-person-assigned": new_person,
    "onboard": onboard,
    "save-query": save_query,
    "delete-query": delete_query,
    "leave-out": leave_out,
    "two": two,
    "same-as": same_as,
    "reassign-all": every("assignedto", rf"assigned to [a-z.]+ to {_LOGIN}"),
    "raise-all": every("priority", r"get the priority (\w+)"),
    "resolve-all": every("status", "to (resolved)"),
    "pass-on": pass_on,
    "note-phone": note_phone,
}


def file_in_a_sentence(page: Page) -> Playing:
    page = yield from opened(page)
    page = yield from scroll_until(page, lambda now: bool(files(now)))
    yield done(f"The file of this issue is called **{files(page)[0]}**.")


def count_in_a_sentence(page: Page) -> Playing:
    keyword = quoted(page)[0]
    page = yield from filtered(page)
    yield done(f'{total(page)} issues have the keyword "{keyword}".')


def new_keyword_first(page: Page) -> Playing:
    new_one = wish(page, r'keyword "([^"]*)"')
    page = yield from opened(page)
    yield from filled(page, keyword=", ".join([new_one, value(page, "keyword")]))
    yield done("Saved.")


def note_with_blank_lines(page: Page) -> Playing:
    text = quoted(page)[0]
    page = yield from opened(page)
    yield from filled(page, **{"@note": f"\n{text}  \n\n"})
    yield done("Saved.")


def whole_message(page: Page) -> Playing:
    """Passes on what the message says, and not the figure alone."""
    _, *titles = quoted(page)
    page = yield from figure(page)
    text = next(line for line in page.lines if re.search(_FIGURE, line))
    for title in titles[::-1]:
        page = yield from found(page, title)
        page = yield from filled(page, **{"@note": text})
    yield done("Passed on.")


def note_and_priority(page: Page) -> Playing:
    """Says what it should, but changes the priority, too."""
    text = quoted(page)[0]
    page = yield from opened(page)
    new_one = "wish" if value(page, "priority") != "wish" else "bug"
    yield from filled(page, **{"@note": text, "priority": new_one})
    yield done("Saved.")


def first_alone(page: Page) -> Playing:
    """Resolves the first of several issues."""
    page = yield from filtered(page)
    page = yield "Open the first", [click(page.all(tag="a", href=f"/issue{listed(page)[0]}")[0].index)]
    yield from filled(page, status="resolved")
    yield done("Resolved.")


OTHER_WAYS: list[tuple[str, Policy, bool]] = [
    ("file", file_in_a_sentence, True),
    ("count-keyword", count_in_a_sentence, True),
    ("add-keyword", new_keyword_first, True),
    ("note", note_with_blank_lines, True),
    ("pass-on", whole_message, True),
    ("note", note_and_priority, False),
    ("resolve-all", first_alone, False),
]
