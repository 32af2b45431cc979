"""S_action and S_category of pairs of steps, and which pairs may be a divergence (RMSWeb, section 3.3)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from collection.corpus.steps import StepView
from collection.mining.failure_modes import TAXONOMY, FailureLabel
from collection.mining.runs import ParsedRun
from collection.mining.state_score import equal_pages
from collection.mining.step_flags import step_flags
from collection.mining.weights import ActionWeights, CategoryWeights
from rmsweb_jax.actions import explain_actions

# Certainty of what is likely but not proven.
_LIKELY = 0.5
# Evidence for any label: an act, and what a run does instead. The label is only a soft prior.
_GENERAL_CLOSURE = ("acts",)
_GENERAL_VIOLATION = ("absent_in_success", "skips_ahead", "fails", "no_effect", "finishes")
# Violations of a longer success, whose detour has these flags for any label.
_DETOUR_VIOLATION = ("absent_in_success", "fails", "no_effect")


def action_scores(
    success: ParsedRun,
    localization: ParsedRun,
    weights: ActionWeights,
    where: np.ndarray | None = None,
) -> np.ndarray:
    """S_action: how different the actions of two steps are, and how much they matter.

    Args:
      where: bool [num_success_steps, num_localization_steps], the pairs to score, since comparing actions is
        slow; None for all. The score is 0 elsewhere.

    Returns:
      float [num_success_steps, num_localization_steps] in [0, 1].
    """
    if where is None:
        where = np.ones((len(success), len(localization)), bool)
    contrast = np.zeros(where.shape)
    for i, j in zip(*np.nonzero(where), strict=True):
        contrast[i, j] = _contrast(success.steps[i], localization.steps[j])
    ours, theirs = _operations(success)[:, None], _operations(localization)[None, :]
    low = ~(ours | theirs)
    # A `done` of the other run does not count as a second operation.
    both = ours & theirs & ~step_flags(localization)["finishes"][None, :]
    scores = weights.contrast * contrast + weights.operation * (ours | theirs) + weights.both * both
    return np.where(where, np.where(low, weights.low_information * scores, scores), 0.0)


def _contrast(ours: StepView, theirs: StepView) -> float:
    """One minus the RL reward of the localization's actions with the success's actions as the target."""
    # An unusable reply has no action in common with any other.
    if ours.reply is None or theirs.reply is None:
        return 1.0
    return 1.0 - explain_actions(theirs.reply.executable, ours.reply.executable).score


def _operations(run: ParsedRun) -> np.ndarray:
    """Steps that click, type, select, navigate, extract or finish: bool [num_steps]."""
    flags = step_flags(run)
    return ~(flags["passive"] | flags["searches"] | flags["notes"] | flags["invalid"])


def eligible(success: ParsedRun, localization: ParsedRun) -> np.ndarray:
    """Pairs of steps that may be a divergence.

    Left out are terminal steps (see `ParsedRun.candidates`), equal actions, and pairs whose actions together
    are only searches or only waiting, scrolling and going back.

    Returns:
      bool [num_success_steps, num_localization_steps].
    """
    allowed = np.zeros((len(success), len(localization)), bool)
    allowed[np.ix_(success.candidates, localization.candidates)] = True
    ours, theirs = step_flags(success), step_flags(localization)
    for name in ("searches", "trivial"):
        # An unusable reply adds no action to the pair's.
        first, second = ours[name] | ours["invalid"], theirs[name] | theirs["invalid"]
        allowed &= ~(first[:, None] & second[None, :])
    # Element indices distinguish actions on one page. Between pages only the elements' texts do.
    same = _equal(success.acts, localization.acts)
    same_target = _equal(success.targets, localization.targets)
    return allowed & ~(same & (same_target | ~equal_pages(success, localization)))


def _equal(ours: Iterable[object], theirs: Iterable[object]) -> np.ndarray:
    """Marks equal members of two lists: bool [len(ours), len(theirs)]."""
    numbers: dict[object, int] = {}
    first = np.array([numbers.setdefault(one, len(numbers)) for one in ours], int)
    second = np.array([numbers.setdefault(one, len(numbers)) for one in theirs], int)
    return first[:, None] == second[None, :]


def category_scores(
    success: ParsedRun,
    localization: ParsedRun,
    label: FailureLabel,
    same_states: np.ndarray,
    weights: CategoryWeights,
) -> dict[str, np.ndarray]:
    """S_category: evidence for the labelled failure in the steps around a pair.

    The evidence is the label's closure around the success step and its violation around the localization
    step. It counts less where the localization contains the positive evidence, too.

    Args:
      same_states: `StateAlignment.same_states` of the two runs.

    Returns:
      `category` and its parts `closure`, `violation`, `taken`, `reached`, `apart`:
      float [num_success_steps, num_localization_steps] in [0, 1].
    """
    ours, theirs = step_flags(success), step_flags(localization)
    held = _hold_states(same_states, theirs["acts"], localization.pages)
    mode = TAXONOMY[label.category]
    theirs = theirs | _relative_flags(success, localization, held)
    detour = localization.record.success
    closure = _evidence(ours, mode.closure, _GENERAL_CLOSURE, weights)[:, None]
    violating = (_DETOUR_VIOLATION, ()) if detour else (mode.violation, _GENERAL_VIOLATION)
    violation = _evidence(theirs, *violating, weights)[None, :]
    local = weights.one_side * (closure + violation) + weights.both_sides * np.minimum(closure, violation)
    taken = _taken(success, localization, same_states)
    reached = _reached(success, localization, same_states)
    apart = ~_at_same_state(success, held)
    contained = np.max([weights.taken * taken, weights.reached * reached, weights.apart * apart], axis=0)
    # Squared, so that a likely match takes off only a quarter of what a certain one does.
    local = np.clip(local - weights.contained * contained**2, 0.0, 1.0)
    return {
        "category": local * (weights.prior_floor + (1 - weights.prior_floor) * label.confidence),
        "closure": np.broadcast_to(closure, local.shape),
        "violation": np.broadcast_to(violation, local.shape),
        "taken": taken,
        "reached": reached,
        "apart": apart.astype(float),
    }


def _evidence(
    flags: dict[str, np.ndarray], own: Iterable[str], general: Iterable[str], weights: CategoryWeights
) -> np.ndarray:
    """Evidence of a category's own flags, and less of those that any failure has: float [num_steps]."""
    found = window(_any(flags, own), weights.by_distance)
    return np.maximum(found, weights.general * window(_any(flags, general), weights.by_distance))


def window(flags: np.ndarray, by_distance: Sequence[float]) -> np.ndarray:
    """The strongest evidence around each step, weighed by distance: bool [n] -> float [n]."""
    evidence = np.zeros(len(flags))
    for distance, weight in enumerate(by_distance):
        for offset in {-distance, distance}:
            for position in range(max(0, -offset), min(len(flags), len(flags) - offset)):
                if flags[position + offset]:
                    evidence[position] = max(evidence[position], weight)
    return evidence


def _any(flags: dict[str, np.ndarray], names: Iterable[str]) -> np.ndarray:
    """Steps with at least one of some flags: bool [num_steps]."""
    nothing = np.zeros(len(flags["acts"]), bool)
    return np.logical_or.reduce([nothing, *(flags[name] for name in names)])


def _relative_flags(
    success: ParsedRun, localization: ParsedRun, same_states: np.ndarray
) -> dict[str, np.ndarray]:
    """Flags of the localization's steps that depend on the success: name -> bool [m].

    `absent_in_success`: an act that the success never did. `skips_ahead`: does at once what the success did
    only after further acts. `aborted`: the last step of a run that crashed or timed out, all that is left of
    its cause.
    """
    absent = np.array([bool(step - success.all_acts) for step in localization.acts], bool)
    aborted = np.zeros(len(localization), bool)
    aborted[-1:] = localization.record.outcome in ("crashed", "timeout")
    done = _acts_before(success)
    skips = np.zeros(len(localization), bool)
    for j, acts in enumerate(localization.acts):
        here = same_states[:, j] > 0
        took = [
            done[i]
            for i, other in enumerate(success.acts)
            if other <= acts and success.pages[i] == localization.pages[j]
        ]
        # The earliest place of these acts in the success is behind every state that the run can be at.
        skips[j] = bool(took) and here.any() and min(took) > done[here].max()
    return {
        "absent_in_success": absent & step_flags(localization)["acts"],
        "skips_ahead": skips,
        "aborted": aborted,
    }


def _taken(success: ParsedRun, localization: ParsedRun, same_states: np.ndarray) -> np.ndarray:
    """The certainty that the localization took the success's step, at any step of a failed run: float [n, m].

    A step is taken by the same acts on the same page, with an effect, in one step or in several. That is
    certain at the same state, or where the two runs did the same all in all. It is unlikely at a state that
    the success was in at another time: to submit a form before it is filled in is another decision. In a
    longer success a step is open until it is taken, so there only the steps so far count.
    """
    effective = step_flags(localization)["acts"]
    certainty = np.where((same_states == 1).any(0), same_states == 1, _LIKELY)
    if _effects(success) == _effects(localization):
        certainty = np.ones(certainty.shape)
    taken = np.zeros(certainty.shape)
    for i, (page, acts) in enumerate(zip(success.pages, success.acts, strict=True)):
        sure = dict.fromkeys(acts, 0.0)
        for j in range(len(localization)):
            if effective[j] and localization.pages[j] == page:
                for act in acts & localization.acts[j]:
                    sure[act] = max(sure[act], float(certainty[i, j]))
            taken[i, j] = min(sure.values(), default=0.0)
    return taken if localization.record.success else np.broadcast_to(taken[:, -1:], taken.shape)


def _effects(run: ParsedRun) -> Counter[tuple[str, str]]:
    """What a run did in all, and how often."""
    where = np.flatnonzero(step_flags(run)["acts"])
    return Counter((run.pages[at], act) for at in where for act in run.acts[at])


def _reached(success: ParsedRun, localization: ParsedRun, same_states: np.ndarray) -> np.ndarray:
    """The certainty that the localization later came to where the success step led: float [n, m].

    A step that only leads to another page is made up for by any other way to it. A step in place probably is
    where the page looks exactly alike later; a page that does not show what the step did is no evidence.
    """
    flags = step_flags(success)
    opens = flags["opens"] & ~flags["decides"]
    texts = [step.step.observation.page_text for step in success.steps]
    shows = np.array([*(one != other for one, other in itertools.pairwise(texts)), False], bool)
    known = np.where(
        opens[:, None], _next(same_states > 0), _LIKELY * _next(same_states == 1) * shows[:, None]
    )
    later = np.zeros(known.shape)
    later[:, :-1] = np.maximum.accumulate(known[:, :0:-1], axis=1)[:, ::-1]
    return later * (not localization.record.success)


def _next(table: np.ndarray) -> np.ndarray:
    """The rows of the steps after each: [n, m] -> [n, m]."""
    moved = np.zeros(table.shape)
    moved[:-1] = table[1:]
    return moved


def _hold_states(same_states: np.ndarray, acts: np.ndarray, pages: Sequence[str]) -> np.ndarray:
    """Keeps the state of a localization step until the next act: a scroll leads to no new state."""
    held = same_states.copy()
    for j in range(1, len(pages)):
        if not acts[j - 1] and pages[j] == pages[j - 1] and held[:, j - 1].any():
            held[:, j] = held[:, j - 1]
    return held


def _acts_before(run: ParsedRun) -> np.ndarray:
    """The number of acts before each step: int [num_steps]. Steps of equal number are at one state."""
    acts = step_flags(run)["acts"]
    return np.cumsum(acts) - acts


def _at_same_state(success: ParsedRun, same_states: np.ndarray) -> np.ndarray:
    """Marks pairs of steps at the same state, with as many acts before: bool [n, m].

    True for localization steps that are at no state of the success; S_state judges those.
    """
    done = _acts_before(success)
    here = (same_states > 0).T @ (done[:, None] == done[None, :])
    return here.T | ~(same_states > 0).any(0)
