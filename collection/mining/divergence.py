"""The last critical divergence of a task: candidates, gates, and the choice among them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from collection.agent.prompt import GUIDANCE_TAG
from collection.mining.failure_modes import FailureLabel, rule_label
from collection.mining.runs import ParsedRun, RunPair
from collection.mining.state_score import StateAlignment
from collection.mining.step_flags import trivial
from collection.mining.step_scores import action_scores, category_scores, eligible
from collection.mining.weights import ActionWeights, CategoryWeights, StateWeights
from rmsweb_jax.actions import score_response
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


@dataclasses.dataclass(frozen=True)
class MiningConfig:
    """Weights of S_total and minimum scores of a candidate, all from RMSWeb (section 3.3, appendix).

    Attributes:
      state, action, category: how each score is made up.
      last_on_page: after steps without effect at the page of the best candidate, the last one that passes
        all gates is taken: until then nothing was lost. RMSWeb searches the last divergence, but gives no
        rule for equal states.
    """

    state_weight: float = 0.50
    action_weight: float = 0.25
    category_weight: float = 0.25
    min_state: float = 0.60
    min_category: float = 0.45
    min_total: float = 0.62
    last_on_page: bool = True
    state: StateWeights = StateWeights()
    action: ActionWeights = ActionWeights()
    category: CategoryWeights = CategoryWeights()


TERMS = {
    "paper": MiningConfig(category=CategoryWeights(general=0.0, reached=0.0, apart=0.0), last_on_page=False),
    "proven": MiningConfig(),
}


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
    def depth(self) -> int:
        """The number of gates that the candidate passed."""
        return len(GATES) if self.decision not in GATES else GATES.index(self.decision)

    @property
    def rank(self) -> tuple:
        """Sort key, larger is better: gates passed, failures before detours, score, later steps."""
        later = (self.success_at or 0, self.localization_at or 0)
        names = (self.pair.success.record.trajectory_id, self.pair.localization.record.trajectory_id)
        # Rounded as in `_best`. The ids make the choice independent of the order of the pairs.
        total = round(self.scores.get("total", 0.0), 9)
        return (self.depth, self.pair.kind == "primary", total, *later, -len(self.pair.success), *names)


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
    """Finds the last critical divergence of a single pair, with the rule label."""
    return find_divergences((pair,), (rule_label(pair.success, pair.localization),), config)[0]


def _find(
    pair: RunPair, label: FailureLabel, states: StateAlignment, config: MiningConfig, readable: Readable
) -> Divergence:
    success, localization = pair.success, pair.localization
    same = states.same_states(success, localization)
    parts = states.scores(success, localization, config.state)
    parts |= category_scores(success, localization, label, same, config.category)
    alive = eligible(success, localization)
    if not alive.any():
        return _best(pair, label, GATES[0], {}, None)
    # Comparing actions is slow: compare those of candidates that reach the last of these gates, or, if none
    # does, of those that reach the gate before, since the best of them is reported.
    near = alive & (parts["state"] >= config.min_state)
    evident = near & (parts["category"] >= config.min_category)
    compared = next((mask for mask in (evident, near, alive) if mask.any()), alive)
    parts["action"] = action_scores(success, localization, config.action, compared)
    parts["total"] = (
        config.state_weight * parts["state"]
        + config.action_weight * parts["action"]
        + config.category_weight * parts["category"]
    )
    if not near.any():
        return _best(pair, label, "state_score", parts, alive)
    if not evident.any():
        return _best(pair, label, "category_score", parts, near)
    return _apply_last_gates(pair, label, parts, evident, config, readable)


def _apply_last_gates(
    pair: RunPair,
    label: FailureLabel,
    parts: dict[str, np.ndarray],
    alive: np.ndarray,
    config: MiningConfig,
    readable: Readable,
) -> Divergence:
    """Returns the best candidate that passes the remaining gates, or the first gate that none passes."""
    success, localization = pair.success, pair.localization
    # Most gates parse prompts or pictures, which is slow: apply each to what the one before lets through.
    gates: dict[str, Callable[[], np.ndarray]] = {
        "total_score": lambda: parts["total"] >= config.min_total,
        "no_progress": lambda: _passing(success, alive.any(1), makes_progress)[:, None],
        "invalid_model_io": lambda: _passing(success, alive.any(1), valid_sample)[:, None],
        "no_screenshot": lambda: _seen(success, localization, alive, readable),
    }
    for name, gate in gates.items():
        passed = alive & gate()
        if not passed.any():
            return _best(pair, label, name, parts, alive)
        alive = passed
    best = _best_of(parts, alive)
    if config.last_on_page:
        best = (best[0], _last_on_page(localization, alive[best[0]], best[1]))
    return _chosen(pair, label, KEPT, parts, best)


def _last_on_page(run: ParsedRun, alive: np.ndarray, at: int) -> int:
    """The last step that is alive and before which, from step `at` on, nothing had an effect."""
    last = at
    for later in range(at + 1, len(run)):
        same = run.steps[later].step.observation.fingerprint == run.steps[at].step.observation.fingerprint
        if run.steps[later - 1].effective or not same:
            break
        last = later if alive[later] else last
    return last


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
    return step.complete and step.effective and not step.failed and not undone and not trivial(success, at)


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


def _best(
    pair: RunPair, label: FailureLabel, decision: str, parts: dict[str, np.ndarray], alive: np.ndarray | None
) -> Divergence:
    if alive is None:
        return Divergence(pair, label, decision, None, None, {})
    return _chosen(pair, label, decision, parts, _best_of(parts, alive))


def _best_of(parts: dict[str, np.ndarray], alive: np.ndarray) -> tuple[int, int]:
    """The candidate with the highest total."""
    # Rounded, so that the order of summation breaks no ties. Ties go to the later step.
    best = max(
        zip(*np.nonzero(alive), strict=True), key=lambda at: (round(float(parts["total"][at]), 9), *at)
    )
    return int(best[0]), int(best[1])


def _chosen(
    pair: RunPair, label: FailureLabel, decision: str, parts: dict[str, np.ndarray], best: tuple[int, int]
) -> Divergence:
    scores = {name: round(float(part[best]), 6) for name, part in parts.items()}
    return Divergence(pair, label, decision, *best, scores)
