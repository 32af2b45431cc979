"""Tasks at the wiki: templates over the rows of its world."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from collection.environments.apps.answers import Answer, Value
from collection.environments.apps.templates import Draw, Goal, Template
from collection.environments.apps.wiki.world import (
    KEEPER,
    island_name,
    nickname,
    person,
    remark,
    subject,
)
from collection.environments.apps.world import Anything, Row, World, drop, put

_FACTS = {
    "people": r"count (\d+) people",
    "metres": r"rises to (\d+) metres",
    "school": r"founded in (\d+)",
    "lighthouse": r"lit in (\d+)",
    "stone": r"built of (\w+)",
    "ferry": r"ferry ''(.+?)''",
    "line": r"of the ([\w ]+) calls",
}
_FARE = re.compile(r"^\| (.+) \|\| (\d+) \|\| (\S+)$")
_LINK = re.compile(r"^\* \[\[(.+)\]\]$")


def _lines(world: World, title: str) -> list[str]:
    return world["pages"][title]["lines"]


def _islands(world: World) -> dict[str, dict[str, Any]]:
    """What the pages of islands say, and the table of ferries, by title."""
    fares = {found[1]: found for line in _lines(world, _ferries(world)) if (found := _FARE.match(line))}
    islands = {}
    for title, page in world["pages"].items():
        text = "\n".join(page["lines"])
        if text.startswith(f"'''{title}''' is one of"):
            one = {name: found[1] if (found := re.search(how, text)) else "" for name, how in _FACTS.items()}
            _, seats, fare = fares[one["ferry"]].groups()
            islands[title] = {**one, "title": title, "group": page["groups"][0], "seats": seats, "fare": fare}
    return islands


def _isles(world: World) -> str:
    return next(
        title for title, page in world["pages"].items() if page["lines"][0] == f"The '''{title}''' are:"
    )


def _ferries(world: World) -> str:
    return f"Ferries of the {_isles(world)}"


def _lists(world: World) -> dict[str, list[str]]:
    """The islands of each list but that of all."""
    return {
        title: [found[1] for line in page["lines"] if (found := _LINK.match(line))]
        for title, page in world["pages"].items()
        if title != _isles(world) and any(map(_LINK.match, page["lines"]))
    }


def _guides(world: World) -> list[str]:
    return [title for title, page in world["pages"].items() if page["user"] == "Rook" and ":" not in title]


def _redirects(world: World) -> dict[str, str]:
    return {
        title: found[1]
        for title, page in world["pages"].items()
        if (found := re.match(r"#REDIRECT \[\[(.+)\]\]", page["lines"][0]))
    }


def _versions(world: World, title: str) -> list[tuple[str, Row]]:
    """Day and row of the versions of a page, the oldest first."""
    return [(day[:10], one) for day, one in world["versions"].items() if one["page"] == title]


def _people(version: Row) -> int:
    found = re.search(_FACTS["people"], version["text"])
    assert found
    return int(found[1])


def _day(text: str) -> str:
    day = datetime.date.fromisoformat(text)
    return f"{day.day} {day:%B %Y}"


# Questions.


def _asked(world: World, words: str, value: Any, others: Iterable[str] = ()) -> Goal:
    chosen = set(map(str, value)) if isinstance(value, tuple | frozenset) else {str(value)}
    wrong = tuple(one for one in dict.fromkeys(others) if one not in chosen)
    return Goal(f"{words} Change nothing.", world, Answer(value, wrong))


def _island(words: str, of: Callable[[Row], Value]) -> Template:
    """A question about an island, which is found by its ferry."""

    def template(world: World, draw: Draw) -> Goal:
        one = draw.choice(list(_islands(world).values()))
        find = (
            f'Search the wiki for the ferry "{one["ferry"]}" and open the page of the island that it goes to.'
        )
        return _asked(world, f"{find} {words}", of(one))

    return template


def _comparison(world: World, draw: Draw) -> Goal:
    islands = _islands(world)
    chosen = draw.sample(list(islands), 2)
    fewer, more = sorted(chosen, key=lambda title: int(islands[title]["people"]))
    words = (
        f"By how many people do more live on {chosen[0]} or {chosen[1]}, whichever has more, than on the "
        "other? Answer with the island's name and the number: Rook Island, 12."
    )
    return _asked(
        world, words, (more, int(islands[more]["people"]) - int(islands[fewer]["people"])), (fewer,)
    )


def _of_group(world: World, draw: Draw) -> tuple[str, dict[str, Row]]:
    islands = _islands(world)
    group = draw.choice(sorted({one["group"] for one in islands.values()}))
    return group, {title: one for title, one in islands.items() if one["group"] == group}


def _highest(world: World, draw: Draw) -> Goal:
    group, islands = _of_group(world, draw)
    best = max(islands, key=lambda title: int(islands[title]["metres"]))
    words = (
        f'Which island of the category "{group}" has the highest hill, and how many metres does it rise to? '
        "Answer with the island's name and the number: Rook Island, 12."
    )
    return _asked(world, words, (best, int(islands[best]["metres"])), islands)


def _stone(world: World, draw: Draw) -> Goal:
    group, islands = _of_group(world, draw)
    stone = draw.choice([one["stone"] for one in islands.values()])
    names = frozenset(title for title, one in islands.items() if one["stone"] == stone)
    words = (
        f'Which islands of the category "{group}" have a lighthouse of {stone}? Answer with their names, '
        "with commas between them."
    )
    return _asked(world, words, names, _islands(world))


def _fare(world: World, draw: Draw) -> Goal:
    one = draw.choice(list(_islands(world).values()))
    words = (
        f'The page "{_ferries(world)}" has a table. What does it give as the fare of the ferry that calls at '
        f"{one['title']}? Answer with the fare alone."
    )
    return _asked(world, words, float(one["fare"]))


def _seats(world: World, draw: Draw) -> Goal:
    islands = sorted(_islands(world).values(), key=lambda one: int(one["seats"]))
    least = int(islands[-draw.randint(2, 4)]["seats"]) - 1
    names = frozenset(one["ferry"] for one in islands if int(one["seats"]) > least)
    words = (
        f'Which ferries have more than {least} seats by the table of the page "{_ferries(world)}"? Answer '
        "with their names, with commas between them."
    )
    return _asked(world, words, names, (one["ferry"] for one in islands))


def _no_school(world: World, draw: Draw) -> Goal:
    islands = _islands(world)
    without = draw.choice([title for title, one in islands.items() if not one["school"]])
    names = [without, *draw.sample([title for title, one in islands.items() if one["school"]], 2)]
    draw.shuffle(names)
    words = (
        f"The page of one of these islands has no word about a school: {', '.join(names)}. In which year was "
        "the lighthouse of that island lit? Answer with the year alone."
    )
    return _asked(world, words, int(islands[without]["lighthouse"]))


def _category(world: World, draw: Draw) -> Goal:
    group, islands = _of_group(world, draw)
    words = f'Which pages are in the category "{group}"? Answer with their titles, with commas between them.'
    return _asked(world, words, frozenset(islands), _islands(world))


def _redirect(world: World, draw: Draw) -> Goal:
    name, target = draw.choice(list(_redirects(world).items()))
    words = f'To which page does the wiki lead if you look for "{name}"? Answer with the title of that page.'
    return _asked(world, words, target, [one for one in world["pages"] if one != name])


def _links_here(world: World, draw: Draw) -> Goal:
    lists = _lists(world)
    island = draw.choice(sorted({one for titles in lists.values() for one in titles}))
    words = (
        f'Which pages of articles have a link to "{island}", apart from "{_isles(world)}", redirects and '
        "talk? Answer with their titles, with commas between them."
    )
    return _asked(world, words, frozenset(title for title in lists if island in lists[title]), lists)


def _search(world: World, draw: Draw) -> Goal:
    islands = _islands(world)
    line = draw.choice(sorted({one["line"] for one in islands.values()}))
    words = f'How many pages of the wiki have "{line}" in their text? Answer with the number alone.'
    return _asked(world, words, sum(one["line"] == line for one in islands.values()))


def _revisions(world: World, draw: Draw) -> Goal:
    title = draw.choice(list(_islands(world)))
    words = f'How many versions has the page "{title}" by its history? Answer with the number alone.'
    return _asked(world, words, len(_versions(world, title)))


_NAMES = ("Keeper", "Alder", "Birch", "Rook")


def _creator(world: World, draw: Draw) -> Goal:
    title = draw.choice(list(_islands(world)))
    day, first = _versions(world, title)[0]
    words = (
        f'Who made the first version of the page "{title}", and in which year? Answer with the user\'s name '
        "and the year: Rook, 2009."
    )
    return _asked(world, words, (first["user"], int(day[:4])), _NAMES)


def _editor(world: World, draw: Draw) -> Goal:
    title = draw.choice(list(_islands(world)))
    day, one = draw.choice(_versions(world, title)[1:])
    words = (
        f'Who changed the page "{title}" with the summary "{one["comment"]}", and on which day? Answer '
        "with the user's name and the day: Rook, 1 May 2009."
    )
    return _asked(world, words, (one["user"], datetime.date.fromisoformat(day)), _NAMES)


def _old_count(world: World, draw: Draw) -> Goal:
    title = draw.choice(list(_islands(world)))
    _, one = draw.choice(_versions(world, title)[1:-1])
    words = (
        f"How many people lived on {title} by the version of its page that has the summary "
        f'"{one["comment"]}"? Answer with the number alone.'
    )
    return _asked(world, words, _people(one))


def _growth(world: World, draw: Draw) -> Goal:
    title = draw.choice(list(_islands(world)))
    early, late = draw.some([one for _, one in _versions(world, title)[1:]], 2, 2)
    words = (
        f'By how many people does the number on the page "{title}" differ between the version with the '
        f'summary "{early["comment"]}" and that with "{late["comment"]}"? Answer with the number alone.'
    )
    return _asked(world, words, abs(_people(early) - _people(late)))


def _contribution(world: World, draw: Draw) -> Goal:
    day, one = draw.row(world, "versions", lambda one: one["user"] != KEEPER)
    words = (
        f"Which page of the wiki of the {_isles(world)} did the user {one['user']} change on "
        f"{_day(day[:10])}? Answer with the page's title alone."
    )
    return _asked(world, words, one["page"], (other["page"] for other in world["versions"].values()))


def _by_summary(world: World, draw: Draw) -> Goal:
    summary, titles = _mistakes(world, draw)
    words = (
        f'Which pages did the user Rook change with the summary "{summary}"? Answer with their titles, with '
        "commas between them."
    )
    return _asked(world, words, frozenset(titles), _guides(world))


def _mistakes(world: World, draw: Draw) -> tuple[str, list[str]]:
    """A summary of Rook's, and the guides that Rook has changed with it."""
    pages = {title: world["pages"][title]["comment"] for title in _guides(world)}
    summary = draw.choice(sorted(set(pages.values())))
    return summary, [title for title, comment in pages.items() if comment == summary]


def _before(world: World, draw: Draw) -> Goal:
    title = draw.choice(_guides(world))
    (_, old), (_, new) = _versions(world, title)[-2:]
    words = (
        f'Rook has changed one word of the page "{title}". Which word was there before? Answer with '
        "the word alone."
    )
    pairs = zip(old["text"].split(), new["text"].split(), strict=True)
    right, wrong = next(pair for pair in pairs if pair[0] != pair[1])
    return _asked(world, words, right, (wrong,))


def _asker(world: World, draw: Draw) -> Goal:
    title, page = draw.row(world, "pages", lambda one: "--[[User:" in one["lines"][-1])
    lines = page["lines"]
    at = draw.choice(range(0, len(lines), 2))
    text, _, user = lines[at + 1].partition(" --[[User:")
    words = (
        f'Who wrote "{text}" on the talk page of "{title.removeprefix("Talk:")}", and under which heading? '
        "Answer with the user's name and the heading: Keeper, Bees."
    )
    value = frozenset({user.partition("|")[0], lines[at].strip("= ")})
    return _asked(world, words, value, (*_NAMES, *(one.strip("= ") for one in lines[::2])))


def _length(world: World, draw: Draw) -> Goal:
    title = draw.choice(_guides(world))
    words = f'How long is the page "{title}" in bytes by its page information? Answer with the number alone.'
    return _asked(world, words, len(_versions(world, title)[-1][1]["text"].encode()))


# Changes.


def _by(user: str, words: str) -> str:
    return f'Log in as "{user}" with the password <secret>{user.lower()}</secret>. Then {words}'


def _visitor(draw: Draw) -> str:
    return draw.choice(("Alder", "Birch"))


def _write(
    world: World, title: str, user: str, lines: Sequence[str], comment: Any = None, **row: Any
) -> World:
    """With a page that a user has written; the summary is open."""
    old = world["pages"].get(title, {"groups": [], "protection": []})
    new = {**old, "lines": list(lines), "user": user, "comment": comment or Anything(), **row}
    return put(world, "pages", title, **new)


def _replace(world: World, title: str, user: str, old: str, new: str) -> World:
    """With other words on a page."""
    return _write(world, title, user, [line.replace(old, new) for line in _lines(world, title)])


def _moved(world: World, old: str, new: str, user: str) -> World:
    """With a page and its versions under another title; who watched it watches both then."""
    after = _write(drop(world, "pages", old), new, user, **_kept(world, old))
    for day, one in world["versions"].items():
        if one["page"] == old:
            after = put(after, "versions", day, page=new)
    for name, one in world["users"].items():
        if old in one["watched"]:
            after = put(after, "users", name, watched=sorted([*one["watched"], new]))
    return after


def _kept(world: World, title: str) -> dict[str, Any]:
    return {name: world["pages"][title][name] for name in ("lines", "groups", "protection")}


def _good(world: World, title: str, user: str, comment: Any = None) -> World:
    """With the version of a guide before the last."""
    return _write(world, title, user, _filled(_versions(world, title)[-2][1]["text"]), comment)


def _filled(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


def _edit(world: World, draw: Draw) -> Goal:
    title, user = draw.choice(list(_islands(world))), _visitor(draw)
    sentence = f"{person(draw)} looks after the {subject(draw).lower()} here."
    summary = f"As {person(draw)} said"
    words = (
        f'add the sentence "{sentence}" at the end of the page "{title}" as a paragraph of its own, leave '
        f'the rest of it as it is, and save it with the summary "{summary}".'
    )
    return Goal(_by(user, words), _write(world, title, user, [*_lines(world, title), sentence], summary))


def _new_page(world: World, draw: Draw) -> Goal:
    user, title = _visitor(draw), f"{subject(draw)} on {draw.choice(list(_islands(world)))}"
    text = f"{person(draw)} is in charge here."
    words = f'make a new page "{title}" with the text "{text}" and save it.'
    return Goal(_by(user, words), _write(world, title, user, [text]))


def _new_redirect(world: World, draw: Draw) -> Goal:
    name, island, user = nickname(draw), draw.choice(list(_islands(world))), _visitor(draw)
    words = (
        f'make a page "{name}" that is nothing but a redirect to "{island}". Its text is '
        f'"#REDIRECT [[{island}]]".'
    )
    return Goal(_by(user, words), _write(world, name, user, [f"#REDIRECT [[{island}]]"]))


def _retarget(world: World, draw: Draw) -> Goal:
    (name, old), user = draw.choice(list(_redirects(world).items())), _visitor(draw)
    island = draw.other(_islands(world), old)
    words = (
        f'let the page "{name}" redirect to "{island}", not to where it leads now. Nothing but '
        f'"#REDIRECT [[{island}]]" is its text then.'
    )
    return Goal(_by(user, words), _write(world, name, user, [f"#REDIRECT [[{island}]]"]))


def _corrected(words: str, fact: str, form: str, low: int, high: int) -> Template:
    """A correction on the page of an island; `words` has its `title` and the `new` value."""

    def template(world: World, draw: Draw) -> Goal:
        one, user = draw.choice(list(_islands(world).values())), _visitor(draw)
        new = int(one[fact]) + draw.randint(low, high)
        after = _replace(world, one["title"], user, form.format(one[fact]), form.format(new))
        text = words.format(title=one["title"], new=new)
        return Goal(_by(user, f"{text} Leave the rest as it is."), after)

    return template


def _regrouped(world: World, title: str, user: str, group: str) -> World:
    return _write(world, title, user, _lines(world, title), groups=[group])


def _regroup(world: World, draw: Draw) -> Goal:
    islands, user = _islands(world), _visitor(draw)
    title = draw.choice(list(islands))
    new = draw.other(sorted({one["group"] for one in islands.values()}), islands[title]["group"])
    words = f'move the page "{title}" into the category "{new}", instead of the one that it is in.'
    return Goal(_by(user, words), _regrouped(world, title, user, new))


def _regroup_all(world: World, draw: Draw) -> Goal:
    """Each page of a category, one after the other."""
    (old, members), user = _of_group(world, draw), _visitor(draw)
    new = draw.other(sorted({one["group"] for one in _islands(world).values()}), old)
    after = world
    for title in members:
        after = _regrouped(after, title, user, new)
    words = f'move all pages of the category "{old}" into the category "{new}", instead of the old one.'
    return Goal(_by(user, words), after)


def _raise_fare(world: World, draw: Draw) -> Goal:
    one, user, page = draw.choice(list(_islands(world).values())), _visitor(draw), _ferries(world)
    fare = f"{float(one['fare']) + draw.randint(3, 30) * 0.05:.2f}"
    row = f"| {one['ferry']} || {one['seats']} || "
    words = (
        f'change the fare of the ferry {one["ferry"]} to {fare} in the table of the page "{page}", and '
        "nothing else."
    )
    return Goal(_by(user, words), _replace(world, page, user, row + one["fare"], row + fare))


def _rename_ferry(world: World, draw: Draw) -> Goal:
    one, user, page = draw.choice(list(_islands(world).values())), _visitor(draw), _ferries(world)
    new = person(draw)
    words = (
        f'give the ferry {one["ferry"]} its new name, {new}, on the page "{one["title"]}" and in the table '
        f'of the page "{page}". Change nothing else.'
    )
    after = _replace(world, one["title"], user, f"''{one['ferry']}''", f"''{new}''")
    return Goal(_by(user, words), _replace(after, page, user, f"| {one['ferry']} ||", f"| {new} ||"))


def _census(world: World, draw: Draw) -> Goal:
    """What one page says goes into the pages of three islands."""
    user, page, islands = _visitor(draw), f"New counts of the {_isles(world)}", _islands(world)
    after = world
    for line in _lines(world, page)[1:]:
        found = re.match(r"\* (.+): (\d+) people", line)
        assert found
        old = islands[found[1]]["people"]
        after = _replace(after, found[1], user, f"count {old} people", f"count {found[2]} people")
    words = (
        f'put each of the new counts that the page "{page}" lists into the page of its island, in place of '
        "the number of people there. Change nothing else."
    )
    return Goal(_by(user, words), after)


def _section(world: World, draw: Draw) -> Goal:
    title, user, heading = draw.choice(_guides(world)), _visitor(draw), subject(draw)
    text = remark(draw)
    words = (
        f'add a section at the end of the page "{title}". Its heading is "{heading}", of the second '
        f'level as in "== {heading} ==", and its text is "{text}"'
    )
    lines = [*_lines(world, title), f"== {heading} ==", text]
    return Goal(_by(user, words), _write(world, title, user, lines))


def _list_entry(world: World, draw: Draw) -> Goal:
    (title, items), user = draw.choice(list(_lists(world).items())), _visitor(draw)
    island = draw.choice([one for one in _islands(world) if one not in items])
    words = (
        f'add "{island}" to the end of the list on the page "{title}", as a link like the others: '
        f'"* [[{island}]]".'
    )
    return Goal(_by(user, words), _write(world, title, user, [*_lines(world, title), f"* [[{island}]]"]))


def _categorise(world: World, draw: Draw) -> Goal:
    title, user = draw.choice(_guides(world)), _visitor(draw)
    group = draw.choice(("Customs", "Nature", "Advice", "Crafts", "Safety", "Work"))
    words = f'put the page "{title}" into a category: add "[[Category:{group}]]" to it as its last line.'
    return Goal(_by(user, words), _write(world, title, user, _lines(world, title), groups=[group]))


def _talk(world: World, draw: Draw) -> Goal:
    title = draw.choice([one for one in _islands(world) if f"Talk:{one}" not in world["pages"]])
    user, heading, text = _visitor(draw), subject(draw), remark(draw)
    words = (
        f'add a topic to the talk page of "{title}", with the subject "{heading}" and the text "{text}" Do '
        "not sign it."
    )
    return Goal(_by(user, words), _write(world, f"Talk:{title}", user, [f"== {heading} ==", text]))


def _move(world: World, draw: Draw) -> Goal:
    old, user = draw.choice(_guides(world)), _visitor(draw)
    new = f"{old} {draw.choice(('explained', 'in short', 'for guests', 'in winter', 'today'))}"
    words = f'move the page "{old}" to the title "{new}", and leave a redirect behind.'
    after = _write(_moved(world, old, new, user), old, user, [f"#REDIRECT [[{new}]]"])
    return Goal(_by(user, words), after)


def _move_away(world: World, draw: Draw) -> Goal:
    """Only the keeper can leave no redirect."""
    old = draw.choice(_guides(world))
    new = f"{old} {draw.choice(('explained', 'in short', 'for guests', 'in winter', 'today'))}"
    words = f'move the page "{old}" to the title "{new}", and leave no redirect behind.'
    return Goal(_by(KEEPER, words), _moved(world, old, new, KEEPER))


def _relink(world: World, draw: Draw) -> Goal:
    """Moves a page, and then changes each list that has a link to it."""
    lists, user = _lists(world), _visitor(draw)
    old = draw.choice(
        [
            one
            for one in _islands(world)
            if f"Talk:{one}" not in world["pages"] and any(one in items for items in lists.values())
        ]
    )
    new = island_name(draw)
    after = _write(_moved(world, old, new, user), old, user, [f"#REDIRECT [[{new}]]"])
    for title in (_isles(world), *lists):
        if f"* [[{old}]]" in _lines(world, title):
            after = _replace(after, title, user, f"* [[{old}]]", f"* [[{new}]]")
    words = (
        f'move the page "{old}" to the title "{new}" with a redirect left behind, and put the link '
        f'"* [[{new}]]" in place of "* [[{old}]]" into every list of the wiki that has it. Change no other '
        "page and no other word."
    )
    return Goal(_by(user, words), after)


def _undo(world: World, draw: Draw) -> Goal:
    title, user = draw.choice(_guides(world)), _visitor(draw)
    words = f'undo the last change of the page "{title}", which Rook has made.'
    return Goal(_by(user, words), _good(world, title, user))


def _undo_all(world: World, draw: Draw) -> Goal:
    """The list of what a user did leads to several pages."""
    (summary, titles), user = _mistakes(world, draw), _visitor(draw)
    after = world
    for title in titles:
        after = _good(after, title, user)
    words = f'undo every change that the user Rook has made with the summary "{summary}", and no other.'
    return Goal(_by(user, words), after)


def _restore(world: World, draw: Draw) -> Goal:
    # The wiki saves no version with the text of the one before.
    people = {title: int(one["people"]) for title, one in _islands(world).items()}
    firsts = {title: _versions(world, title)[0] for title in people}
    title = draw.choice([one for one in people if _people(firsts[one][1]) != people[one]])
    user, (day, first) = _visitor(draw), firsts[title]
    words = (
        f'restore the first version of the page "{title}", of {_day(day)}: open it in the history, edit '
        "that version and save it as it is."
    )
    old, new = f"count {people[title]} people", f"count {_people(first)} people"
    return Goal(_by(user, words), _replace(world, title, user, old, new))


def _restore_with_summary(world: World, draw: Draw) -> Goal:
    title, user, summary = draw.choice(_guides(world)), _visitor(draw), f"{person(draw)} knows better"
    words = (
        f'look in the history of the page "{title}" for the version before the last, and save that '
        f'version again with the summary "{summary}".'
    )
    return Goal(_by(user, words), _good(world, title, user, summary))


def _watch(world: World, draw: Draw) -> Goal:
    user = _visitor(draw)
    watched = world["users"][user]["watched"]
    title = draw.choice([one for one in (*_islands(world), *_guides(world)) if one not in watched])
    after = put(world, "users", user, watched=sorted([*watched, title]))
    return Goal(_by(user, f'add the page "{title}" to your watch list.'), after)


def _unwatch(world: World, draw: Draw) -> Goal:
    user = _visitor(draw)
    watched = world["users"][user]["watched"]
    title = draw.choice(watched)
    after = put(world, "users", user, watched=[one for one in watched if one != title])
    return Goal(_by(user, f'remove the page "{title}" from your watch list.'), after)


def _delete(world: World, draw: Draw) -> Goal:
    title = draw.choice(_guides(world))
    old = [day for day, one in world["versions"].items() if one["page"] == title]
    after = drop(drop(world, "pages", title), "versions", *old)
    return Goal(_by(KEEPER, f'delete the page "{title}".'), after)


def _protect(world: World, draw: Draw) -> Goal:
    title = draw.choice(list(_islands(world)))
    words = f'protect the page "{title}" so that only administrators can edit and move it, for ever.'
    # Protection is noted in the history as a version with the same text.
    levels = ["edit=sysop infinity", "move=sysop infinity"]
    return Goal(_by(KEEPER, words), _write(world, title, KEEPER, _lines(world, title), protection=levels))


def _real_name(world: World, draw: Draw) -> Goal:
    user, name = _visitor(draw), person(draw)
    words = f'enter "{name}" as your real name in your preferences.'
    return Goal(_by(user, words), put(world, "users", user, name=name))


QUESTIONS: dict[str, Template] = {
    "fact": _island(
        "In which year was the island's lighthouse lit? Answer with the year alone.",
        lambda island: int(island["lighthouse"]),
    ),
    "hill": _island(
        "How many metres high is its highest hill? Answer with the number alone.",
        lambda island: int(island["metres"]),
    ),
    "comparison": _comparison,
    "highest": _highest,
    "stone": _stone,
    "fare": _fare,
    "seats": _seats,
    "no-school": _no_school,
    "category": _category,
    "redirect": _redirect,
    "links-here": _links_here,
    "search": _search,
    "revisions": _revisions,
    "creator": _creator,
    "editor": _editor,
    "old-count": _old_count,
    "growth": _growth,
    "contribution": _contribution,
    "by-summary": _by_summary,
    "before": _before,
    "asker": _asker,
    "length": _length,
}
CHANGES: dict[str, Template] = {
    "edit": _edit,
    "new-page": _new_page,
    "new-redirect": _new_redirect,
    "retarget": _retarget,
    "correct-people": _corrected(
        'correct the page "{title}": at the last count {new} people lived there.',
        "people",
        "count {} people",
        7,
        90,
    ),
    "correct-lighthouse": _corrected(
        'correct the page "{title}": its lighthouse was lit in {new}.', "lighthouse", "lit in {}", 1, 9
    ),
    "regroup": _regroup,
    "regroup-all": _regroup_all,
    "raise-fare": _raise_fare,
    "rename-ferry": _rename_ferry,
    "census": _census,
    "section": _section,
    "list-entry": _list_entry,
    "categorise": _categorise,
    "talk": _talk,
    "move": _move,
    "move-away": _move_away,
    "relink": _relink,
    "undo": _undo,
    "undo-all": _undo_all,
    "restore": _restore,
    "restore-with-summary": _restore_with_summary,
    "watch": _watch,
    "unwatch": _unwatch,
    "delete": _delete,
    "protect": _protect,
    "real-name": _real_name,
}
TEMPLATES = QUESTIONS | CHANGES
CARRIED = ("comparison", "highest", "stone", "fare", "growth", "census", "regroup-all", "relink", "undo-all")
