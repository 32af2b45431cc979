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

_SUBMIT = re.compile(
    r"\b(submit|ok|search|log ?in|sign ?in|send|go|save|apply|continue|next|confirm|book|order|buy"
    r"|finish|close)\b",
    re.IGNORECASE,
)
_FILTER = re.compile(r"\b(filter|sort|refine|category|price range|only|facet|per page)\b", re.IGNORECASE)
_DATE = re.compile(
    r"\b(\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|january|february|march|april|june|july|august|september|october|november"
    r"|december|(mon|tues|wednes|thurs|fri|satur|sun)day|tomorrow|tonight|check-?(in|out)|availab\w+)\b",
    re.IGNORECASE,
)
_BLOCKED = re.compile(
    r"captcha|are you (a )?(human|robot)|verify you are human|access denied|unusual traffic|cloudflare"
    r"|too many requests|service unavailable",
    re.IGNORECASE,
)
_SENSITIVE = re.compile(
    r"\b(password|passcode|card number|cvv|cvc|payment|billing|iban|social security)\b", re.IGNORECASE
)

Signal = Callable[[Branch, int], bool]


def _actions(branch: Branch, position: int) -> tuple[Action, ...]:
    reply = branch.steps[position].reply
    return reply.executable if reply else ()


def invalid(branch: Branch, position: int) -> bool:
    """The reply could not be used."""
    return branch.steps[position].reply is None


def fails(branch: Branch, position: int) -> bool:
    """Nothing the step tried worked."""
    return branch.steps[position].failed


def trivial(branch: Branch, position: int) -> bool:
    """Nothing but waiting, scrolling or going back."""
    actions = _actions(branch, position)
    return bool(actions) and all(action.name in TRIVIAL for action in actions)


def passive(branch: Branch, position: int) -> bool:
    """Nothing that could change the page's state."""
    actions = _actions(branch, position)
    return bool(actions) and all(action.params.passive for action in actions)


def searches(branch: Branch, position: int) -> bool:
    """Nothing but queries to a search engine."""
    actions = _actions(branch, position)
    return bool(actions) and all(action.name in SEARCH for action in actions)


def finishes(branch: Branch, position: int) -> bool:
    return branch.steps[position].is_done


def acts(branch: Branch, position: int) -> bool:
    """Did something to the page, with effect."""
    step = branch.steps[position]
    active = not passive(branch, position) and not finishes(branch, position)
    return active and step.effective and not step.failed


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
    return any(action.name in ("go_to_url", "switch_tab") for action in _actions(branch, position))


def filters(branch: Branch, position: int) -> bool:
    """Used a dropdown, or something that filters or sorts."""
    chosen = any(action.name == "select_dropdown_option" for action in _actions(branch, position))
    return chosen or bool(_FILTER.search(branch.named[position]))


def dates(branch: Branch, position: int) -> bool:
    """Acted on a date, a time or availability."""
    return bool(_DATE.search(branch.named[position]))


def extracts(branch: Branch, position: int) -> bool:
    """Read facts off the page, or gave an answer in words."""
    for action in _actions(branch, position):
        if action.name in ("extract_structured_data", "read_file", "write_file"):
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
    return bool(_BLOCKED.search(f"{observation.title} {observation.page_text}"))


def sensitive(branch: Branch, position: int) -> bool:
    """Acted on a secret or a payment."""
    return bool(_SENSITIVE.search(branch.named[position]))


SIGNALS: dict[str, Signal] = {
    function.__name__: function
    for function in (
        invalid,
        fails,
        trivial,
        passive,
        searches,
        finishes,
        acts,
        no_effect,
        repeats,
        on_target,
        off_target,
        submits,
        navigates,
        filters,
        dates,
        extracts,
        claims_success,
        blocked,
        sensitive,
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
    return bool(_DATE.search(" ".join((task.objective, *task.constraints))))
