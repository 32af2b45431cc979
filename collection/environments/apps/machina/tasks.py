"""Tasks at django-machina: templates over the rows of its world."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from collection.environments.apps.answers import Answer, other_values
from collection.environments.apps.machina import world as forums
from collection.environments.apps.machina.world import KINDS, VISITOR
from collection.environments.apps.templates import Draw, Goal, Template, Where, ask, change, drawn
from collection.environments.apps.world import New, Row, World, drop, put

_TOPIC = 'the topic "{subject}"'
_NEW = New("topic")
# A topic's number and row, of the topics of a forum.
_Topics = list[tuple[Any, Row]]


def _posts(world: World, number: Any, approved: int = 1) -> list[tuple[Any, Row]]:
    """The posts of a topic that are shown, or those that wait."""
    return [
        (key, row)
        for key, row in world["posts"].items()
        if row["topic"] == number and row["approved"] == approved
    ]


def _forum(world: World, draw: Draw, other: str = "") -> str:
    return draw.choice(
        [row["name"] for row in world["forums"].values() if row["parent"] and row["name"] != other]
    )


def _in_forum(world: World, forum: str) -> _Topics:
    return [(number, row) for number, row in world["topics"].items() if row["forum"] == forum]


def _is_open(row: Row) -> bool:
    return not row["locked"]


def _waits(row: Row) -> bool:
    """Whether a topic has a post that waits for approval."""
    return bool(row["locked"]) or row["kind"] == "Sticky"


def _asks(words: str, world: World, answer: Answer) -> Goal:
    return Goal(f"{words} Change nothing.", world, answer)


def _busiest(world: World, topics: _Topics) -> tuple[Any, Row]:
    return max(topics, key=lambda one: len(_posts(world, one[0])))


# Questions.


def _who(words: str, who: Callable[[World, Any, Row], str], where: Where | None = None) -> Template:
    return ask(f"{words} Answer with the name alone.", "topics", who, where, among="members")


def _author(world: World, number: Any, row: Row) -> str:
    return _posts(world, number)[0][1]["poster"]


def _which(words: str, which: Callable[[World, _Topics], tuple[Any, Row]]) -> Template:
    """A question about a topic of a forum."""

    def template(world: World, draw: Draw) -> Goal:
        forum = _forum(world, draw)
        topics = _in_forum(world, forum)
        value = which(world, topics)[1]["subject"]
        others = other_values(_column(world, "topics", "subject"), value)
        text = f"{words.format(forum)} Answer with its subject alone."
        return _asks(text, world, Answer(value, others))

    return template


def _column(world: World, table: str, column: str) -> list[str]:
    return [row[column] for row in world[table].values()]


def _first(where: Where) -> Callable[[World, _Topics], tuple[Any, Row]]:
    return lambda world, topics: next(one for one in topics if where(one[1]))


def _said(world: World, draw: Draw) -> Goal:
    number, row = draw.row(world, "topics")
    found = draw.choice(_posts(world, number)[1:])[1]
    words = (
        f'What did {found["poster"]} reply in the topic "{row["subject"]}"? Answer with the text of the post.'
    )
    value = found["content"]
    return _asks(words, world, Answer(value, other_values(_column(world, "posts", "content"), value)))


def _signature(world: World, draw: Draw) -> Goal:
    name = draw.other(world["members"], VISITOR)
    value = world["members"][name]["signature"]
    others = other_values(_column(world, "members", "signature"), value)
    words = f"Which signature stands below the posts of {name}? Answer with its text alone."
    return _asks(words, world, Answer(value, others))


def _posts_of(world: World, draw: Draw) -> Goal:
    name = draw.other(world["members"], VISITOR)
    count = sum(row["poster"] == name and row["approved"] for row in world["posts"].values())
    words = f"How many posts has {name} written, by {name}'s profile? Answer with the number alone."
    return _asks(words, world, Answer(count))


def _options(world: World, key: Any) -> dict[Any, Row]:
    return {number: row for number, row in world["options"].items() if row["poll"] == key}


def _leading(world: World, key: Any) -> tuple[str, int, tuple[str, ...]]:
    """The option of a poll with the most votes, the number of all votes, and the other options."""
    rows = list(_options(world, key).values())
    best = max(rows, key=lambda row: len(row["voters"]))["text"]
    return best, sum(len(row["voters"]) for row in rows), other_values([row["text"] for row in rows], best)


def _poll_result(world: World, draw: Draw) -> Goal:
    key, row = draw.row(world, "polls")
    best, votes, others = _leading(world, key)
    words = (
        f'Which option leads in the poll of the topic "{world["topics"][row["topic"]]["subject"]}", and how '
        "many votes are there in all? Answer with the option and the number."
    )
    return _asks(words, world, Answer((best, votes), others))


def _mention(world: World, draw: Draw) -> Goal:
    """A name of someone who is no member; each is in one post."""
    _, found = draw.row(world, "posts", lambda row: row["approved"] and row["subject"].startswith("Re: "))
    (name,) = re.findall(r"[A-Z]\w+ [A-Z]\w+", found["content"])
    value = world["topics"][found["topic"]]["subject"]
    others = other_values(_column(world, "topics", "subject"), value)
    words = f'In which topic does someone mention "{name}"? Answer with the subject alone.'
    return _asks(words, world, Answer(value, others))


def _no_topic(world: World, draw: Draw) -> Goal:
    """Half of the tasks ask for a topic that another forum has."""
    number, row = draw.row(world, "topics")
    is_there = draw.random() < 0.5
    forum = row["forum"] if is_there else _forum(world, draw, row["forum"])
    count = sum(len(_posts(world, one)) for one, _ in _in_forum(world, forum))
    words = (
        f'Who started the topic "{row["subject"]}" in the forum "{forum}"? Answer with the name alone. If '
        "this forum has no such topic, answer with the number of its posts."
    )
    # Both kinds of answers at once are wrong.
    value = _author(world, number, row) if is_there else count
    return _asks(words, world, Answer(value, other_values([*world["members"], str(count)], str(value))))


def _no_reply(world: World, draw: Draw) -> Goal:
    """Half of the tasks ask for a post of someone who has written none there."""
    number, row = draw.row(world, "topics")
    by_name = {one["poster"]: one["content"] for _, one in _posts(world, number)}
    last = _posts(world, number)[-1][1]["poster"]
    is_there = draw.random() < 0.5
    written = {one["poster"] for one in world["posts"].values() if one["topic"] == number}
    choices = by_name.keys() - {last} if is_there else world["members"].keys() - written
    name = draw.choice([one for one in world["members"] if one in choices])
    words = (
        f'What did {name} write in the topic "{row["subject"]}"? Answer with the text of the post. If {name} '
        "wrote nothing there, answer with the name of the member who wrote the last post."
    )
    value = by_name[name] if is_there else last
    # Both kinds of answers at once are wrong; the name that the task has may be repeated.
    others = {*world["members"], *_column(world, "posts", "content")} - {name}
    return _asks(words, world, Answer(value, other_values(others, value)))


# Changes.


def _replied(world: World, number: Any, text: str) -> World:
    """With a post of the visitor, under the subject that the form proposes."""
    head = f"Re: {world['topics'][number]['subject']}"
    return put(world, "posts", New(f"post in {number}"), **forums.post(number, subject=head, content=text))


def _started(world: World, title: str, forum: str, text: str, kind: str = KINDS[0]) -> World:
    after = put(world, "topics", _NEW, **forums.topic(subject=title, forum=forum, kind=kind))
    return put(after, "posts", New("post"), **forums.post(_NEW, subject=title, content=text))


def _reply(world: World, number: Any, row: Row) -> World:
    return _replied(world, number, row["text"])


_REPLIED: Any = {"texts": {"text": forums.note}, "effect": _reply}


def _new(words: str, kind: str) -> Template:
    def template(world: World, draw: Draw) -> Goal:
        forum, title, text = _forum(world, draw), forums.subject(draw), forums.note(draw)
        text_of_task = words.format(forum=forum, title=title, text=text)
        return Goal(text_of_task, _started(world, title, forum, text, kind))

    return template


def _new_poll(world: World, draw: Draw) -> Goal:
    forum, title, text, asked = (
        _forum(world, draw),
        forums.subject(draw),
        forums.note(draw),
        forums.question(draw),
    )
    one, two = forums.options(draw, 2)
    words = (
        f'Start a topic "{title}" with the message "{text}" in the forum "{forum}", with a poll that asks '
        f'"{asked}" and has the options "{one}" and "{two}".'
    )
    after = put(
        _started(world, title, forum, text), "polls", New("poll"), **forums.poll(_NEW, question=asked)
    )
    for option in (one, two):
        after = put(after, "options", New(option), poll=New("poll"), text=option, voters=[])
    return Goal(words, after)


def _voting(words: str, where: Where, count: int = 1) -> Template:
    """A vote for `count` options; where the visitor has voted, for another one."""

    def template(world: World, draw: Draw) -> Goal:
        key, row = draw.row(world, "polls", where)
        rows = _options(world, key)
        chosen = draw.sample([one for one in rows if VISITOR not in rows[one]["voters"]], count)
        after = world
        for number, option in rows.items():
            voters = {*option["voters"]} - {VISITOR} | ({VISITOR} if number in chosen else set())
            after = put(after, "options", number, voters=sorted(voters))
        choices = '" and for "'.join(rows[one]["text"] for one in chosen)
        return Goal(words.format(choices=choices, subject=world["topics"][row["topic"]]["subject"]), after)

    return template


def _edit_post(world: World, draw: Draw) -> Goal:
    number, row = draw.row(world, "topics")
    key, text, why = _posts(world, number)[-1][0], forums.note(draw), forums.reason(draw)
    words = (
        f'In the topic "{row["subject"]}", change the text of the last post to "{text}", and give "{why}" as '
        "the reason for the update."
    )
    return Goal(words, put(world, "posts", key, content=text, reason=why))


def _renamed(world: World, number: Any, row: Row) -> World:
    return put(world, "posts", _posts(world, number)[0][0], subject=world["topics"][number]["subject"])


def _delete_post(world: World, draw: Draw) -> Goal:
    number, row = draw.row(world, "topics")
    key, found = draw.choice(_posts(world, number)[1:])
    words = f'Delete the reply of {found["poster"]} in the topic "{row["subject"]}", and no other post.'
    return Goal(words, drop(world, "posts", key))


def _delete_topic(world: World, draw: Draw) -> Goal:
    number, row = draw.row(world, "topics")
    after = drop(world, "topics", number)
    after = drop(after, "posts", *(key for key, one in world["posts"].items() if one["topic"] == number))
    for key in [key for key, one in world["polls"].items() if one["topic"] == number]:
        after = drop(drop(after, "polls", key), "options", *_options(world, key))
    return Goal(f'Delete the topic "{row["subject"]}".', after)


def _subscribed(world: World, *numbers: Any) -> World:
    for number in numbers:
        names = {*world["topics"][number]["subscribers"], VISITOR}
        world = put(world, "topics", number, subscribers=sorted(names))
    return world


def _decided(world: World, numbers: list[Any], approved: bool) -> World:
    """With the waiting posts of some topics approved, or without them."""
    for number in numbers:
        for key, _ in _posts(world, number, approved=0):
            world = put(world, "posts", key, approved=1) if approved else drop(world, "posts", key)
    return world


def _decide(approved: bool) -> Callable[[World, Any, Row], World]:
    return lambda world, number, row: _decided(world, [number], approved)


def _approve_all(world: World, draw: Draw) -> Goal:
    forum = _forum(world, draw)
    words = f'Approve every post in the forum "{forum}" that waits for approval, and no other one.'
    return Goal(words, _decided(world, [number for number, _ in _in_forum(world, forum)], True))


def _settle_queue(world: World, draw: Draw) -> Goal:
    forum = _forum(world, draw)
    other = _forum(world, draw, forum)
    words = (
        f'Of the posts that wait for approval, approve those in the forum "{forum}" and disapprove those in '
        f'the forum "{other}". Leave the others waiting.'
    )
    after = _decided(world, [number for number, _ in _in_forum(world, forum)], True)
    return Goal(words, _decided(after, [number for number, _ in _in_forum(world, other)], False))


def _set_signature(world: World, draw: Draw) -> Goal:
    text = forums.signature(draw)
    words = f'Change the signature in your profile to "{text}".'
    return Goal(words, put(world, "members", VISITOR, signature=text))


def _lock_busiest(world: World, draw: Draw) -> Goal:
    forum = _forum(world, draw)
    number, _ = _busiest(world, _in_forum(world, forum))
    words = f'Lock the topic in the forum "{forum}" that has the most replies.'
    return Goal(words, put(world, "topics", number, locked=1))


def _by_one_author(world: World, draw: Draw) -> tuple[str, str, list[Any]]:
    """A member, a forum, and the two topics that the member started there."""
    forum = _forum(world, draw)
    by_name: dict[str, list[Any]] = {}
    for number, row in _in_forum(world, forum):
        by_name.setdefault(_author(world, number, row), []).append(number)
    name, numbers = next((name, found) for name, found in by_name.items() if len(found) == 2)
    return name, forum, numbers


def _move_all(world: World, draw: Draw) -> Goal:
    name, forum, numbers = _by_one_author(world, draw)
    target = _forum(world, draw, forum)
    after = world
    for number in numbers:
        after = put(after, "topics", number, forum=target)
    return Goal(f'Move all topics that {name} started in the forum "{forum}" to the forum "{target}".', after)


def _subscribe_all(world: World, draw: Draw) -> Goal:
    name, forum, numbers = _by_one_author(world, draw)
    words = f'Be subscribed to all topics that {name} started in the forum "{forum}".'
    return Goal(words, _subscribed(world, *numbers))


def _reply_with_author(world: World, draw: Draw) -> Goal:
    number, row = draw.row(world, "topics", _is_open)
    other, one = draw.row(world, "topics", lambda one: one is not row)
    words = (
        f'Reply to the topic "{row["subject"]}": as your message, give nothing but the name of the member '
        f'who started the topic "{one["subject"]}".'
    )
    return Goal(words, _replied(world, number, _author(world, other, one)))


def _reply_with_result(world: World, draw: Draw) -> Goal:
    key, polled = draw.row(world, "polls")
    number, row = draw.row(
        world, "topics", lambda one: not one["locked"] and one is not world["topics"][polled["topic"]]
    )
    words = (
        f'Reply to the topic "{row["subject"]}": as your message, give nothing but the option that leads in '
        f'the poll of the topic "{world["topics"][polled["topic"]]["subject"]}".'
    )
    return Goal(words, _replied(world, number, _leading(world, key)[0]))


def _move_after(world: World, draw: Draw) -> Goal:
    number, row = draw.row(world, "topics")
    _, other = draw.row(world, "topics", lambda one: one["forum"] != row["forum"])
    words = f'Move the topic "{row["subject"]}" to the forum in which the topic "{other["subject"]}" is.'
    return Goal(words, put(world, "topics", number, forum=other["forum"]))


def _reply_or_start(world: World, draw: Draw) -> Goal:
    """Half of the tasks name a topic that is not there."""
    number, row = draw.row(world, "topics", _is_open)
    text, title = forums.note(draw), forums.subject(draw)
    is_there = draw.random() < 0.5
    words = (
        f'If there is a topic "{row["subject"] if is_there else title}" in the forum "{row["forum"]}", reply '
        f'with the message "{text}". If there is none, start it there, with the same message.'
    )
    after = _replied(world, number, text) if is_there else _started(world, title, row["forum"], text)
    return Goal(words, after)


def _set(words: str, where: Where | None = None, **new: Any) -> Template:
    return change(words, "topics", where, **new)


QUESTIONS: dict[str, Template] = {
    "author": _who(f"Who started {_TOPIC}?", _author),
    "last-post": _who(
        f"Who wrote the last post in {_TOPIC}?",
        lambda world, number, row: _posts(world, number)[-1][1]["poster"],
    ),
    "said": _said,
    "posts-of": _posts_of,
    "most-replies": _which('Which topic in the forum "{}" has the most replies?', _busiest),
    "poll-result": _poll_result,
    "announcement": _which(
        'Which topic is an announcement in the forum "{}"?', _first(lambda row: row["kind"] == "Announce")
    ),
    "queue-author": _who(
        f"Who wrote the post in {_TOPIC} that waits for approval?",
        lambda world, number, row: _posts(world, number, approved=0)[0][1]["poster"],
        _waits,
    ),
    "signature": _signature,
    "subscribed": _which(
        'To which topic of the forum "{}" are you subscribed?',
        _first(lambda row: VISITOR in row["subscribers"]),
    ),
    "mention": _mention,
    "no-topic": _no_topic,
    "no-reply": _no_reply,
}
CHANGES: dict[str, Template] = {
    "reply": _set(
        f'Reply to {_TOPIC} with the message "{{text}}"; leave the proposed subject as it is.',
        _is_open,
        **_REPLIED,
    ),
    "new-topic": _new('Start a topic "{title}" with the message "{text}" in the forum "{forum}".', KINDS[0]),
    "new-sticky": _new(
        'Start a sticky topic "{title}" with the message "{text}" in the forum "{forum}".', "Sticky"
    ),
    "new-poll": _new_poll,
    "vote": _voting(
        'Vote for "{choices}" in the poll of the topic "{subject}".',
        lambda row: row["most"] == 1 and not row["changes"],
    ),
    "vote-two": _voting(
        'Vote for "{choices}" in the poll of the topic "{subject}".', lambda row: row["most"] == 2, 2
    ),
    "change-vote": _voting(
        'You have voted in the poll of the topic "{subject}": change your vote to "{choices}".',
        lambda row: row["changes"],
    ),
    "edit-post": _edit_post,
    "rename": _set(
        f'Change the subject of {_TOPIC} to "{{new_subject}}", by an edit of its first post.',
        effect=_renamed,
        subject=drawn(forums.subject),
    ),
    "delete-post": _delete_post,
    "delete-topic": _delete_topic,
    "lock": _set(f"Lock {_TOPIC}.", _is_open, locked=1),
    "unlock": _set(f"Unlock {_TOPIC}.", lambda row: row["locked"], locked=0),
    "move": _set(
        f'Move {_TOPIC} to the forum "{{new_forum}}".',
        forum=lambda world, draw, row, column: _forum(world, draw, row["forum"]),
    ),
    "announce": _set(
        f"Make {_TOPIC} an announcement.", lambda row: row["kind"] != "Announce", kind="Announce"
    ),
    "standard": _set(
        f"Make {_TOPIC} a standard topic again.", lambda row: row["kind"] == "Sticky", kind=KINDS[0]
    ),
    "subscribe": _set(
        f"Subscribe to {_TOPIC}.",
        lambda row: VISITOR not in row["subscribers"],
        effect=lambda world, number, row: _subscribed(world, number),
    ),
    "unsubscribe": _set(
        f"End your subscription to {_TOPIC}.",
        lambda row: VISITOR in row["subscribers"],
        subscribers=lambda world, draw, row, column: [one for one in row[column] if one != VISITOR],
    ),
    "approve": _set(
        f"Approve the post in {_TOPIC} that waits for approval.", _waits, effect=_decide(approved=True)
    ),
    "disapprove": _set(
        f"Disapprove the post in {_TOPIC} that waits for approval.", _waits, effect=_decide(approved=False)
    ),
    "approve-all": _approve_all,
    "settle-queue": _settle_queue,
    "set-signature": _set_signature,
    "reply-and-lock": _set(
        f'Reply to {_TOPIC} with the message "{{text}}", and lock the topic.',
        _is_open,
        **_REPLIED,
        locked=1,
    ),
    "lock-busiest": _lock_busiest,
    "move-all": _move_all,
    "subscribe-all": _subscribe_all,
    "reply-with-author": _reply_with_author,
    "reply-with-result": _reply_with_result,
    "move-after": _move_after,
    "reply-or-start": _reply_or_start,
}
# A fact of one page is needed on another.
CARRIED = ("reply-with-author", "reply-with-result", "move-after")
TEMPLATES = QUESTIONS | CHANGES
