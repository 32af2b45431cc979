"""Yes-or-no flags of single steps; rule labels and the category score are computed from them.

A flag is a function of a run and a position in it; `step_flags` computes all of them for a run. RMSWeb names
the kinds of evidence (action types, terminal behaviour, blocker signatures), but no word list and no pattern.
The lists and patterns here are this project's, in English only. They were written by hand and revised on
the tuned labelled cases and the generator's seeds 0-19, see docs/results/mining.md.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import numpy as np

from collection.mining.runs import ParsedRun, element_of, words
from rmsweb_jax.actions import Action

# RMSWeb, section 3.3: pairs whose actions are all of the first two kinds are no candidates.
TRIVIAL = frozenset(("wait", "scroll", "go_back"))
SEARCH = frozenset(("search_engine",))
# Actions on the agent's own files.
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
_SEARCH_BOX = re.compile(r"search|'name': '(?:q|query|s)'", re.IGNORECASE)
_CHOOSING = frozenset(("select_dropdown_option", "upload_file"))
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
# Phrases of pages that refuse bots. In lower case, because substring search is far faster than a pattern.
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
# A longer page (in characters) mentions such a phrase, but is not a refusal. Chosen by hand.
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
# Accounts, money and personal data: steps where an agent must decide if it may continue without the user.
BOUNDARY = re.compile(
    r"\b(sign(?:ed|ing)? ?(?:in|up)|logg?(?:ed|ing)? ?in|log ?in|account|password|credentials?|guest|card"
    r"|pay(?:ing|ment)?"
    r"|deposit|trial|subscri\w+|ssn|social security|id number|passport|personal (?:data|details)|private data"
    r"|background check|members?)\b",
    re.IGNORECASE,
)
# 13 to 19 digits, the lengths of card numbers (ISO/IEC 7812).
_CARD = re.compile(r"(?<![\d-])(?:\d[ -]?){12,18}\d(?![\d-])")

StepFlag = Callable[[ParsedRun, int], bool]
# Every flag by its name. The failure modes name the flags that show them, see `failure_modes.TAXONOMY`.
STEP_FLAGS: dict[str, StepFlag] = {}


def _flag(function: StepFlag) -> StepFlag:
    STEP_FLAGS[function.__name__] = function
    return function


def _actions(run: ParsedRun, position: int) -> tuple[Action, ...]:
    reply = run.steps[position].reply
    return reply.executable if reply else ()


def _names(run: ParsedRun, position: int) -> tuple[str, ...]:
    return tuple(action.name for action in _actions(run, position))


@_flag
def invalid(run: ParsedRun, position: int) -> bool:
    """The reply could not be used."""
    return run.steps[position].reply is None


@_flag
def fails(run: ParsedRun, position: int) -> bool:
    """All actions of the step failed."""
    return run.steps[position].failed


@_flag
def trivial(run: ParsedRun, position: int) -> bool:
    """The step only waits, scrolls or goes back."""
    names = _names(run, position)
    return bool(names) and TRIVIAL.issuperset(names)


@_flag
def passive(run: ParsedRun, position: int) -> bool:
    """No action of the step can change the page's state."""
    actions = _actions(run, position)
    return bool(actions) and all(action.params.passive for action in actions)


@_flag
def searches(run: ParsedRun, position: int) -> bool:
    """The step only queries a search engine."""
    names = _names(run, position)
    return bool(names) and SEARCH.issuperset(names)


@_flag
def notes(run: ParsedRun, position: int) -> bool:
    """The step only writes to the agent's own files."""
    names = _names(run, position)
    return bool(names) and NOTES.issuperset(names)


@_flag
def finishes(run: ParsedRun, position: int) -> bool:
    """The step declares the end of the run."""
    return run.steps[position].is_done


@_flag
def acts(run: ParsedRun, position: int) -> bool:
    """The step changed something, other than the agent's own files."""
    step = run.steps[position]
    idle = passive(run, position) or finishes(run, position) or notes(run, position)
    return not idle and step.effective and not step.failed


@_flag
def no_effect(run: ParsedRun, position: int) -> bool:
    """The step tried to change something, met no error and changed nothing."""
    step = run.steps[position]
    active = not passive(run, position) and not finishes(run, position)
    return active and not step.failed and not step.effective


@_flag
def repeats(run: ParsedRun, position: int) -> bool:
    """The step has the same actions on the same page as the previous one."""
    if position == 0:
        return False
    now, before = run.steps[position], run.steps[position - 1]
    same_page = now.step.observation.fingerprint == before.step.observation.fingerprint
    return same_page and now.composition == before.composition


@_flag
def on_target(run: ParsedRun, position: int) -> bool:
    """All words of the elements and texts that the step acts on or types are in the task."""
    named = words(run.action_texts[position])
    return not finishes(run, position) and bool(named) and named <= run.task_words


@_flag
def off_target(run: ParsedRun, position: int) -> bool:
    """The step acts on, or types, words that are not in the task."""
    named = words(run.action_texts[position])
    # The label of a submit button is rarely a word of the task, but not off target for that reason.
    neutral = submits(run, position) or finishes(run, position)
    return not neutral and bool(named) and not named <= run.task_words


@_flag
def submits(run: ParsedRun, position: int) -> bool:
    """The step presses a button that sends or confirms, or the Enter key."""
    for action in _actions(run, position):
        element = element_of(run.steps[position], action)
        if action.name == "click_element_by_index" and element and _SUBMIT.search(element.text):
            return True
        if action.name == "send_keys" and "enter" in str(action.params.model_dump()["keys"]).casefold():
            return True
    return False


@_flag
def navigates(run: ParsedRun, position: int) -> bool:
    """The step opens an address or switches to another tab."""
    return any(name in ("go_to_url", "switch_tab") for name in _names(run, position))


@_flag
def opens(run: ParsedRun, position: int) -> bool:
    """The step led to a page of another host or path."""
    if position + 1 >= len(run):
        return False
    here, there = run.pages[position], run.pages[position + 1]
    return here != there and not finishes(run, position) and not trivial(run, position)


@_flag
def adjusts(run: ParsedRun, position: int) -> bool:
    """The step used a control that changed the page without leaving it, such as a tab, a box or a list."""
    if position + 1 >= len(run) or not acts(run, position) or submits(run, position):
        return False
    names = _names(run, position)
    clicked = "click_element_by_index" in names or "select_dropdown_option" in names
    before, after = run.steps[position].step.observation, run.steps[position + 1].step.observation
    return clicked and run.pages[position] == run.pages[position + 1] and before != after


@_flag
def decides(run: ParsedRun, position: int) -> bool:
    """The step enters or chooses something, other than words to search for."""
    step = run.steps[position]
    for action in _actions(run, position):
        if action.name == "input_text":
            element = element_of(step, action)
            if element is None or not _SEARCH_BOX.search(f"{element.attributes} {element.text}"):
                return True
        if action.name in _CHOOSING:
            return True
    return False


@_flag
def filters(run: ParsedRun, position: int) -> bool:
    """The step used a dropdown, or a control that filters or sorts."""
    chosen = "select_dropdown_option" in _names(run, position)
    return chosen or (not finishes(run, position) and bool(_FILTER.search(run.action_texts[position])))


@_flag
def dates(run: ParsedRun, position: int) -> bool:
    """The step acts on a date, a time or availability."""
    return not finishes(run, position) and bool(DATE.search(run.action_texts[position]))


@_flag
def extracts(run: ParsedRun, position: int) -> bool:
    """The step read facts from the page or a file, or gave an answer of several words."""
    for action in _actions(run, position):
        if action.name in ("extract_structured_data", "read_file"):
            return True
        if action.name == "done" and len(words(str(action.params.model_dump()["text"]))) > 1:
            return True
    return False


@_flag
def claims_success(run: ParsedRun, position: int) -> bool:
    """The step declares that the task is fulfilled."""
    return any(
        action.name == "done" and action.params.model_dump()["success"] is True
        for action in _actions(run, position)
    )


@_flag
def blocked(run: ParsedRun, position: int) -> bool:
    """The page of the step refuses the visitor."""
    observation = run.steps[position].step.observation
    # A title is decisive on pages of any length.
    short = len(observation.page_text) <= _REFUSAL_CHARS
    return refuses(observation.title) or (short and refuses(observation.page_text))


def refuses(text: str) -> bool:
    """Returns True if a text contains a phrase with which sites refuse bots."""
    text = text.casefold()
    return any(refusal in text for refusal in _REFUSALS)


@_flag
def login_wall(run: ParsedRun, position: int) -> bool:
    """The page of the step demands an account."""
    observation = run.steps[position].step.observation
    return len(observation.page_text) <= _REFUSAL_CHARS and bool(_LOGIN_WALL.search(observation.page_text))


@_flag
def sensitive(run: ParsedRun, position: int) -> bool:
    """The step acts on, or types, a secret or payment data."""
    named = run.action_texts[position]
    return not finishes(run, position) and bool(_SENSITIVE.search(named) or _CARD.search(named))


@_flag
def boundary(run: ParsedRun, position: int) -> bool:
    """The step acts on something about an account, money or personal data."""
    return not finishes(run, position) and bool(BOUNDARY.search(run.action_texts[position]))


# Enough for the runs of one task. A larger cache would keep their records in memory.
@functools.lru_cache(maxsize=32)
def step_flags(run: ParsedRun) -> dict[str, np.ndarray]:
    """Every flag at every step: name -> bool [num_steps]."""
    return {
        name: np.array([flag(run, position) for position in range(len(run))], bool)
        for name, flag in STEP_FLAGS.items()
    }
