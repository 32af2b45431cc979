"""What a seed's desk holds: a library's tickets, in queues by branch, its knowledge base, and saved texts."""

from __future__ import annotations

import re
from typing import Any

from collection.environments.apps.templates import Draw
from collection.environments.apps.world import World

STATUSES = ("Open", "Reopened", "Resolved", "Closed", "Duplicate")
OPEN = STATUSES[:2]
PRIORITIES = ("1. Critical", "2. High", "3. Normal", "4. Low", "5. Very Low")
# Accounts of the installation; the first one's user plays.
STAFF = ("mara", "ines", "pavel", "tomas", "wanda")
STEPS = ("Call the submitter", "Inspect on site", "Order the part", "Write down the result")
# What visitors and agents can change, as the installation has it.
SETTINGS = {
    "login_view_ticketlist": 1,
    "email_on_ticket_change": 1,
    "email_on_ticket_assign": 1,
    "tickets_per_page": 25,
    "use_email_as_submitter": 1,
    "ticket_respond_layout": "tabs",
}
# Tables without rows, which no task changes.
UNUSED = (
    *("customfield", "checklisttemplate", "escalationexclusion", "followupattachment", "kbiattachment"),
    *("ignoreemail_queues", "presetreply_queues", "ticketcustomfieldvalue"),
)
_DEVICES = {
    "Accounts": ("Badge", "Mailbox", "Borrower card", "Login", "Shared calendar", "Password", "Signature"),
    "Network": ("Router", "Catalogue terminal", "Wireless point", "Cable", "Guest portal", "Video line"),
    "Printers": ("Label printer", "Copier", "Scanner", "Receipt printer", "Plotter", "Card printer"),
    "Rooms": ("Projector", "Heating", "Microphone", "Lift", "Desk lamp", "Blind", "Book belt"),
}
_PLACES = (
    *("reading room", "annex", "map room", "archive", "lecture hall", "front desk", "cellar", "music room"),
    *("children's room", "office", "third floor", "newspaper corner", "workshop", "loading bay", "cafe"),
)
_PROBLEMS = (
    *("stopped at noon", "shows an error", "is very slow", "cannot be reached", "asks for a code"),
    *("was moved by mistake", "loses its settings", "needs a new part", "is blocked", "reports a fault"),
    *("has the wrong name", "fails every morning", "was changed overnight", "has to be checked"),
)
_REMARKS = (
    *("Called {}, no answer yet.", "A spare part is ordered; {} knows.", "Waiting for {}."),
    *("{} comes on Thursday.", "Measured again with {}: no change.", "{} asks for the invoice."),
    *("Please keep the room locked until {} was there.", "{} has been informed.", "Seen by {} as well."),
    *("{} has a photograph of it.", "To be done before {} leaves.", "The vendor told {} to wait."),
)
# Queue, title, what is asked for, and the text whose last number is the answer.
_FACTS = (
    (1, "Wireless for guests", "how many hours a code for guests is valid", "A code lasts {} hours."),
    (1, "Sockets of the hall", "which socket of the hall is the last connected one", "Use 14 to {}."),
    (1, "Cable lengths", "how many metres a cable may be long", "At most {} metres."),
    (0, "Choosing a password", "how many characters a password needs", "At least {} characters."),
    (0, "Lost badge", "which extension to call for a lost badge", "Call the porter at 4{}."),
    (0, "Leaving", "after how many days an account is deleted", "It is deleted after {} days."),
    (2, "Changing the toner", "in which cupboard the toner is", "It is in cupboard {}."),
    (2, "Stripes on paper", "after how many pages to clean the drum", "Clean it after {}00 pages."),
)
LISTS = "how many tickets a page of the list is to show"
_REPLIES = (
    ("Ask for details", "Please send {} the tag of the device and a photograph."),
    ("Visit announced", "{} will visit you tomorrow morning."),
    ("Solved by restart", "{} has restarted the device; please try again."),
    ("Sent to the vendor", "We have passed this on to {}, who answers within a week."),
    ("Come by", "Please come by and ask for {}."),
    ("Number missing", "Please tell {} the number of the room."),
)
_SEARCHES = ("Urgent", "Quiet", "Round", "Review", "To discuss", "Worth a look", "Open ends", "Leftovers")


def slug(text: str) -> str:
    return re.sub(r"\W+", "-", text.lower())


def person(draw: Draw) -> str:
    return f"{draw.fake.first_name()} {draw.fake.last_name()}"


def address(draw: Draw) -> str:
    return f"{slug(person(draw))}@library.example"


def title(draw: Draw, topic: str) -> str:
    """What a ticket is about; its number is no ticket's."""
    place, problem = draw.choice(_PLACES), draw.choice(_PROBLEMS)
    return f"{draw.choice(_DEVICES[topic])} {draw.randint(102, 199)} of the {place} {problem}"


def remark(draw: Draw) -> str:
    return draw.choice(_REMARKS).format(person(draw))


def description(draw: Draw, about: str) -> str:
    return (
        f"{about}, since day {draw.randint(2, 28)}. The device has the tag LB-{draw.randrange(1000, 9999)}."
    )


def article(draw: Draw) -> tuple[str, str]:
    """Title and text of an article that is no fact's."""
    return f"{draw.choice(_DEVICES['Printers'])} at {draw.fake.street_name()}", remark(draw)


def reply(draw: Draw) -> dict[str, str]:
    name, text = draw.choice(_REPLIES)
    who = person(draw)
    return {"name": f"{name} ({who})", "text": text.format(who)}


def search_title(draw: Draw) -> str:
    return f"{draw.choice(_SEARCHES)} for {person(draw)}"


def search(name: str, **filters: Any) -> dict[str, Any]:
    """A saved query; what is empty is not filtered."""
    return {
        "title": name,
        "shared": 1,
        "queues": [],
        "statuses": [],
        "priorities": [],
        "other": "",
        **filters,
    }


def ticket(**values: Any) -> dict[str, Any]:
    """A ticket with nothing else in it."""
    return {
        "priority": 3,
        "status": "Open",
        "owner": "",
        "due": "",
        "resolution": "",
        "on_hold": 0,
        "merged": "",
        "article": "",
        "copies": [],
        "needs": [],
        "steps": [],
        **values,
    }


def make_world(draw: Draw) -> World:
    branches = draw.distinct(draw.fake.city, len(_DEVICES))
    names = [f"{topic} {branch}" for topic, branch in zip(_DEVICES, branches, strict=True)]
    queues = {slug(name): {"title": name} for name in names}
    statuses = [*("Open",) * 14, *("Reopened",) * 3, *("Resolved",) * 4, *("Closed",) * 3]
    draw.shuffle(statuses)
    submitters = draw.distinct(lambda: address(draw), 6)
    days = draw.distinct(lambda: draw.day("2027-01-01", "2027-09-30"), len(statuses))
    each = len(statuses) // len(_DEVICES)
    topics = [topic for topic in _DEVICES for _ in range(each)]
    draw.shuffle(topics)
    titles = {topic: draw.distinct(lambda topic=topic: title(draw, topic), each) for topic in _DEVICES}
    tickets: dict[int, dict[str, Any]] = {}
    for number, (topic, status, due) in enumerate(zip(topics, statuses, days, strict=True), start=1):
        name = titles[topic].pop()
        text = description(draw, name)
        notes = [[text, 1, ""]]
        if number % 2:
            notes.append([remark(draw), int(number % 4 == 1), draw.choice(STAFF)])
        resolution = ""
        if status not in OPEN:
            resolution = f"Replaced part {draw.randrange(100, 999)}."
            notes.append([resolution, 1, draw.choice(STAFF)])
        tickets[number] = ticket(
            title=name,
            queue=list(queues)[list(_DEVICES).index(topic)],
            description=text,
            submitter=draw.choice(submitters),
            priority=draw.randint(1, 5),
            status=status,
            owner=draw.choice(("", *STAFF)),
            due=due,
            resolution=resolution,
            steps=[[step, int(step == STEPS[0])] for step in STEPS] if number % 3 == 0 else [],
            notes=notes,
        )
    articles = {}
    size = draw.choice((10, 50, 100))
    facts = [
        *((place, name, what, text.format(draw.randint(11, 98))) for place, name, what, text in _FACTS),
        (0, "Long lists", LISTS, f"A page of the list is to show {size} tickets."),
    ]
    for number, (place, name, what, text) in enumerate(facts, start=1):
        articles[number] = {
            "title": f"{name} at {draw.fake.street_name()}",
            "category": list(queues)[place],
            "question": f"Do you know {what}?",
            "answer": text,
            "votes_for": 0,
            "votes_against": 0,
            "shown": 1,
        }
    named = iter(draw.distinct(lambda: search_title(draw), 4))
    some = draw.sample(list(queues), 2)
    searches = [
        search(next(named), priorities=draw.some(range(1, 6), 2, 2), statuses=list(OPEN)),
        search(next(named), queues=[draw.choice(list(queues))], priorities=draw.some(range(1, 6), 3, 3)),
        search(next(named), statuses=["Closed", "Resolved"], queues=sorted(some), shared=0),
        search(next(named), queues=sorted(some), statuses=list(OPEN)),
    ]
    replies: dict[str, dict[str, str]] = {}
    while len(replies) < 4:
        one = reply(draw)
        replies[one["name"]] = one
    return {
        "queues": queues,
        "categories": {one: queues[one] for one in list(queues)[:3]},
        "tickets": tickets,
        "articles": articles,
        "replies": dict(enumerate(replies.values(), start=1)),
        "searches": dict(enumerate(searches, start=1)),
        "ignored": {},
        "settings": {STAFF[0]: SETTINGS},
        "others": {"rows": {"users": len(STAFF), **dict.fromkeys(UNUSED, 0)}},
    }
