"""Tasks at Roundup: templates over the rows of its world."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

from collection.environments.apps.answers import Answer
from collection.environments.apps.roundup import world as museum
from collection.environments.apps.roundup.world import FACTS, ME, ORGANISATIONS, PRIORITIES, STATUSES
from collection.environments.apps.templates import (
    Draw,
    Goal,
    Template,
    Where,
    ask,
    change,
    create,
    drawn,
    other,
    remove,
)
from collection.environments.apps.world import Either, New, Row, World, drop, put

_ISSUE = 'the issue "{title}"'


def _messages(world: World, number: Any) -> dict[Any, Row]:
    return {key: row for key, row in world["messages"].items() if row["issue"] == number}


def _is_open(row: Row) -> bool:
    return row["status"] != "resolved"


def _is_other(row: Row) -> bool:
    """Whether a user is another person than kim, whose name is the same in every world."""
    return bool(row["realname"]) and row["roles"] == "User"


def _others(world: World) -> list[str]:
    return [login for login, row in world["users"].items() if _is_other(row)]


def _people(world: World) -> dict[str, Row]:
    """All but those that the software makes."""
    return {login: row for login, row in world["users"].items() if row["realname"]}


# Questions.


def _asked(
    words: str,
    form: str,
    of: Any,
    where: Where | None = None,
    among: str | Callable[[World], list[str]] = "",
) -> Template:
    return ask(f"{words} Answer with {form} alone.", "issues", of, where, among=among)


def _question(words: str, form: str, world: World, value: str | int, others: Collection[str] = ()) -> Goal:
    answer = Answer(value, [one for one in others if one != value])
    return Goal(f"{words} Answer with {form} alone. Change nothing.", world, answer)


def _replacement(world: World, number: int, row: Row) -> int:
    return row["superseder"][0] if row["superseder"] else number


def _author(at: int) -> Callable[[World, Any, Row], str]:
    return lambda world, number, row: list(_messages(world, number).values())[at]["author"]


def _facts(world: World) -> Iterator[tuple[int, str, str, int]]:
    """An issue's number, what its message says, what that is about, and the figure."""
    for row in world["messages"].values():
        for said, what in FACTS.items():
            if found := re.search(said.format(r"(\d+)"), row["text"]):
                yield row["issue"], row["text"], what, int(found[1])


def _fact(world: World, draw: Draw) -> Goal:
    number, _, what, figure = draw.choice(list(_facts(world)))
    name = world["issues"][number]["title"]
    words = f'Find out {what}: it is in a message of the issue "{name}".'
    return _question(words, "the number", world, figure)


def _said(world: World, draw: Draw) -> Goal:
    number, text, *_ = draw.choice(list(_facts(world)))
    return _question(f'Which issue has the message "{text}"?', "the number of the issue", world, number)


def _matches(row: Row, filters: Collection[str]) -> bool:
    """Whether an issue has the values of a saved query."""
    pairs = (one.split(": ", 1) for one in filters)
    return all(value in row["keywords"] if name == "keyword" else row[name] == value for name, value in pairs)


def _counted(words: str, *names: str, where: Where = bool) -> Template:
    """How many issues have the values of some fields; `words` has these."""

    def template(world: World, draw: Draw) -> Goal:
        values = {"assignedto": _others(world), "keyword": list(world["keywords"]), "status": STATUSES}
        chosen = {name: draw.choice(values[name]) for name in names}
        filters = [f"{name}: {value}" for name, value in chosen.items()]
        count = sum(_matches(row, filters) and bool(where(row)) for row in world["issues"].values())
        return _question(words.format(**chosen), "the number", world, count)

    return template


def _saved_query(world: World, draw: Draw) -> Goal:
    _, query = draw.row(world, "queries")
    count = sum(_matches(row, query["filters"]) for row in world["issues"].values())
    words = f'How many issues does your saved query "{query["name"]}" list?'
    return _question(words, "the number", world, count)


def _phone_of_either(world: World, draw: Draw) -> Goal:
    """In half of the tasks the first one is not there."""
    people = _people(world)
    first, second = draw.sample(list(people.values()), 2)
    is_there = draw.random() < 0.5
    name = first["realname"] if is_there else museum.full_name(draw)
    words = (
        f"Which phone number has {name}? If the tracker has no user of that name, give the phone number of "
        f"{second['realname']} instead."
    )
    right = first["phone"] if is_there else second["phone"]
    return _question(words, _NUMBER, world, right, [row["phone"] for row in people.values()])


_NUMBER = "the number, as in 201-555-0100,"

# Changes. Roundup itself lets an issue's assignee get its messages, and changes the status of an issue whose
# messages change, unless the same form does.


def _assigned(world: World, number: Any, before: Row) -> World:
    row = world["issues"][number]
    return put(world, "issues", number, nosy=sorted({*row["nosy"], row["assignedto"]}))


def _chatty(world: World, number: Any, before: Row) -> World:
    status = world["issues"][number]["status"]
    if status == before["status"] and status in ("unread", "done-cbb", "resolved"):
        return put(world, "issues", number, status="chatting")
    return world


def _with_note(world: World, number: Any, before: Row) -> World:
    new = {"issue": number, "author": ME, "text": before["text"]}
    world = put(world, "messages", New(f"message {number}"), **new)
    return _chatty(world, number, before)


_NOTED: Any = {"texts": {"text": museum.note}, "effect": _with_note}


def _assigned_with_note(world: World, number: Any, before: Row) -> World:
    return _assigned(_with_note(world, number, before), number, before)


def _to_another(world: World, draw: Draw, row: Row, column: str) -> str:
    return draw.other(_people(world), row[column])


def _listed(words: str, column: str, table: str = "") -> Template:
    """One more key of a table in the list of a column; without a table one fewer. `words` has the `key`."""

    def template(world: World, draw: Draw) -> Goal:
        known = [one for one in world.get(table, ()) if one not in ("admin", "anonymous")]

        def choices(row: Row) -> list[str]:
            return [one for one in known if one not in row[column]] if table else row[column]

        number, row = draw.row(world, "issues", choices)
        key = draw.choice(choices(row))
        after = sorted([*row[column], key]) if table else [one for one in row[column] if one != key]
        return Goal(words.format(key=key, **row), put(world, "issues", number, **{column: after}))

    return template


def _supersede(world: World, draw: Draw) -> Goal:
    (number, row), (replacing, new) = draw.sample(
        [(key, one) for key, one in world["issues"].items() if _is_open(one)], 2
    )
    words = (
        f'The issue "{row["title"]}" is replaced by the issue "{new["title"]}": enter the number of that one '
        "as its superseder, and set its status to resolved."
    )
    return Goal(words, put(world, "issues", number, superseder=[replacing], status="resolved"))


def _hand_back(world: World, draw: Draw) -> Goal:
    """The author of a message is found by its text."""
    _, message = draw.row(
        world, "messages", lambda one: one["author"] != world["issues"][one["issue"]]["assignedto"]
    )
    number, row = message["issue"], world["issues"][message["issue"]]
    priority = draw.other(PRIORITIES, row["priority"])
    words = (
        f'Assign the issue "{row["title"]}" to the author of its message "{message["text"]}", and set its '
        f"priority to {priority}."
    )
    after = put(world, "issues", number, assignedto=message["author"], priority=priority)
    return Goal(words, _assigned(after, number, row))


def _remove_message(world: World, draw: Draw) -> Goal:
    key, message = draw.row(world, "messages")
    number, row = message["issue"], world["issues"][message["issue"]]
    words = f'Remove the message "{message["text"]}" from the issue "{row["title"]}".'
    return Goal(words, _chatty(drop(world, "messages", key), number, row))


def _file_of(words: str, template: Callable[[str, Where], Template]) -> Template:
    """A change of the file of an issue, which the words name by its title."""

    def of_issue(world: World, draw: Draw) -> Goal:
        _, row = draw.row(world, "files")
        title = world["issues"][row["issue"]]["title"]
        return template(words.replace("{title}", title), lambda one: one is row)(world, draw)

    return of_issue


def _new_with_all(world: World, draw: Draw) -> Goal:
    name = draw.choice(_others(world))
    row = museum.issue(
        title=museum.title(draw),
        priority=draw.choice(PRIORITIES),
        status=draw.choice(STATUSES[1:-1]),
        assignedto=name,
        nosy=sorted({ME, name}),
        keywords=[draw.choice(list(world["keywords"]))],
    )
    text = museum.note(draw)
    words = (
        f'Report a new issue "{row["title"]}" with the message "{text}": priority {row["priority"]}, status '
        f'{row["status"]}, assigned to {name}, with the keyword "{row["keywords"][0]}".'
    )
    after = put(world, "issues", New(), **row)
    return Goal(words, put(after, "messages", New("message"), issue=New(), author=ME, text=text))


def _new_superseder(world: World, draw: Draw) -> Goal:
    number, old = draw.row(world, "issues", lambda one: not one["superseder"])
    new = museum.issue(title=museum.title(draw), priority=draw.choice(PRIORITIES))
    words = (
        f'Report a new issue "{new["title"]}" with the priority {new["priority"]}, and then enter its number '
        f'as the superseder of the issue "{old["title"]}".'
    )
    return Goal(words, put(put(world, "issues", New(), **new), "issues", number, superseder=[New()]))


def _ensure(world: World, draw: Draw) -> Goal:
    """In half of the tasks the issue is not there."""
    number, row = draw.row(world, "issues")
    priority = draw.other(PRIORITIES, row["priority"])
    new = museum.issue(title=museum.title(draw), priority=priority)
    is_there = draw.random() < 0.5
    words = (
        f'If the tracker has an issue "{(row if is_there else new)["title"]}", set its priority to '
        f"{priority}. If it has none, report it as a new issue with the priority {priority}."
    )
    after = (
        put(world, "issues", number, priority=priority) if is_there else put(world, "issues", New(), **new)
    )
    return Goal(words, after)


def _keyword_if_missing(world: World, draw: Draw) -> Goal:
    number, row = draw.row(world, "issues", lambda one: not one["keywords"])
    name = draw.choice([museum.keyword(draw), draw.choice(list(world["keywords"]))])
    words = (
        f'Give the issue "{row["title"]}" the keyword "{name}"; if there is no such keyword yet, create it '
        "first."
    )
    return Goal(words, put(put(world, "keywords", name), "issues", number, keywords=[name]))


def _new_keyword(world: World, draw: Draw) -> Goal:
    name = museum.keyword(draw)
    return Goal(f'Create the keyword "{name}".', put(world, "keywords", name))


def _rename_keyword(world: World, draw: Draw) -> Goal:
    old, new = draw.choice(list(world["keywords"])), museum.keyword(draw)
    after = put(drop(world, "keywords", old), "keywords", new)
    for number, row in world["issues"].items():
        names = [new if one == old else one for one in row["keywords"]]
        after = put(after, "issues", number, keywords=sorted(names))
    for number, row in world["queries"].items():
        filters = [f"keyword: {new}" if one == f"keyword: {old}" else one for one in row["filters"]]
        after = put(after, "queries", number, filters=filters)
    return Goal(f'Rename the keyword "{old}" to "{new}".', after)


def _newcomer(world: World, draw: Draw) -> tuple[str, World, str]:
    realname = museum.full_name(draw)
    login = museum.login_of(realname)
    row = museum.person(draw, realname, login) | {"phone": ""}
    words = (
        f'Add a user with the name "{realname}", the login name "{login}", the organisation '
        f'"{row["organisation"]}" and the e-mail address {row["address"]}; no password is needed.'
    )
    return login, put(world, "users", login, **row), words


def _new_person(world: World, draw: Draw) -> Goal:
    _, after, words = _newcomer(world, draw)
    return Goal(words, after)


def _new_person_assigned(world: World, draw: Draw) -> Goal:
    login, after, words = _newcomer(world, draw)
    number, row = draw.row(world, "issues")
    after = _assigned(put(after, "issues", number, assignedto=login), number, row)
    return Goal(f'{words} Then assign the issue "{row["title"]}" to the new user.', after)


def _onboard(world: World, draw: Draw) -> Goal:
    """A user, a keyword and an issue that has both."""
    login, after, words = _newcomer(world, draw)
    name, priority = museum.keyword(draw), draw.choice(PRIORITIES)
    new = museum.issue(
        title=museum.title(draw), priority=priority, assignedto=login, nosy=[login], keywords=[name]
    )
    words = (
        f'{words} Create the keyword "{name}". Then report a new issue "{new["title"]}" with the priority '
        f"{priority} and this keyword, and assign it to the new user."
    )
    return Goal(words, put(put(after, "keywords", name), "issues", New(), **new))


def _save_query(world: World, draw: Draw) -> Goal:
    name, status, priority = museum.query_name(draw), draw.choice(STATUSES), draw.choice(PRIORITIES)
    words = (
        f"Search for the issues with the status {status} and the priority {priority}, and save this search "
        f'as a query with the name "{name}".'
    )
    row = {"name": name, "creator": ME, "filters": [f"priority: {priority}", f"status: {status}"]}
    return Goal(words, put(world, "queries", New(), **row, listed=1, private=1))


def _two(world: World, draw: Draw) -> Goal:
    (first, one), (second, two) = draw.sample(list(world["issues"].items()), 2)
    priority, status = draw.other(PRIORITIES, one["priority"]), draw.other(STATUSES, two["status"])
    words = (
        f'Set the priority of the issue "{one["title"]}" to {priority}, and the status of the issue '
        f'"{two["title"]}" to {status}.'
    )
    return Goal(words, put(put(world, "issues", first, priority=priority), "issues", second, status=status))


def _same_as(world: World, draw: Draw) -> Goal:
    _, one = draw.row(world, "issues", lambda row: row["assignedto"])
    number, row = draw.row(
        world, "issues", lambda row: all(row[name] != one[name] for name in ("priority", "assignedto"))
    )
    words = f'Give the issue "{row["title"]}" the priority and the assignee of the issue "{one["title"]}".'
    after = put(world, "issues", number, priority=one["priority"], assignedto=one["assignedto"])
    return Goal(words, _assigned(after, number, row))


def _every(words: str, first: str, second: str) -> Template:
    """A new value of a column for all issues that have the same two values; `words` has these and `new`."""

    def template(world: World, draw: Draw) -> Goal:
        groups: dict[tuple[str, str], list[Any]] = {}
        for number, row in world["issues"].items():
            if row["assignedto"] in _others(world):
                groups.setdefault((row[first], row[second]), []).append(number)
        pair, numbers = draw.choice([(pair, found) for pair, found in groups.items() if len(found) > 1])
        new = draw.other(PRIORITIES if second == "priority" else _people(world), pair[1])
        after = world
        for number in numbers:
            after = _assigned(put(after, "issues", number, **{second: new}), number, {})
        return Goal(words.format(new=new, **{first: pair[0], second: pair[1]}), after)

    return template


def _resolve_all(world: World, draw: Draw) -> Goal:
    """Three to six issues."""
    found = {
        name: [key for key, row in world["issues"].items() if name in row["keywords"] and _is_open(row)]
        for name in world["keywords"]
    }
    name = draw.choice([one for one, numbers in found.items() if 2 < len(numbers) < 7])
    after = world
    for number in found[name]:
        after = put(after, "issues", number, status="resolved")
    words = f'Set the status of all issues with the keyword "{name}" to resolved.'
    return Goal(f"{words} Leave their other fields as they are.", after)


def _pass_on(world: World, draw: Draw) -> Goal:
    """A figure from a message of one issue becomes a message of two others."""
    number, said, what, figure = draw.choice(list(_facts(world)))
    chosen = draw.sample([key for key in world["issues"] if key != number], 2)
    after = world
    for key in chosen:
        row = {**world["issues"][key], "text": Either((str(figure), said))}
        after = _with_note(after, key, row)
    first, second, source = (world["issues"][key]["title"] for key in (*chosen, number))
    words = (
        f'A message of the issue "{source}" says {what}. Add this number as a message to the issue "{first}" '
        f'and to the issue "{second}".'
    )
    return Goal(words, after)


def _note_phone(world: World, draw: Draw) -> Goal:
    number, row = draw.row(world, "issues", lambda one: one["assignedto"])
    number_of = world["users"][row["assignedto"]]["phone"]
    words = (
        f'Add a message to the issue "{row["title"]}" that gives nothing but the phone number of the person '
        "it is assigned to."
    )
    return Goal(words, _with_note(world, number, {**row, "text": number_of}))


def _set(words: str, **new: Any) -> Template:
    return change(words, "issues", **new)


QUESTIONS: dict[str, Template] = {
    "priority": _asked(f"Which priority has {_ISSUE}?", "the priority", "priority"),
    "status": _asked(f"Which status has {_ISSUE}?", "the status", "status"),
    "assignee": _asked(
        f"Who is {_ISSUE} assigned to?",
        "the login name",
        "assignedto",
        lambda one: one["assignedto"],
        among="users",
    ),
    "number": _asked(f"Which number has {_ISSUE}?", "the number", lambda world, number, row: number),
    "creator": _asked(f"Who created {_ISSUE}?", "the login name", "creator", among="users"),
    "keyword": _asked(
        f"Which keyword has {_ISSUE}?",
        "the keyword",
        lambda world, number, row: row["keywords"][0],
        lambda one: len(one["keywords"]) == 1,
        among="keywords",
    ),
    "superseder": _asked(
        f"Which issue is the superseder of {_ISSUE}?",
        "its number",
        _replacement,
        lambda one: one["superseder"],
    ),
    "superseder-or-itself": _asked(
        f"Which issue is the superseder of {_ISSUE}? If it has none, give the number of this one.",
        "the number",
        _replacement,
    ),
    "file": _file_of(
        'What is the name of the file of the issue "{title}"?',
        lambda words, where: ask(f"{words} Answer with the name alone.", "files", "name", where),
    ),
    "last-author": _asked(
        f"Who wrote the last message of {_ISSUE}?", "the login name", _author(-1), among="users"
    ),
    "assignee-phone": _asked(
        f"What is the phone number of the person {_ISSUE} is assigned to?",
        _NUMBER,
        lambda world, number, row: world["users"][row["assignedto"]]["phone"],
        lambda one: one["assignedto"],
        among=lambda world: [row["phone"] for row in world["users"].values()],
    ),
    "fact": _fact,
    "said": _said,
    "count-status": _counted(
        "How many issues that are assigned to {assignedto} have the status {status}?", "assignedto", "status"
    ),
    "count-keyword": _counted('How many issues have the keyword "{keyword}"?', "keyword"),
    "count-open": _counted(
        "How many issues that are not resolved are assigned to {assignedto}?", "assignedto", where=_is_open
    ),
    "saved-query": _saved_query,
    "phone": ask(
        f"Which phone number has {{realname}}? Answer with {_NUMBER} alone.", "users", "phone", _is_other
    ),
    "phone-of-either": _phone_of_either,
}
CHANGES: dict[str, Template] = {
    "set-priority": _set(f"Set the priority of {_ISSUE} to {{new_priority}}.", priority=other(PRIORITIES)),
    "set-status": _set(f"Set the status of {_ISSUE} to {{new_status}}.", status=other(STATUSES)),
    "set-both": _set(
        f"Set the priority of {_ISSUE} to {{new_priority}} and its status to {{new_status}}.",
        priority=other(PRIORITIES),
        status=other(STATUSES),
    ),
    "rename": _set(f'Change the title of {_ISSUE} to "{{new_title}}".', title=drawn(museum.title)),
    "assign": _set(f"Assign {_ISSUE} to {{new_assignedto}}.", effect=_assigned, assignedto=_to_another),
    "unassign": _set(
        'The issue "{title}" is to be assigned to no one: take its assignee away.',
        where=lambda one: one["assignedto"],
        assignedto="",
    ),
    "add-keyword": _listed(f'Add the keyword "{{key}}" to those of {_ISSUE}.', "keywords", "keywords"),
    "remove-keyword": _listed(f'Take the keyword "{{key}}" away from {_ISSUE}.', "keywords"),
    "add-nosy": _listed(f"Add {{key}} to the nosy list of {_ISSUE}.", "nosy", "users"),
    "remove-nosy": _listed(f"Take {{key}} off the nosy list of {_ISSUE}.", "nosy"),
    "supersede": _supersede,
    "note": _set(f'Add the message "{{text}}" to {_ISSUE}.', **_NOTED),
    "note-and-status": _set(
        f'Add the message "{{text}}" to {_ISSUE}, and set its status to {{new_status}}.',
        **_NOTED,
        status=other(STATUSES),
    ),
    "note-and-assign": _set(
        f'Add the message "{{text}}" to {_ISSUE}, and assign it to {{new_assignedto}}.',
        **_NOTED | {"effect": _assigned_with_note},
        assignedto=_to_another,
    ),
    "hand-back": _hand_back,
    "remove-message": _remove_message,
    "remove-file": _file_of(
        'Remove the file {name} from the issue "{title}".',
        lambda words, where: remove(words, "files", where),
    ),
    "rename-file": _file_of(
        'Rename the file {name} of the issue "{title}" to {new_name}.',
        lambda words, where: change(words, "files", where, name=drawn(museum.file_name)),
    ),
    "new": create(
        'Report a new issue "{title}" with the priority {priority}.',
        "issues",
        **museum.issue(
            title=drawn(museum.title), priority=lambda world, draw, row, name: draw.choice(PRIORITIES)
        ),
    ),
    "new-with-all": _new_with_all,
    "new-superseder": _new_superseder,
    "ensure": _ensure,
    "keyword-if-missing": _keyword_if_missing,
    "new-keyword": _new_keyword,
    "rename-keyword": _rename_keyword,
    "own-phone": change(
        "Change your own phone number to {new_phone}.",
        "users",
        lambda one: one["realname"] and not _is_other(one),
        phone=drawn(museum.phone),
    ),
    "organisation": change(
        "{realname} has moved: change the organisation of this user to {new_organisation}.",
        "users",
        _is_other,
        organisation=other(ORGANISATIONS),
    ),
    "new-person": _new_person,
    "new-person-assigned": _new_person_assigned,
    "onboard": _onboard,
    "save-query": _save_query,
    "delete-query": remove('Delete your saved query "{name}".', "queries"),
    "leave-out": change(
        'Remove your saved query "{name}" from the list "Your Queries", but do not delete it.',
        "queries",
        listed=0,
    ),
    "two": _two,
    "same-as": _same_as,
    "reassign-all": _every(
        "Assign all issues with the status {status} that are assigned to {assignedto} to {new}.",
        "status",
        "assignedto",
    ),
    "raise-all": _every(
        "All issues of the priority {priority} that are assigned to {assignedto} get the priority {new}. "
        "This includes those that are resolved.",
        "assignedto",
        "priority",
    ),
    "resolve-all": _resolve_all,
    "pass-on": _pass_on,
    "note-phone": _note_phone,
}
# A fact of one page is needed on another.
CARRIED = ("assignee-phone", "supersede", "new-superseder", "same-as", "pass-on", "note-phone")
TEMPLATES = QUESTIONS | CHANGES
