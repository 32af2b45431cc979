"""Finds the last critical divergence of two runs (RMSWeb, section 3.3 and appendix).

`find_divergences` reads as the paper's paragraphs do: candidates, S_state, S_category, S_action, selection.
Weights within the scores are this project's, where the paper gives none.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from collection.agent.prompt import GUIDANCE_TAG
from collection.corpus.steps import StepView
from collection.mining.flags import flags_of
from collection.mining.runs import ParsedRun, RunPair
from collection.mining.states import StateAlignment
from collection.mining.taxonomy import (
    ANY_CLOSURE,
    ANY_VIOLATION,
    DETOUR_VIOLATION,
    TAXONOMY,
    FailureLabel,
    rule_label,
)
from rmsweb_jax.actions import explain_actions, score_response
from rmsweb_jax.records.schema import ReplayVerdict

# In order of application. A pair is reported under the first gate that no candidate passed.
GATES = (
    "no_eligible_pair",
    "state_score",
    "category_score",
    "total_score",
    "no_progress",
    "invalid_model_io",
    "no_screenshot",
    "replay",
)
KEPT = "kept"
# Whether the screenshot of a name can be read.
Readable = Callable[[str], bool]
# Scores of all pairs of steps: name -> float [num_success_steps, num_localization_steps] in [0, 1].
Scores = dict[str, np.ndarray]

# What lowers or raises S_category, and the choice among equal states. RMSWeb has only the first.
PAPER_TERMS = frozenset(("taken",))
TERMS = {"paper": PAPER_TERMS, "proven": PAPER_TERMS | {"reached", "apart", "general", "last_on_page"}}

# S_action: of the difference of the actions, of at least one operation, of two operations; the factor for two
# passive or repeated-search actions.
_CONTRAST, _OPERATION, _BOTH, _LOW_INFORMATION = 0.5, 0.3, 0.2, 0.5
# S_category: of evidence 0, 1 and 2 steps away (the radius is the paper's); of one side, which alone stays
# below the gate, and of both; subtracted where the other run contains the positive evidence, too.
_BY_DISTANCE = (1.0, 0.7, 0.5)
_ONE_SIDE, _BOTH_SIDES, _CONTAINED = 0.4, 0.1, 0.6
# The factor on S_category for a label of no confidence: the label is a soft prior.
_PRIOR_FLOOR = 0.5
# Certainty of what is likely but not proven.
_LIKELY = 0.5


@dataclasses.dataclass(frozen=True)
class MiningConfig:
    """Weights of S_total and minimum scores of a candidate, all from RMSWeb.

    Attributes:
      terms: of `TERMS`. `last_on_page`: after steps without effect at the page of the best candidate, the
        last one that passes all gates is taken: until then nothing was lost.
    """

    state_weight: float = 0.50
    action_weight: float = 0.25
    category_weight: float = 0.25
    min_state: float = 0.60
    min_category: float = 0.45
    min_total: float = 0.62
    terms: frozenset[str] = TERMS["proven"]


@dataclasses.dataclass(frozen=True)
class Divergence:
    """The best candidate of a pair of runs: a success step and a localization step.

    Attributes:
      decision: `kept`, or the gate that no candidate passed; the candidate is then the best of those that
        reached the gate.
      success_at, localization_at: positions in the two runs, from 0; None without any candidate.
      scores: S_total and all its parts for the candidate.
      replay: what playing the run again showed about the candidate.
    """

    pair: RunPair
    label: FailureLabel
    decision: str
    success_at: int | None
    localization_at: int | None
    scores: dict[str, float]
    replay: ReplayVerdict | None = None

    @property
    def rank(self) -> tuple:
        """Sort key, larger is better: gates passed, failures before detours, score, later steps."""
        depth = len(GATES) if self.decision not in GATES else GATES.index(self.decision)
        later = (self.success_at or 0, self.localization_at or 0)
        names = (self.pair.success.record.trajectory_id, self.pair.localization.record.trajectory_id)
        # Rounded as in `_best`. The ids make the choice independent of the order of the pairs.
        total = round(self.scores.get("total", 0.0), 9)
        return (depth, self.pair.kind == "primary", total, *later, -len(self.pair.success), *names)


def find_divergences(
    pairs: Sequence[RunPair],
    labels: Sequence[FailureLabel],
    config: MiningConfig,
    readable: Readable = lambda _: True,
) -> list[Divergence]:
    """Finds the last critical divergence of each pair.

    Args:
      pairs: of one task.
      labels: the failure mode of each pair.
      readable: whether the screenshot of a name can be read.
    """
    runs = dict.fromkeys(run for pair in pairs for run in (pair.success, pair.localization))
    # One alignment for all pairs of the task, because a run is in several pairs.
    states = StateAlignment(list(runs))
    return [_find(pair, label, states, config, readable) for pair, label in zip(pairs, labels, strict=True)]


def find_divergence(pair: RunPair, config: MiningConfig) -> Divergence:
    """Finds the last critical divergence of a single pair, with the label of the cues."""
    return find_divergences((pair,), (rule_label(pair.success, pair.localization),), config)[0]


def _find(
    pair: RunPair, label: FailureLabel, states: StateAlignment, config: MiningConfig, readable: Readable
) -> Divergence:
    success, localization = pair.success, pair.localization
    scores = states.scores(success, localization)
    scores |= category_scores(
        success, localization, label, states.same_states(success, localization), config.terms
    )
    alive = np.ones(scores["state"].shape, bool)
    # Most gates compare actions or parse prompts or pictures, which is slow: each sees only what is left.
    gates: dict[str, Callable[[], np.ndarray]] = {
        "no_eligible_pair": lambda: eligible(success, localization),
        "state_score": lambda: scores["state"] >= config.min_state,
        "category_score": lambda: scores["category"] >= config.min_category,
        "total_score": lambda: _totals(pair, scores, alive, config)["total"] >= config.min_total,
        "no_progress": lambda: _passing(success, alive.any(1), makes_progress)[:, None],
        "invalid_model_io": lambda: _passing(success, alive.any(1), valid_sample)[:, None],
        "no_screenshot": lambda: _seen(success, localization, alive, readable),
    }
    for name, gate in gates.items():
        passed = alive & gate()
        if not passed.any():
            if name == "no_eligible_pair":
                return Divergence(pair, label, name, None, None, {})
            return _chosen(pair, label, name, _totals(pair, scores, alive, config), alive)
        alive = passed
    return _chosen(pair, label, KEPT, scores, alive, "last_on_page" in config.terms)


def _totals(pair: RunPair, scores: Scores, where: np.ndarray, config: MiningConfig) -> Scores:
    """Adds S_action and S_total of some pairs of steps."""
    if "total" not in scores:
        scores["action"] = action_scores(pair.success, pair.localization, where)
        scores["total"] = (
            config.state_weight * scores["state"]
            + config.action_weight * scores["action"]
            + config.category_weight * scores["category"]
        )
    return scores


def _chosen(
    pair: RunPair,
    label: FailureLabel,
    decision: str,
    scores: Scores,
    alive: np.ndarray,
    last_on_page: bool = False,
) -> Divergence:
    """The candidate with the highest total."""
    # Rounded, so that the order of summation breaks no ties. Ties go to the later step.
    i, j = max(
        ((int(i), int(j)) for i, j in zip(*np.nonzero(alive), strict=True)),
        key=lambda at: (round(float(scores["total"][at]), 9), *at),
    )
    if last_on_page:
        j = _last_on_page(pair.localization, alive[i], j)
    found = {name: round(float(score[i, j]), 6) for name, score in scores.items()}
    return Divergence(pair, label, decision, i, j, found)


def _last_on_page(run: ParsedRun, alive: np.ndarray, at: int) -> int:
    """The last step that is alive and before which, from step `at` on, nothing had an effect."""
    last = at
    for later in range(at + 1, len(run)):
        same = run.steps[later].step.observation.fingerprint == run.steps[at].step.observation.fingerprint
        if run.steps[later - 1].effective or not same:
            break
        last = later if alive[later] else last
    return last


# --- Candidates and gates ---


def eligible(success: ParsedRun, localization: ParsedRun) -> np.ndarray:
    """Pairs of steps that may be a divergence.

    Left out are terminal steps (see `ParsedRun.candidates`), equal actions, and pairs whose actions together
    are only searches or only waiting, scrolling and going back.

    Returns:
      bool [num_success_steps, num_localization_steps].
    """
    allowed = np.zeros((len(success), len(localization)), bool)
    allowed[np.ix_(success.candidates, localization.candidates)] = True
    ours, theirs = flags_of(success), flags_of(localization)
    for name in ("searches", "trivial"):
        # An unusable reply adds no action to the pair's.
        first, second = ours[name] | ours["invalid"], theirs[name] | theirs["invalid"]
        allowed &= ~(first[:, None] & second[None, :])
    # Element indices distinguish actions on one page. Between pages only the elements' texts do.
    same = _equal(success.acts, localization.acts)
    same_target = _equal(success.targets, localization.targets)
    same_page = _equal(
        *([step.step.observation.fingerprint for step in run.steps] for run in (success, localization))
    )
    return allowed & ~(same & (same_target | ~same_page))


def _equal(ours: Iterable[object], theirs: Iterable[object]) -> np.ndarray:
    """Marks equal members of two lists: bool [len(ours), len(theirs)]."""
    numbers: dict[object, int] = {}
    first = np.array([numbers.setdefault(one, len(numbers)) for one in ours], int)
    second = np.array([numbers.setdefault(one, len(numbers)) for one in theirs], int)
    return first[:, None] == second[None, :]


def _passing(run: ParsedRun, steps: npt.ArrayLike, gate: Callable[[ParsedRun, int], bool]) -> np.ndarray:
    """Marks those of the given steps that pass a gate: bool [num_steps] -> bool [num_steps]."""
    passes = np.zeros(len(run), bool)
    for at in np.flatnonzero(steps):
        passes[at] = gate(run, int(at))
    return passes


def makes_progress(success: ParsedRun, at: int) -> bool:
    """Returns True if a step had an effect that the next step did not undo, and was not trivial."""
    step = success.steps[at]
    # An act that the next step goes back from has not brought the task closer.
    undone = at + 1 < len(success) and set(success.steps[at + 1].action_names) == {"go_back"}
    worked = step.complete and step.effective and not step.failed
    return worked and not undone and not flags_of(success)["trivial"][at]


# Cached, because a success is in several pairs.
@functools.lru_cache(maxsize=64)
def valid_sample(success: ParsedRun, at: int) -> bool:
    """Returns True if a step can be trained on.

    Its prompt must end with a user message; prompt and reply must not contain or quote reflection guidance;
    the reply, with itself as the target, must get the full reward.
    """
    step = success.steps[at]
    messages = step.step.messages
    if not step.complete or not messages or messages[-1].role != "user":
        return False
    # The policy never gets guidance when it acts, so no RL prompt may contain it.
    if success.quoting[at] or any(f"<{GUIDANCE_TAG}>" in message.text for message in messages):
        return False
    # No sampled reply could get the full reward against such a target.
    return score_response(step.target, step.target) == 1.0


def _seen(success: ParsedRun, localization: ParsedRun, alive: np.ndarray, readable: Readable) -> np.ndarray:
    """Pairs of steps with a screenshot on one side at least, and no broken one in the prompt: bool [n, m]."""

    def shown(run: ParsedRun, at: int) -> bool:
        shot = run.steps[at].step.observation.screenshot
        return shot is not None and readable(shot)

    def broken(run: ParsedRun, at: int) -> bool:
        return run.steps[at].step.observation.screenshot is not None and not shown(run, at)

    ours, theirs = alive.any(1), alive.any(0)
    seen = _passing(success, ours, shown)[:, None] | _passing(localization, theirs, shown)[None, :]
    return seen & ~_passing(success, ours, broken)[:, None]


# --- S_action ---


def action_scores(success: ParsedRun, localization: ParsedRun, where: np.ndarray | None = None) -> np.ndarray:
    """S_action: how different the actions of two steps are, and how much they matter.

    Args:
      where: bool [num_success_steps, num_localization_steps], the pairs to compare; None for all.

    Returns:
      float [num_success_steps, num_localization_steps] in [0, 1]; 0 for pairs that were not compared.
    """
    if where is None:
        where = np.ones((len(success), len(localization)), bool)
    contrast = np.zeros(where.shape)
    for i, j in zip(*np.nonzero(where), strict=True):
        contrast[i, j] = _contrast(success.steps[i], localization.steps[j])
    ours, theirs = _operations(success)[:, None], _operations(localization)[None, :]
    # A `done` of the other run does not count as a second operation.
    both = ours & theirs & ~flags_of(localization)["finishes"][None, :]
    scores = _CONTRAST * contrast + _OPERATION * (ours | theirs) + _BOTH * both
    return np.where(where, np.where(ours | theirs, scores, _LOW_INFORMATION * scores), 0.0)


def _contrast(ours: StepView, theirs: StepView) -> float:
    """One minus the RL reward of the localization's actions with the success's actions as the target."""
    # An unusable reply has no action in common with any other.
    if ours.reply is None or theirs.reply is None:
        return 1.0
    return 1.0 - explain_actions(theirs.reply.executable, ours.reply.executable).score


def _operations(run: ParsedRun) -> np.ndarray:
    """Steps that click, type, select, navigate, extract or finish: bool [num_steps]."""
    flags = flags_of(run)
    return ~(flags["passive"] | flags["searches"] | flags["notes"] | flags["invalid"])


# --- S_category ---


def category_scores(
    success: ParsedRun,
    localization: ParsedRun,
    label: FailureLabel,
    same_states: np.ndarray,
    terms: frozenset[str] = TERMS["proven"],
) -> Scores:
    """S_category: evidence for the labelled failure in the steps around a pair.

    The evidence is the label's closure around the success step and its violation around the localization
    step. It counts less where the localization contains the positive evidence, too.

    Args:
      same_states: `StateAlignment.same_states` of the two runs.

    Returns:
      `category` and its parts `closure`, `violation`, and of `terms` those that lower it.
    """
    mode, general = TAXONOMY[label.category], "general" in terms
    ours, theirs = flags_of(success), flags_of(localization)
    theirs = theirs | _relative_flags(success, localization, same_states)
    closure = _window(_any(ours, mode.closure + ANY_CLOSURE * general))[:, None]
    detour = localization.record.success
    violating = DETOUR_VIOLATION if detour else mode.violation + ANY_VIOLATION * general
    violation = _window(_any(theirs, violating))[None, :]
    local = _ONE_SIDE * (closure + violation) + _BOTH_SIDES * np.minimum(closure, violation)
    lowering = {"taken": _taken, "reached": _reached, "apart": _apart}
    found = {
        name: term(success, localization, same_states) for name, term in lowering.items() if name in terms
    }
    contained = np.max([np.zeros(local.shape), *found.values()], axis=0)
    # Squared, so that a likely match takes off only a quarter of what a certain one does.
    local = np.clip(local - _CONTAINED * contained**2, 0.0, 1.0)
    return {
        "category": local * (_PRIOR_FLOOR + (1 - _PRIOR_FLOOR) * label.confidence),
        "closure": np.broadcast_to(closure, local.shape),
        "violation": np.broadcast_to(violation, local.shape),
        **found,
    }


def _any(flags: dict[str, np.ndarray], names: Sequence[str]) -> np.ndarray:
    """Steps with at least one of some flags: bool [num_steps]."""
    return np.logical_or.reduce([flags[name] for name in names])


def _window(flags: np.ndarray) -> np.ndarray:
    """The strongest evidence around each step, weighed by distance: bool [n] -> float [n]."""
    evidence = np.zeros(len(flags))
    for at in np.flatnonzero(flags):
        for distance, weight in enumerate(_BY_DISTANCE):
            near = [place for place in (at - distance, at + distance) if 0 <= place < len(flags)]
            evidence[near] = np.maximum(evidence[near], weight)
    return evidence


def _relative_flags(
    success: ParsedRun, localization: ParsedRun, same_states: np.ndarray
) -> dict[str, np.ndarray]:
    """Flags of the localization's steps that depend on the success: name -> bool [m].

    `absent_in_success`: an act that the success never did. `skips_ahead`: does at once what the success did
    only after further acts.
    """
    absent = np.array([bool(step - success.all_acts) for step in localization.acts], bool)
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
    return {"absent_in_success": absent & flags_of(localization)["acts"], "skips_ahead": skips}


def _taken(success: ParsedRun, localization: ParsedRun, same_states: np.ndarray) -> np.ndarray:
    """The certainty that the localization took the success's step, at any step of a failed run: float [n, m].

    A step that sets controls to the values that they keep is taken if they have these values at the end of
    the other run, in any order and number of its steps. Any other step is taken by the same acts
    on the same page, with an effect, in one step or in several. That is certain at the same state. It is
    unlikely at a state that the success was in at another time: to submit a form before it is filled in is
    another decision. In a longer success a step is open until it is taken, so there only the steps so far
    count.
    """
    effective = flags_of(localization)["acts"]
    certainty = np.where((same_states == 1).any(0), same_states == 1, _LIKELY)
    taken = np.zeros(certainty.shape)
    for i, (page, acts) in enumerate(zip(success.pages, success.acts, strict=True)):
        sure = dict.fromkeys(acts, 0.0)
        for j in range(len(localization)):
            if effective[j] and localization.pages[j] == page:
                for act in acts & localization.acts[j]:
                    sure[act] = max(sure[act], float(certainty[i, j]))
            taken[i, j] = min(sure.values(), default=0.0)
    if localization.record.success:
        return taken
    for i, given in enumerate(success.assigned):
        lasts = given.items() <= success.final_values.items()
        if given and lasts and len(given) == len(success.acts[i]):
            taken[i] = given.items() <= localization.final_values.items()
    return np.broadcast_to(taken[:, -1:], taken.shape)


def _reached(success: ParsedRun, localization: ParsedRun, same_states: np.ndarray) -> np.ndarray:
    """1 where the localization later came to the page to which the success step only led: float [n, m].

    Any other way to that page makes up for the step.
    """
    after = np.zeros(same_states.shape)
    after[:-1] = same_states[1:] > 0
    after *= flags_of(success)["opens"][:, None] * (not localization.record.success)
    later = np.zeros(after.shape)
    later[:, :-1] = np.maximum.accumulate(after[:, :0:-1], axis=1)[:, ::-1]
    return later


def _apart(success: ParsedRun, localization: ParsedRun, same_states: np.ndarray) -> np.ndarray:
    """1 for pairs of steps at different states of the site, which are no alternatives: float [n, m].

    Steps with as many acts before them are at one state. 0 for localization steps that are at no state of the
    success; S_state judges those.
    """
    done, known = _acts_before(success), same_states > 0
    here = (known.T @ (done[:, None] == done[None, :])).T
    return (~here & known.any(0)).astype(float)


def _acts_before(run: ParsedRun) -> np.ndarray:
    """The number of acts before each step: int [num_steps]."""
    acts = flags_of(run)["acts"]
    return np.cumsum(acts) - acts
