"""Policies for the tasks at MediaWiki; each knows the site's pages, and reads everything else."""

from __future__ import annotations

import re
from collections.abc import Generator

from tests.apps.actor import Move, Moves, NotShownError, Page, Policy, click, done, type_in
from tests.apps.moves import Playing, press, quoted, scroll_until, wait_until

_HOME = "http://wiki.test/index.php"
_ISLAND = r"\w+ (?:Island|Isle|Holm|Skerry|Rock|Eyot|Cay)"


def search(page: Page, words: str) -> Moves:
    """Searches; a page of this very name is opened at once."""
    field = page.one(tag="input", id="searchInput")
    return (yield f"Search for {words}", [type_in(field, words), {"send_keys": {"keys": "Enter"}}])


def article(page: Page, title: str) -> Moves:
    """Opens a page that is there; a list of suggestions can lead to a list of results instead."""
    page = yield from search(page, title)
    if "fulltext=" in page.url:
        page = yield from press(page, title, "a", title=title)
    return page


def open_page(title: str, **query: str) -> Moves:
    parts = "".join(f"&{name}={value}" for name, value in query.items())
    address = f"{_HOME}?title={title.replace(' ', '_')}{parts}"
    return (yield f"Open {title}", [{"go_to_url": {"url": address}}])


def asked(page: Page, pattern: str) -> str:
    found = re.search(pattern, page.request)
    assert found, page.request
    return found[1]


# Questions.


def found_by_ferry(pattern: str) -> Policy:
    def policy(page: Page) -> Playing:
        (ferry,) = quoted(page)
        page = yield from search(page, ferry)
        result = next((e for e in page.all(tag="a") if re.fullmatch(_ISLAND, e.text)), None)
        if result is None:
            raise NotShownError(f"no island for {ferry}")
        page = yield f"Open {result.text}", [click(result.index)]
        yield done(page.match(pattern)[1])

    return policy


def comparison(page: Page) -> Playing:
    titles = re.findall(rf"({_ISLAND})(?: or|, whichever)", page.request)
    people = {}
    for title in titles:
        page = yield from article(page, title)
        people[title] = int(page.match(r"count (\d+) people lived")[1])
    larger = max(people, key=lambda title: people[title])
    yield done(f"{larger}, {max(people.values()) - min(people.values())}")


def members(page: Page) -> list[str]:
    """The pages in the category that is shown."""
    lines = list(page.lines)
    start = next(at for at, line in enumerate(lines) if line.startswith("Pages in category"))
    return [line for line in lines[start:] if re.fullmatch(_ISLAND, line)]


def highest_of(page: Page) -> Generator[Move, Page, tuple[str, int]]:
    (group,) = quoted(page)
    page = yield from open_page(f"Category:{group}")
    metres = {}
    for title in members(page):
        page = yield from article(page, title)
        metres[title] = int(page.match(r"rises to (\d+) metres")[1])
    best = max(metres, key=lambda title: metres[title])
    return best, metres[best]


def highest(page: Page) -> Playing:
    best, metres = yield from highest_of(page)
    yield done(f"{best}, {metres}")


def category(page: Page) -> Playing:
    (group,) = quoted(page)
    page = yield from open_page(f"Category:{group}")
    yield done(", ".join(sorted(members(page))))


def table(page: Page) -> dict[str, tuple[str, str]]:
    """Seats and fare of each ferry."""
    lines = list(page.lines)
    return {
        lines[at - 2]: (lines[at - 1], line)
        for at, line in enumerate(lines)
        if re.fullmatch(r"\d+\.\d\d", line)
    }


def fare(page: Page) -> Playing:
    (fares,) = quoted(page)
    page = yield from article(page, asked(page, rf"calls at ({_ISLAND})"))
    ferry = page.match(r"The ferry (.+) of the .* calls")[1]
    page = yield from article(page, fares)
    yield done(table(page)[ferry][1])


def seats(page: Page) -> Playing:
    page = yield from article(page, quoted(page)[0])
    least = int(asked(page, r"more than (\d+) seats"))
    yield done(", ".join(sorted(name for name, (number, _) in table(page).items() if int(number) > least)))


def no_school(page: Page) -> Playing:
    for title in asked(page, r"school: (.*)\. In which").split(", "):
        page = yield from article(page, title)
        if not any("school" in line for line in page.lines):
            yield done(page.match(r"was lit in (\d+)")[1])


def redirect(page: Page) -> Playing:
    (name,) = quoted(page)
    page = yield from search(page, name)
    yield done(next(line for line in page.lines if re.fullmatch(_ISLAND, line)))


def links_here(page: Page) -> Playing:
    title, isles = quoted(page)
    linking = yield from links_to(title)
    yield done(", ".join(sorted(linking - {isles, title})))


def links_to(title: str) -> Generator[Move, Page, set[str]]:
    page = yield from open_page(f"Special:WhatLinksHere/{title}", limit="250")
    return {
        element.attributes["title"]
        for element in page.all(tag="a")
        if element.text == element.attributes.get("title") and "redirect=no" not in str(element.attributes)
    }


def search_count(page: Page) -> Playing:
    page = yield from search(page, quoted(page)[0])
    yield done(page.match(r"Results 1 . \d+ of (\d+)")[1])


def versions(page: Page) -> list[dict[str, str]]:
    """The versions in a page's history, newest first: day, user, summary, and the numbers of two links."""
    found: list[dict[str, str]] = []
    lines = [line.replace("\u200e", "").strip() for line in page.lines]
    for at, line in enumerate(lines):
        if date := re.fullmatch(r"\d\d:\d\d, (\d+ \w+ \d{4})", line):
            link = re.match(r"\*?\[(\d+)\]", lines[at - 1])
            found.append({"day": date[1], "open": link[1] if link else ""})
        elif found and "<a title=User:" in line:
            found[-1].setdefault("user", lines[at + 1])
        elif found and (comment := re.search(r"\d bytes \S+(.*)$", line)):
            found[-1].setdefault("comment", comment[1].strip())
        elif found and line == "undo" and (link := re.match(r"\*?\[(\d+)\]", lines[at - 1])):
            found[-1].setdefault("undo", link[1])
    return found


def history(title: str) -> Moves:
    return (yield from open_page(title, action="history"))


def revisions(page: Page) -> Playing:
    page = yield from history(quoted(page)[0])
    yield done(str(len(versions(page))))


def creator(page: Page) -> Playing:
    page = yield from history(quoted(page)[0])
    first = versions(page)[-1]
    yield done(f"{first['user']}, {first['day'][-4:]}")


def version(page: Page, comment: str) -> dict[str, str]:
    return next(one for one in versions(page) if one["comment"] == comment)


def editor(page: Page) -> Playing:
    title, comment = quoted(page)
    page = yield from history(title)
    one = version(page, comment)
    yield done(f"{one['user']}, {one['day']}")


def growth(page: Page) -> Playing:
    title, *comments = quoted(page)
    counts = []
    for comment in comments:
        page = yield from history(title)
        page = yield "Open the version", [click(int(version(page, comment)["open"]))]
        counts.append(int(page.match(r"count (\d+) people lived")[1]))
    yield done(str(abs(counts[0] - counts[1])))


def stone(page: Page) -> Playing:
    (group,) = quoted(page)
    kind, found = asked(page, r"lighthouse of (\w+)"), []
    page = yield from open_page(f"Category:{group}")
    for title in members(page):
        page = yield from article(page, title)
        if any(f"built of {kind}" in line for line in page.lines):
            found.append(title)
    yield done(", ".join(found))


def old_count(page: Page) -> Playing:
    (comment,) = quoted(page)
    page = yield from history(asked(page, rf"lived on ({_ISLAND})"))
    page = yield "Open the version", [click(int(version(page, comment)["open"]))]
    yield done(page.match(r"count (\d+) people lived")[1])


def contribution(page: Page) -> Playing:
    user, day = asked(page, r"the user (\w+)"), asked(page, r"change on (.*)\? Answer")
    page = yield from open_page(f"Special:Contributions/{user}")
    page = yield from scroll_until(page, lambda now: bool(now.all(f"09:00, {day}", "a")))
    yield done(page.all(f"09:00, {day}", "a")[0].attributes["title"])


def contributions(page: Page, summary: str) -> list[str]:
    """The pages of a user's changes that have a summary."""
    found, title = [], ""
    for line in page.lines:
        if link := re.search(r"<a .*?title=(.+?)(?: \w+=|/?>)", line):
            title = link[1]
        elif summary in line:
            found.append(title)
    return found


def by_summary(page: Page) -> Playing:
    summary = quoted(page)[0]
    page = yield from open_page("Special:Contributions/Rook")
    yield done(", ".join(contributions(page, summary)))


def before(page: Page) -> Playing:
    (title,) = quoted(page)
    page = yield from article(page, title)
    shown = {word for line in page.lines for word in line.rstrip(".").split()}
    page = yield from history(title)
    page = yield "Open the version before", [click(int(versions(page)[1]["open"]))]
    sentences = (line.rstrip(".").split() for line in page.lines if line.endswith("."))
    new = [[word for word in words if word not in shown] for words in sentences]
    yield done(next(words[0] for words in new if len(words) == 1))


def asker(page: Page) -> Playing:
    text, title = quoted(page)
    page = yield from open_page(f"Talk:{title}")
    lines = list(page.lines)
    at = next(at for at, line in enumerate(lines) if line.startswith(text))
    heading = next(line for line in reversed(lines[:at]) if line.endswith("["))
    user = next(line for line in lines[at + 1 :] if re.fullmatch(r"[A-Z][a-z]+", line))
    yield done(f"{user}, {heading.rstrip('[').strip()}")


def length(page: Page) -> Playing:
    page = yield from article(page, quoted(page)[0])
    page = yield from press(page, "Page information", "a")
    lines = list(page.lines)
    yield done(lines[lines.index("Page length (in bytes)") + 1].replace(",", ""))


# Changes.


def log_in(page: Page) -> Moves:
    found = re.search(r'as "(\w+)" with the password (<secret>\w+</secret>)', page.request)
    assert found
    page = yield from press(page, "Log in", "a")
    name, password = page.one(tag="input", name="wpName"), page.one(tag="input", name="wpPassword")
    button = page.one("Log in", "button")
    return (yield "Log in", [type_in(name, found[1]), type_in(password, found[2]), click(button)])


def save(page: Page, summary: str = "") -> Moves:
    page = yield from scroll_until(page, lambda now: bool(now.all(tag="input", name="wpSave")))
    actions = [click(page.one(tag="input", name="wpSave"))]
    if summary:
        actions.insert(0, type_in(page.one(tag="input", name="wpSummary"), summary))
    return (yield "Save", actions)


def write(title: str, text: str, **query: str) -> Moves:
    """Replaces the text of a page, or of a section."""
    page = yield from open_page(title, action="edit", **query)
    page = yield "Write it", [type_in(page.one(tag="textarea", name="wpTextbox1"), text)]
    return (yield from save(page))


def append(title: str, text: str, summary: str = "") -> Moves:
    page = yield from open_page(title, action="edit")
    area = page.one(tag="textarea", name="wpTextbox1")
    keys = [{"click_element_by_index": {"index": area}}, {"send_keys": {"keys": "Control+End"}}]
    page = yield "Go to the end of the text", keys
    area = page.one(tag="textarea", name="wpTextbox1")
    more = {"index": area, "text": text, "clear_existing": False}
    page = yield "Add to it", [{"input_text": more}]
    return (yield from save(page, summary))


def finished(page: Page) -> Playing:
    yield done(f"Done at {page.url}")


def edit(page: Page) -> Playing:
    _, sentence, title, summary = quoted(page)
    yield from log_in(page)
    page = yield from append(title, f"\n{sentence}", summary)
    yield from finished(page)


def new_page(page: Page) -> Playing:
    _, title, content = quoted(page)
    page = yield from log_in(page)
    page = yield from search(page, title)
    page = yield from press(page, title, "a")
    page = yield "Write the page", [type_in(page.one(tag="textarea", name="wpTextbox1"), content)]
    page = yield from save(page)
    yield from finished(page)


def new_redirect(page: Page) -> Playing:
    _, title, _, text = quoted(page)
    yield from log_in(page)
    page = yield from write(title, text)
    yield from finished(page)


def section_text(page: Page, heading: str) -> tuple[str, str]:
    """Number and wikitext of a section, which has no links."""
    lines = list(page.lines)
    at = lines.index(f"{heading}[")
    number = re.search(r"section=(\d+)", lines[at + 1])
    assert number, lines[at + 1]
    return number[1], f"== {heading} ==\n{lines[at + 4]}"


def corrected(heading: str, new: str, old: str) -> Policy:
    """`new` finds the new value in the request, `old` the place in the section."""

    def policy(page: Page) -> Playing:
        title, value = quoted(page)[1], asked(page, new)
        page = yield from log_in(page)
        page = yield from article(page, title)
        number, text = section_text(page, heading)
        page = yield from write(title, re.sub(old, value, text), section=number)
        yield from finished(page)

    return policy


def census(page: Page) -> Playing:
    title = quoted(page)[1]
    page = yield from log_in(page)
    page = yield from article(page, title)
    counts = re.findall(rf"({_ISLAND}): (\d+) people", "\n".join(page.lines))
    for island, count in counts:
        page = yield from article(page, island)
        number, text = section_text(page, "People")
        page = yield from write(island, re.sub(r"\d+", count, text), section=number)
    yield from finished(page)


def regroup(page: Page) -> Playing:
    _, title, group = quoted(page)
    page = yield from log_in(page)
    page = yield from regrouped(page, title, group)
    yield from finished(page)


def regrouped(page: Page, title: str, group: str) -> Moves:
    page = yield from article(page, title)
    known = page.match(r"(It is known for its .*)$")[1]
    lead = f"[[Category:{group}]]\n'''{title}''' is one of the [[{group.partition(' ')[2]}]]. {known}"
    return (yield from write(title, lead, section="0"))


def regroup_all(page: Page) -> Playing:
    _, old, new = quoted(page)
    yield from log_in(page)
    page = yield from open_page(f"Category:{old}")
    for title in members(page):
        page = yield from regrouped(page, title, new)
    yield from finished(page)


def write_table(title: str, rows: dict[str, tuple[str, str]]) -> Moves:
    head = 'Fares are for one way.\n\n{| class="wikitable"\n! Ferry !! Seats !! Fare\n'
    body = "".join(f"|-\n| {name} || {number} || {price}\n" for name, (number, price) in rows.items())
    return (yield from write(title, f"{head}{body}|}}"))


def raise_fare(page: Page) -> Playing:
    fares = quoted(page)[1]
    ferry, price = asked(page, r"the ferry (.+) to \d"), asked(page, r"to (\d+\.\d\d) in")
    page = yield from log_in(page)
    page = yield from article(page, fares)
    rows = table(page)
    page = yield from write_table(fares, {**rows, ferry: (rows[ferry][0], price)})
    yield from finished(page)


def rename_ferry(page: Page) -> Playing:
    _, title, fares = quoted(page)
    old, new = asked(page, r"the ferry (.+) its new name"), asked(page, r"new name, (.+), on the page")
    page = yield from log_in(page)
    page = yield from article(page, title)
    number, text = section_text(page, "Getting there")
    page = yield from write(title, text.replace(old, f"''{new}''"), section=number)
    page = yield from article(page, fares)
    rows = {new if name == old else name: row for name, row in table(page).items()}
    page = yield from write_table(fares, rows)
    yield from finished(page)


def section(page: Page) -> Playing:
    _, title, _, heading, text = quoted(page)
    yield from log_in(page)
    page = yield from append(title, f"\n\n{heading}\n{text}")
    yield from finished(page)


def list_entry(page: Page) -> Playing:
    _, _, title, entry = quoted(page)
    yield from log_in(page)
    page = yield from append(title, f"\n{entry}")
    yield from finished(page)


def categorise(page: Page) -> Playing:
    _, title, line = quoted(page)
    yield from log_in(page)
    page = yield from append(title, f"\n{line}")
    yield from finished(page)


def talk(page: Page) -> Playing:
    _, title, heading, text = quoted(page)
    yield from log_in(page)
    page = yield from new_section(f"Talk:{title}", heading, text)
    yield from finished(page)


def new_section(title: str, heading: str, text: str) -> Moves:
    page = yield from open_page(title, action="edit", section="new")
    subject, area = page.one(tag="input", name="wpSummary"), page.one(tag="textarea", name="wpTextbox1")
    page = yield "Write the section", [type_in(subject, heading), type_in(area, text)]
    return (yield from save(page))


def move(page: Page) -> Playing:
    _, old, new = quoted(page)
    yield from log_in(page)
    page = yield from moved(old, new, "leave no redirect" in page.request)
    yield from finished(page)


def moved(old: str, new: str, alone: bool = False) -> Moves:
    page = yield from open_page(f"Special:MovePage/{old}")
    actions = [type_in(page.one(tag="input", name="wpNewTitleMain"), new)]
    if alone:
        actions.append(click(page.one(tag="input", name="wpLeaveRedirect")))
    page = yield "Enter the title", actions
    page = yield from scroll_until(page, lambda now: bool(now.all("Move page", "button")))
    return (yield from press(page, "Move page", "button"))


def relink(page: Page) -> Playing:
    _, old, new, *_ = quoted(page)
    yield from log_in(page)
    page = yield from moved(old, new)
    linking = yield from links_to(old)
    for title in sorted(linking - {old}):
        page = yield from open_page(title)
        # The edit field shows only the beginning of its text: it is taken from the page itself.
        lines = [line for line in page.lines if not line.startswith(("[", "*["))]
        items = [line for line in lines if re.fullmatch(_ISLAND, line)]
        if old not in items:  # Another name of the island.
            continue
        intro = lines[lines.index(items[0]) - 1]
        intro = f"The '''{title}''' are:" if intro.endswith("are:") else intro
        new_items = [f"* [[{new if item == old else item}]]" for item in items]
        page = yield from write(title, "\n".join([intro, *new_items]))
    yield from finished(page)


def undo(page: Page) -> Playing:
    title = quoted(page)[1]
    yield from log_in(page)
    page = yield from undone(title)
    yield from finished(page)


def undone(title: str) -> Moves:
    page = yield from history(title)
    page = yield "Undo it", [click(int(versions(page)[0]["undo"]))]
    return (yield from save(page))


def undo_all(page: Page) -> Playing:
    summary = quoted(page)[1]
    yield from log_in(page)
    page = yield from open_page("Special:Contributions/Rook")
    for title in contributions(page, summary):
        page = yield from undone(title)
    yield from finished(page)


def restored(place: int) -> Policy:
    def policy(page: Page) -> Playing:
        texts = quoted(page)
        yield from log_in(page)
        page = yield from history(texts[1])
        page = yield "Open the version", [click(int(versions(page)[place]["open"]))]
        page = yield from press(page, "Edit", "a")
        page = yield from save(page, texts[2] if len(texts) > 2 else "")
        yield from finished(page)

    return policy


def stars(page: Page, action: str) -> list[int]:
    """The star of a page, which has no text."""
    words = {"watch": "Add this page to", "unwatch": "Remove this page from"}[action]
    return [one.index for one in page.all(tag="a") if one.attributes.get("title", "").startswith(words)]


def watched(action: str, then: str) -> Policy:
    def policy(page: Page) -> Playing:
        title = quoted(page)[1]
        yield from log_in(page)
        page = yield from open_page(title)
        page = yield from wait_until(page, lambda now: bool(stars(now, action)))
        page = yield "Click the star", [click(stars(page, action)[0])]
        page = yield from wait_until(page, lambda now: bool(stars(now, then)))
        yield from finished(page)

    return policy


def delete(page: Page) -> Playing:
    title = quoted(page)[1]
    yield from log_in(page)
    page = yield from open_page(title, action="delete")
    page = yield from press(page, "Delete page", "button")
    yield from finished(page)


def protect(page: Page) -> Playing:
    title = quoted(page)[1]
    yield from log_in(page)
    page = yield from open_page(title, action="protect")
    choice = page.all(tag="span", role="combobox")[0]
    page = yield "Open the list of who may edit it", [click(choice.index)]
    page = yield from press(page, "Allow only administrators")
    page = yield from scroll_until(page, lambda now: bool(now.all("Confirm", "button")))
    page = yield from press(page, "Confirm", "button")
    yield from finished(page)


def real_name(page: Page) -> Playing:
    name = quoted(page)[1]
    yield from log_in(page)
    page = yield from open_page("Special:Preferences")
    page = yield "Enter the name", [type_in(page.one(tag="input", name="wprealname"), name)]
    page = yield from scroll_until(page, lambda now: bool(now.all("Save", "button")))
    page = yield from press(page, "Save", "button")
    yield from finished(page)


POLICIES: dict[str, Policy] = {
    "fact": found_by_ferry(r"was lit in (\d+)"),
    "hill": found_by_ferry(r"rises to (\d+) metres"),
    "comparison": comparison,
    "highest": highest,
    "stone": stone,
    "fare": fare,
    "seats": seats,
    "no-school": no_school,
    "category": category,
    "redirect": redirect,
    "links-here": links_here,
    "search": search_count,
    "revisions": revisions,
    "creator": creator,
    "editor": editor,
    "old-count": old_count,
    "growth": growth,
    "contribution": contribution,
    "by-summary": by_summary,
    "before": before,
    "asker": asker,
    "length": length,
    "edit": edit,
    "new-page": new_page,
    "new-redirect": new_redirect,
    "retarget": new_redirect,
    "correct-people": corrected("People", r"count (\d+) people", r"\d+"),
    "correct-lighthouse": corrected("Lighthouse", r"lit in (\d+)", r"\d+"),
    "regroup": regroup,
    "regroup-all": regroup_all,
    "raise-fare": raise_fare,
    "rename-ferry": rename_ferry,
    "census": census,
    "section": section,
    "list-entry": list_entry,
    "categorise": categorise,
    "talk": talk,
    "move": move,
    "move-away": move,
    "relink": relink,
    "undo": undo,
    "undo-all": undo_all,
    "restore": restored(-1),
    "restore-with-summary": restored(1),
    "watch": watched("watch", "unwatch"),
    "unwatch": watched("unwatch", "watch"),
    "delete": delete,
    "protect": protect,
    "real-name": real_name,
}


def highest_in_a_sentence(page: Page) -> Playing:
    best, metres = yield from highest_of(page)
    yield done(f"It is {best}, which rises to {metres} metres.")


def section_by_its_form(page: Page) -> Playing:
    _, title, heading, _, text = quoted(page)
    yield from log_in(page)
    page = yield from new_section(title, heading, f"\n\n{text}\n\n")
    yield from finished(page)


def regroup_at_the_end(page: Page) -> Playing:
    """The line of the category goes from the top of the page to its end."""
    _, title, group = quoted(page)
    page = yield from log_in(page)
    page = yield from article(page, title)
    known = page.match(r"(It is known for its .*)$")[1]
    lead = f"'''{title}''' is one of the [[{group.partition(' ')[2]}]]. {known}"
    page = yield from write(title, lead, section="0")
    page = yield from append(title, f"\n\n[[Category:{group}]]")
    yield from finished(page)


def edit_without_summary(page: Page) -> Playing:
    _, sentence, title, _ = quoted(page)
    yield from log_in(page)
    page = yield from append(title, f"\n\n{sentence}")
    yield from finished(page)


def move_with_a_redirect(page: Page) -> Playing:
    _, old, new = quoted(page)
    yield from log_in(page)
    page = yield from moved(old, new)
    yield from finished(page)


OTHER_WAYS: list[tuple[str, Policy, bool]] = [
    ("highest", highest_in_a_sentence, True),
    ("section", section_by_its_form, True),
    ("undo", restored(1), True),
    ("regroup", regroup_at_the_end, True),
    ("edit", edit_without_summary, False),
    ("move-away", move_with_a_redirect, False),
]
