"""django-machina, a forum: topics with posts and polls, a moderator's tools; Django on SQLite."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from collection.environments.apps.application import digest
from collection.environments.apps.python_site import PythonSite
from collection.environments.apps.sqlite import reading
from collection.environments.apps.tasks import AppTask, Ending, choose, make_task

# All that django-machina needs, and Whoosh for its search.
REQUIREMENTS = (
    *("django-machina==1.3.1", "Whoosh==2.7.4", "Django==5.2.19", "django-haystack==3.4.0"),
    *("django-mptt==0.20.0", "django-js-asset==5.0.0", "django-widget-tweaks==1.5.1", "markdown2==2.5.5"),
    *("pillow==13.0.0", "asgiref==3.13.0", "sqlparse==0.6.1", "packaging==26.4", "six==1.17.0"),
)
_SITE = pathlib.Path(__file__).with_name("forum_site.py")
# By the numbers that the database has for them.
KINDS = ("Default topic", "Sticky", "Announce")
_LOCKED = 1

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Post:
    """A post; `reason` is that of its last edit, `signature` whether the poster's stands below it."""

    poster: str
    subject: str
    content: str
    approved: bool = True
    reason: str = ""
    signature: bool = True


@dataclasses.dataclass(frozen=True)
class Poll:
    """A poll.

    Attributes:
      options: each with its voters, in the order of their names.
      most: options that a member may choose.
      changes: whether members may change their votes.
      hidden: whether results are.
      days: it runs for; 0 is for ever.
    """

    question: str
    options: tuple[tuple[str, tuple[str, ...]], ...]
    most: int = 1
    changes: bool = False
    hidden: bool = False
    days: int = 0

    @property
    def votes(self) -> int:
        return sum(len(voters) for _, voters in self.options)

    def voted(self, name: str, choices: Iterable[str]) -> Poll:
        """With the votes of a member for these options alone."""
        wanted = set(choices)
        options = tuple(
            (text, tuple(sorted({*voters} - {name} | ({name} if text in wanted else set()))))
            for text, voters in self.options
        )
        return dataclasses.replace(self, options=options)


@dataclasses.dataclass(frozen=True)
class Topic:
    """A topic; its first post opens it."""

    subject: str
    forum: str
    posts: tuple[Post, ...]
    kind: str = KINDS[0]
    locked: bool = False
    poll: Poll | None = None
    subscribers: tuple[str, ...] = ()

    @property
    def author(self) -> str:
        return self.posts[0].poster

    @property
    def shown(self) -> list[Post]:
        return [post for post in self.posts if post.approved]

    def waiting(self) -> list[Post]:
        return [post for post in self.posts if not post.approved]

    def post_of(self, name: str) -> Post | None:
        """The member's post; none has two in a topic at the start of an episode."""
        return next((post for post in self.posts if post.poster == name), None)

    def with_post(self, old: Post | None, new: Post | None) -> Topic:
        """With a post in place of another, or at the end, or without one."""
        posts = [new if post == old else post for post in self.posts] if old else [*self.posts, new]
        return dataclasses.replace(self, posts=tuple(post for post in posts if post))

    def with_reply(self, text: str) -> Topic:
        """With a post of the visitor, under the subject that the form proposes."""
        return self.with_post(None, Post(VISITOR, f"Re: {self.subject}", text))


@dataclasses.dataclass(frozen=True)
class Discussions:
    """What the forum holds: topics in a fixed order, and the signatures of members by name."""

    topics: tuple[Topic, ...]
    signatures: Mapping[str, str]

    def with_topics(self, *changes: tuple[Topic | None, Topic | None]) -> Discussions:
        """Without the first topic of each pair, and with the second."""
        topics = list(self.topics)
        for old, new in changes:
            if old:
                topics.remove(old)
            if new:
                topics.append(new)
        return Discussions(_ordered(topics), self.signatures)


def _ordered(topics: Iterable[Topic]) -> tuple[Topic, ...]:
    return tuple(sorted(topics, key=lambda topic: (topic.forum, topic.subject, repr(topic))))


VISITOR = "Nils"
SIGNATURES = {
    VISITOR: "Nils, who looks after this forum",
    "Aino": "Eleven hives at the birch wood",
    "Bela": "Slow is smooth",
    "Carmen": "Ask me about wax",
    "Dario": "Stung since 1988",
    "Elif": "The bees know better",
}
FORUMS = {
    "Beekeeping": ("Hives and frames", "Queens and swarms", "Honey and wax"),
    "The association": ("Meetings", "Swap and sell", "Library"),
}
_FORUM_NAMES = [name for names in FORUMS.values() for name in names]
_SUBJECTS = {
    "Hives and frames": {
        "Cedar or pine": "Is cedar worth its price for new hives?",
        "Mouse guards": "When do you put mouse guards on?",
        "Painting hives": "Which paint keeps the rain out?",
        "Shallow supers": "How many frames do you hang in a shallow super?",
        "Wax foundation": "Do you buy foundation or make it?",
    },
    "Queens and swarms": {
        "Clipped wings": "I am in two minds about clipping.",
        "Marking queens": "Which pen do you mark queens with?",
        "Swarm in the church tower": "The sexton has called, who has a ladder?",
        "Two queens in one hive": "I saw both of them on one frame.",
        "Queen rearing course": "Is there interest in a course?",
    },
    "Honey and wax": {
        "Labels for jars": "We need a label that stays on.",
        "Heather honey": "It will not leave the comb.",
        "Cleaning wax": "What do you strain it through?",
        "Candle moulds": "Mine stick, what helps?",
        "Honey show": "Who enters this year?",
    },
    "Meetings": {
        "Annual dinner": "Time to choose a place.",
        "Room for the winter talk": "The school hall is taken.",
        "Minutes of May": "Please read them before we meet.",
        "Visit to the heath": "The bus leaves from the station.",
        "Treasurer wanted": "I step down in spring.",
    },
    "Swap and sell": {
        "Jars to give away": "A whole crate, with lids.",
        "Extractor wanted": "For two frames or more.",
        "Smoker for sale": "Used for one summer.",
        "Nucleus for sale": "On five frames, marked queen.",
        "Veil found": "It hung on the gate.",
    },
    "Library": {
        "Film evening": "We have the projector for a night.",
        "Books on mites": "What should we buy?",
        "Old journals": "The attic is full of them.",
        "Map of forage": "Mark your lime trees, please.",
        "Return your loans": "Some are out since autumn.",
    },
}
# Question, options, and how many of them a member may choose, by subject. Where one may change a vote, the
# visitor has voted.
_POLLS = {
    "Cedar or pine": ("Which wood do you build with?", ("Cedar", "Pine", "Larch"), 1),
    "Clipped wings": ("Do you clip?", ("Always", "The best queen only", "Never"), 2),
    "Labels for jars": ("Which colour shall they have?", ("Yellow", "Green", "White"), 1),
    "Annual dinner": ("Where shall we eat?", ("The Plough", "The Mill", "At the school"), 1),
    "Jars to give away": ("When can you collect?", ("Monday", "Thursday", "Saturday"), 2),
    "Film evening": ("Which film?", ("The keeper", "A year in the heath", "White gold"), 1),
}
_REVOTED = ("Annual dinner", "Film evening")
_REPLIES = (
    *("I did that {} years ago.", "It took me {} hours.", "I counted {} of them last week."),
    *("Mine cost {} euros.", "Ask me again in {} days.", "There are {} left in the shed."),
    *("The handbook says {}.", "My neighbour has {} and is content.", "I would wait {} weeks."),
)
# Words that one post has, by the forum it is in.
_RARE = {
    "Hives and frames": ("skep", "My grandfather kept his in a skep."),
    "Queens and swarms": ("bucket", "I caught mine with a bucket on a pole."),
    "Honey and wax": ("thymol", "Mine smelled of thymol for a year."),
    "Meetings": ("minibus", "We could hire a minibus."),
    "Swap and sell": ("hessian", "I can add a roll of hessian."),
    "Library": ("propolis", "There is a chapter on propolis in one."),
}


def _seeded() -> Discussions:
    """The same topics each time, five in each forum: sticky, announcement, locked, with a poll, and plain.

    No member has two posts in a topic; one with four replies is longer than the others of its forum.
    """
    draw = random.Random("hive")
    texts = [text.format(number) for text in _REPLIES for number in range(3, 40)]
    draw.shuffle(texts)
    topics = []
    for forum, subjects in _SUBJECTS.items():
        polled = next(subject for subject in subjects if subject in _POLLS)
        others = draw.sample([subject for subject in subjects if subject != polled], 4)
        sticky, announced, locked, plain = others
        longest = draw.choice((polled, plain))
        authors = draw.sample(list(SIGNATURES), 3)
        followed = draw.choice(others[:1] + others[2:])
        for place, (subject, opening) in enumerate(subjects.items()):
            author = authors[place % 3]
            members = draw.sample([name for name in SIGNATURES if name != author], 5)
            count = 4 if subject == longest else draw.randrange(1, 4)
            posts = [Post(author, subject, opening)]
            posts += [Post(name, f"Re: {subject}", texts.pop()) for name in members[:count]]
            if subject == plain:
                posts[1] = dataclasses.replace(posts[1], content=_RARE[forum][1])
            waiting = [name for name in members[count:] if name != VISITOR]
            if subject in (sticky, locked) and waiting:
                posts.append(Post(waiting[0], f"Re: {subject}", texts.pop(), approved=False))
            subscribers = {name for name in SIGNATURES if name != VISITOR and draw.random() < 0.3}
            topics.append(
                Topic(
                    subject,
                    forum,
                    tuple(posts),
                    kind=KINDS[1 if subject == sticky else 2 if subject == announced else 0],
                    locked=subject == locked,
                    poll=_seeded_poll(subject, draw) if subject == polled else None,
                    subscribers=tuple(sorted(subscribers | ({VISITOR} if subject == followed else set()))),
                )
            )
    return Discussions(_ordered(topics), SIGNATURES)


def _seeded_poll(subject: str, draw: random.Random) -> Poll:
    """One option has more votes than each other."""
    question, options, most = _POLLS[subject]
    changes = subject in _REVOTED
    names = [name for name in SIGNATURES if name != VISITOR]
    draw.shuffle(names)
    leading, count = draw.choice(options), draw.randrange(3, 6)
    poll = Poll(question, tuple((text, ()) for text in options), most, changes)
    for place, name in enumerate(names[:count]):
        others = [text for text in options if text != leading]
        poll = poll.voted(name, {leading} if place < 2 else {others[place % 2]} if place < 4 else {leading})
    return poll.voted(VISITOR, {leading}) if changes else poll


DISCUSSIONS = _seeded()


class Machina(PythonSite):
    """http://machina.test/: the topics of `DISCUSSIONS`; every visitor is `VISITOR`, who moderates.

    A reset sets all of it back. The search knows the posts of the start alone.
    """

    name = "machina"
    host = "machina.test"
    requirements, script, ready = REQUIREMENTS, _SITE, "/"
    database = "forum.sqlite3"
    version = digest(REQUIREMENTS, DISCUSSIONS, FORUMS, _SITE.read_text(encoding="utf-8"))

    def discussions(self) -> Discussions:
        """Reads what the forum holds."""
        with reading(self.data / self.database) as database:
            signatures = {
                name: _plain(text)
                for name, text in database.execute(
                    "SELECT username, signature FROM forum_member_forumprofile AS profile "
                    "JOIN auth_user AS user ON user.id = user_id"
                )
            }
            posts = _grouped(
                (topic, Post(name, subject, _plain(text), bool(approved), _plain(reason), bool(signature)))
                for topic, name, subject, text, approved, reason, signature in database.execute(
                    "SELECT topic_id, user.username, subject, content, approved, update_reason, "
                    "enable_signature FROM forum_conversation_post AS post "
                    "LEFT JOIN auth_user AS user ON user.id = poster_id "
                    "ORDER BY post.id"
                )
            )
            subscribers = _grouped(
                database.execute(
                    "SELECT topic_id, username FROM forum_conversation_topic_subscribers "
                    "JOIN auth_user AS user ON user.id = user_id ORDER BY username"
                )
            )
            voters = _grouped(
                database.execute(
                    "SELECT poll_option_id, username FROM forum_polls_topicpollvote "
                    "JOIN auth_user AS user ON user.id = voter_id ORDER BY username"
                )
            )
            options = _grouped(
                (poll, (text, tuple(voters.get(number, ()))))
                for number, poll, text in database.execute(
                    "SELECT id, poll_id, text FROM forum_polls_topicpolloption ORDER BY id"
                )
            )
            polls = {
                topic: Poll(
                    question, tuple(options.get(number, ())), most, bool(changes), bool(hidden), days or 0
                )
                for number, topic, question, most, changes, hidden, days in database.execute(
                    "SELECT id, topic_id, question, max_options, user_changes, hide_results, duration "
                    "FROM forum_polls_topicpoll"
                )
            }
            topics = [
                Topic(
                    *(subject, forum, tuple(posts.get(number, ())), KINDS[kind], status == _LOCKED),
                    *(polls.get(number), tuple(subscribers.get(number, ()))),
                )
                for number, subject, forum, kind, status in database.execute(
                    "SELECT topic.id, topic.subject, forum.name, topic.type, topic.status "
                    "FROM forum_conversation_topic AS topic JOIN forum_forum AS forum ON forum.id = forum_id"
                )
            ]
        return Discussions(_ordered(topics), signatures)

    def _seed(self) -> None:
        board = {
            "forums": FORUMS,
            "signatures": SIGNATURES,
            "topics": [dataclasses.asdict(topic) for topic in DISCUSSIONS.topics],
        }
        (self.kept / "board.json").write_text(json.dumps(board), encoding="utf-8")
        self.run_script("create", str(self.folder), str(self.kept))

    @property
    def _served(self) -> tuple[str, str]:
        return str(self.folder), str(self.data)


def _grouped(pairs: Iterable[tuple[int, T]]) -> dict[int, list[T]]:
    groups: dict[int, list[T]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def _plain(text: str | None) -> str:
    """A text as it was meant: forms send two characters at the end of a line."""
    return (text or "").replace("\r\n", "\n").strip()


# --- Tasks ---


@dataclasses.dataclass(frozen=True)
class Goal:
    """What a task asks for; `answer` is "" if it asks for none."""

    words: str
    after: Discussions
    answer: str = ""


Template = Callable[[int], Goal]


def forum_tasks(application: Machina, seed: int) -> list[AppTask]:
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
    word, text = _RARE[_forum(seed)]
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
