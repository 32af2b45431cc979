"""Yes-or-no flags of single steps, from which S_category takes its evidence.

RMSWeb names the kinds of evidence (action types, terminal behaviour, blocker signatures), but no pattern. The
patterns are this project's, in English only.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable

import numpy as np

from collection.mining.runs import ParsedRun, element_of, words
from rmsweb_jax.actions import Action

Flags = dict[str, np.ndarray]

# RMSWeb, section 3.3: pairs whose actions are all of the first two kinds are no candidates.
TRIVIAL = frozenset(("wait", "scroll", "go_back"))
SEARCH = frozenset(("search_engine",))
# Actions on the agent's own files.
NOTES = frozenset(("write_file", "replace_file_str"))

_SUBMIT = re.compile(
    r"\b(submit|ok|search|log ?in|sign ?in|send|go|save|apply|continue|next|confirm|book|order|buy|finish"
    r"|close|add|reserve|pay|place|publish|register|subscribe|checkout|complete|report|done)\b",
    re.IGNORECASE,
)
# A page that refuses the visitor.
BLOCKED = re.compile(
    r"captcha|403|access denied|not a robot|unusual traffic|blocked|verify you|cloudflare|just a moment"
    r"|too many requests|temporarily unavailable",
    re.IGNORECASE,
)
DATE = re.compile(
    r"\b(\d{4}-\d\d?-\d\d?|\d{1,2}:\d\d|january|february|march|april|june|july|august|september|october"
    r"|november|december|(?:mon|tues|wednes|thurs|fri|satur|sun)day|tomorrow|weekend|date|check-?in|available"
    r"|in stock)\b",
    re.IGNORECASE,
)
FILTER = re.compile(r"\b(filter|sort|cheapest|lowest|highest|newest|top[- ]rated|only show)\b", re.IGNORECASE)
# Accounts, money and personal data: where an agent must decide if it may go on without its user.
LOGIN = re.compile(r"\b(sign ?in|log ?in|account|password|payment|card|deposit|guest)\b", re.IGNORECASE)
# A longer page (in characters) only mentions such words. Chosen by hand.
_REFUSAL_CHARS = 4_000


def actions_of(run: ParsedRun, at: int) -> tuple[Action, ...]:
    """The actions of a step that were executed; none for an unusable reply."""
    reply = run.steps[at].reply
    return reply.executable if reply else ()


def _only(names: frozenset[str]) -> Callable[[ParsedRun, int], bool]:
    def flag(run: ParsedRun, at: int) -> bool:
        return bool(actions_of(run, at)) and all(action.name in names for action in actions_of(run, at))

    return flag


def _one_of(*names: str) -> Callable[[ParsedRun, int], bool]:
    return lambda run, at: any(action.name in names for action in actions_of(run, at))


def _mentions(pattern: re.Pattern[str]) -> Callable[[ParsedRun, int], bool]:
    """What the step acts on or types matches a pattern."""
    return lambda run, at: not run.steps[at].is_done and bool(pattern.search(run.action_texts[at]))


def _passive(run: ParsedRun, at: int) -> bool:
    actions = actions_of(run, at)
    return bool(actions) and all(action.params.passive for action in actions)


def _acts(run: ParsedRun, at: int) -> bool:
    """The step changed something, other than the agent's own files."""
    step = run.steps[at]
    idle = _passive(run, at) or step.is_done or _only(NOTES)(run, at)
    return not idle and step.effective and not step.failed


def _no_effect(run: ParsedRun, at: int) -> bool:
    """The step tried to change something, met no error and changed nothing."""
    step = run.steps[at]
    return not _passive(run, at) and not step.is_done and not step.failed and not step.effective


def _repeats(run: ParsedRun, at: int) -> bool:
    """The step has the same actions on the same page as the one before."""
    now, before = run.steps[at], run.steps[at - 1]
    same_page = now.step.observation.fingerprint == before.step.observation.fingerprint
    return at > 0 and same_page and now.composition == before.composition


def _submits(run: ParsedRun, at: int) -> bool:
    """The step presses a button that sends or confirms, or the Enter key."""
    for action in actions_of(run, at):
        element = element_of(run.steps[at], action)
        if action.name == "click_element_by_index" and element and _SUBMIT.search(element.text):
            return True
        if action.name == "send_keys" and "enter" in str(action.params.model_dump()["keys"]).casefold():
            return True
    return False


def _on_target(run: ParsedRun, at: int) -> bool:
    """The step acts on or types words of the task alone."""
    named = words(run.action_texts[at])
    return not run.steps[at].is_done and bool(named) and named <= run.task_words


def _off_target(run: ParsedRun, at: int) -> bool:
    """The step acts on or types other words; the label of a submit button is rarely one of the task."""
    named = words(run.action_texts[at])
    return not run.steps[at].is_done and not _submits(run, at) and not named <= run.task_words


def _opens(run: ParsedRun, at: int) -> bool:
    """The step led to a page of another host or path."""
    left = at + 1 < len(run) and run.pages[at] != run.pages[at + 1]
    return left and not run.steps[at].is_done and not _only(TRIVIAL)(run, at)


def _blocked(run: ParsedRun, at: int) -> bool:
    page = run.steps[at].step.observation
    # A title is decisive on pages of any length.
    return bool(BLOCKED.search(page.title)) or (
        len(page.page_text) <= _REFUSAL_CHARS and bool(BLOCKED.search(page.page_text))
    )


def _login_wall(run: ParsedRun, at: int) -> bool:
    """The page of the step asks for a password."""
    elements = run.steps[at].step.observation.elements
    return any(item.tag == "input" and item.attributes.get("type") == "password" for item in elements)


FLAGS: dict[str, Callable[[ParsedRun, int], bool]] = {
    "invalid": lambda run, at: run.steps[at].reply is None,
    "fails": lambda run, at: run.steps[at].failed,
    "trivial": _only(TRIVIAL),
    "searches": _only(SEARCH),
    "notes": _only(NOTES),
    "passive": _passive,
    "acts": _acts,
    "no_effect": _no_effect,
    "repeats": _repeats,
    "finishes": lambda run, at: run.steps[at].is_done,
    "navigates": _one_of("go_to_url", "switch_tab"),
    "extracts": _one_of("extract_structured_data", "read_file", "done"),
    "submits": _submits,
    "opens": _opens,
    "on_target": _on_target,
    "off_target": _off_target,
    "blocked": _blocked,
    "login_wall": _login_wall,
    "filters": _mentions(FILTER),
    "dates": _mentions(DATE),
    "boundary": _mentions(LOGIN),
}

# Of runs that are in use: a run's flags go with it.
_known: weakref.WeakKeyDictionary[ParsedRun, Flags] = weakref.WeakKeyDictionary()


def flags_of(run: ParsedRun) -> Flags:
    """Every flag at every step: name -> bool [num_steps]."""
    if run not in _known:
        _known[run] = {
            name: np.array([flag(run, at) for at in range(len(run))], bool) for name, flag in FLAGS.items()
        }
    return _known[run]
