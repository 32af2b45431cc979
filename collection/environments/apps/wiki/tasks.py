"""Tasks at the wiki: templates, and checks of what it holds."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from datetime import date

from collection.environments.apps.tasks import AppTask, Ending, choose, make_task
from collection.environments.apps.wiki.pages import (
    FERRIES,
    GROUPS,
    GUIDES,
    HISTORY,
    ISLANDS,
    LINKS,
    REDIRECTS,
    TALK,
    WATCHED,
    Island,
    Revision,
)
from collection.environments.apps.wiki.site import KEEPER, WIKI, MediaWiki, Wiki


@dataclasses.dataclass(frozen=True)
class Goal:
    """What a task asks for.

    Attributes:
      answer: "" if it asks for none.
      page: the page at which the episode ends; "" if it may end anywhere.
      summary: the page whose new version has this comment, and the comment.
    """

    words: str
    after: Wiki = WIKI
    answer: str = ""
    page: str = ""
    summary: tuple[str, str] = ("", "")


Template = Callable[[int], Goal]
# The form for a section's text begins a summary with its heading.
_SECTION = re.compile(r"^/\*.*?\*/ ")


def wiki_tasks(wiki: MediaWiki, seed: int) -> list[AppTask]:
    """Returns one task of each template."""
    return [_task(wiki, name, template(seed), seed) for name, template in TEMPLATES.items()]


def _task(wiki: MediaWiki, name: str, goal: Goal, seed: int) -> AppTask:
    def check(end: Ending) -> bool:
        found, (title, comment) = wiki.wiki(), goal.summary
        return (
            found == goal.after
            and (not title or _SECTION.sub("", found.pages[title].comment) == comment)
            and (not goal.page or goal.page.replace(" ", "_") in end.url)
            and (not goal.answer or end.answer.strip() == goal.answer)
        )

    return make_task(wiki, name, seed, f"{goal.words} The wiki is {wiki.url}/.", check)


def _island(words: str, answer: Callable[[Island], str], offset: int) -> Template:
    """A question about an island, which is found by its ferry."""

    def goal(seed: int) -> Goal:
        island = choose(ISLANDS, seed, offset)
        text = (
            f'Search the wiki for the ferry "{island.ferry}" and open the page of the island that it goes to.'
        )
        return Goal(f"{text} {words}", answer=answer(island), page=island.title)

    return goal


def _comparison(seed: int) -> Goal:
    one, other = choose(ISLANDS, seed, 1), choose(ISLANDS, seed, 4)
    larger = max((one, other), key=lambda island: island.people)
    words = (
        f"By how many people do more live on {one.title} or {other.title}, whichever has more, than on the "
        "other? Answer with the island's name and the number: Rook Island, 12."
    )
    return Goal(words, answer=f"{larger.title}, {abs(one.people - other.people)}")


def _highest(seed: int) -> Goal:
    group = choose(GROUPS, seed)
    best = max((one for one in ISLANDS if one.group == group), key=lambda one: one.metres)
    words = (
        f'Which island of the category "{group}" has the highest hill, and how many metres does it rise to? '
        "Answer with the island's name and the number: Rook Island, 12."
    )
    return Goal(words, answer=f"{best.title}, {best.metres}")


def _fare(seed: int) -> Goal:
    island = choose(ISLANDS, seed, 3)
    words = (
        f'The page "Ferries" has a table. What does it give as the fare of the ferry that calls at '
        f"{island.title}? Answer with the fare alone."
    )
    return Goal(words, answer=island.fare)


def _seats(seed: int) -> Goal:
    number = choose((30, 50, 70, 100, 130), seed)
    names = sorted(island.ferry for island in ISLANDS if island.seats > number)
    words = (
        f'Which ferries have more than {number} seats by the table of the page "Ferries"? Answer with their '
        "names in the order of the alphabet, with commas between them: Ada, Bee, Cork."
    )
    return Goal(words, answer=", ".join(names), page="Ferries")


def _no_school(seed: int) -> Goal:
    without = choose([one for one in ISLANDS if not one.school], seed)
    others = [one for one in ISLANDS if one.school]
    asked = sorted((without, choose(others, seed), choose(others, seed, 2)), key=lambda one: one.title)
    names = ", ".join(one.title for one in asked)
    words = (
        f"The page of one of these islands has no word about a school: {names}. In which year was the "
        "lighthouse of that island lit? Answer with the year alone."
    )
    return Goal(words, answer=str(without.lighthouse), page=without.title)


def _category(seed: int) -> Goal:
    group = choose(GROUPS, seed, 1)
    names = ", ".join(sorted(one.title for one in ISLANDS if one.group == group))
    words = (
        f'Which pages are in the category "{group}"? Answer with their titles in the order of the alphabet, '
        "with commas between them: Ada Island, Bee Island."
    )
    return Goal(words, answer=names, page=f"Category:{group}")


def _redirect(seed: int) -> Goal:
    name = choose(list(REDIRECTS), seed)
    words = (
        f'To which page does the wiki lead who looks for "{name}"? Answer with the title of that page alone.'
    )
    return Goal(words, answer=REDIRECTS[name])


def _links_here(seed: int) -> Goal:
    island = choose([one for one in ISLANDS if len(LINKS[one.title]) > 1], seed)
    count = len(LINKS[island.title])
    words = (
        f'"Outer Isles" left out, {count} pages of articles have a link to "{island.title}", talk and '
        "redirects left out. Answer with their titles in the order of the alphabet, with commas between "
        "them: Ada, Bee."
    )
    return Goal(words, answer=", ".join(LINKS[island.title]))


_STONES = ("granite", "slate", "brick")


def _search(seed: int) -> Goal:
    stone = choose(_STONES, seed)
    count = sum(one.stone == stone for one in ISLANDS)
    words = (
        f'How many pages of the wiki have the word "{stone}" in their text? Search for it, and answer with '
        "the number alone."
    )
    return Goal(words, answer=str(count), page=stone)


def _day(revision: Revision) -> str:
    day = date.fromisoformat(revision.date)
    return f"{day.day} {day:%B %Y}"


def _counts(seed: int, offset: int) -> tuple[str, Revision]:
    """A page of an island, and one of its versions that is neither the first nor the last."""
    title = choose(ISLANDS, seed, offset).title
    return title, choose(HISTORY[title][1:-1], seed)


def _revisions(seed: int) -> Goal:
    title = choose(ISLANDS, seed, 2).title
    words = f'How many versions has the page "{title}" by its history? Answer with the number alone.'
    return Goal(words, answer=str(len(HISTORY[title])), page=title)


def _creator(seed: int) -> Goal:
    title = choose(ISLANDS, seed, 5).title
    first = HISTORY[title][0]
    words = (
        f'Who made the first version of the page "{title}", and in which year? Answer with the user\'s name '
        "and the year: Rook, 2009."
    )
    return Goal(words, answer=f"{first.user}, {first.date[:4]}")


def _editor(seed: int) -> Goal:
    title, revision = _counts(seed, 3)
    words = (
        f'Who changed the page "{title}" with the summary "{revision.comment}", and on which day? Answer '
        "with the user's name and the day: Rook, 1 May 2009."
    )
    return Goal(words, answer=f"{revision.user}, {_day(revision)}")


def _people(revision: Revision) -> str:
    found = re.search(r"count (\d+) people", revision.text)
    assert found
    return found[1]


def _old_count(seed: int) -> Goal:
    title, revision = _counts(seed, 6)
    words = (
        f"How many people lived on {title} by the version of its page that has the summary "
        f'"{revision.comment}"? Answer with the number alone.'
    )
    return Goal(words, answer=_people(revision))


def _contribution(seed: int) -> Goal:
    user = choose(("Alder", "Birch", "Rook"), seed)
    title, revision = choose(
        [(title, one) for title, versions in HISTORY.items() for one in versions if one.user == user],
        3 * seed,
    )
    words = f"Which page did the user {user} change on {_day(revision)}? Answer with the page's title alone."
    return Goal(words, answer=title)


def _before(seed: int) -> Goal:
    guide = choose(GUIDES, seed)
    words = (
        f'Rook has changed one word of the page "{guide.title}". Which word was there before? Answer with '
        "the word alone."
    )
    return Goal(words, answer=guide.right)


def _asker(seed: int) -> Goal:
    title, topic = choose([(title, one) for title, topics in TALK.items() for one in topics], 2 * seed)
    words = (
        f'Who wrote "{topic.text}" on the talk page of "{title}", and under which heading? Answer with the '
        "user's name and the heading: Keeper, Bees."
    )
    return Goal(words, answer=f"{topic.user}, {topic.heading}")


def _length(seed: int) -> Goal:
    guide = choose(GUIDES, seed, 2)
    words = (
        f'How long is the page "{guide.title}" in bytes by its page information? Answer with the number '
        "alone."
    )
    return Goal(words, answer=str(len(HISTORY[guide.title][-1].text.encode())), page=guide.title)


# Changes.


def _by(user: str, words: str) -> str:
    return f'Log in as "{user}" with the password <secret>{user.lower()}</secret>. Then {words}'


def _visitor(seed: int) -> str:
    return choose(("Alder", "Birch"), seed)


def _text(title: str) -> str:
    return HISTORY[title][-1].text


_SIGHTS = ("a rope bridge", "a tide mill", "an old cannery", "a bird hide")
_SUMMARIES = ("A sight", "Seen in spring", "More to see")


def _edit(seed: int) -> Goal:
    island, user, sight = choose(ISLANDS, seed, 2), _visitor(seed), choose(_SIGHTS, seed)
    sentence, summary = f"There is {sight} on {island.title}.", choose(_SUMMARIES, seed)
    words = (
        f'add the sentence "{sentence}" at the end of the page "{island.title}" as a line of its own, leave '
        f'the rest of it as it is, and save it with the summary "{summary}".'
    )
    after = WIKI.with_page(island.title, f"{island.text}\n{sentence}", user)
    return Goal(_by(user, words), after, summary=(island.title, summary))


_PAGES_TO_MAKE = (
    ("Sela Rock", "Sela Rock is a bare rock north of the Outer Isles."),
    ("Fishing season", "The fishing season lasts from March to October."),
    ("Harbour bell", "The harbour bell is rung when there is fog."),
)


def _new_page(seed: int) -> Goal:
    (title, text), user = choose(_PAGES_TO_MAKE, seed), _visitor(seed + 1)
    words = f'make a new page "{title}" with the text "{text}" and save it.'
    return Goal(_by(user, words), WIKI.with_page(title, text, user))


def _new_redirect(seed: int) -> Goal:
    name = choose(("Hollin", "Old Quay", "Merrow", "Saltmouth"), seed)
    island, user = choose(ISLANDS, seed), _visitor(seed)
    words = (
        f'make a page "{name}" that is nothing but a redirect to "{island.title}". Its text is '
        f'"#REDIRECT [[{island.title}]]".'
    )
    return Goal(_by(user, words), WIKI.with_page(name, f"#REDIRECT [[{island.title}]]", user))


def _retarget(seed: int) -> Goal:
    name, user = choose(list(REDIRECTS), seed, 2), _visitor(seed)
    island = choose([one for one in ISLANDS if one.title != REDIRECTS[name]], seed)
    words = (
        f'let the page "{name}" redirect to "{island.title}", not to where it leads now. Nothing but '
        f'"#REDIRECT [[{island.title}]]" is its text then.'
    )
    return Goal(_by(user, words), WIKI.with_page(name, f"#REDIRECT [[{island.title}]]", user))


def _corrected(words: str, offset: int, field: str, new: Callable[[Island, int], object]) -> Template:
    """A correction on the page of an island; `words` has its `title` and the `new` value."""

    def goal(seed: int) -> Goal:
        island, user = choose(ISLANDS, seed, offset), _visitor(seed)
        changed = dataclasses.replace(island, **{field: new(island, seed)})
        text = words.format(title=island.title, new=getattr(changed, field))
        return Goal(
            _by(user, f"{text} Leave the rest as it is."), WIKI.with_page(island.title, changed.text, user)
        )

    return goal


def _raise_fare(seed: int) -> Goal:
    island, user = choose(ISLANDS, seed, 1), _visitor(seed)
    fare = f"{float(island.fare) + 0.35 + seed % 4:.2f}"
    row = f"| {island.ferry} || {island.seats} || "
    words = (
        f'change the fare of the ferry {island.ferry} to {fare} in the table of the page "Ferries", and '
        "nothing else."
    )
    text = FERRIES.replace(f"{row}{island.fare}\n", f"{row}{fare}\n")
    return Goal(_by(user, words), WIKI.with_page("Ferries", text, user))


def _rename_ferry(seed: int) -> Goal:
    island, user = choose(ISLANDS, seed, 6), _visitor(seed)
    ferry = choose(("Sandpiper", "Great Skua", "Whimbrel"), seed)
    changed = dataclasses.replace(island, ferry=ferry)
    words = (
        f'give the ferry {island.ferry} its new name, {ferry}, on the page "{island.title}" and in the table '
        'of the page "Ferries". Change nothing else.'
    )
    after = WIKI.with_page(island.title, changed.text, user).with_page(
        "Ferries", FERRIES.replace(f"| {island.ferry} ||", f"| {ferry} ||"), user
    )
    return Goal(_by(user, words), after)


_SECTIONS = (
    ("Winter", "Nothing runs in January."),
    ("Costs", "It costs nothing."),
    ("Tools", "A lamp and a rope are enough."),
    ("Safety", "Never go alone."),
)


def _section(seed: int) -> Goal:
    guide, user, (heading, text) = choose(GUIDES, seed, 1), _visitor(seed), choose(_SECTIONS, seed)
    words = (
        f'add a section at the end of the page "{guide.title}". Its heading is "{heading}", of the second '
        f'level as in "== {heading} ==", and its text is "{text}"'
    )
    whole = f"{_text(guide.title)}\n\n== {heading} ==\n{text}"
    return Goal(_by(user, words), WIKI.with_page(guide.title, whole, user))


def _list_entry(seed: int) -> Goal:
    title, user = choose(("Pilots", "Ouzel Sound", "Tide tables", "Storm of 1953"), seed), _visitor(seed)
    island = choose([one for one in ISLANDS if one.title not in _text(title)], seed)
    words = (
        f'add "{island.title}" to the end of the list on the page "{title}", as a link like the others: '
        f'"* [[{island.title}]]".'
    )
    return Goal(_by(user, words), WIKI.with_page(title, f"{_text(title)}* [[{island.title}]]\n", user))


def _categorise(seed: int) -> Goal:
    guide, user = choose(GUIDES, seed, 3), _visitor(seed)
    line = f"[[Category:{choose(('Customs', 'Nature', 'Advice'), seed)}]]"
    words = f'put the page "{guide.title}" into a category: add "{line}" to it as its last line.'
    return Goal(_by(user, words), WIKI.with_page(guide.title, f"{_text(guide.title)}\n{line}", user))


def _talk(seed: int) -> Goal:
    title = choose([one.title for one in ISLANDS if one.title not in TALK], seed)
    user, heading = _visitor(seed), choose(("Wells", "Post", "Ferry times"), seed)
    text = f"Who knows more about {choose(('the old map', 'the quay', 'the chapel'), seed)}?"
    words = (
        f'add a topic to the talk page of "{title}", with the subject "{heading}" and the text "{text}" Do '
        "not sign it."
    )
    return Goal(_by(user, words), WIKI.with_page(f"Talk:{title}", f"== {heading} ==\n\n{text}", user))


def _moved(leave: bool) -> Template:
    """Renames a page; only the keeper can do it without leaving a redirect."""

    def goal(seed: int) -> Goal:
        guide, user = choose(GUIDES, seed, 4 if leave else 1), _visitor(seed) if leave else KEEPER
        title = f"{guide.title} {choose(('explained', 'in short', 'for guests'), seed)}"
        redirect = "leave a redirect behind" if leave else "leave no redirect behind"
        words = f'move the page "{guide.title}" to the title "{title}", and {redirect}.'
        after = WIKI.moved(guide.title, title, user)
        if leave:
            after = after.with_page(guide.title, f"#REDIRECT [[{title}]]", user)
        return Goal(_by(user, words), after)

    return goal


def _undo(seed: int) -> Goal:
    guide, user = choose(GUIDES, seed), _visitor(seed)
    words = f'undo the last change of the page "{guide.title}", which Rook has made.'
    return Goal(_by(user, words), WIKI.with_page(guide.title, guide.good, user))


def _restore(seed: int) -> Goal:
    title, user = choose(ISLANDS, seed, 4).title, _visitor(seed)
    first = HISTORY[title][0]
    words = (
        f'restore the first version of the page "{title}", of {_day(first)}: open it in the history, edit '
        "that version and save it as it is."
    )
    return Goal(_by(user, words), WIKI.with_page(title, first.text, user))


def _revert_word(seed: int) -> Goal:
    guide, user = choose(GUIDES, seed, 2), _visitor(seed)
    words = (
        f'look in the history of the page "{guide.title}" for the version before the last, and save that '
        'version again with the summary "Word put right".'
    )
    after = WIKI.with_page(guide.title, guide.good, user)
    return Goal(_by(user, words), after, summary=(guide.title, "Word put right"))


def _watch(seed: int) -> Goal:
    user = _visitor(seed)
    title = choose(("Pilots", "Storm of 1953", "Fog signals", "Ousby Island", "Rope bridges"), seed)
    after = dataclasses.replace(WIKI, watched=WIKI.watched | {(user, title)})
    return Goal(_by(user, f'add the page "{title}" to your watch list.'), after)


def _unwatch(seed: int) -> Goal:
    user = _visitor(seed)
    title = choose(sorted(title for one, title in WATCHED if one == user), seed)
    after = dataclasses.replace(WIKI, watched=WIKI.watched - {(user, title)})
    return Goal(_by(user, f'remove the page "{title}" from your watch list.'), after)


def _delete(seed: int) -> Goal:
    guide = choose(GUIDES, seed, 3)
    return Goal(_by(KEEPER, f'delete the page "{guide.title}".'), WIKI.without(guide.title))


def _protect(seed: int) -> Goal:
    title = choose(ISLANDS, seed, 3).title
    words = f'protect the page "{title}" so that only administrators can edit and move it, for ever.'
    levels = frozenset((title, action, "sysop") for action in ("edit", "move"))
    # Protection is noted in the history as a version with the same text.
    after = WIKI.with_page(title, _text(title), KEEPER)
    return Goal(_by(KEEPER, words), dataclasses.replace(after, protected=levels))


def _real_name(seed: int) -> Goal:
    user, name = _visitor(seed), choose(("Ida Fell", "Tom Reeve", "Una Moss", "Jon Pike"), seed)
    words = f'enter "{name}" as your real name in your preferences.'
    return Goal(_by(user, words), dataclasses.replace(WIKI, names={**WIKI.names, user: name}))


QUESTIONS: dict[str, Template] = {
    "fact": _island(
        "In which year was the island's lighthouse lit? Answer with the year alone.",
        lambda island: str(island.lighthouse),
        0,
    ),
    "hill": _island(
        "How many metres high is its highest hill? Answer with the number alone.",
        lambda island: str(island.metres),
        3,
    ),
    "comparison": _comparison,
    "highest": _highest,
    "fare": _fare,
    "seats": _seats,
    "no-school": _no_school,
    "category": _category,
    "redirect": _redirect,
    "links-here": _links_here,
    "search": _search,
    "revisions": _revisions,
    "creator": _creator,
    "editor": _editor,
    "old-count": _old_count,
    "contribution": _contribution,
    "before": _before,
    "asker": _asker,
    "length": _length,
}
CHANGES: dict[str, Template] = {
    "edit": _edit,
    "new-page": _new_page,
    "new-redirect": _new_redirect,
    "retarget": _retarget,
    "correct-people": _corrected(
        'correct the page "{title}": at the last count {new} people lived there.',
        0,
        "people",
        lambda island, seed: island.people + 7 + seed % 5,
    ),
    "correct-lighthouse": _corrected(
        'correct the page "{title}": its lighthouse was lit in {new}.',
        5,
        "lighthouse",
        lambda island, seed: island.lighthouse + 1 + seed % 4,
    ),
    "regroup": _corrected(
        'move the page "{title}" into the category "{new}", instead of the one that it is in.',
        7,
        "group",
        lambda island, seed: choose([one for one in GROUPS if one != island.group], seed),
    ),
    "raise-fare": _raise_fare,
    "rename-ferry": _rename_ferry,
    "section": _section,
    "list-entry": _list_entry,
    "categorise": _categorise,
    "talk": _talk,
    "move": _moved(leave=True),
    "move-away": _moved(leave=False),
    "undo": _undo,
    "restore": _restore,
    "restore-with-summary": _revert_word,
    "watch": _watch,
    "unwatch": _unwatch,
    "delete": _delete,
    "protect": _protect,
    "real-name": _real_name,
}
TEMPLATES = QUESTIONS | CHANGES
