"""Tasks at the support desk: templates over the rows of its world."""

from __future__ import annotations

import collections
import datetime
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

from collection.environments.apps.answers import Answer, other_values
from collection.environments.apps.helpdesk.world import (
    LISTS,
    OPEN,
    PRIORITIES,
    STAFF,
    STEPS,
    address,
    article,
    description,
    remark,
    reply,
    search,
    search_title,
    ticket,
    title,
)
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
    other_in,
    remove,
)
from collection.environments.apps.world import Either, New, Row, World, put

_ME = STAFF[0]


def _is_open(row: Row) -> bool:
    return row["status"] in OPEN


def _is_found(row: Row) -> bool:
    """The search leaves closed tickets out."""
    return row["status"] != "Closed"


def _queue(world: World, slug: str) -> str:
    return world["queues"][slug]["title"]


def _numbers(world: World, where: Where) -> list[int]:
    return [number for number, row in world["tickets"].items() if where(row)]


def _titled(world: World, *numbers: int) -> list[str]:
    return [world["tickets"][number]["title"] for number in numbers]


# Questions.


def _field(
    words: str,
    of: Any,
    where: Where = _is_found,
    form: Callable[[Any], Any] | None = None,
    among: Callable[[World], list[str]] | str = "",
) -> Template:
    return ask(words, "tickets", of, where, form, among)


def _last_word(row: Row, column: str) -> str:
    return row[column].split()[-1].strip(".")


def _queue_names(world: World) -> list[str]:
    return [row["title"] for row in world["queues"].values()]


def _tags(world: World) -> list[str]:
    return [_last_word(row, "description") for row in world["tickets"].values()]


def _number_or_none(world: World, number: int | None) -> Answer:
    """Both kinds of answers at once are wrong."""
    return Answer(number, ("none",)) if number else Answer("none", [*map(str, world["tickets"])])


def _number(world: World, draw: Draw) -> Goal:
    """Every third ticket does not exist."""
    number, row = draw.row(world, "tickets", _is_found)
    missing = draw.random() < 1 / 3
    name = title(draw, "Rooms") if missing else row["title"]
    words = (
        f'Which number has the ticket "{name}"? Change nothing; answer with the number alone, or with none '
        "if it is missing."
    )
    return Goal(words, world, _number_or_none(world, None if missing else number))


def _category(world: World, draw: Draw) -> Goal:
    """Every third article does not exist."""
    _, row = draw.row(world, "articles")
    missing = draw.random() < 1 / 3
    name = article(draw)[0] if missing else row["title"]
    words = (
        f'In which category of the knowledge base is the article "{name}"? Change nothing; answer with the '
        "name of the category, or with none if there is no such article."
    )
    value = "none" if missing else _queue(world, row["category"])
    return Goal(words, world, Answer(value, other_values(["none", *_queue_names(world)], value)))


def _of_submitter(world: World, draw: Draw) -> Goal:
    """A submitter who has one open ticket in a queue, or none."""
    found = collections.Counter(_sender(one) for one in world["tickets"].values() if _is_open(one))
    pairs = itertools.product(world["queues"], sorted({sender for _, sender in found}))
    missing = draw.random() < 1 / 3
    queue, sender = draw.choice([pair for pair in pairs if found[pair] == (0 if missing else 1)])
    numbers = _numbers(world, lambda one: _is_open(one) and _sender(one) == (queue, sender))
    words = (
        f'Which open or reopened ticket of the queue "{_queue(world, queue)}" was submitted by {sender}? '
        "Change nothing; answer with its number alone, or with none if there is no such ticket."
    )
    return Goal(words, world, _number_or_none(world, numbers[0] if numbers else None))


def _sender(row: Row) -> tuple[str, str]:
    return row["queue"], row["submitter"]


def _in_queue(world: World, draw: Draw) -> Goal:
    queue = draw.choice(list(world["queues"]))
    statuses, name = draw.choice(((OPEN, "open or reopened"), (("Resolved",), "resolved")))
    found = _numbers(world, lambda one: one["queue"] == queue and one["status"] in statuses)
    words = f'How many tickets of the queue "{_queue(world, queue)}" are {name}?'
    return Goal(f"{words} Change nothing; answer with the number.", world, Answer(len(found)))


def _due_first(world: World, draw: Draw) -> Goal:
    queue = draw.row(world, "tickets", _is_open)[1]["queue"]
    found = _numbers(world, lambda one: one["queue"] == queue and _is_open(one))
    first = min(found, key=lambda number: world["tickets"][number]["due"])
    words = f'Which of the open and reopened tickets of the queue "{_queue(world, queue)}" is due first?'
    return Goal(f"{words} Change nothing; answer with its number alone.", world, Answer(first))


def _report(world: World, draw: Draw) -> Goal:
    queue, owner = draw.choice(list(world["queues"])), draw.choice(STAFF)
    found = _numbers(world, lambda one: (one["queue"], one["owner"]) == (queue, owner))
    words = (
        f'How many tickets of the queue "{_queue(world, queue)}" are assigned to {owner.title()}, of any '
        "status? A report shows it. Change nothing; answer with the number alone."
    )
    return Goal(words, world, Answer(len(found)))


def _query_count(world: World, draw: Draw) -> Goal:
    _, query = draw.row(world, "searches")
    found = _numbers(
        world,
        lambda one: all(
            not query[f"{column}s"] or one[name] in query[f"{column}s"]
            for column, name in (("queue", "queue"), ("statuse", "status"), ("prioritie", "priority"))
        ),
    )
    words = f'How many tickets does the saved query "{query["title"]}" list?'
    return Goal(f"{words} Change nothing; answer with the number alone.", world, Answer(len(found)))


def _said(row: Row) -> tuple[str, str]:
    """What an article says: what it is about, and the number."""
    return row["question"].removeprefix("Do you know ").rstrip("?"), re.findall(r"\d+", row["answer"])[-1]


def _fact(world: World, draw: Draw) -> Goal:
    _, row = draw.row(world, "articles")
    what, number = _said(row)
    words = f'The article "{row["title"]}" of the knowledge base says {what}.'
    return Goal(f"{words} Change nothing; answer with that number alone.", world, Answer(int(number)))


# Changes.

_TICKET = 'the ticket "{title}"'


def _priority(world: World, draw: Draw, row: Row, column: str) -> int:
    return draw.other(range(1, 6), row["priority"])


def _shown(world: World, values: dict[str, Any]) -> dict[str, Any]:
    """Values as the pages name them."""
    names: dict[str, Callable[[Any], str]] = {
        "queue": lambda slug: _queue(world, slug),
        "priority": lambda number: PRIORITIES[number - 1],
        "owner": str.title,
    }
    return {name: names.get(name, str)(value) for name, value in values.items()}


def _changed(words: str, where: Where = _is_open, **new: Any) -> Template:
    """Other values of a ticket; `words` has them as the pages name them."""

    def template(world: World, draw: Draw) -> Goal:
        number, row = draw.row(world, "tickets", where)
        values = {name: make(world, draw, row, name) for name, make in new.items()}
        shown = {f"new_{name}": value for name, value in _shown(world, values).items()}
        return Goal(words.format(title=row["title"], **shown), put(world, "tickets", number, **values))

    return template


def _day(draw: Draw) -> str:
    return draw.day("2028-01-01", "2028-12-31")


_new_owner, _new_queue, _new_day = other(STAFF), other_in("queues"), drawn(_day)


def _note(world: World, number: int, text: Any, public: int = 1, **values: Any) -> World:
    """With a comment on a ticket, and other values of it."""
    notes = [*world["tickets"][number]["notes"], [text, public, _ME]]
    return put(world, "tickets", number, notes=notes, **values)


def _noted(
    words: str,
    public: int = 1,
    status: str = "",
    was: Sequence[str] = OPEN,
    of: Callable[[Draw], str] = remark,
) -> Template:
    """A comment, and perhaps a new status."""

    def template(world: World, draw: Draw) -> Goal:
        number, row = draw.row(world, "tickets", lambda one: one["status"] in was)
        text = of(draw)
        values = {"status": status} if status else {}
        if status in ("Resolved", "Closed"):
            values["resolution"] = text
        return Goal(words.format(title=row["title"], text=text), _note(world, number, text, public, **values))

    return template


def _reply(world: World, draw: Draw) -> Goal:
    number, row = draw.row(world, "tickets", _is_open)
    _, preset = draw.row(world, "replies")
    words = (
        f'Answer the ticket "{row["title"]}" in public with the pre-set reply "{preset["name"]}", as it is.'
    )
    return Goal(words, _note(world, number, preset["text"]))


def _reply_and_resolve(world: World, draw: Draw) -> Goal:
    number, row = draw.row(world, "tickets", _is_open)
    _, preset = draw.row(world, "replies")
    due, text = _day(draw), preset["text"]
    words = (
        f'Resolve the ticket "{row["title"]}" with the pre-set reply "{preset["name"]}", as it is and in '
        f"public; set its due date to {due} as well."
    )
    return Goal(words, _note(world, number, text, status="Resolved", resolution=text, due=due))


def _publish(world: World, draw: Draw) -> Goal:
    number, row = draw.row(
        world, "tickets", lambda one: _is_found(one) and any(not note[1] for note in one["notes"])
    )
    private = next(note[0] for note in row["notes"] if not note[1])
    notes = [[text, 1, author] for text, _, author in row["notes"]]
    words = (
        f'The comment "{private}" on the ticket "{row["title"]}" is private: edit it so that it is public.'
    )
    return Goal(words, put(world, "tickets", number, notes=notes))


def _problem(world: World, draw: Draw, author: str = _ME, **values: Any) -> dict[str, Any]:
    """A new ticket."""
    queue = draw.choice(list(world["queues"]))
    name = title(draw, _queue(world, queue).split()[0])
    text = description(draw, name)
    made = ticket(
        title=name,
        queue=queue,
        description=text,
        submitter=address(draw),
        priority=draw.choice((1, 2, 4, 5)),
        due=_day(draw),
        notes=[[text, 1, author]],
    )
    return {**made, **values}


def _new(world: World, draw: Draw) -> Goal:
    row = _problem(world, draw, owner=draw.choice(STAFF))
    words = (
        'Make a ticket "{title}" with the description "{description}" in the queue "{queue}": priority '
        "{priority}, due on {due}, submitted by {submitter}, and {owner} is its owner."
    )
    return Goal(words.format(**_shown(world, row)), put(world, "tickets", New(), **row))


def _submit(world: World, draw: Draw) -> Goal:
    row = _problem(world, draw, author="")
    words = (
        "You are a visitor of the desk, without an account. Report a problem "
        '"{title}" with the description "{description}" to the queue "{queue}", with priority {priority} and '
        "due on {due}. Your e-mail address is {submitter}."
    )
    return Goal(words.format(**_shown(world, row)), put(world, "tickets", New(), **row), start="/public/")


def _from_article(world: World, draw: Draw) -> Goal:
    _, source = draw.row(world, "articles")
    row = _problem(world, draw, article=source["title"], due="", priority=3, submitter=f"{_ME}@desk.example")
    words = (
        f'The article "{source["title"]}" of the knowledge base did not help: from it, create a new ticket '
        f'"{row["title"]}" with the description "{row["description"]}" in the queue '
        f'"{_queue(world, row["queue"])}". Leave the other fields as they are.'
    )
    return Goal(words, put(world, "tickets", New(), **row))


def _copy(world: World, draw: Draw) -> Goal:
    number, row = draw.row(world, "tickets", _is_open)
    to = address(draw)
    words = f'Make the ticket "{row["title"]}" send copies to {to}, who may do nothing else.'
    return Goal(words, put(world, "tickets", number, copies=[to]))


def _step(world: World, draw: Draw) -> Goal:
    number, row = draw.row(world, "tickets", lambda one: one["steps"] and _is_open(one))
    step = draw.choice(STEPS[1:])
    steps = [[text, int(done or text == step)] for text, done in row["steps"]]
    words = f'The task "{step}" of the checklist of the ticket "{row["title"]}" is completed: mark it.'
    return Goal(words, put(world, "tickets", number, steps=steps))


def _depend(world: World, draw: Draw) -> Goal:
    number, needed = draw.sample(_numbers(world, _is_open), 2)
    first, second = _titled(world, number, needed)
    words = (
        f'The ticket "{first}" has to wait until the ticket "{second}" is resolved: make it depend on that.'
    )
    return Goal(words, put(world, "tickets", number, needs=[needed]))


def _merge(world: World, draw: Draw) -> Goal:
    pairs = [
        pair
        for queue in world["queues"]
        for pair in itertools.permutations(
            _numbers(world, lambda one, of=queue: one["queue"] == of and _is_open(one)), 2
        )
    ]
    number, into = draw.choice(pairs)
    gone, kept = world["tickets"][number], world["tickets"][into]
    owner = f"{gone['owner']}@desk.example" if gone["owner"] else ""
    known = {"", kept["submitter"], f"{kept['owner']}@desk.example"}
    notes = gone["notes"] + kept["notes"] if number < into else kept["notes"] + gone["notes"]
    after = put(world, "tickets", number, status="Duplicate", merged=into, notes=[])
    after = put(after, "tickets", into, copies=sorted({gone["submitter"], owner} - known), notes=notes)
    words = (
        f'Merge the ticket "{gone["title"]}" into the ticket "{kept["title"]}", which stays and keeps all its'
    )
    return Goal(f"{words} own values.", after)


def _assign_all(world: World, draw: Draw) -> Goal:
    queue, owner = draw.row(world, "tickets", _is_open)[1]["queue"], draw.choice(STAFF)
    after = world
    for number in _numbers(world, lambda one: one["queue"] == queue and _is_open(one)):
        after = put(after, "tickets", number, owner=owner)
    words = f'Assign all open and reopened tickets of the queue "{_queue(world, queue)}" to {owner.title()}.'
    return Goal(words, after)


def _three(world: World, draw: Draw) -> tuple[list[int], list[str]]:
    """Open tickets, and their titles."""
    numbers = draw.sample(_numbers(world, _is_open), 3)
    return numbers, _titled(world, *numbers)


def _close_some(world: World, draw: Draw) -> Goal:
    numbers, titles = _three(world, draw)
    after = world
    for number in numbers:
        after = put(after, "tickets", number, status="Closed")
    words = f'Close the tickets "{titles[0]}", "{titles[1]}" and "{titles[2]}", without a resolution.'
    return Goal(words, after)


def _round(world: World, draw: Draw) -> Goal:
    """Comments on several tickets, one after the other."""
    numbers, titles = _three(world, draw)
    texts = draw.distinct(lambda: remark(draw), 3)
    after = world
    for number, text in zip(numbers, texts, strict=True):
        after = _note(after, number, text)
    each = [f'"{text}" to the ticket "{name}"' for text, name in zip(texts, titles, strict=True)]
    return Goal(f"Add three public comments: {each[0]}, {each[1]}, and {each[2]}.", after)


def _hand_out(world: World, draw: Draw) -> Goal:
    """Other values of several tickets, one after the other."""
    numbers, titles = _three(world, draw)
    rows = [world["tickets"][number] for number in numbers]
    owners = [draw.other(STAFF, row["owner"]) for row in rows[:2]]
    queue = draw.other(world["queues"], rows[2]["queue"])
    after = put(world, "tickets", numbers[0], owner=owners[0])
    after = put(put(after, "tickets", numbers[1], owner=owners[1]), "tickets", numbers[2], queue=queue)
    words = (
        f'Assign the ticket "{titles[0]}" to {owners[0].title()} and the ticket "{titles[1]}" to '
        f'{owners[1].title()}, and move the ticket "{titles[2]}" to the queue "{_queue(world, queue)}".'
    )
    return Goal(words, after)


def _wait_for(world: World, draw: Draw) -> Goal:
    """A new ticket, and one that depends on it."""
    row = _problem(world, draw, due="", priority=3)
    number, waits = draw.row(world, "tickets", _is_open)
    words = (
        f'Make a ticket "{row["title"]}" with the description "{row["description"]}" in the queue '
        f'"{_queue(world, row["queue"])}", submitted by {row["submitter"]}. Then make the ticket '
        f'"{waits["title"]}" depend on the new one.'
    )
    after = put(world, "tickets", New(), **row)
    return Goal(words, put(after, "tickets", number, needs=[New()]))


def _tell(world: World, draw: Draw) -> Goal:
    """What an article says goes into a comment."""
    _, source = draw.row(world, "articles")
    what, fact = _said(source)
    number, row = draw.row(world, "tickets", _is_open)
    words = (
        f'The article "{source["title"]}" of the knowledge base says {what}: write that number as a public '
        f'comment on the ticket "{row["title"]}".'
    )
    return Goal(words, _note(world, number, Either((fact, f"{fact}.", source["answer"]))))


def _same_owner(world: World, draw: Draw) -> Goal:
    """The owner of one ticket becomes that of another."""
    source = draw.choice(_numbers(world, lambda one: one["owner"] and _is_found(one)))
    owner = world["tickets"][source]["owner"]
    number = draw.choice(_numbers(world, lambda one: _is_open(one) and one["owner"] != owner))
    (first,), (second,) = _titled(world, source), _titled(world, number)
    words = (
        f'The agent to whom the ticket "{first}" is assigned gets the ticket "{second}" as well: assign it.'
    )
    return Goal(words, put(world, "tickets", number, owner=owner))


def _page_size(world: World, draw: Draw) -> Goal:
    """What an article says goes into the settings."""
    row = next(one for one in world["articles"].values() if _said(one)[0] == LISTS)
    words = (
        f'Change your settings as the article "{row["title"]}" of the knowledge base says: it tells how many '
        "tickets a page of the list is to show."
    )
    return Goal(words, put(world, "settings", _ME, tickets_per_page=int(_said(row)[1])))


def _save_query(world: World, draw: Draw) -> Goal:
    queue, priority, shared = draw.choice(list(world["queues"])), draw.randint(1, 5), draw.randint(0, 1)
    row = search(
        search_title(draw), shared=shared, queues=[queue], statuses=list(OPEN), priorities=[priority]
    )
    words = (
        f'Save a query "{row["title"]}" that lists the tickets of the queue "{_queue(world, queue)}" with '
        f"the priority {PRIORITIES[priority - 1]} and the statuses Open and Reopened; "
        f"{'share it with the others' if shared else 'do not share it'}."
    )
    return Goal(words, put(world, "searches", New(), **row))


def _vote(world: World, draw: Draw) -> Goal:
    number, row = draw.row(world, "articles")
    name, vote = draw.choice((("for", {"votes_for": 1}), ("against", {"votes_against": 1})))
    words = f'Vote {name} the article "{row["title"]}" of the knowledge base.'
    return Goal(words, put(world, "articles", number, **vote))


def _write_article(world: World, draw: Draw) -> Goal:
    name, text = article(draw)
    category = draw.choice(list(world["categories"]))
    row = {"title": name, "category": category, "question": f"{name}: what helps?", "answer": text}
    words = (
        f'Write an article "{name}" in the category "{_queue(world, category)}" of the knowledge base; its '
        f'question is "{row["question"]}" and its answer "{text}" (see the system settings).'
    )
    return Goal(words, put(world, "articles", New(), **row, votes_for=0, votes_against=0, shown=1))


def _write_reply(world: World, draw: Draw) -> Goal:
    row = reply(draw)
    words = (
        f'Add a pre-set reply "{row["name"]}" with the text "{row["text"]}", for all queues (see the system'
    )
    return Goal(f"{words} settings).", put(world, "replies", New(), **row))


QUESTIONS: dict[str, Template] = {
    "owner": _field(
        f"Who is {_TICKET} assigned to? Answer with the name alone.",
        "owner",
        lambda one: one["owner"] and _is_found(one),
    ),
    "priority": _field(f"Which priority has {_TICKET}? Answer with its number (1 to 5) alone.", "priority"),
    "queue": _field(
        f"In which queue is {_TICKET}? Answer with the name alone.",
        lambda world, key, row: _queue(world, row["queue"]),
        among=_queue_names,
    ),
    "due": _field(
        f"When is {_TICKET} due? Answer with the day, as in 2026-01-31.",
        "due",
        form=datetime.date.fromisoformat,
    ),
    "tag": _field(
        f"Which tag has the device of {_TICKET}? Answer with the tag alone, as in AB-12.",
        lambda world, key, row: _last_word(row, "description"),
        among=_tags,
    ),
    "part": _field(
        f"Which part was replaced for {_TICKET}, which is closed? Answer with its number alone.",
        lambda world, key, row: int(_last_word(row, "resolution")),
        lambda one: one["status"] == "Closed",
    ),
    "number": _number,
    "of-submitter": _of_submitter,
    "in-queue": _in_queue,
    "due-first": _due_first,
    "report": _report,
    "query-count": _query_count,
    "fact": _fact,
    "category": _category,
}
CHANGES: dict[str, Template] = {
    "comment": _noted(f'Add the public comment "{{text}}" to {_TICKET}.'),
    "private-comment": _noted(f'Add the comment "{{text}}" to {_TICKET}, but do not make it public.', 0),
    "resolve": _noted(f'Resolve {_TICKET} with the public comment "{{text}}".', status="Resolved"),
    "close": _noted(f'Close {_TICKET} with the private comment "{{text}}".', 0, "Closed"),
    "reopen": _noted(
        f'Open {_TICKET} again, with the public comment "{{text}}".',
        status="Reopened",
        was=("Resolved", "Closed"),
    ),
    "reply": _reply,
    "reply-and-resolve": _reply_and_resolve,
    "publish": _publish,
    "assign": _changed(f"Assign {_TICKET} to {{new_owner}}.", owner=_new_owner),
    "set-priority": _changed(f"Set the priority of {_TICKET} to {{new_priority}}.", priority=_priority),
    "set-due": _changed('The ticket "{title}" is due on {new_due}: change it.', due=_new_day),
    "set-queue": _changed(f'Move {_TICKET} to the queue "{{new_queue}}".', queue=_new_queue),
    "set-title": _changed(
        f'Change the title of {_TICKET} to "{{new_title}}".', title=drawn(lambda draw: title(draw, "Rooms"))
    ),
    "set-four": _changed(
        f'Assign {_TICKET} to {{new_owner}}, move it to the queue "{{new_queue}}", and set its priority to '
        "{new_priority} and its due date to {new_due}.",
        owner=_new_owner,
        queue=_new_queue,
        priority=_priority,
        due=_new_day,
    ),
    "set-submitter": _changed(
        'The ticket "{title}" was submitted by {new_submitter}: correct it.', submitter=drawn(address)
    ),
    "hold": change(f"Put {_TICKET} on hold.", "tickets", _is_open, on_hold=1),
    "copy": _copy,
    "step": _step,
    "depend": _depend,
    "merge": _merge,
    "new": _new,
    "submit": _submit,
    "from-article": _from_article,
    "assign-all": _assign_all,
    "close-some": _close_some,
    "save-query": _save_query,
    "delete-query": remove('Delete the saved query "{title}".', "searches"),
    "vote": _vote,
    "write-article": _write_article,
    "write-reply": _write_reply,
    "ignore": create(
        'Ignore all mails from {address} from now on, in all queues, under the name "{name}".',
        "ignored",
        name=drawn(search_title),
        address=drawn(address),
        kept=0,
    ),
    "page-size": _page_size,
    "round": _round,
    "hand-out": _hand_out,
    "wait-for": _wait_for,
    "tell": _tell,
    "same-owner": _same_owner,
}
TEMPLATES = QUESTIONS | CHANGES
