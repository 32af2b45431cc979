"""django-machina, a forum: topics with posts and polls, a moderator's tools; Django on SQLite."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import random
from collections.abc import Iterable, Mapping
from typing import TypeVar

from collection.environments.apps.application import digest
from collection.environments.apps.python_site import PythonSite
from collection.environments.apps.sqlite import reading

# All that django-machina needs, and Whoosh for its search.
REQUIREMENTS = (
    *("django-machina==1.3.1", "Whoosh==2.7.4", "Django==5.2.19", "django-haystack==3.4.0"),
    *("django-mptt==0.20.0", "django-js-asset==5.0.0", "django-widget-tweaks==1.5.1", "markdown2==2.5.5"),
    *("pillow==13.0.0", "asgiref==3.13.0", "sqlparse==0.6.1", "packaging==26.4", "six==1.17.0"),
)
_SCRIPT = pathlib.Path(__file__).with_name("serve.py")
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
RARE = {
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
                posts[1] = dataclasses.replace(posts[1], content=RARE[forum][1])
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
    requirements, script, ready = REQUIREMENTS, _SCRIPT, "/"
    database = "forum.sqlite3"
    version = digest(REQUIREMENTS, DISCUSSIONS, FORUMS, _SCRIPT.read_text(encoding="utf-8"))

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
