"""Tasks at Trac: templates, and checks of what it holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from collection.environments.apps.tasks import AppTask, Ending, choose, make_task
from collection.environments.apps.trac.site import (
    COMPONENTS,
    FACTS,
    MILESTONES,
    PAGES,
    PEOPLE,
    PRIORITIES,
    RESOLUTIONS,
    TYPES,
    WORK,
    Trac,
    TracTicket,
    Work,
)


@dataclasses.dataclass(frozen=True)
class Goal:
    """What a task asks for; `answer` is "" if it asks for none."""

    words: str
    after: Work
    answer: str = ""


Template = Callable[[int], Goal]


def trac_tasks(application: Trac, seed: int) -> list[AppTask]:
    """Returns one task of each template."""
    return [_task(application, name, template(seed), seed) for name, template in TEMPLATES.items()]


def _task(application: Trac, name: str, goal: Goal, seed: int) -> AppTask:
    def check(end: Ending) -> bool:
        return application.work() == goal.after and (not goal.answer or end.answer.strip() == goal.answer)

    return make_task(application, name, seed, f"{goal.words} The tracker is {application.url}/.", check)


def _ticket(seed: int, offset: int = 0, closed: bool | None = None) -> tuple[int, TracTicket]:
    found = [
        (n, one) for n, one in WORK.tickets.items() if closed is None or (one.status == "closed") == closed
    ]
    return choose(found, seed, offset)


def _field(name: str, words: str, offset: int, closed: bool | None = None) -> Template:
    """A question about a field of a ticket, which is found by its summary."""

    def goal(seed: int) -> Goal:
        _, ticket = _ticket(seed, offset, closed)
        text = f"{words.format(summary=ticket.summary)} Change nothing; answer with the {name} alone."
        return Goal(text, WORK, getattr(ticket, name))

    return goal


def _number(seed: int) -> Goal:
    number, ticket = _ticket(seed, 4)
    return Goal(
        f'Which number has the ticket "{ticket.summary}"? Answer with the number alone.', WORK, str(number)
    )


def _open_tickets(seed: int) -> Goal:
    component = choose(sorted(COMPONENTS), seed)
    count = sum(one.component == component and one.status != "closed" for one in WORK.tickets.values())
    words = f"How many tickets of the component {component} are not closed? Answer with the number alone."
    return Goal(words, WORK, str(count))


def _fact(seed: int) -> Goal:
    what, page, _, answer, _ = choose(FACTS, seed)
    return Goal(
        f"What is {what}? It is on the page {page} of the wiki; answer with the figure alone.", WORK, answer
    )


def _changed(words: str, offset: int, **fields: Callable[[TracTicket, int], str]) -> Template:
    """A change of fields of an open ticket; `words` has its `number` and the new values."""

    def goal(seed: int) -> Goal:
        number, ticket = _ticket(seed, offset, closed=False)
        new = {name: make(ticket, seed) for name, make in fields.items()}
        return Goal(words.format(number=number, **new), WORK.with_ticket(number, **new))

    return goal


def _other(name: str, values: tuple[str, ...]) -> Callable[[TracTicket, int], str]:
    return lambda ticket, seed: choose([one for one in values if one != getattr(ticket, name)], seed)


def _component(seed: int) -> Goal:
    """A new ticket goes to the owner of its component."""
    number, ticket = _ticket(seed, 2, closed=False)
    component = _other("component", tuple(COMPONENTS))(ticket, seed)
    after = WORK.with_ticket(number, component=component, owner=COMPONENTS[component])
    return Goal(f"Move ticket #{number} to the component {component}.", after)


_REPORTS = (
    "Rope locker cannot be opened",
    "Gate sticks in the frost",
    "Clock on the tower is slow",
    "Hose has a hole",
)
_WORDS = (
    "Measured twice.",
    "The diver has looked at it.",
    "To be done before the fair.",
    "Wanda knows more.",
)


def _new(seed: int) -> Goal:
    ticket = TracTicket(
        choose(_REPORTS, seed),
        type=choose(TYPES, seed),
        priority=choose(PRIORITIES, seed),
        component=choose(sorted(COMPONENTS), seed),
        milestone=choose(sorted(MILESTONES), seed),
        reporter="anonymous",
        description=choose(_WORDS, seed),
    )
    ticket = dataclasses.replace(ticket, owner=COMPONENTS[ticket.component])
    words = (
        f'Report a new ticket "{ticket.summary}" with the description "{ticket.description}", of type '
        f"{ticket.type}, priority {ticket.priority}, component {ticket.component} and milestone "
        f"{ticket.milestone}."
    )
    return Goal(words, WORK.with_tickets({len(WORK.tickets) + 1: ticket}))


def _comment(seed: int) -> Goal:
    number, ticket = _ticket(seed, 3, closed=False)
    text = choose(_WORDS, seed, 1)
    words = f'Add the comment "{text}" to ticket #{number}, and change nothing else in it.'
    return Goal(words, WORK.with_ticket(number, comments=(*ticket.comments, text)))


def _resolve(seed: int) -> Goal:
    number, _ = _ticket(seed, 1, closed=False)
    resolution = choose(RESOLUTIONS, seed)
    words = f"Close ticket #{number}: it is resolved as {resolution}."
    return Goal(words, WORK.with_ticket(number, status="closed", resolution=resolution))


def _resolve_with_comment(seed: int) -> Goal:
    number, ticket = _ticket(seed, 5, closed=False)
    resolution, text = choose(RESOLUTIONS, seed, 2), choose(_WORDS, seed, 2)
    changes = {"status": "closed", "resolution": resolution, "comments": (*ticket.comments, text)}
    words = f'Close ticket #{number} as {resolution}, with the comment "{text}".'
    return Goal(words, WORK.with_ticket(number, **changes))


def _reopen(seed: int) -> Goal:
    number, _ = _ticket(seed, closed=True)
    return Goal(f"Open ticket #{number} again.", WORK.with_ticket(number, status="reopened", resolution=""))


def _reassign(seed: int) -> Goal:
    number, ticket = _ticket(seed, 6, closed=False)
    owner = _other("owner", PEOPLE)(ticket, seed)
    words = f"Give ticket #{number} to {owner}, who becomes its owner."
    return Goal(words, WORK.with_ticket(number, owner=owner, status="assigned"))


def _append(seed: int) -> Goal:
    name, text = choose(sorted(PAGES), seed), choose(_WORDS, seed)
    words = f'Add a paragraph "{text}" at the end of the page {name} of the wiki; leave the rest as it is.'
    return Goal(words, WORK.with_page(name, f"{PAGES[name]}\n\n{text}"))


def _correct(seed: int) -> Goal:
    what, name, start, old, others = choose(FACTS, seed, 1)
    new = choose(others, seed)
    text = "\n".join(
        line.replace(old, new) if line.startswith(start) else line for line in PAGES[name].split("\n")
    )
    words = f"The page {name} of the wiki is wrong about {what}: it is {new}. Correct the figure."
    return Goal(words, WORK.with_page(name, text))


_TITLES = ("DiveLog", "PilotList", "KeyBoard", "FuelPrices")


def _page(seed: int) -> Goal:
    name, text = choose(_TITLES, seed), choose(_WORDS, seed, 3)
    return Goal(f'Make a page {name} in the wiki with the text "{text}".', WORK.with_page(name, text))


QUESTIONS: dict[str, Template] = {
    "owner": _field("owner", 'Who owns the ticket "{summary}"?', 0),
    "priority": _field("priority", 'Which priority has the ticket "{summary}"?', 1),
    "component": _field("component", 'To which component does the ticket "{summary}" belong?', 2),
    "milestone": _field("milestone", 'For which milestone is the ticket "{summary}" planned?', 3),
    "reporter": _field("reporter", 'Who reported the ticket "{summary}"?', 5),
    "resolution": _field("resolution", 'How was the ticket "{summary}" resolved?', 0, closed=True),
    "number": _number,
    "open-tickets": _open_tickets,
    "fact": _fact,
}
CHANGES: dict[str, Template] = {
    "new": _new,
    "comment": _comment,
    "resolve": _resolve,
    "resolve-with-comment": _resolve_with_comment,
    "reopen": _reopen,
    "reassign": _reassign,
    "append": _append,
    "correct": _correct,
    "page": _page,
    "set-priority": _changed(
        "Set the priority of ticket #{number} to {priority}.", 0, priority=_other("priority", PRIORITIES)
    ),
    "set-component": _component,
    "set-milestone": _changed(
        "Plan ticket #{number} for the milestone {milestone}.",
        4,
        milestone=_other("milestone", tuple(MILESTONES)),
    ),
    "set-type": _changed("Ticket #{number} is of type {type}: change it.", 1, type=_other("type", TYPES)),
    "set-summary": _changed(
        'Change the summary of ticket #{number} to "{summary}".',
        3,
        summary=lambda ticket, seed: (
            f"{ticket.summary} ({choose(('urgent', 'north', 'old', 'again'), seed)})"
        ),
    ),
    "set-keywords": _changed(
        'Set the keywords of ticket #{number} to "{keywords}".',
        5,
        keywords=lambda ticket, seed: choose(("winter", "insurance", "divers", "night"), seed),
    ),
    "set-priority-and-type": _changed(
        "Ticket #{number} is of priority {priority} and of type {type}: change both.",
        7,
        priority=_other("priority", PRIORITIES),
        type=_other("type", TYPES),
    ),
    "set-milestone-and-keywords": _changed(
        'Plan ticket #{number} for the milestone {milestone}, and set its keywords to "{keywords}".',
        8,
        milestone=_other("milestone", tuple(MILESTONES)),
        keywords=lambda ticket, seed: choose(("budget", "spare parts", "weather"), seed),
    ),
}
TEMPLATES = QUESTIONS | CHANGES
