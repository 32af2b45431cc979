"""Policies for the tasks at django-helpdesk; each knows the site's pages, and reads everything else."""

from __future__ import annotations

import re

from tests.apps.actor import Moves, NotShownError, Page, Policy, click, done, type_in
from tests.apps.moves import Playing, press, quoted, scroll_until, wait_until


def asked(page: Page, pattern: str) -> str:
    found = re.search(pattern, page.request)
    assert found, page.request
    return found[1]


def search(page: Page, words: str) -> Moves:
    """Searches; a ticket's number opens it at once."""
    field = page.one(tag="input", id="search_query")
    return (yield f"Search for {words}", [type_in(field, words), {"send_keys": {"keys": "Enter"}}])


def ticket(page: Page) -> str:
    return asked(page, r'[Tt]icket "([^"]*)"')


def listed(page: Page) -> Moves:
    """The list once its rows are there."""
    return (yield from wait_until(page, lambda now: any(re.match(r"Showing \d", line) for line in now.lines)))


def opened(page: Page, title: str) -> Moves:
    page = yield from search(page, title)
    return (yield from from_list(page, title))


def from_list(page: Page, title: str) -> Moves:
    page = yield from listed(page)
    links = [one for one in page.all(tag="a") if re.fullmatch(rf"\d+\. {re.escape(title)}", one.text)]
    if not links:
        raise NotShownError(f"no ticket {title}")
    return (yield f"Open {title}", [click(links[0].index)])


def found(page: Page) -> Moves:
    """The ticket of the request."""
    return (yield from opened(page, ticket(page)))


def past(page: Page) -> Moves:
    """The ticket of the request, which is resolved or closed: the search leaves closed ones out."""
    title = ticket(page)
    page = yield from press(page, "Filters", "a")
    for label in ("Open", "Reopened", "Resolved", "Closed"):
        page = yield f"Choose {label}", [click(boxes(page)[label])]
    page = yield from press(page, "Apply Filters", "button")
    return (yield from from_list(page, title))


def after(page: Page, label: str) -> str:
    """The first text below a label that is no element."""
    lines = list(page.lines)
    return next(line for line in lines[lines.index(label) + 1 :] if not re.match(r"\*?\[\d+\]<", line))


def filtered(page: Page, queue: str = "", priority: str = "") -> Moves:
    """The open and reopened tickets of a queue, by the filters of the list."""
    page = yield from press(page, "All Tickets", "a")
    page = yield from press(page, "Filters", "a")
    for heading, label in (("Queue", queue), ("Priority", priority)):
        if label:
            page = yield from press(page, heading, "button")
            box = next(index for text, index in boxes(page).items() if text == label)
            page = yield f"Choose {label}", [click(box)]
    page = yield from press(page, "Apply Filters", "button")
    return (yield from listed(page))


def boxes(page: Page) -> dict[str, int]:
    """Index of each box by the text after it."""
    lines, boxes = list(page.lines), {}
    for element in page.all(tag="input", type="checkbox"):
        at = next(at for at, line in enumerate(lines) if re.match(rf"\*?\[{element.index}\]<", line))
        boxes[lines[at + 1]] = element.index
    return boxes


def numbers(page: Page) -> list[str]:
    """Numbers of the tickets that the list shows, in its order."""
    return [one.attributes["value"] for one in page.all(tag="input", name="ticket_id")]


# Questions.


def field(label: str, pattern: str = "(.*)") -> Policy:
    def policy(page: Page) -> Playing:
        page = yield from found(page)
        match = re.search(pattern, after(page, label))
        yield done(match[1] if match else "")

    return policy


def owner(page: Page) -> Playing:
    page = yield from found(page)
    yield done(page.all(tag="select", name="owner")[0].attributes["value"])


def due(page: Page) -> Playing:
    page = yield from found(page)
    page = yield from press(page, "Respond", "button")
    page = yield from press(page, "Update ticket details", "a")
    yield done(page.all(tag="input", id="id_due_date")[0].attributes["value"][:10])


def tag(page: Page) -> Playing:
    page = yield from found(page)
    yield done(page.match(r"the tag (LB-\d+)")[1])


def part(page: Page) -> Playing:
    page = yield from past(page)
    yield done(page.match(r"Replaced part (\d+)")[1])


def number(page: Page) -> Playing:
    title = ticket(page)
    page = yield from search(page, title)
    page = yield from listed(page)
    links = [one for one in page.all(tag="a") if re.fullmatch(rf"\d+\. {re.escape(title)}", one.text)]
    yield done(links[0].text.partition(".")[0] if links else "none")


def of_submitter(page: Page) -> Playing:
    queue, address = re.findall(r'the queue "([^"]*)" was submitted by (\S+)\?', page.request)[0]
    page = yield from filtered(page, queue)
    lines, last, result = list(page.lines), "", "none"
    for line in lines:
        if title := re.match(r"(\d+)\. ", line):
            last = title[1]
        if line == address:
            result = last
    yield done(result)


def in_queue(page: Page) -> Playing:
    queue, status = re.findall(r'the queue "([^"]*)" are (\w+)', page.request)[0]
    page = yield from press(page, "Reports", "a")
    page = yield from scroll_until(page, lambda now: bool(now.all(queue, "a")))
    texts = [line for line in page.lines if not re.match(r"\*?\[\d+\]<", line)]
    yield done(texts[texts.index(queue) + (1 if status == "open" else 2)])


def due_first(page: Page) -> Playing:
    page = yield from filtered(page, quoted(page)[0])
    page = yield from press(page, "Filters", "a")
    sort = page.one(tag="select", id="id_sort")
    page = yield "Sort", [{"select_dropdown_option": {"index": sort, "text": "Due Date"}}]
    page = yield from press(page, "Apply Filters", "button")
    page = yield from listed(page)
    yield done(numbers(page)[0])


def report(page: Page) -> Playing:
    queue, name = quoted(page)[0], asked(page, r"assigned to (\w+),")
    page = yield from press(page, "Reports", "a")
    page = yield from press(page, "Create new report", "button")
    page = yield from press(page, "by Queue", "a", href="/reports/userqueue/")
    page = yield from scroll_until(page, lambda now: "Total" in now.lines)
    lines = list(page.lines)
    lines = lines[lines.index("User") :]
    # Who has no tickets has no row.
    yield done(lines[lines.index(name) + lines.index(queue)] if name in lines else "0")


def query_count(page: Page) -> Playing:
    title = quoted(page)[0]
    page = yield from press(page, "Manage Saved Queries", "a")
    link = next(one for one in page.all(tag="a") if one.text.removesuffix(" (Shared)") == title)
    page = yield f"Run {title}", [click(link.index)]
    page = yield from listed(page)
    yield done(page.match(r"Showing \d+ to \d+ of (\d+)")[1])


def article(page: Page, title: str) -> Moves:
    """The article, unfolded, in its category; a page without it if no category has it."""
    page = yield from press(page, "Knowledge Base", "a")
    index = page.url
    for href in [one.attributes["href"] for one in page.all("View articles", "a")]:
        page = yield "Open a category", [click(page.one(tag="a", href=href))]
        if page.all(title, "button"):
            return (yield from press(page, title, "button"))
        page = yield "Back to the categories", [{"go_to_url": {"url": index}}]
    return page


def said(page: Page, title: str) -> str:
    """The last number of an unfolded article."""
    lines = list(page.lines)
    first = next(at for at, line in enumerate(lines) if title in line)
    at = next(at for at, line in enumerate(lines) if line.endswith("?") and at > first)
    return re.findall(r"\d+", lines[at + 1])[-1]


def fact(page: Page) -> Playing:
    title = quoted(page)[0]
    page = yield from article(page, title)
    yield done(said(page, title))


def category(page: Page) -> Playing:
    title = quoted(page)[0]
    page = yield from article(page, title)
    if not page.all(title, "button"):
        yield done("none")
    # The first heading of the page.
    yield done(page.match(r"^((?:Accounts|Network|Printers|Rooms) .*)$")[1])


# Changes.


def save_page(page: Page, text: str = "Save") -> Moves:
    def ready(now: Page) -> list[int]:
        buttons = [*now.all(text, "button"), *now.all(tag="input", type="submit", value=text)]
        return [one.index for one in buttons]

    page = yield from scroll_until(page, lambda now: bool(ready(now)))
    return (yield "Save", [click(ready(page)[-1])])


def save(page: Page, text: str = "Save") -> Playing:
    yield from save_page(page, text)
    yield done("Saved.")


def write(page: Page, text: str) -> Moves:
    """A public comment on the ticket that is shown."""
    page = yield from press(page, "Respond", "button")
    page = yield "Write it", [type_in(page.one(tag="textarea", id="commentBox"), text)]
    return (yield from save_page(page))


def respond(page: Page) -> Playing:
    """Writes or chooses a text, and sets what else the request names."""
    text = next(one for one in quoted(page) if one != ticket(page))
    status = {"Resolve": "resolved", "Close": "closed", "Open": "reopened"}.get(page.request.split()[0])
    page = yield from past(page) if status == "reopened" else found(page)
    page = yield from press(page, "Respond", "button")
    if "pre-set reply" in page.request:
        preset = page.one(tag="select", id="id_preset")
        page = yield "Choose the reply", [{"select_dropdown_option": {"index": preset, "text": text}}]
        page = yield from wait_until(
            page, lambda now: bool(now.all(tag="textarea", id="commentBox")[0].attributes.get("value"))
        )
    else:
        page = yield "Write it", [type_in(page.one(tag="textarea", id="commentBox"), text)]
    if status:
        page = yield "Set the status", [click(page.one(tag="input", id=f"st_{status}"))]
    if "private" in page.request or "not make it public" in page.request:
        page = yield "Make it private", [click(page.one(tag="input", id="id_public"))]
    if "due date" in page.request:
        page = yield from press(page, "Update ticket details", "a")
        page = yield "Set the day", date(page, asked(page, r"due date to (\S+)"))
    yield from save(page)


def round_(page: Page) -> Playing:
    texts = quoted(page)
    for text, title in zip(texts[::2], texts[1::2], strict=True):
        page = yield from opened(page, title)
        page = yield from write(page, text)
    yield done("Added.")


def tell(page: Page) -> Playing:
    title = quoted(page)[0]
    page = yield from article(page, title)
    number = said(page, title)
    page = yield from found(page)
    yield from write(page, number)
    yield done("Done.")


def date(page: Page, day: str) -> list[dict]:
    # The calendar that opens hides the button until it is closed.
    return [type_in(page.one(tag="input", id="id_due_date"), day), {"send_keys": {"keys": "Tab"}}]


# Name of a field -> how a request gives its new value.
_GIVEN = {
    "owner": r"to (Mara|Ines|Pavel|Tomas|Wanda)\b",
    "priority": r"priority .*to (\d\. \w+(?: Low)?)",
    "queue": r'queue "([^"]*)"',
    "due_date": r"(?:due on|due date to) (\d{4}-\d\d-\d\d)",
    "title": r'title of the ticket "[^"]*" to "([^"]*)"',
}


def change(page: Page) -> Playing:
    values = {name: given[1] for name, how in _GIVEN.items() if (given := re.search(how, page.request))}
    page = yield from found(page)
    page = yield from update(page, values)
    yield done("Saved.")


def update(page: Page, values: dict[str, str]) -> Moves:
    """Other values of the ticket that is shown."""
    page = yield from press(page, "Respond", "button")
    page = yield from press(page, "Update ticket details", "a")
    page = yield from scroll_until(page, lambda now: bool(now.all(tag="input", id="id_due_date")))
    actions = []
    for name, text in values.items():
        if name == "due_date":
            actions += date(page, text)
        elif name == "title":
            actions.append(type_in(page.one(tag="input", name="title"), text))
        else:
            index = page.one(tag="select", id=f"id_{name}")
            wanted = text.lower() if name == "owner" else text
            actions.append({"select_dropdown_option": {"index": index, "text": wanted}})
    page = yield "Change it", actions
    return (yield from save_page(page))


def hand_out(page: Page) -> Playing:
    request = page.request
    for title, owner in re.findall(r'ticket "([^"]*)" to (\w+)', request)[:2]:
        page = yield from opened(page, title)
        page = yield from update(page, {"owner": owner})
    title, queue = re.findall(r'ticket "([^"]*)" to the queue "([^"]*)"', request)[0]
    page = yield from opened(page, title)
    page = yield from update(page, {"queue": queue})
    yield done("Handed out.")


def same_owner(page: Page) -> Playing:
    source, title = quoted(page)
    page = yield from opened(page, source)
    name = page.all(tag="select", name="owner")[0].attributes["value"]
    page = yield from opened(page, title)
    page = yield from update(page, {"owner": name})
    yield done("Assigned.")


def action(page: Page, text: str) -> Moves:
    """An entry of the ticket's menu."""
    page = yield from press(page, "Actions", "button")
    entry = next(one for one in page.view.elements if one.text == text)
    return (yield text, [click(entry.index)])


def set_submitter(page: Page) -> Playing:
    address = asked(page, r"submitted by (\S+):")
    page = yield from found(page)
    page = yield from action(page, "Edit")
    page = yield "Correct it", [type_in(page.one(tag="input", id="id_submitter_email"), address)]
    yield from save(page, "Save Changes")


def hold(page: Page) -> Playing:
    page = yield from found(page)
    page = yield from action(page, "Hold")
    yield done("It is on hold.")


def publish(page: Page) -> Playing:
    page = yield from found(page)
    lines = list(page.lines)
    at = lines.index("Private")
    menu = next(link for line in lines[at:] if (link := re.match(r"\*?\[(\d+)\]<a", line)))
    page = yield "Open the menu of the comment", [click(int(menu[1]))]
    page = yield from press(page, "Edit", "a")
    page = yield from scroll_until(page, lambda now: bool(now.all(tag="input", id="id_public")))
    page = yield "Make it public", [click(page.one(tag="input", id="id_public"))]
    yield from save(page, "Submit")


def copy(page: Page) -> Playing:
    address = asked(page, r"copies to (\S+),")
    page = yield from found(page)
    number = shown(page)
    page = yield "Open the copies", [click(page.one(tag="a", href=f"/tickets/{number}/cc/"))]
    page = yield "Add an address", [click(page.one(tag="a", href=f"/tickets/{number}/cc/add/"))]
    page = yield from fill(page, {"email": address})
    yield from save(page, "Save Ticket CC")


def step(page: Page) -> Playing:
    text = quoted(page)[0]
    page = yield from found(page)
    page = yield from press(page, "Respond", "button")
    page = yield from press(page, "Update checklists", "a")
    page = yield from scroll_until(page, lambda now: text in boxes(now))
    page = yield "Mark it", [click(boxes(page)[text])]
    yield from save(page)


def depend(page: Page) -> Playing:
    first, other = quoted(page)
    page = yield from search(page, other)
    page = yield from listed(page)
    (number,) = listed_numbers(page, [other])
    page = yield from opened(page, first)
    yield from depend_on(page, f"{number} {other}")


def shown(page: Page) -> str:
    """Number of the ticket that is shown."""
    found = re.search(r"/tickets/(\d+)", page.url)
    if found is None:
        raise NotShownError(f"no ticket at {page.url}")
    return found[1]


def depend_on(page: Page, other: str) -> Playing:
    """Makes the ticket that is shown depend on another."""
    link = page.one(tag="a", href=f"/tickets/{shown(page)}/dependency/add/")
    page = yield "Add a dependency", [click(link)]
    choice = {"index": page.one(tag="select", id="id_depends_on"), "text": other}
    page = yield "Choose the ticket", [{"select_dropdown_option": choice}]
    yield from save(page, "Save Ticket Dependency")


def listed_numbers(page: Page, titles: list[str]) -> list[str]:
    """Numbers of tickets by their titles in the list."""
    known = {one.text.partition(". ")[2]: one.text.partition(". ")[0] for one in page.all(tag="a")}
    return [known[title] for title in titles]


def ticked(page: Page, wanted: list[str]) -> Moves:
    """Ticks tickets of the list."""
    for one in wanted:
        page = yield f"Tick {one}", [click(page.one(tag="input", name="ticket_id", value=one))]
    return page


def mass(page: Page, text: str) -> Moves:
    """An action for the ticked tickets."""
    page = yield from press(page, "Actions", "button")
    index = page.one(tag="select", id="id_mass_action")
    page = yield f"Choose {text}", [{"select_dropdown_option": {"index": index, "text": text}}]
    # The first such button is the search's.
    return (yield "Go", [click(page.all("Go", "button")[-1].index)])


def merge(page: Page) -> Playing:
    page = yield from listed(page)
    gone, kept = listed_numbers(page, quoted(page))
    page = yield from ticked(page, [gone, kept])
    page = yield from mass(page, "Merge")
    page = yield from scroll_until(page, lambda now: bool(now.all(tag="input", name="chosen_ticket")))
    page = yield "Choose what stays", [click(page.one(tag="input", name="chosen_ticket", value=kept))]
    yield from save(page, "Validate")


def assign_all(page: Page) -> Playing:
    queue, name = re.findall(r'queue "([^"]*)" to (\w+)\.', page.request)[0]
    page = yield from filtered(page, queue)
    page = yield from ticked(page, numbers(page))
    page = yield from mass(page, name.lower())
    yield done("Assigned.")


def close_some(page: Page) -> Playing:
    page = yield from listed(page)
    page = yield from ticked(page, listed_numbers(page, quoted(page)))
    page = yield from mass(page, "Close (Don't Send E-Mail)")
    yield done("Closed.")


def fill(page: Page, values: dict[str, str]) -> Moves:
    """Fills in fields by their identifiers."""
    actions = []
    for name, text in values.items():
        if name == "due_date":
            actions += date(page, text)
        elif select := page.all(tag="select", id=f"id_{name}"):
            actions.append({"select_dropdown_option": {"index": select[0].index, "text": text}})
        else:
            actions.append(type_in(page.one(id=f"id_{name}"), text))
    return (yield "Fill it in", actions)


def ticket_values(page: Page) -> dict[str, str]:
    values = {
        "queue": asked(page, r'queue "([^"]*)"'),
        "title": asked(page, r'(?:ticket|problem) "([^"]*)"'),
        "body": asked(page, r'description "([^"]*)"'),
    }
    patterns = {
        "priority": r"priority (\d\. \w+(?: Low)?)",
        "due_date": r"due on (\S+\d)",
        "submitter_email": r"(?:submitted by|address is) ([\w@.-]+\w)",
        "assigned_to": r"and (\w+) is its owner",
    }
    given = {name: match[1] for name, how in patterns.items() if (match := re.search(how, page.request))}
    if "assigned_to" in given:
        given["assigned_to"] = given["assigned_to"].lower()
    return values | given


def wait_for(page: Page) -> Playing:
    values, waits = ticket_values(page), asked(page, r'make the ticket "([^"]*)" depend')
    page = yield from press(page, "New Ticket", "a")
    page = yield from fill(page, values)
    page = yield from save_page(page, "Submit Ticket")
    number = shown(page)
    page = yield from opened(page, waits)
    yield from depend_on(page, f"{number} {values['title']}")


def new(page: Page) -> Playing:
    page = yield from press(page, "New Ticket", "a")
    page = yield from fill(page, ticket_values(page))
    yield from save(page, "Submit Ticket")


def from_article(page: Page) -> Playing:
    page = yield from article(page, quoted(page)[0])
    page = yield from press(page, "Create New Ticket", "a")
    page = yield from fill(page, ticket_values(page))
    yield from save(page, "Submit Ticket")


def save_query(page: Page) -> Playing:
    title, queue = quoted(page)[0], asked(page, r'queue "([^"]*)"')
    page = yield from filtered(page, queue, asked(page, r"priority (\d\. \w+(?: Low)?)"))
    page = yield from press(page, "Queries", "button")
    page = yield "Name it", [type_in(page.one(tag="input", id="id_title"), title)]
    if "do not share" not in page.request:
        page = yield "Share it", [click(page.one(tag="input", id="id_shared"))]
    yield from save(page)


def delete_query(page: Page) -> Playing:
    title = quoted(page)[0]
    page = yield from press(page, "Manage Saved Queries", "a")
    links = page.all(tag="a")
    at = next(at for at, one in enumerate(links) if one.text.removesuffix(" (Shared)") == title)
    bin_ = next(one for one in links[at:] if one.attributes.get("title") == "Delete this query")
    page = yield f"Delete {title}", [click(bin_.index)]
    button = next(one for one in page.view.elements if one.text.startswith("Yes"))
    page = yield "Yes", [click(button.index)]
    yield done("Deleted.")


def vote(page: Page) -> Playing:
    title = quoted(page)[0]
    page = yield from article(page, title)
    page = yield from wait_until(page, lambda now: bool(now.all("Create New Ticket", "a")))
    # Thumbs up and down are pictures, just before the links.
    last = next(one.index for one in page.view.elements if "Open tickets" in one.text)
    page = yield "Vote", [click(last - (2 if page.request.startswith("Vote for") else 1))]
    yield done("Voted.")


def maintained(page: Page, text: str) -> Moves:
    """A page of the system settings."""
    page = yield "Open the menu", [click(page.one(tag="a", id="userDropdown"))]
    page = yield from press(page, "System Settings", "a")
    return (yield from press(page, text, "a"))


def write_article(page: Page) -> Playing:
    title, category, question, answer = quoted(page)
    # The category is the last: choosing it makes links appear.
    values = {"title": title, "question": question, "answer": answer}
    values["category"] = category
    page = yield from maintained(page, "Maintain Knowledgebase Items")
    page = yield "Add one", [click(page.all(tag="a", href="/admin/helpdesk/kbitem/add/")[-1].index)]
    page = yield from fill(page, values)
    yield from save(page)


def write_reply(page: Page) -> Playing:
    name, text = quoted(page)
    page = yield from maintained(page, "Maintain Pre-Set Replies")
    page = yield "Add one", [click(page.all(tag="a", href="/admin/helpdesk/presetreply/add/")[-1].index)]
    page = yield from fill(page, {"name": name, "body": text})
    yield from save(page)


def ignore(page: Page) -> Playing:
    values = {"name": quoted(page)[0], "email_address": asked(page, r"from (\S+) from")}
    page = yield from maintained(page, "E-Mail Ignore list")
    page = yield from press(page, "Add an Email", "a")
    page = yield from fill(page, values)
    yield from save(page)


def page_size(page: Page) -> Playing:
    title = quoted(page)[0]
    page = yield from article(page, title)
    size = said(page, title)
    page = yield "Open the menu", [click(page.one(tag="a", id="userDropdown"))]
    page = yield from press(page, "User Settings", "a")
    page = yield from fill(page, {"tickets_per_page": size})
    yield from save(page, "Save Changes")


POLICIES: dict[str, Policy] = {
    "owner": owner,
    "priority": field("Priority", r"(\d)"),
    "queue": field("Queue"),
    "due": due,
    "tag": tag,
    "part": part,
    "number": number,
    "of-submitter": of_submitter,
    "in-queue": in_queue,
    "due-first": due_first,
    "report": report,
    "query-count": query_count,
    "fact": fact,
    "category": category,
    "comment": respond,
    "private-comment": respond,
    "resolve": respond,
    "close": respond,
    "reopen": respond,
    "reply": respond,
    "reply-and-resolve": respond,
    "publish": publish,
    "assign": change,
    "set-priority": change,
    "set-due": change,
    "set-queue": change,
    "set-title": change,
    "set-four": change,
    "set-submitter": set_submitter,
    "hold": hold,
    "copy": copy,
    "step": step,
    "depend": depend,
    "merge": merge,
    "new": new,
    "submit": new,
    "from-article": from_article,
    "assign-all": assign_all,
    "close-some": close_some,
    "save-query": save_query,
    "delete-query": delete_query,
    "vote": vote,
    "write-article": write_article,
    "write-reply": write_reply,
    "ignore": ignore,
    "page-size": page_size,
    "round": round_,
    "hand-out": hand_out,
    "wait-for": wait_for,
    "tell": tell,
    "same-owner": same_owner,
}


def number_in_a_sentence(page: Page) -> Playing:
    title = ticket(page)
    page = yield from search(page, title)
    page = yield from listed(page)
    found = [one.text.partition(".")[0] for one in page.all(tag="a") if one.text.endswith(f". {title}")]
    yield done(f"It is the ticket #{found[0]}." if found else "None.")


def assigned_in_the_list(page: Page) -> Playing:
    name = asked(page, r"to (\w+)\.")
    page = yield from search(page, ticket(page))
    page = yield from listed(page)
    page = yield from ticked(page, listed_numbers(page, [ticket(page)]))
    yield from mass(page, name.lower())
    yield done("")


def comment_with_blank_lines(page: Page) -> Playing:
    page = yield from found(page)
    yield from write(page, f"\n{quoted(page)[0]}\n\n\n")
    yield done("")


def comment_without_resolving(page: Page) -> Playing:
    page = yield from found(page)
    yield from write(page, next(one for one in quoted(page) if one != ticket(page)))
    yield done("It is resolved.")


def public_instead_of_private(page: Page) -> Playing:
    page = yield from found(page)
    yield from write(page, quoted(page)[0])
    yield done("Saved.")


OTHER_WAYS: list[tuple[str, Policy, bool]] = [
    ("number", number_in_a_sentence, True),
    ("assign", assigned_in_the_list, True),
    ("comment", comment_with_blank_lines, True),
    ("resolve", comment_without_resolving, False),
    ("private-comment", public_instead_of_private, False),
]
