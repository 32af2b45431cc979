"""Words for generated pages: those of MiniWoB++ pages, and common words of the web."""

from __future__ import annotations

import dataclasses
import functools
import random
import re
import string
from importlib import resources

UI_WORDS = tuple(
    """
    ok cancel submit login logout next back search go send save delete edit open close add remove yes no
    apply reset continue finish start stop play pause menu home help about contact settings profile
    account cart checkout buy order view more less show hide expand collapse select choose upload
    download share like follow reply forward print copy paste cut undo redo refresh reload update create
    new register join subscribe confirm accept decline agree filter sort list grid map calendar date
    time name email password username phone address city country state zip street company website
    message subject comment review rating price total quantity size color title description category tag
    first last previous page section tab link button news sports weather music movies books games travel
    food health science world business politics video photo image file folder document report project
    team user admin member guest friend group event task note inbox draft sent spam trash archive star
    flag language english french spanish german today tomorrow monday friday january june december
    morning night red green blue black white small medium large free sale discount shipping return
    policy privacy terms service support blog press careers enter the into on and then with of in to a
    for from type text textbox field fields button checkbox checkboxes option options dropdown item
    items result results word words number user find is are that correct following corresponding term
    use top area sub btn form main content box
    """.split()  # noqa: SIM905 - a list this long is read more easily as text
)
_WORD = re.compile(r"[A-Za-z]{2,14}")
_TAG = re.compile(r"<(script|style)\b.*?</\1>|<[^>]+>", re.DOTALL)
_LIST = re.compile(r"""["']([A-Za-z]{2,14}),?["']""")


@dataclasses.dataclass(frozen=True)
class Words:
    """Word pools: `lorem` and `names` of MiniWoB++'s own pages, `people` its long list of first names."""

    lorem: tuple[str, ...]
    names: tuple[str, ...]
    people: tuple[str, ...]
    page: tuple[str, ...]


@functools.cache
def load_words() -> Words:
    """Reads the pools from the installed `miniwob` package, in a fixed order."""
    root = resources.files("miniwob") / "html"
    utils = (root / "common" / "ui_utils.js").read_text()
    page: set[str] = set()
    for path in sorted((root / "miniwob").iterdir(), key=lambda entry: entry.name):
        if path.name.endswith(".html"):
            text = path.read_bytes().decode(errors="replace")
            page.update(_WORD.findall(_TAG.sub(" ", text)))
            literals = re.findall(r"'([A-Z][A-Za-z ]{2,30})'", text)
            page.update(word for literal in literals for word in literal.split())
    return Words(
        lorem=_array(utils, "lorem_words"),
        names=_array(utils, "FIFTY_NAMES"),
        people=_array(utils, "PEOPLE_NAMES"),
        page=tuple(sorted(word for word in page if len(word) > 1)),
    )


def _array(source: str, name: str) -> tuple[str, ...]:
    start = source.index(f"ui_utils.{name}")
    return tuple(dict.fromkeys(_LIST.findall(source[start : source.index("]", start)])))


def random_string(rng: random.Random) -> str:
    """Letters and digits in mixed case, as the pages' passwords and identifiers are."""
    alphabet = rng.choice(
        (string.ascii_lowercase, string.ascii_letters, string.ascii_letters + string.digits)
    )
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(2, 7)))


def random_case(rng: random.Random, word: str) -> str:
    """Mostly capitalised or lower case; now and then all capitals."""
    return rng.choices((word.capitalize(), word.lower(), word.upper()), (5, 5, 1))[0]


def random_word(rng: random.Random) -> str:
    """One word of any pool."""
    words = load_words()
    kind = rng.random()
    if kind < 0.30:
        return random_case(rng, rng.choice(words.lorem))
    if kind < 0.50:
        return random_case(rng, rng.choice(UI_WORDS))
    if kind < 0.62:
        return random_case(rng, rng.choice(words.names))
    if kind < 0.74:
        return random_case(rng, rng.choice(words.people))
    if kind < 0.84:
        return rng.choice(words.page)
    if kind < 0.90:
        return str(rng.randint(0, 99) if rng.random() < 0.7 else rng.randint(100, 9999))
    return random_string(rng)


def tokenizer_texts(seed: int, count: int) -> list[str]:
    """Words in the proportions of generated pages, for learning the tokenizer's merges.

    Kept apart from the page generator, so that a change there does not change the vocabulary.
    """
    rng = random.Random(seed)
    pieces = [random_word(rng) for _ in range(count)]
    words = load_words()
    for pool, times in ((words.names, 40), (words.lorem, 40), (UI_WORDS, 40), (words.page, 12)):
        for word in pool:
            pieces += [word, word.lower(), word.capitalize()] * times
    pieces += [word for word in words.people for _ in range(2)]
    return pieces
