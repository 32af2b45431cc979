"""What single steps show: small yes-or-no signals, from which labels and evidence are made.

A signal is a function of a branch and a position in it; `signal_table` collects them all.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import numpy as np

from collection.mining.branch import Branch, element_of, words
from rmsweb_jax.actions import Action

TRIVIAL = frozenset(("wait", "scroll", "go_back"))
SEARCH = frozenset(("search_engine",))
NOTES = frozenset(("write_file", "replace_file_str"))

_SUBMIT = re.compile(
    r"\b(submit|ok|search|log ?in|sign ?in|send|go|save|apply|continue|next|confirm|book|order|buy"
    r"|finish|close|add|reserve|pay|place|publish|register|subscribe|enrol\w*|checkout|complete|report|done)\b",
    re.IGNORECASE,
)
_FILTER = re.compile(
    r"\b(filter|sort(?:ed)?|refine|category|price range|only|facet|per page|newest|oldest|cheapest|lowest"
    r"|highest|price: ?(?:low|high)|rating|stars? (?:and|&) up|under \$?\d|any time|past \d+|most \w+)\b",
    re.IGNORECASE,
)
_MONTHS = (
    "jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    "|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?"
)
DATE = re.compile(
    r"\b(\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[/.]\d{1,2}[/.]\d{2,4}"
    rf"|(?:{_MONTHS})\.? \d{{1,4}}|\d{{1,2}} (?:{_MONTHS})\b"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day|tomorrow|tonight|today|weekend|next (?:week|month)"
    r"|check-?(?:in|out)|depart\w*|arriv\w*|availab\w+|in stock|dates?|\d{1,2}:\d{2}|[ap]m)\b",
    re.IGNORECASE,
)
# In lower case: literals are found far sooner than patterns in page after page.
_REFUSALS = (
    "captcha",
    "are you a human",
    "are you a robot",
    "not a robot",
    "you are human",
    "you are a human",
    "access denied",
    "access to this page has been denied",
    "403 forbidden",
    "403 error",
    "error 403",
    "(403)",
    "block access",
    "is blocked",
    "unusual traffic",
    "cloudflare",
    "just a moment",
    "attention required",
    "too many requests",
    "error 429",
    "service unavailable",
    "temporarily unavailable",
    "request blocked",
    "you have been blocked",
    "pardon our interruption",
    "verify you",
    "security check",
    "not available in your",
    "bot detection",
)
# A page that refuses says little else; a long one only mentions the word.
_REFUSAL_CHARS = 4_000
_LOGIN_WALL = re.compile(
    r"\b(sign|log) ?in to (continue|view|see|your|access|proceed)|please (sign|log) ?in|members only"
    r"|create an account to|enter your password|subscribe to (continue|read)",
    re.IGNORECASE,
)
_SENSITIVE = re.compile(
    r"\b(password|passcode|pin code|card number|credit card|debit card|cvv|cvc|security code|expir\w+|payment"
    r"|billing|iban|social security|ssn|passport|account number|date of birth)\b",
    re.IGNORECASE,
)
# Where agents are told to stop, or go on alone: accounts, money, and what is nobody's business.
BOUNDARY = re.compile(
    r"\b(sign(?:ed|ing)? ?(?:in|up)|logg?(?:ed|ing)? ?in|log ?in|account|password|credentials?|guest|card"
    r"|pay(?:ing|ment)?"
    r"|deposit|trial|subscri\w+|ssn|social security|id number|passport|personal (?:data|details)|private data"
    r"|background check|members?)\b",
    re.IGNORECASE,
)

_CARD = re.compile(r"(?<![\d-])(?:\d[ -]?){12,18}\d(?![\d-])")

Signal = Callable[[Branch, int], bool]


def _actions(branch: Branch, position: int) -> tuple[Action, ...]:
    reply = branch.steps[position].reply
    return reply.executable if reply else ()


def _names(branch: Branch, position: int) -> tuple[str, ...]:
    return tuple(action.name for action in _actions(branch, position))


def invalid(branch: Branch, position: int) -> bool:
    """The reply could not be used."""
    return branch.steps[position].reply is None


def fails(branch: Branch, position: int) -> bool:
    """Nothing the step tried worked."""
    return branch.steps[position].failed


def trivial(branch: Branch, position: int) -> bool:
    """Nothing but waiting, scrolling or going back."""
    names = _names(branch, position)
    return bool(names) and TRIVIAL.issuperset(names)


def passive(branch: Branch, position: int) -> bool:
    """Nothing that could change the page's state."""
    actions = _actions(branch, position)
    return bool(actions) and all(action.params.passive for action in actions)


def searches(branch: Branch, position: int) -> bool:
    """Nothing but queries to a search engine."""
    names = _names(branch, position)
    return bool(names) and SEARCH.issuperset(names)


def notes(branch: Branch, position: int) -> bool:
    """Nothing but writing to files of its own."""
    names = _names(branch, position)
    return bool(names) and NOTES.issuperset(names)


def finishes(branch: Branch, position: int) -> bool:
    return branch.steps[position].is_done


def acts(branch: Branch, position: int) -> bool:
    """Did something to the page, with effect."""
    step = branch.steps[position]
    idle = passive(branch, position) or finishes(branch, position) or notes(branch, position)
    return not idle and step.effective and not step.failed


def no_effect(branch: Branch, position: int) -> bool:
    """Meant to do something, met no error, and changed nothing."""
    step = branch.steps[position]
    active = not passive(branch, position) and not finishes(branch, position)
    return active and not step.failed and not step.effective


def repeats(branch: Branch, position: int) -> bool:
    """The same actions on the same page as one step before."""
    if position == 0:
        return False
    now, before = branch.steps[position], branch.steps[position - 1]
    same_page = now.step.observation.fingerprint == before.step.observation.fingerprint
    return same_page and now.composition == before.composition


def on_target(branch: Branch, position: int) -> bool:
    """Acted on something whose words all come from the task, or typed such words."""
    named = words(branch.named[position])
    return not finishes(branch, position) and bool(named) and named <= branch.task_words


def off_target(branch: Branch, position: int) -> bool:
    """Acted on something, or typed something, that the task does not mention."""
    named = words(branch.named[position])
    neutral = submits(branch, position) or finishes(branch, position)
    return not neutral and bool(named) and not named <= branch.task_words


def submits(branch: Branch, position: int) -> bool:
    """Pressed a button that sends or confirms."""
    for action in _actions(branch, position):
        element = element_of(branch.steps[position], action)
        if action.name == "click_element_by_index" and element and _SUBMIT.search(element.text):
            return True
        if action.name == "send_keys" and "enter" in str(action.params.model_dump()["keys"]).casefold():
            return True
    return False


def navigates(branch: Branch, position: int) -> bool:
    """Went to an address or another tab."""
    return any(name in ("go_to_url", "switch_tab") for name in _names(branch, position))


def opens(branch: Branch, position: int) -> bool:
    """Left the page for one of another path."""
    if position + 1 >= len(branch):
        return False
    here, there = branch.pages[position], branch.pages[position + 1]
    return here != there and not finishes(branch, position) and not trivial(branch, position)


def adjusts(branch: Branch, position: int) -> bool:
    """Used a control of the page that changed it and led nowhere else: a tab, a box, a chip, a list."""
    if position + 1 >= len(branch) or not acts(branch, position) or submits(branch, position):
        return False
    names = _names(branch, position)
    clicked = "click_element_by_index" in names or "select_dropdown_option" in names
    before, after = branch.steps[position].step.observation, branch.steps[position + 1].step.observation
    return clicked and branch.pages[position] == branch.pages[position + 1] and before != after


def filters(branch: Branch, position: int) -> bool:
    """Used a dropdown, or something that filters or sorts."""
    chosen = "select_dropdown_option" in _names(branch, position)
    return chosen or (not finishes(branch, position) and bool(_FILTER.search(branch.named[position])))


def dates(branch: Branch, position: int) -> bool:
    """Acted on a date, a time or availability."""
    return not finishes(branch, position) and bool(DATE.search(branch.named[position]))


def extracts(branch: Branch, position: int) -> bool:
    """Read facts off the page, or gave an answer in words."""
    for action in _actions(branch, position):
        if action.name in ("extract_structured_data", "read_file"):
            return True
        if action.name == "done" and len(words(str(action.params.model_dump()["text"]))) > 1:
            return True
    return False


def claims_success(branch: Branch, position: int) -> bool:
    """Said that everything was fulfilled."""
    return any(
        action.name == "done" and action.params.model_dump()["success"] is True
        for action in _actions(branch, position)
    )


def blocked(branch: Branch, position: int) -> bool:
    """The page refused the visitor."""
    observation = branch.steps[position].step.observation
    short = len(observation.page_text) <= _REFUSAL_CHARS
    return refuses(observation.title) or (short and refuses(observation.page_text))


def refuses(text: str) -> bool:
    """Whether a text is one of the ways in which sites turn programs away."""
    text = text.casefold()
    return any(refusal in text for refusal in _REFUSALS)


def login_wall(branch: Branch, position: int) -> bool:
    """The page wants an account."""
    observation = branch.steps[position].step.observation
    return len(observation.page_text) <= _REFUSAL_CHARS and bool(_LOGIN_WALL.search(observation.page_text))


def sensitive(branch: Branch, position: int) -> bool:
    """Acted on a secret or a payment."""
    named = branch.named[position]
    return not finishes(branch, position) and bool(_SENSITIVE.search(named) or _CARD.search(named))


def boundary(branch: Branch, position: int) -> bool:
    """Chose where an account, money or personal data begin."""
    return not finishes(branch, position) and bool(BOUNDARY.search(branch.named[position]))


SIGNALS: dict[str, Signal] = {
    function.__name__: function
    for function in (
        invalid,
        fails,
        trivial,
        passive,
        searches,
        notes,
        finishes,
        acts,
        no_effect,
        repeats,
        on_target,
        off_target,
        submits,
        navigates,
        opens,
        adjusts,
        filters,
        dates,
        extracts,
        claims_success,
        blocked,
        login_wall,
        sensitive,
        boundary,
    )
}


# For the runs of one task; a branch holds on to its records.
@functools.lru_cache(maxsize=32)
def signal_table(branch: Branch) -> dict[str, np.ndarray]:
    """Every signal at every step: name -> bool [num_steps]."""
    return {
        name: np.array([signal(branch, position) for position in range(len(branch))], bool)
        for name, signal in SIGNALS.items()
    }


def task_has_dates(branch: Branch) -> bool:
    task = branch.run.task
    return bool(DATE.search(" ".join((task.objective, *task.constraints))))
