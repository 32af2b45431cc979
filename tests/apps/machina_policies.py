"""Policies for the tasks at the forum; each knows the site's pages, and reads everything else."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Generator

from tests.apps.actor import Move, Moves, NotShownError, Page, Policy, click, done, type_in
from tests.apps.moves import Playing, press, quoted, scroll_until

_LINK = re.compile(r"\*?\[(\d+)\]<")


@dataclasses.dataclass(frozen=True)
class ShownPost:
    """A post of a topic's page, with the indices of its links."""

    name: str
    text: str
    signature: str
    edit: int
    delete: int


@dataclasses.dataclass(frozen=True)
class Row:
    """A topic of a list; `link` is its index."""

    subject: str
    author: str
    replies: int
    link: int


def asked(page: Page, pattern: str) -> str:
    found = re.search(pattern, page.request)
    assert found, page.request
    return found[1]


def index_at(line: str) -> int:
    found = _LINK.match(line)
    return int(found[1]) if found else 0


def to_end(page: Page) -> Moves:
    """Pages are shown whole once their end is near."""
    return (yield from scroll_until(page, lambda now: now.view.pages_below < 0.05))


def posts(page: Page) -> list[ShownPost]:
    """Links to edit and to delete a post are above its subject."""
    found, edit, delete = [], 0, 0
    for at, line in enumerate(lines := list(page.lines)):
        if "title=Edit" in line:
            edit = index_at(line)
        elif "title=Delete" in line:
            delete = index_at(line)
        elif line == "By:" and edit:
            found.append(ShownPost(lines[at + 2], lines[at + 4], lines[at + 5], edit, delete))
    return found


def rows(page: Page) -> list[Row]:
    lines = list(page.lines)
    return [
        Row(lines[at - 1], lines[at + 2], int(lines[at + 4]), index_at(lines[at - 2]))
        for at, line in enumerate(lines)
        if line == "By:" and "/topic/" in lines[at - 2] and lines[at + 4].isdigit()
    ]


# Ways.


def search(page: Page, words: str) -> Moves:
    field = page.one(tag="input", name="q")
    return (yield f"Search for {words}", [type_in(field, words), {"send_keys": {"keys": "Enter"}}])


def results(page: Page, subject: str = "") -> list[tuple[str, int]]:
    """Subjects of found topics, with the indices of their links."""
    found = [one for one in page.all(tag="a") if "/topic/" in one.attributes.get("href", "")]
    return [(one.text, one.index) for one in found if not subject or one.text == subject]


def topic(page: Page, subject: str) -> Moves:
    page = yield from search(page, subject)
    found = results(page, subject)
    if not found:
        raise NotShownError(f"no topic {subject}")
    return (yield f"Open {subject}", [click(found[0][1])])


def whole_topic(page: Page, subject: str) -> Moves:
    page = yield from topic(page, subject)
    return (yield from to_end(page))


def forum(page: Page, name: str) -> Moves:
    if not page.all(name, "a"):
        page = yield from press(page, "Forum index", "a")
    page = yield from press(page, name, "a")
    return (yield from to_end(page))


def member(page: Page, name: str) -> Moves:
    """The profile of a member, found where the member has written."""
    forums = [one.text for one in page.all(tag="a") if re.fullmatch(r"/forum/[^/]+/", one.attributes["href"])]
    for one in forums:
        if page.all(name, "a"):
            return (yield from press(page, name, "a"))
        page = yield from forum(page, one)
    raise NotShownError(f"{name} is nowhere")


def moderate(page: Page, item: str) -> Moves:
    menu = page.one(tag="button", id="id_dropdown_moderation_menu_button")
    page = yield "Open the moderator's menu", [click(menu)]
    return (yield from press(page, item, "a"))


def sure(page: Page) -> Moves:
    return (yield from press(page, "Yes, I'm sure", "button"))


def send(page: Page) -> Moves:
    page = yield from scroll_until(
        page, lambda now: bool(now.all(tag="input", type="submit", value="Submit"))
    )
    return (yield "Send it", [click(page.one(tag="input", type="submit", value="Submit"))])


def reply(page: Page, text: str) -> Moves:
    page = yield from press(page, "Post reply", "a")
    return (yield "Write it", [type_in(page.one(tag="textarea", name="content"), text)])


def write(page: Page, name: str, subject: str, text: str) -> Moves:
    """A new topic, not sent yet."""
    page = yield from forum(page, name)
    page = yield from press(page, "New topic", "a")
    field, area = page.one(tag="input", name="subject"), page.one(tag="textarea", name="content")
    return (yield "Write it", [type_in(field, subject), type_in(area, text)])


# Questions.


def author(page: Page) -> Playing:
    page = yield from topic(page, quoted(page)[0])
    yield done(posts(page)[0].name)


def last_post(page: Page) -> Playing:
    page = yield from whole_topic(page, quoted(page)[0])
    yield done(posts(page)[-1].name)


def said(page: Page) -> Playing:
    name = asked(page, r"What did (\w+)")
    page = yield from whole_topic(page, quoted(page)[0])
    found = [post for post in posts(page) if post.name == name]
    yield done(found[0].text if found else posts(page)[-1].name)


def posts_of(page: Page) -> Playing:
    page = yield from member(page, asked(page, r"posts has (\w+)"))
    lines = list(page.lines)
    yield done(lines[lines.index("Posts") - 1])


def busiest(page: Page) -> Row:
    return max(rows(page), key=lambda row: row.replies)


def most_replies(page: Page) -> Playing:
    page = yield from forum(page, quoted(page)[0])
    yield done(busiest(page).subject)


def result(page: Page, subject: str) -> Generator[Move, Page, tuple[Page, str, str]]:
    """The last page, the leading option of a topic's poll, and the number of votes."""
    page = yield from topic(page, subject)
    if page.all("View results", "a"):
        page = yield from press(page, "View results", "a")
    lines = list(page.lines)
    shares = {
        lines[at - 1]: float(line[:-1]) for at, line in enumerate(lines) if re.fullmatch(r"[\d.]+%", line)
    }
    best = max(shares, key=lambda text: shares[text])
    return page, best, page.match(r"Total votes:\D*(\d+)")[1]


def poll_result(page: Page) -> Playing:
    _, best, votes = yield from result(page, quoted(page)[0])
    yield done(f"{best}, {votes}")


def announcement(page: Page) -> Playing:
    page = yield from forum(page, quoted(page)[0])
    lines = list(page.lines)
    start = lines.index("Announcements")
    yield done(next(row.subject for row in rows(page) if lines.index(row.subject) > start))


def queue_author(page: Page) -> Playing:
    subject = quoted(page)[0]
    page = yield from press(page, "Moderation queue", "a")
    page = yield from scroll_until(page, lambda now: f"Re: {subject}" in now.lines)
    lines = list(page.lines)
    yield done(lines[lines.index(f"Re: {subject}") + 3])


def signature(page: Page) -> Playing:
    name = asked(page, r"posts of (\w+)\?")
    page = yield from member(page, name)
    page = yield "Open a post", [click(results(page)[0][1])]
    page = yield from to_end(page)
    yield done(next(post.signature for post in posts(page) if post.name == name))


def subscribed(page: Page) -> Playing:
    path = re.sub(r"\W+", "-", quoted(page)[0].lower())
    page = yield from press(page, "Subscriptions", "a")
    page = yield from to_end(page)
    links = [one for one in page.all(tag="a") if one.index in {row.link for row in rows(page)}]
    yield done(next(one.text for one in links if one.attributes["href"].startswith(f"/forum/{path}-")))


def mention(page: Page) -> Playing:
    page = yield from search(page, quoted(page)[0])
    yield done(results(page)[0][0])


def no_topic(page: Page) -> Playing:
    subject, name = quoted(page)[:2]
    lines = list(page.lines)
    # Below the name on the front page: a link to a feed, topics, posts.
    count = lines[lines.index(name) + 3]
    page = yield from forum(page, name)
    found = [row.author for row in rows(page) if row.subject == subject]
    yield done(found[0] if found else count)


# Changes.


def reply_to(page: Page) -> Playing:
    subject, text = quoted(page)[:2]
    page = yield from topic(page, subject)
    page = yield from reply(page, text)
    if "lock the topic" in page.request:
        page = yield "Lock it", [click(page.one(tag="input", name="lock_topic"))]
    yield from send(page)
    yield done("Sent.")


def new_topic(page: Page) -> Playing:
    subject, text, name, *poll = quoted(page)
    page = yield from write(page, name, subject, text)
    if "a sticky topic" in page.request:
        kind = page.one(tag="select", name="topic_type")
        page = yield "Make it sticky", [{"select_dropdown_option": {"index": kind, "text": "Sticky"}}]
    if poll:
        page = yield from press(page, "Poll", "a")
        page = yield from scroll_until(page, lambda now: bool(now.all(tag="input", name="poll-1-text")))
        names = ("poll_question", "poll-0-text", "poll-1-text")
        actions = [
            type_in(page.one(tag="input", name=field), value)
            for field, value in zip(names, poll, strict=True)
        ]
        page = yield "Fill in the poll", actions
    yield from send(page)
    yield done("Sent.")


def vote(page: Page) -> Playing:
    texts = quoted(page)
    if "You have voted" in page.request:
        subject, *choices = texts
    else:
        *choices, subject = texts
    page = yield from topic(page, subject)
    if page.all("Change your vote", "a"):
        page = yield from press(page, "Change your vote", "a")
    lines = list(page.lines)
    boxes = [
        index_at(lines[at - 1])
        for at, line in enumerate(lines)
        if line in choices and "options" in lines[at - 1]
    ]
    page = yield "Choose", [click(index) for index in boxes]
    yield from send(page)
    yield done("Voted.")


def edit_post(page: Page) -> Playing:
    subject, text, reason = quoted(page)
    page = yield from whole_topic(page, subject)
    page = yield "Edit the last post", [click(posts(page)[-1].edit)]
    area, field = page.one(tag="textarea", name="content"), page.one(tag="input", name="update_reason")
    page = yield "Change it", [type_in(area, text), type_in(field, reason)]
    yield from send(page)
    yield done("Changed.")


def rename(page: Page) -> Playing:
    subject, title = quoted(page)
    page = yield from topic(page, subject)
    page = yield "Edit the first post", [click(posts(page)[0].edit)]
    page = yield "Change the subject", [type_in(page.one(tag="input", name="subject"), title)]
    yield from send(page)
    yield done("Renamed.")


def delete_post(page: Page) -> Playing:
    name = asked(page, r"reply of (\w+)")
    page = yield from whole_topic(page, quoted(page)[0])
    page = yield "Delete it", [click(next(post.delete for post in posts(page) if post.name == name))]
    yield from sure(page)
    yield done("Deleted.")


def moderated(item: str) -> Policy:
    def policy(page: Page) -> Playing:
        page = yield from topic(page, quoted(page)[0])
        page = yield from moderate(page, item)
        yield from sure(page)
        yield done("Done.")

    return policy


def move_to(page: Page, name: str) -> Moves:
    page = yield from moderate(page, "Move topic")
    select = page.one(tag="select", name="forum")
    page = yield f"Choose {name}", [{"select_dropdown_option": {"index": select, "text": f"-- {name}"}}]
    return (yield from sure(page))


def move(page: Page) -> Playing:
    subject, name = quoted(page)
    page = yield from topic(page, subject)
    yield from move_to(page, name)
    yield done("Moved.")


def subscription(item: str) -> Policy:
    def policy(page: Page) -> Playing:
        page = yield from topic(page, quoted(page)[0])
        page = yield from press(page, item, "a")
        yield from sure(page)
        yield done("Done.")

    return policy


def queued(item: str) -> Policy:
    def policy(page: Page) -> Playing:
        subject = f"Re: {quoted(page)[0]}"
        yield from decide(page, item, lambda found, _: found == subject)
        yield done("Done.")

    return policy


def decide(page: Page, item: str, wanted: Callable[[str, str], bool]) -> Moves:
    """Decides about all wanted posts of the queue, by their subject and forum."""
    while True:
        page = yield from press(page, "Moderation queue", "a")
        page = yield from to_end(page)
        lines = list(page.lines)
        # Subject, poster, date, topic, forum.
        found = [
            at for at, line in enumerate(lines) if line == "By:" and wanted(lines[at - 1], lines[at + 7])
        ]
        if not found:
            return page
        page = yield f"Open {lines[found[0] - 1]}", [click(index_at(lines[found[0] - 2]))]
        page = yield from press(page, item, "a")
        page = yield from sure(page)


def approve_all(page: Page) -> Playing:
    name = quoted(page)[0]
    yield from decide(page, "Approve", lambda _, forum: forum == name)
    yield done("Approved.")


def settle_queue(page: Page) -> Playing:
    approved, disapproved = quoted(page)
    page = yield from decide(page, "Approve", lambda _, forum: forum == approved)
    yield from decide(page, "Disapprove", lambda _, forum: forum == disapproved)
    yield done("Settled.")


def set_signature(page: Page) -> Playing:
    page = yield from press(page, "View my posts", "a")
    page = yield "Open the profile", [click(page.one(tag="a", href="/member/profile/1/"))]
    page = yield from press(page, "Edit profile", "a")
    page = yield "Change it", [type_in(page.one(tag="textarea", name="signature"), quoted(page)[0])]
    yield from send(page)
    yield done("Changed.")


def lock_busiest(page: Page) -> Playing:
    page = yield from forum(page, quoted(page)[0])
    page = yield "Open the topic", [click(busiest(page).link)]
    page = yield from moderate(page, "Lock topic")
    yield from sure(page)
    yield done("Locked.")


def each_started(page: Page, do: Callable[[Page], Moves]) -> Playing:
    """Does something at each topic that a member started in a forum."""
    name, place = asked(page, r"that (\w+) started"), quoted(page)[0]
    page = yield from forum(page, place)
    for subject in [row.subject for row in rows(page) if row.author == name]:
        page = yield from topic(page, subject)
        page = yield from do(page)
    yield done("Done.")


def move_all(page: Page) -> Playing:
    yield from each_started(page, lambda now: move_to(now, quoted(now)[1]))


def subscribe_here(page: Page) -> Moves:
    if not page.all("Subscribe", "a"):
        return page
    page = yield from press(page, "Subscribe", "a")
    return (yield from sure(page))


def subscribe_all(page: Page) -> Playing:
    yield from each_started(page, subscribe_here)


def reply_with_author(page: Page) -> Playing:
    subject, other = quoted(page)
    page = yield from topic(page, other)
    name = posts(page)[0].name
    page = yield from topic(page, subject)
    page = yield from reply(page, name)
    yield from send(page)
    yield done("Sent.")


def reply_with_result(page: Page) -> Playing:
    subject, other = quoted(page)
    page, best, _ = yield from result(page, other)
    page = yield from topic(page, subject)
    page = yield from reply(page, best)
    yield from send(page)
    yield done("Sent.")


def move_after(page: Page) -> Playing:
    """The forum is the last one of the links above the topic."""
    subject, other = quoted(page)
    page = yield from topic(page, other)
    lines = list(page.lines)
    above = page.all(tag="a")[: len(re.findall(r"\]<a", "\n".join(lines[: lines.index(other)])))]
    name = [one.text for one in above if re.fullmatch(r"/forum/[^/]+/", one.attributes.get("href", ""))][-1]
    page = yield from topic(page, subject)
    yield from move_to(page, name)
    yield done("Moved.")


def reply_or_start(page: Page) -> Playing:
    subject, name, text = quoted(page)
    page = yield from forum(page, name)
    found = [row for row in rows(page) if row.subject == subject]
    if found:
        page = yield f"Open {subject}", [click(found[0].link)]
        page = yield from reply(page, text)
    else:
        page = yield from write(page, name, subject, text)
    yield from send(page)
    yield done("Sent.")


POLICIES: dict[str, Policy] = {
    "author": author,
    "last-post": last_post,
    "said": said,
    "posts-of": posts_of,
    "most-replies": most_replies,
    "poll-result": poll_result,
    "announcement": announcement,
    "queue-author": queue_author,
    "signature": signature,
    "subscribed": subscribed,
    "mention": mention,
    "no-topic": no_topic,
    "no-reply": said,
    "reply": reply_to,
    "new-topic": new_topic,
    "new-sticky": new_topic,
    "new-poll": new_topic,
    "vote": vote,
    "vote-two": vote,
    "change-vote": vote,
    "edit-post": edit_post,
    "rename": rename,
    "delete-post": delete_post,
    "delete-topic": moderated("Delete topic"),
    "lock": moderated("Lock topic"),
    "unlock": moderated("Unlock topic"),
    "move": move,
    "announce": moderated("Change to announce"),
    "standard": moderated("Change to standard topic"),
    "subscribe": subscription("Subscribe"),
    "unsubscribe": subscription("Unsubscribe"),
    "approve": queued("Approve"),
    "disapprove": queued("Disapprove"),
    "approve-all": approve_all,
    "settle-queue": settle_queue,
    "set-signature": set_signature,
    "reply-and-lock": reply_to,
    "lock-busiest": lock_busiest,
    "move-all": move_all,
    "subscribe-all": subscribe_all,
    "reply-with-author": reply_with_author,
    "reply-with-result": reply_with_result,
    "move-after": move_after,
    "reply-or-start": reply_or_start,
}


def author_in_a_sentence(page: Page) -> Playing:
    page = yield from topic(page, quoted(page)[0])
    yield done(f"{posts(page)[0].name} started this topic.")


def reply_with_blank_lines(page: Page) -> Playing:
    subject, text = quoted(page)
    page = yield from topic(page, subject)
    page = yield from reply(page, f"\n\n{text} \n")
    yield from send(page)
    yield done("Sent.")


def lock_after_the_reply(page: Page) -> Playing:
    """By the moderator's menu, and not by the form of the reply."""
    subject, text = quoted(page)
    page = yield from topic(page, subject)
    page = yield from reply(page, text)
    page = yield from send(page)
    page = yield from topic(page, subject)
    page = yield from moderate(page, "Lock topic")
    yield from sure(page)
    yield done("Done.")


def sticky_afterwards(page: Page) -> Playing:
    """Starts a standard topic, and makes it sticky by the moderator's menu."""
    title, text, name = quoted(page)
    page = yield from write(page, name, title, text)
    page = yield from send(page)
    page = yield from moderate(page, "Change to sticky topic")
    yield from sure(page)
    yield done("Done.")


def reply_under_another_subject(page: Page) -> Playing:
    subject, text = quoted(page)
    page = yield from topic(page, subject)
    page = yield from reply(page, text)
    page = yield "Change the subject", [type_in(page.one(tag="input", name="subject"), "An answer")]
    yield from send(page)
    yield done("Sent.")


def approve_everything(page: Page) -> Playing:
    """Approves what waits in other topics, too."""
    yield from decide(page, "Approve", lambda subject, forum: True)
    yield done("Approved.")


OTHER_WAYS: list[tuple[str, Policy, bool]] = [
    ("author", author_in_a_sentence, True),
    ("reply", reply_with_blank_lines, True),
    ("reply-and-lock", lock_after_the_reply, True),
    ("new-sticky", sticky_afterwards, True),
    ("reply", reply_under_another_subject, False),
    ("approve", approve_everything, False),
]
