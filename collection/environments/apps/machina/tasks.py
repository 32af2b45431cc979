"""Tasks at the forum: templates, and checks of what it holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from collection.environments.apps.machina.site import (
    DISCUSSIONS,
    FORUMS,
    KINDS,
    RARE,
    SIGNATURES,
    VISITOR,
    Discussions,
    Machina,
    Poll,
    Post,
    Topic,
)
from collection.environments.apps.tasks import AppTask, Ending, choose, make_task

_FORUM_NAMES = [name for names in FORUMS.values() for name in names]


@dataclasses.dataclass(frozen=True)
class Goal:
    """What a task asks for; `answer` is "" if it asks for none."""

    words: str
    after: Discussions
    answer: str = ""


Template = Callable[[int], Goal]


def machina_tasks(application: Machina, seed: int) -> list[AppTask]:
    """Returns one task of each template."""
    return [_task(application, name, template(seed), seed) for name, template in TEMPLATES.items()]


def _task(application: Machina, name: str, goal: Goal, seed: int) -> AppTask:
    def check(end: Ending) -> bool:
        return application.discussions() == goal.after and (
            not goal.answer or end.answer.strip() == goal.answer
        )

    words = f"{goal.words} You are a moderator of the forum {application.url}/."
    return make_task(application, name, seed, words, check)


def _is_any(_: Topic) -> bool:
    return True


def _is_open(topic: Topic) -> bool:
    return not topic.locked


def _waits(topic: Topic) -> bool:
    return bool(topic.waiting())


def _pick(seed: int, offset: int = 0, keep: Callable[[Topic], bool] = _is_any) -> Topic:
    # Neighbours are of different forums.
    by_place = sorted(
        enumerate(DISCUSSIONS.topics), key=lambda one: (one[0] % 5, _FORUM_NAMES.index(one[1].forum))
    )
    return choose([topic for _, topic in by_place if keep(topic)], seed, offset)


def _forum(seed: int, offset: int = 0, other: str = "") -> str:
    return choose([name for name in _FORUM_NAMES if name != other], seed, offset)


def _in_forum(forum: str) -> list[Topic]:
    return [topic for topic in DISCUSSIONS.topics if topic.forum == forum]


def _member(seed: int, offset: int = 0) -> str:
    return choose([name for name in SIGNATURES if name != VISITOR], seed, offset)


_with = DISCUSSIONS.with_topics


def _asks(words: str, answer: str) -> Goal:
    return Goal(f"{words} Change nothing.", DISCUSSIONS, answer)


def _who(words: str, who: Callable[[Topic], str], keep: Callable[[Topic], bool], offset: int) -> Template:
    """A question about a member other than the visitor, who has to do with a topic."""

    def goal(seed: int) -> Goal:
        topic = _pick(seed, offset, lambda topic: keep(topic) and who(topic) != VISITOR)
        return _asks(f"{words.format(topic.subject)} Answer with the name alone.", who(topic))

    return goal


def _which(words: str, which: Callable[[list[Topic]], Topic], offset: int) -> Template:
    """A question about a topic of a forum."""

    def goal(seed: int) -> Goal:
        forum = _forum(seed, offset)
        subject = which(_in_forum(forum)).subject
        return _asks(f"{words.format(forum)} Answer with its subject alone.", subject)

    return goal


def _busiest(topics: list[Topic]) -> Topic:
    return max(topics, key=lambda topic: len(topic.shown))


def _said(seed: int) -> Goal:
    topic = _pick(seed, 5, lambda topic: len(topic.shown) > 2 and topic.shown[1].poster != VISITOR)
    post = topic.shown[1]
    words = f'What did {post.poster} reply in the topic "{topic.subject}"? Answer with the text of the post.'
    return _asks(words, post.content)


def _posts_of(seed: int) -> Goal:
    name = _member(seed)
    count = sum(post.poster == name for topic in DISCUSSIONS.topics for post in topic.shown)
    words = f"How many posts has {name} written, by {name}'s profile? Answer with the number alone."
    return _asks(words, str(count))


def _has_poll(topic: Topic) -> Poll:
    assert topic.poll, topic.subject
    return topic.poll


def _poll_result(seed: int) -> Goal:
    topic = _pick(seed, 0, lambda topic: topic.poll is not None)
    poll = _has_poll(topic)
    leading = max(poll.options, key=lambda option: len(option[1]))[0]
    words = (
        f'Which option leads in the poll of the topic "{topic.subject}", and how many votes are there? '
        'Answer with both, as in "Oak, 20".'
    )
    return _asks(words, f"{leading}, {poll.votes}")


def _signature(seed: int) -> Goal:
    name = _member(seed, 1)
    words = f"Which signature stands below the posts of {name}? Answer with its text alone."
    return _asks(words, SIGNATURES[name])


def _mention(seed: int) -> Goal:
    word, text = RARE[_forum(seed)]
    topic = next(one for one in DISCUSSIONS.topics if any(post.content == text for post in one.posts))
    words = f'In which topic does someone mention the word "{word}"? Answer with the subject alone.'
    return _asks(words, topic.subject)


def _no_topic(seed: int) -> Goal:
    """Of two seeds, one asks for a topic that another forum has."""
    topic = _pick(seed, 7, lambda topic: topic.author != VISITOR)
    forum = topic.forum if seed % 2 else _forum(seed, 0, topic.forum)
    count = sum(len(one.shown) for one in _in_forum(forum))
    words = (
        f'Who started the topic "{topic.subject}" in the forum "{forum}"? Answer with the name alone. If '
        'this forum has no such topic, answer with "none of" and the number of its posts, as in "none of 90".'
    )
    return _asks(words, topic.author if seed % 2 else f"none of {count}")


def _no_reply(seed: int) -> Goal:
    """Of two seeds, one asks for a post of someone who has written none there."""
    absent = seed % 2 == 0
    topic = _pick(seed, 2, lambda topic: len(topic.posts) in (2, 3) and topic.shown[-1].poster != VISITOR)
    names = [name for name in SIGNATURES if name != VISITOR and (topic.post_of(name) is None) == absent]
    name = choose(names, seed)
    post = topic.post_of(name)
    words = (
        f'What did {name} write in the topic "{topic.subject}"? Answer with the text of the post. If {name} '
        'wrote nothing there, answer with "nothing" and who wrote the last post, as in "nothing, Otto".'
    )
    return _asks(words, post.content if post else f"nothing, {topic.shown[-1].poster}")


# Changes.


def _changed(
    words: str,
    new: Callable[[Topic, str], Topic | None],
    keep: Callable[[Topic], bool] = _is_any,
    offset: int = 0,
    texts: tuple[str, ...] = ("",),
) -> Template:
    """A change of one topic: `words` has its subject and forum, and the text that the seed chooses."""

    def goal(seed: int) -> Goal:
        topic, text = _pick(seed, offset, keep), choose(texts, seed, offset)
        shown = words.format(subject=topic.subject, forum=topic.forum, text=text)
        return Goal(shown, _with((topic, new(topic, text))))

    return goal


def _set(words: str, keep: Callable[[Topic], bool], offset: int = 0, **fields: Any) -> Template:
    return _changed(words, lambda topic, _: dataclasses.replace(topic, **fields), keep, offset)


_TEXTS = (
    "I can help on Sunday.",
    "Please write to the office.",
    "The key is under the mat.",
    "That is a good plan.",
    "We spoke about it in April.",
)
_TITLES = ("Ants in the shed", "Lost glove", "Frost in the orchard", "Bees and lavender", "New gate")


def _move(seed: int) -> Goal:
    topic = _pick(seed, 4)
    forum = _forum(seed, 1, topic.forum)
    words = f'Move the topic "{topic.subject}" to the forum "{forum}".'
    return Goal(words, _with((topic, dataclasses.replace(topic, forum=forum))))


def _new(kind: str, words: str, offset: int) -> Template:
    def goal(seed: int) -> Goal:
        forum, title, text = _forum(seed, offset), choose(_TITLES, seed, offset), choose(_TEXTS, seed, offset)
        made = Topic(title, forum, (Post(VISITOR, title, text),), kind=kind)
        shown = words.format(forum=forum, title=title, text=text)
        return Goal(shown, _with((None, made)))

    return goal


_QUESTIONS = (
    ("Which day suits you?", "Friday", "Sunday"),
    ("Who brings the cake?", "The hosts", "The guests"),
    ("Shall we go on?", "Gladly", "Rather not"),
)


def _new_poll(seed: int) -> Goal:
    forum, title, text = _forum(seed, 3), choose(_TITLES, seed, 3), choose(_TEXTS, seed)
    question, one, other = choose(_QUESTIONS, seed)
    poll = Poll(question, ((one, ()), (other, ())))
    words = (
        f'Start a topic "{title}" with the message "{text}" in the forum "{forum}", with a poll that asks '
        f'"{question}" and has the options "{one}" and "{other}".'
    )
    made = Topic(title, forum, (Post(VISITOR, title, text),), poll=poll)
    return Goal(words, _with((None, made)))


def _voting(words: str, keep: Callable[[Poll], bool], count: int = 1) -> Template:
    """A vote for `count` options; where the visitor has voted, for another one."""

    def goal(seed: int) -> Goal:
        topic = _pick(seed, 0, lambda topic: topic.poll is not None and keep(topic.poll))
        poll = _has_poll(topic)
        free = [text for text, voters in poll.options if VISITOR not in voters]
        choices = [choose(free, seed // 2, place) for place in range(count)]
        named = '" and for "'.join(choices)
        after = dataclasses.replace(topic, poll=poll.voted(VISITOR, choices))
        return Goal(words.format(subject=topic.subject, choices=named), _with((topic, after)))

    return goal


_REASONS = ("wrong figure", "asked by the author", "spelling", "out of date")


def _edit_post(seed: int) -> Goal:
    topic = _pick(seed, 1, lambda topic: len(topic.shown) > 2)
    post, text, reason = topic.shown[-1], choose(_TEXTS, seed), choose(_REASONS, seed)
    words = (
        f'In the topic "{topic.subject}", change the text of the last post to "{text}", and give '
        f'"{reason}" as the reason for the update.'
    )
    new = dataclasses.replace(post, content=text, reason=reason)
    return Goal(words, _with((topic, topic.with_post(post, new))))


def _renamed(topic: Topic, title: str) -> Topic:
    first = dataclasses.replace(topic.posts[0], subject=title)
    return dataclasses.replace(topic.with_post(topic.posts[0], first), subject=title)


def _delete_post(seed: int) -> Goal:
    topic = _pick(seed, 6, lambda topic: len(topic.shown) > 2 and topic.shown[1].poster != VISITOR)
    post = topic.shown[1]
    words = f'Delete the reply of {post.poster} in the topic "{topic.subject}", and no other post.'
    return Goal(words, _with((topic, topic.with_post(post, None))))


def _subscription(topic: Topic, wanted: bool) -> Topic:
    names = {*topic.subscribers} - {VISITOR} | ({VISITOR} if wanted else set())
    return dataclasses.replace(topic, subscribers=tuple(sorted(names)))


def _decided(topic: Topic, approved: bool) -> Topic:
    """With its waiting post approved, or without it."""
    post = topic.waiting()[0]
    return topic.with_post(post, dataclasses.replace(post, approved=True) if approved else None)


def _approve_all(seed: int) -> Goal:
    forums = sorted({topic.forum for topic in DISCUSSIONS.topics if _waits(topic)})
    forum = choose([name for name in forums if sum(map(_waits, _in_forum(name))) > 1], seed)
    changes = [(topic, _decided(topic, True)) for topic in _in_forum(forum) if _waits(topic)]
    words = f'Approve every post in the forum "{forum}" that waits for approval, and no other one.'
    return Goal(words, _with(*changes))


def _set_signature(seed: int) -> Goal:
    text = choose(_TEXTS, seed, 2)
    after = dataclasses.replace(DISCUSSIONS, signatures={**SIGNATURES, VISITOR: text})
    return Goal(f'Change the signature in your profile to "{text}".', after)


def _lock_busiest(seed: int) -> Goal:
    forum = _forum(seed, 4)
    topic = _busiest(_in_forum(forum))
    words = f'Lock the topic in the forum "{forum}" that has the most replies.'
    return Goal(words, _with((topic, dataclasses.replace(topic, locked=True))))


def _started(seed: int, offset: int) -> tuple[str, str, list[Topic]]:
    """A member, a forum, and the topics that the member started there: two."""
    found = []
    for forum in _FORUM_NAMES:
        for name in SIGNATURES:
            topics = [topic for topic in _in_forum(forum) if topic.author == name]
            if len(topics) == 2 and name != VISITOR:
                found.append((name, forum, topics))
    return choose(found, seed, offset)


def _move_all(seed: int) -> Goal:
    name, forum, topics = _started(seed, 0)
    target = _forum(seed, 2, forum)
    words = f'Move all topics that {name} started in the forum "{forum}" to the forum "{target}".'
    return Goal(words, _with(*((one, dataclasses.replace(one, forum=target)) for one in topics)))


def _subscribe_all(seed: int) -> Goal:
    name, forum, topics = _started(seed, 3)
    words = f'Be subscribed to all topics that {name} started in the forum "{forum}".'
    return Goal(words, _with(*((one, _subscription(one, True)) for one in topics)))


def _reply_with_author(seed: int) -> Goal:
    topic = _pick(seed, 9, _is_open)
    other = _pick(seed, 2, lambda one: one != topic)
    words = (
        f'Reply to the topic "{topic.subject}": as your message, give nothing but the name of the member who '
        f'started the topic "{other.subject}".'
    )
    return Goal(words, _with((topic, topic.with_reply(other.author))))


def _reply_or_start(seed: int) -> Goal:
    """Of two seeds, one names a topic that is not there."""
    topic, text, title = _pick(seed, 8, _is_open), choose(_TEXTS, seed, 4), choose(_TITLES, seed, 2)
    subject = topic.subject if seed % 2 else title
    words = (
        f'If there is a topic "{subject}" in the forum "{topic.forum}", reply with the message "{text}". '
        "If there is none, start it there, with the same message."
    )
    made = Topic(title, topic.forum, (Post(VISITOR, title, text),))
    return Goal(words, _with((topic, topic.with_reply(text)) if seed % 2 else (None, made)))


QUESTIONS: dict[str, Template] = {
    "author": _who('Who started the topic "{}"?', lambda topic: topic.author, _is_any, 0),
    "last-post": _who(
        'Who wrote the last post in the topic "{}"?', lambda topic: topic.shown[-1].poster, _is_any, 3
    ),
    "said": _said,
    "posts-of": _posts_of,
    "most-replies": _which('Which topic in the forum "{}" has the most replies?', _busiest, 0),
    "poll-result": _poll_result,
    "announcement": _which(
        'Which topic is an announcement in the forum "{}"?',
        lambda topics: next(one for one in topics if one.kind == "Announce"),
        1,
    ),
    "queue-author": _who(
        'Who wrote the post in the topic "{}" that waits for approval?',
        lambda topic: topic.waiting()[0].poster,
        _waits,
        0,
    ),
    "signature": _signature,
    "subscribed": _which(
        'To which topic of the forum "{}" are you subscribed?',
        lambda topics: next(one for one in topics if VISITOR in one.subscribers),
        2,
    ),
    "mention": _mention,
    "no-topic": _no_topic,
    "no-reply": _no_reply,
}
CHANGES: dict[str, Template] = {
    "reply": _changed(
        'Reply to the topic "{subject}" with the message "{text}"; leave the proposed subject as it is.',
        lambda topic, text: topic.with_reply(text),
        _is_open,
        texts=_TEXTS,
    ),
    "new-topic": _new(
        KINDS[0], 'Start a topic "{title}" with the message "{text}" in the forum "{forum}".', 0
    ),
    "new-sticky": _new(
        "Sticky", 'Start a sticky topic "{title}" with the message "{text}" in the forum "{forum}".', 2
    ),
    "new-poll": _new_poll,
    "vote": _voting(
        'Vote for "{choices}" in the poll of the topic "{subject}".',
        lambda poll: poll.most == 1 and not poll.changes,
    ),
    "vote-two": _voting(
        'Vote for "{choices}" in the poll of the topic "{subject}".', lambda poll: poll.most == 2, 2
    ),
    "change-vote": _voting(
        'You have voted in the poll of the topic "{subject}": change your vote to "{choices}".',
        lambda poll: poll.changes,
    ),
    "edit-post": _edit_post,
    "rename": _changed(
        'Change the subject of the topic "{subject}" to "{text}", by an edit of its first post.',
        _renamed,
        offset=3,
        texts=_TITLES,
    ),
    "delete-post": _delete_post,
    "delete-topic": _changed('Delete the topic "{subject}".', lambda topic, _: None, offset=2),
    "lock": _set('Lock the topic "{subject}".', _is_open, 5, locked=True),
    "unlock": _set('Unlock the topic "{subject}".', lambda topic: topic.locked, 0, locked=False),
    "move": _move,
    "announce": _set(
        'Make the topic "{subject}" an announcement.',
        lambda topic: topic.kind != "Announce",
        7,
        kind="Announce",
    ),
    "standard": _set(
        'Make the topic "{subject}" a standard topic again.',
        lambda topic: topic.kind == "Sticky",
        kind=KINDS[0],
    ),
    "subscribe": _changed(
        'Subscribe to the topic "{subject}".',
        lambda topic, _: _subscription(topic, True),
        lambda topic: VISITOR not in topic.subscribers,
        offset=3,
    ),
    "unsubscribe": _changed(
        'End your subscription to the topic "{subject}".',
        lambda topic, _: _subscription(topic, False),
        lambda topic: VISITOR in topic.subscribers,
    ),
    "approve": _changed(
        'Approve the post in the topic "{subject}" that waits for approval.',
        lambda topic, _: _decided(topic, True),
        _waits,
    ),
    "disapprove": _changed(
        'Disapprove the post in the topic "{subject}" that waits for approval.',
        lambda topic, _: _decided(topic, False),
        _waits,
        offset=1,
    ),
    "approve-all": _approve_all,
    "set-signature": _set_signature,
    "reply-and-lock": _changed(
        'Reply to the topic "{subject}" with the message "{text}", and lock the topic.',
        lambda topic, text: dataclasses.replace(topic.with_reply(text), locked=True),
        _is_open,
        offset=4,
        texts=_TEXTS,
    ),
    "lock-busiest": _lock_busiest,
    "move-all": _move_all,
    "subscribe-all": _subscribe_all,
    "reply-with-author": _reply_with_author,
    "reply-or-start": _reply_or_start,
}
TEMPLATES = QUESTIONS | CHANGES
