"""Tasks at the support desk: templates, and checks of what it holds."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from collection.environments.apps.helpdesk.site import (
    DESK,
    FACTS,
    OPEN,
    PRIORITIES,
    QUEUES,
    STAFF,
    STEPS,
    SUBMITTERS,
    Article,
    Desk,
    DeskTicket,
    Helpdesk,
    Note,
    Search,
)
from collection.environments.apps.tasks import AppTask, Ending, choose, make_task


@dataclasses.dataclass(frozen=True)
class Goal:
    """What a task asks for.

    Attributes:
      answer: "" if it asks for none.
      is_public: whether it is a visitor's.
    """

    words: str
    after: Desk
    answer: str = ""
    is_public: bool = False


Template = Callable[[int], Goal]


def helpdesk_tasks(application: Helpdesk, seed: int) -> list[AppTask]:
    """Returns one task of each template."""
    return [_task(application, name, template(seed), seed) for name, template in TEMPLATES.items()]


def _task(application: Helpdesk, name: str, goal: Goal, seed: int) -> AppTask:
    def check(end: Ending) -> bool:
        answered = not goal.answer or end.answer.strip().casefold() == goal.answer.casefold()
        return answered and application.holds(goal.after)

    start = application.public if goal.is_public else f"{application.url}/"
    role = "You visit" if goal.is_public else "You are Mara at"
    task = make_task(application, name, seed, f"{goal.words} {role} the support desk {start}.", check)
    return dataclasses.replace(task, task=task.task.model_copy(update={"website": start}))


Choice = tuple[int, DeskTicket]


def _tickets(where: Callable[[DeskTicket], bool]) -> list[Choice]:
    return [(number, ticket) for number, ticket in DESK.tickets.items() if where(ticket)]


def _open(seed: int, offset: int = 0) -> Choice:
    return choose(_tickets(lambda one: one.is_open), seed, offset)


def _asks(words: str, answer: object) -> Goal:
    return Goal(f"{words} Change nothing.", DESK, str(answer))


def _is_found(ticket: DeskTicket) -> bool:
    """The search leaves closed tickets out."""
    return ticket.status != "Closed"


def _field(
    words: str,
    offset: int,
    answer: Callable[[Choice], object],
    where: Callable[[DeskTicket], bool] = _is_found,
) -> Template:
    """A question about a ticket that is found by its title."""

    def goal(seed: int) -> Goal:
        chosen = choose(_tickets(where), seed, offset)
        return _asks(words.format(title=chosen[1].title), answer(chosen))

    return goal


_MISSING = ("Window does not shut", "Chair lost a wheel", "Kettle trips the fuse", "Clock runs backwards")


def _number(seed: int) -> Goal:
    """Every third ticket does not exist."""
    number, ticket = choose(_tickets(_is_found), seed, 4)
    title = choose(_MISSING, seed // 3) if seed % 3 == 2 else ticket.title
    words = (
        f'Which number has the ticket "{title}"? Answer with the number alone, or with none if it is missing.'
    )
    return _asks(words, "none" if seed % 3 == 2 else number)


def _category(seed: int) -> Goal:
    """Every third article does not exist."""
    titles = ("Renting a tent", "Parking a bicycle", "Booking a piano")
    title = choose(titles, seed // 3) if seed % 3 == 2 else choose(FACTS, seed, 2)[0]
    words = (
        f'In which category of the knowledge base is the article "{title}"? Answer with the name of the '
        "category, or with none if there is no such article."
    )
    return _asks(words, "none" if seed % 3 == 2 else QUEUES[DESK.articles[title].category])


def _of_submitter(seed: int) -> Goal:
    """Every third submitter has no open ticket in the queue."""
    numbers = {
        (queue, submitter): [
            number
            for number, one in _tickets(lambda one: one.is_open)
            if (one.queue, one.submitter) == (queue, submitter)
        ]
        for queue in QUEUES
        for submitter in SUBMITTERS
    }
    count = 0 if seed % 3 == 2 else 1
    queue, submitter = choose([pair for pair, some in numbers.items() if len(some) == count], seed)
    words = (
        f"Which open or reopened ticket of the queue {QUEUES[queue]} was submitted by {submitter}? Answer "
        "with its number alone, or with none if there is no such ticket."
    )
    return _asks(words, numbers[queue, submitter][0] if count else "none")


def _in_queue(seed: int) -> Goal:
    queue = choose(sorted(QUEUES), seed)
    statuses, name = choose(((OPEN, "open or reopened"), (("Resolved",), "resolved")), seed // len(QUEUES))
    count = len(_tickets(lambda one: one.queue == queue and one.status in statuses))
    return _asks(f"How many tickets of the queue {QUEUES[queue]} are {name}? Answer with the number.", count)


def _due_first(seed: int) -> Goal:
    queue = choose(sorted(QUEUES), seed, 1)
    number, _ = min(_tickets(lambda one: one.queue == queue and one.is_open), key=lambda one: one[1].due)
    words = f"Which of the open and reopened tickets of the queue {QUEUES[queue]} is due first?"
    return _asks(f"{words} Answer with its number alone.", number)


def _report(seed: int) -> Goal:
    cells: dict[int, list[tuple[str, int]]] = {}
    for owner in STAFF:
        for priority in range(1, 6):
            count = len(_tickets(lambda one, cell=(owner, priority): (one.owner, one.priority) == cell))
            cells.setdefault(count, []).append((owner, priority))
    count = choose(sorted(cells), seed)
    owner, priority = choose(cells[count], seed // len(cells))
    words = (
        f'How many tickets of the priority "{PRIORITIES[priority - 1]}" are assigned to {owner.title()}, '
        "whatever their status? A report shows it; answer with the number alone."
    )
    return _asks(words, count)


def _query_count(seed: int) -> Goal:
    title, search = choose(list(DESK.searches.items()), seed)
    words = f'How many tickets does the saved query "{title}" list? Answer with the number alone.'
    return _asks(words, len(_tickets(search.finds)))


def _fact(seed: int) -> Goal:
    title, _, what, text = choose(FACTS, seed)
    words = f'The article "{title}" of the knowledge base says {what}. Answer with that number alone.'
    return _asks(words, re.findall(r"\d+", text)[-1])


# Changes.


def _changed(words: str, offset: int, **fields: Callable[[DeskTicket, int], Any]) -> Template:
    """A change of fields of an open ticket; `words` has its `number` and the new values."""

    def goal(seed: int) -> Goal:
        number, ticket = _open(seed, offset)
        new = {name: make(ticket, seed) for name, make in fields.items()}
        return Goal(words.format(number=number, **_shown(new)), DESK.with_ticket(number, **new))

    return goal


def _shown(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Values as the pages name them."""
    names: dict[str, Callable[[Any], str]] = {
        "queue": QUEUES.__getitem__,
        "priority": lambda priority: PRIORITIES[priority - 1],
        "owner": str.title,
    }
    return {name: names.get(name, str)(value) for name, value in fields.items()}


def _other(name: str, values: Sequence[Any]) -> Callable[[DeskTicket, int], Any]:
    return lambda ticket, seed: choose([one for one in values if one != getattr(ticket, name)], seed)


def _day(ticket: DeskTicket, seed: int) -> str:
    return f"2028-{1 + seed % 12:02d}-{1 + seed * 7 % 28:02d}"


_WORDS = (
    "The technician comes on Thursday.",
    "Measured again: still broken.",
    "The vendor asks for the invoice.",
    "Please lock the room until then.",
    "The borrower has been informed.",
)


def _noted(
    words: str, offset: int, public: bool = True, status: str = "", was: Sequence[str] = OPEN
) -> Template:
    """A follow-up with a text, and perhaps a new status."""

    def goal(seed: int) -> Goal:
        number, ticket = choose(_tickets(lambda one: one.status in was), seed, offset)
        text = choose(_WORDS, seed, offset)
        resolution = text if status in ("Resolved", "Closed") else ticket.resolution
        changes = {"status": status or ticket.status, "resolution": resolution}
        after = DESK.with_note(number, Note(text, public), **changes)
        return Goal(words.format(number=number, text=text), after)

    return goal


def _reply(seed: int) -> Goal:
    number, _ = _open(seed, 9)
    name, text = choose(list(DESK.replies.items()), seed)
    words = f'Answer ticket #{number} in public with the pre-set reply "{name}", as it is.'
    return Goal(words, DESK.with_note(number, Note(text)))


def _reply_and_resolve(seed: int) -> Goal:
    number, ticket = _open(seed, 3)
    name, text = choose(list(DESK.replies.items()), seed, 1)
    due = _day(ticket, seed + 1)
    words = (
        f'Resolve ticket #{number} with the pre-set reply "{name}", as it is and in public; set its due date '
        f"to {due} as well."
    )
    return Goal(words, DESK.with_note(number, Note(text), status="Resolved", resolution=text, due=due))


def _publish(seed: int) -> Goal:
    number, ticket = choose(_tickets(lambda one: any(not note.public for note in one.notes)), seed)
    notes = tuple(dataclasses.replace(note, public=True) for note in ticket.notes)
    private = next(note.text for note in ticket.notes if not note.public)
    words = f'The comment "{private}" on ticket #{number} is private: edit it so that it is public.'
    return Goal(words, DESK.with_ticket(number, notes=notes))


_PROBLEMS = (
    ("Bell at the gate is mute", "It has been silent since Monday."),
    ("Screen of the terminal is cracked", "Someone dropped a book on it."),
    ("Door code is forgotten", "Nothing opens the side door."),
    ("Plotter draws only in blue", "The other colours are full."),
    ("Map cabinet is locked", "The key broke in the lock."),
)


def _problem(seed: int, offset: int, owner: str = "") -> DeskTicket:
    title, text = choose(_PROBLEMS, seed, offset)
    queue, submitter = choose(sorted(QUEUES), seed, offset), choose(SUBMITTERS, seed, offset)
    priority = choose((1, 2, 4, 5), seed, offset)
    due = f"2028-05-{10 + seed % 19}"
    return DeskTicket(title, queue, text, submitter, priority, owner=owner, due=due)


def _added(ticket: DeskTicket, author: str) -> Desk:
    opened = dataclasses.replace(ticket, notes=(Note(ticket.description, author=author),))
    return DESK.with_tickets({len(DESK.tickets) + 1: opened})


def _new(seed: int) -> Goal:
    ticket = _problem(seed, 0, choose(STAFF, seed, 1))
    words = (
        f'Make a ticket "{ticket.title}" with the description "{ticket.description}" in the queue '
        f"{QUEUES[ticket.queue]}: priority {PRIORITIES[ticket.priority - 1]}, due on {ticket.due}, submitted "
        f"by {ticket.submitter}, and {ticket.owner.title()} is its owner."
    )
    return Goal(words, _added(ticket, "mara"))


def _submit(seed: int) -> Goal:
    ticket = _problem(seed, 2)
    words = (
        f'Report a problem "{ticket.title}" with the description "{ticket.description}" to the queue '
        f"{QUEUES[ticket.queue]}, with priority {PRIORITIES[ticket.priority - 1]} and due on {ticket.due}. "
        f"Your e-mail address is {ticket.submitter}."
    )
    return Goal(words, _added(ticket, ""), is_public=True)


def _from_article(seed: int) -> Goal:
    article, *_ = choose(FACTS, seed, 5)
    fields = {"article": article, "due": "", "priority": 3, "submitter": "mara@desk.example"}
    ticket = dataclasses.replace(_problem(seed, 3), **fields)
    words = (
        f'The article "{article}" of the knowledge base did not help: from it, create a new ticket '
        f'"{ticket.title}" with the description "{ticket.description}" in the queue {QUEUES[ticket.queue]}. '
        "Leave the other fields as they are."
    )
    return Goal(words, _added(ticket, "mara"))


def _copy(seed: int) -> Goal:
    number, ticket = _open(seed, 7)
    address = choose([one for one in SUBMITTERS if one != ticket.submitter], seed)
    words = f"Make ticket #{number} send copies to {address}, who may do nothing else."
    return Goal(words, DESK.with_ticket(number, copies=frozenset((address,))))


def _step(seed: int) -> Goal:
    number, ticket = choose(_tickets(lambda one: bool(one.tasks) and one.is_open), seed)
    step = choose(STEPS[1:], seed)
    tasks = tuple((text, done or text == step) for text, done in ticket.tasks)
    words = f'The task "{step}" of the checklist of ticket #{number} is completed: mark it.'
    return Goal(words, DESK.with_ticket(number, tasks=tasks))


def _depend(seed: int) -> Goal:
    (number, _), (other, _) = _open(seed, 1), _open(seed, 6)
    words = f"Ticket #{number} has to wait until ticket #{other} is resolved: make it depend on that."
    return Goal(words, DESK.with_ticket(number, needs=frozenset((other,))))


def _merge(seed: int) -> Goal:
    queue = choose(sorted(QUEUES), seed)
    (other, gone), (number, kept) = choose(_pairs(queue), seed // len(QUEUES))
    owner = f"{gone.owner}@desk.example" if gone.owner else ""
    known = {"", kept.submitter, f"{kept.owner}@desk.example"}
    merged = {
        other: dataclasses.replace(gone, status="Duplicate", merged=number, notes=()),
        number: dataclasses.replace(
            kept,
            copies=frozenset((gone.submitter, owner)) - known,
            notes=gone.notes + kept.notes if other < number else kept.notes + gone.notes,
        ),
    }
    words = f"Merge ticket #{other} into ticket #{number}, which stays and keeps all its own values."
    return Goal(words, DESK.with_tickets(merged))


def _pairs(queue: str) -> list[tuple[Choice, Choice]]:
    """Neighbours among the open tickets of a queue, either of which may be the first."""
    some = _tickets(lambda one: one.queue == queue and one.is_open)
    pairs = list(itertools.pairwise(some))
    return [*pairs, *((second, first) for first, second in pairs)]


def _assign_all(seed: int) -> Goal:
    queue, owner = choose(sorted(QUEUES), seed), choose(STAFF, seed, 2)
    some = _tickets(lambda one: one.queue == queue and one.is_open)
    words = f"Assign all open and reopened tickets of the queue {QUEUES[queue]} to {owner.title()}."
    return Goal(words, DESK.with_tickets({n: dataclasses.replace(one, owner=owner) for n, one in some}))


def _close_some(seed: int) -> Goal:
    some = [_open(seed, offset) for offset in (0, 4, 8)]
    numbers = [f"#{number}" for number, _ in sorted(some)]
    words = f"Close the tickets {numbers[0]}, {numbers[1]} and {numbers[2]}, without a resolution."
    return Goal(words, DESK.with_tickets({n: dataclasses.replace(one, status="Closed") for n, one in some}))


_QUERIES = ("Monday round", "For the porter", "Weekly review", "To discuss")


def _save_query(seed: int) -> Goal:
    title, queue, priority = choose(_QUERIES, seed), choose(sorted(QUEUES), seed, 1), 1 + seed % 5
    search = Search(bool(seed % 2), frozenset((queue,)), frozenset(OPEN), frozenset((priority,)))
    words = (
        f'Save a query "{title}" that lists the tickets of the queue {QUEUES[queue]} with the priority '
        f"{PRIORITIES[priority - 1]} and the statuses Open and Reopened; "
        f"{'share it with the others' if search.shared else 'do not share it'}."
    )
    return Goal(words, DESK.with_one("searches", title, search))


def _delete_query(seed: int) -> Goal:
    title = choose(list(DESK.searches), seed, 1)
    return Goal(f'Delete the saved query "{title}".', DESK.with_one("searches", title, None))


def _vote(seed: int) -> Goal:
    title = choose(list(DESK.articles), seed, 3)
    vote = choose(((1, 0), (0, 1)), seed)
    article = dataclasses.replace(DESK.articles[title], votes=vote)
    words = f'Vote {"for" if vote[0] else "against"} the article "{title}" of the knowledge base.'
    return Goal(words, DESK.with_one("articles", title, article))


def _write_article(seed: int) -> Goal:
    title = choose(("Broken lamps", "Loud rooms", "Frozen screens", "Late invoices"), seed)
    category = choose(("accounts", "network", "printers"), seed)
    article = Article(category, f"{title}: what helps?", choose(_WORDS, seed))
    words = (
        f'Write an article "{title}" in the category {QUEUES[category]} of the knowledge base; its question '
        f'is "{article.question}" and its answer "{article.answer}" (see the system settings).'
    )
    return Goal(words, DESK.with_one("articles", title, article))


def _write_reply(seed: int) -> Goal:
    name, text = choose(("Come by", "Closed today", "Number missing"), seed), choose(_WORDS, seed, 2)
    words = f'Add a pre-set reply "{name}" with the text "{text}", for all queues (see the system settings).'
    return Goal(words, DESK.with_one("replies", name, text))


def _ignore(seed: int) -> Goal:
    name = choose(("Advertising", "Robot", "Newsletter"), seed)
    address = f"robot{seed % 90 + 10}@noise.example"
    words = f'Ignore all mails from {address} from now on, in all queues, under the name "{name}".'
    return Goal(words, DESK.with_one("ignored", name, address))


def _page_size(seed: int) -> Goal:
    size = choose((10, 50, 100), seed)
    words = f"Change your settings: the list of tickets is to show {size} tickets per page."
    return Goal(words, DESK.with_one("settings", "tickets_per_page", size))


QUESTIONS: dict[str, Template] = {
    "owner": _field(
        'Who is the ticket "{title}" assigned to? Answer with the name alone.',
        0,
        lambda one: one[1].owner,
        lambda one: bool(one.owner) and _is_found(one),
    ),
    "priority": _field(
        'Which priority has the ticket "{title}"? Answer with its number (1 to 5) alone.',
        1,
        lambda one: one[1].priority,
    ),
    "queue": _field(
        'In which queue is the ticket "{title}"? Answer with the name alone.',
        2,
        lambda one: QUEUES[one[1].queue],
    ),
    "due": _field(
        'When is the ticket "{title}" due? Answer with the day, as in 2026-01-31.',
        3,
        lambda one: one[1].due,
    ),
    "tag": _field(
        'Which tag has the device of the ticket "{title}"? Answer with the tag alone, as in AB-12.',
        5,
        lambda one: one[1].description.split()[-1].strip("."),
    ),
    "part": _field(
        'Which part was replaced for the ticket "{title}", which is closed? Answer with its number alone.',
        0,
        lambda one: one[1].resolution.split()[-1].strip("."),
        lambda one: one.status == "Closed",
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
    "comment": _noted('Add the public comment "{text}" to ticket #{number}.', 0),
    "private-comment": _noted(
        'Add the comment "{text}" to ticket #{number}, but do not make it public.', 2, public=False
    ),
    "resolve": _noted('Resolve ticket #{number} with the public comment "{text}".', 4, status="Resolved"),
    "close": _noted(
        'Close ticket #{number} with the private comment "{text}".', 6, public=False, status="Closed"
    ),
    "reopen": _noted(
        'Open ticket #{number} again, with the public comment "{text}".',
        1,
        status="Reopened",
        was=("Resolved", "Closed"),
    ),
    "reply": _reply,
    "reply-and-resolve": _reply_and_resolve,
    "publish": _publish,
    "assign": _changed("Assign ticket #{number} to {owner}.", 0, owner=_other("owner", STAFF)),
    "set-priority": _changed(
        "Set the priority of ticket #{number} to {priority}.", 1, priority=_other("priority", range(1, 6))
    ),
    "set-due": _changed("Ticket #{number} is due on {due}: change it.", 2, due=_day),
    "set-queue": _changed(
        "Move ticket #{number} to the queue {queue}.", 3, queue=_other("queue", sorted(QUEUES))
    ),
    "set-title": _changed(
        'Change the title of ticket #{number} to "{title}".',
        5,
        title=lambda ticket, seed: f"{ticket.title} ({choose(('again', 'cellar', 'urgent', 'old'), seed)})",
    ),
    "set-four": _changed(
        "Assign ticket #{number} to {owner}, move it to the queue {queue}, and set its priority to "
        "{priority} and its due date to {due}.",
        6,
        owner=_other("owner", STAFF),
        queue=_other("queue", sorted(QUEUES)),
        priority=_other("priority", range(1, 6)),
        due=_day,
    ),
    "set-submitter": _changed(
        "Ticket #{number} was submitted by {submitter}: correct it.",
        8,
        submitter=_other("submitter", SUBMITTERS),
    ),
    "hold": _changed("Put ticket #{number} on hold.", 4, on_hold=lambda ticket, seed: True),
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
    "delete-query": _delete_query,
    "vote": _vote,
    "write-article": _write_article,
    "write-reply": _write_reply,
    "ignore": _ignore,
    "page-size": _page_size,
}
TEMPLATES = QUESTIONS | CHANGES
