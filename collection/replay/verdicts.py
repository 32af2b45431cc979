"""Reads what `experiments.verify_mined` found, for the miner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.schema import ReplayVerdict
from rmsweb_jax.storage import AnyPath

VERDICTS = "verdicts"
# A run's id and the number of a step of it.
Place = tuple[str, int]
# Verdicts by the step of the failed run.
Verdicts = Mapping[Place, Sequence[ReplayVerdict]]


def read_verdicts(folder: AnyPath) -> Verdicts:
    """Reads the verdicts in a workdir of `experiments.verify_mined`.

    Raises:
      UserError: there are none.
    """
    found: dict[Place, list[ReplayVerdict]] = {}
    for verdict in read_dataset(folder / VERDICTS, ReplayVerdict):
        found.setdefault((verdict.localization_id, verdict.localization_step), []).append(verdict)
    return found


def verdict_on(verdicts: Verdicts, success: Place, failed: Place) -> ReplayVerdict | None:
    """Returns what is known about a decision.

    That is the verdict on just this decision; or one on another success, if there the failed run's own action
    led to success: then it was no mistake, whatever it is compared with.
    """
    found = verdicts.get(failed, ())
    own = (one for one in found if (one.success_id, one.success_step) == success)
    return next(own, None) or next((one for one in found if _harmless(one)), None)


def _harmless(verdict: ReplayVerdict) -> bool:
    rate = verdict.with_failure
    return rate is not None and 2 * rate.successes > rate.trials
