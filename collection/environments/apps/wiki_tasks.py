"""Reading and writing at the wiki, checked by its own API."""

from __future__ import annotations

from collection.environments.apps.articles import ARTICLES, ISLANDS, USERS, Island
from collection.environments.apps.mediawiki import MediaWiki
from collection.environments.apps.tasks import AppTask, Ending, choose, make_task

# Their passwords are secrets of these names; the agent writes `<secret>alder</secret>`.
SECRETS = {user.lower(): password for user, password in USERS.items()}
_VISITORS = ("Alder", "Birch")
_SIGHTS = ("a rope bridge", "a tide mill", "an old cannery", "a bird hide")
_PAGES = (
    ("Sela Rock", "Sela Rock is a bare rock north of the Outer Isles."),
    ("Fishing season", "The fishing season lasts from March to October."),
    ("Harbour bell", "The harbour bell is rung when there is fog."),
)


def wiki_tasks(wiki: MediaWiki, seed: int) -> list[AppTask]:
    """One of each kind."""
    return [_fact(wiki, seed), _comparison(wiki, seed), _edit(wiki, seed), _new_page(wiki, seed)]


def _fact(wiki: MediaWiki, seed: int) -> AppTask:
    island = choose(ISLANDS, seed)
    text = (
        f'Search {wiki.url}/ for the ferry "{island.ferry}" and open the page of the island that it goes to. '
        "In which year was the island's lighthouse lit? Answer with the year alone."
    )

    def check(end: Ending) -> bool:
        return _is_on(end, island) and end.answer.strip() == str(island.lighthouse)

    return make_task(wiki, "fact", seed, text, check)


def _comparison(wiki: MediaWiki, seed: int) -> AppTask:
    one, other = choose(ISLANDS, seed, 1), choose(ISLANDS, seed, 4)
    larger = max((one, other), key=lambda island: island.people)
    text = (
        f"By how many people do more live on {one.title} or {other.title}, whichever has more, than on the "
        f"other? Look it up at {wiki.url}/ and answer with the island's name and the number: Rook Island, 12"
    )
    answer = f"{larger.title}, {abs(one.people - other.people)}"
    return make_task(wiki, "comparison", seed, text, lambda end: end.answer.strip() == answer)


def _edit(wiki: MediaWiki, seed: int) -> AppTask:
    island, user, sight = choose(ISLANDS, seed, 2), choose(_VISITORS, seed), choose(_SIGHTS, seed)
    sentence = f"There is {sight} on {island.title}."
    text = (
        f'{_log_in(wiki, user)} Then add the sentence "{sentence}" at the end of the page "{island.title}", '
        'leave the rest of it as it is, and save it with the summary "A sight".'
    )

    def check(end: Ending) -> bool:
        page = wiki.page(island.title)
        expected = {"user": user, "comment": "A sight"}
        return (
            page is not None
            and {name: page[name] for name in expected} == expected
            and page["content"].split() == [*ARTICLES[island.title].split(), *sentence.split()]
        )

    return make_task(wiki, "edit", seed, text, check)


def _new_page(wiki: MediaWiki, seed: int) -> AppTask:
    (title, content), user = choose(_PAGES, seed), choose(_VISITORS, seed, 1)
    text = f'{_log_in(wiki, user)} Then make a new page "{title}" with the text "{content}" and save it.'

    def check(end: Ending) -> bool:
        page = wiki.page(title)
        return page is not None and page["user"] == user and page["content"].strip() == content

    return make_task(wiki, "new-page", seed, text, check)


def _log_in(wiki: MediaWiki, user: str) -> str:
    return f'Log in at {wiki.url}/ as "{user}" with the password <secret>{user.lower()}</secret>.'


def _is_on(end: Ending, island: Island) -> bool:
    return island.title.replace(" ", "_") in end.url
