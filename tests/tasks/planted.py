"""Training tasks with planted repetitions of benchmark questions, and the same definition written plainly."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Sequence

from collection.tasks.contamination import BenchmarkQuestion
from collection.tasks.websites import site_of
from rmsweb_jax.records.schema import Task

# RMSWeb, appendix, "Contamination check".
JACCARD, CONTAINMENT, SAME_DOMAIN = 0.4, 0.6, 0.6

FOUND_KINDS = ("copy", "copy in a longer task", "part of a question", "paraphrase", "same-domain near-copy")
CLEAN_KINDS = ("near-miss elsewhere", "distant on the same domain", "own task")

_PARTS = """\
Find;Compare;Report;List;Check;Open;Look up;Identify;Determine;Locate
lamp;kettle;tent;violin;printer;museum;ferry;course;recipe;loan;visa;orchid;boiler;scooter;telescope;carpet;saddle
novel;permit;grant;clinic;pharmacy;salary;stadium;hostel;vineyard;archive;sensor
under {} dollars;with at least {} reviews;for {} people;within {} miles of the centre;rated above {}
and tell me its name;then say who makes it;and give the price;then name the first three;then count the results
Oslo;Porto;Kyoto;Lima;Tartu;Cork;Graz;Turin;Bergen;Quito;Hobart;Leeds;Ghent;Sofia;Zadar"""
_VERBS, _THINGS, _MORE, _LIMITS, _ASKS, _PLACES = (line.split(";") for line in _PARTS.splitlines())
_NOUNS = [*_THINGS, *_MORE]


@dataclasses.dataclass(frozen=True)
class Planted:
    """A training task; `question` is the one that it was made from, None for a task of its own."""

    kind: str
    task: Task
    question: BenchmarkQuestion | None = None


def made_up_questions(number: int, rng: random.Random) -> list[BenchmarkQuestion]:
    """Questions of the benchmarks' usual length."""
    return [
        BenchmarkQuestion(
            "made-up", f"q{place}", _sentence(rng) + " " + _sentence(rng), f"https://www.{_host(rng)}/"
        )
        for place in range(number)
    ]


def plant(questions: Sequence[BenchmarkQuestion], tasks: int, each: int, rng: random.Random) -> list[Planted]:
    """`tasks` tasks in random order, `each` of every kind but own ones, which are the rest."""
    long = [question for question in questions if len(plain_words(question.text)) >= 12]
    with_site = [question for question in long if site_of(question.website)]
    made: list[Planted] = []
    for kind in (*FOUND_KINDS, *CLEAN_KINDS[:-1]):
        needs_site = "domain" in kind or kind == "near-miss elsewhere"
        for place in range(each):
            question = rng.choice(with_site if needs_site else long)
            text, host = _TEXTS[kind](question, rng)
            made.append(Planted(kind, _task(f"{kind}/{place}", text, host), question))
    for place in range(tasks - len(made)):
        text = f"{_sentence(rng)} {_sentence(rng)}"
        made.append(Planted("own task", _task(f"own/{place}", text, _host(rng))))
    rng.shuffle(made)
    return made


class Definition:
    """The definition of a repetition, question by question, without the index and code under test."""

    def __init__(self, questions: Sequence[BenchmarkQuestion]) -> None:
        self._questions = [
            (words, grams(words), site_of(question.website))
            for question in questions
            if (words := plain_words(question.text))
        ]

    def meets(self, task: Task) -> bool:
        """True if a task repeats any question."""
        words, site = plain_words(task.objective), site_of(task.website)
        text, own = f" {' '.join(words)} ", grams(words)
        for theirs, other, home in self._questions:
            question = f" {' '.join(theirs)} "
            if text == question or (
                min(len(words), len(theirs)) >= 3 and (text in question or question in text)
            ):
                return True
            factor = SAME_DOMAIN if site and site == home else 1.0
            jaccard, containment = shares(own, other)
            if jaccard >= factor * JACCARD or containment >= factor * CONTAINMENT:
                return True
        return False


def shares(own: frozenset[str], theirs: frozenset[str]) -> tuple[float, float]:
    """Jaccard and containment of 3-grams; below 0 where nothing is shared."""
    shared = len(own & theirs)
    return (shared / len(own | theirs), shared / len(theirs)) if shared else (-1.0, -1.0)


def grams(words: Sequence[str]) -> frozenset[str]:
    return frozenset(" ".join(words[place : place + 3]) for place in range(len(words) - 2))


def plain_words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _task(name: str, text: str, host: str) -> Task:
    website = f"https://{host}/start"
    return Task(task_id=f"train/{name}", website=website, objective=text, site=site_of(website))


def _copy(question: BenchmarkQuestion, rng: random.Random) -> tuple[str, str]:
    text = question.text.upper() if rng.random() < 0.5 else " ,".join(question.text.split(" "))
    return text, _host(rng)


def _longer(question: BenchmarkQuestion, rng: random.Random) -> tuple[str, str]:
    return f"{_sentence(rng)} {question.text} {_sentence(rng)}", _host(rng)


def _part(question: BenchmarkQuestion, rng: random.Random) -> tuple[str, str]:
    words = plain_words(question.text)
    length = rng.randint(5, len(words) - 1)
    start = rng.randrange(len(words) - length + 1)
    return " ".join(words[start : start + length]), _host(rng)


def _paraphrase(question: BenchmarkQuestion, rng: random.Random) -> tuple[str, str]:
    """Some words are others and some are added, as long as enough 3-grams are shared anywhere."""
    return _changed(question, rng, 1.0, 1.7), _host(rng)


def _near_copy(question: BenchmarkQuestion, rng: random.Random) -> tuple[str, str]:
    """Too little is shared for another site, and enough for the same one."""
    return _changed(question, rng, SAME_DOMAIN, 1.0), _domain(question, rng)


def _near_miss(question: BenchmarkQuestion, rng: random.Random) -> tuple[str, str]:
    return _changed(question, rng, SAME_DOMAIN, 1.0), _host(rng)


def _distant(question: BenchmarkQuestion, rng: random.Random) -> tuple[str, str]:
    return _changed(question, rng, 0.2, SAME_DOMAIN), _domain(question, rng)


def _changed(question: BenchmarkQuestion, rng: random.Random, low: float, high: float) -> str:
    """The question with words replaced until its nearest threshold, times `low`..`high`, is what it meets."""
    original = plain_words(question.text)
    theirs = grams(original)
    while True:
        words = list(original)
        places = list(range(len(words)))
        rng.shuffle(places)
        for place in places:
            words[place] = rng.choice(_NOUNS) + str(rng.randrange(100))
            jaccard, containment = shares(grams(words), theirs)
            if max(jaccard / JACCARD, containment / CONTAINMENT) < high:
                break
        jaccard, containment = shares(grams(words), theirs)
        if low <= max(jaccard / JACCARD, containment / CONTAINMENT) < high:
            return " ".join(words)


def _sentence(rng: random.Random) -> str:
    noun, other = rng.sample(_NOUNS, 2)
    limit = rng.choice(_LIMITS).format(rng.randrange(2, 400))
    verb, place, ask = (rng.choice(words) for words in (_VERBS, _PLACES, _ASKS))
    return f"{verb} a {noun} {limit} near {place} {ask}, not the {other}."


def _host(rng: random.Random) -> str:
    return f"{rng.choice(_NOUNS)}-{rng.randrange(5000)}.com"


def _domain(question: BenchmarkQuestion, rng: random.Random) -> str:
    return f"{rng.choice(('www', 'm', 'help', 'shop'))}.{site_of(question.website)}"


_TEXTS = {
    "copy": _copy,
    "copy in a longer task": _longer,
    "part of a question": _part,
    "paraphrase": _paraphrase,
    "same-domain near-copy": _near_copy,
    "near-miss elsewhere": _near_miss,
    "distant on the same domain": _distant,
}
