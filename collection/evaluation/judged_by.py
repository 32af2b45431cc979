"""Descriptions of judges, and whether two evaluations had the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction

from collection.judges.base import WITHOUT_A_CALL, WITHOUT_RESULT, fate
from rmsweb_jax.records.schema import JudgeFingerprint, Trajectory

UNKNOWN = "a judge that was not recorded"
# Versions of judges, and the number of verdicts that each gave.
Judges = Sequence[tuple[JudgeFingerprint, int]]
_FIELDS = ("method", "source", "model", "model_version", "prompt_sha256", "temperature", "evidence")


def gave_verdict(trajectory: Trajectory) -> bool:
    """Returns True if a run has a result that its judge was asked for."""
    return fate(trajectory) not in WITHOUT_RESULT and trajectory.judge_text not in WITHOUT_A_CALL


def count_verdicts(judged: Iterable[tuple[JudgeFingerprint | None, bool]]) -> Judges:
    """Counts the verdicts of each version of each judge, sorted by method and id.

    Args:
      judged: the judge of each run, if that is known, and whether it was asked and gave a verdict. A judge
        that was asked nothing does not know its model's version: it is in the result, with 0 verdicts, only
        if no version of it gave any.
    """
    judges: dict[str, JudgeFingerprint] = {}
    counts: Counter[str] = Counter()
    for judge, gave in judged:
        if judge is not None:
            judges[judge.id] = judge
            counts[judge.id] += gave
    asked = {_of_any_version(judge).id for name, judge in judges.items() if counts[name]}
    return tuple(
        (judge, counts[name])
        for name, judge in sorted(judges.items(), key=lambda item: (item[1].method, item[0]))
        if counts[name] or _of_any_version(judge).id not in asked
    )


def judge_line(judge: JudgeFingerprint) -> str:
    """Describes a judge in one line: method, model, temperature, source, prompts and id."""
    parts = [judge.method]
    if model := judge.model_version or judge.model:
        parts.append(f"model {model}")
    if judge.temperature is not None:
        parts.append(f"temperature {judge.temperature:g}")
    if judge.source:
        parts.append(f"from {judge.source}")
    if judge.prompt_sha256:
        parts.append(f"prompts {judge.prompt_sha256[:12]}")
    return f"{', '.join(parts)} (id {judge.id})"


def judges_differ(first: Judges, second: Judges) -> str:
    """Returns what differs between the judges of two evaluations; "" if they are the same.

    They are the same if each judge's versions gave the same shares of its verdicts. An unknown version may be
    any, so it differs from all, and from another unknown one. Judges that were not recorded differ likewise.
    """
    if not first or not second:
        return "no judge is recorded" + ("" if not first and not second else " for one of them")
    mine, theirs = _shares(first), _shares(second)
    if mine.keys() == theirs.keys() and all(_same(mine[judge], theirs[judge]) for judge in mine):
        return ""
    if len(first) == len(second) == 1:
        one, other = first[0][0], second[0][0]
        fields = [name for name in _FIELDS if getattr(one, name) != getattr(other, name)]
        differ = "; ".join(f"{name} {_value(one, name)} and {_value(other, name)}" for name in fields)
        return differ or f"the version of {one.model} is not known"
    return " and ".join(
        ", ".join(f"{one.method} {one.id}: {count} verdicts" for one, count in judges)
        for judges in (first, second)
    )


def _of_any_version(judge: JudgeFingerprint) -> JudgeFingerprint:
    return judge.model_copy(update={"model_version": ""})


def _shares(judges: Judges) -> dict[str, dict[str, Fraction]]:
    """Returns the share of each version in the verdicts of each judge; a judge that gave none has none.

    The version of a judge without a model is "-".
    """
    found: dict[str, Counter[str]] = {}
    for judge, count in judges:
        counts = found.setdefault(_of_any_version(judge).id, Counter())
        counts[judge.model_version or ("" if judge.model else "-")] += count
    return {
        name: {version: Fraction(count, counts.total()) for version, count in counts.items() if count}
        for name, counts in found.items()
    }


def _same(one: dict[str, Fraction], other: dict[str, Fraction]) -> bool:
    # Where no verdict was given, nothing can differ.
    return not one or not other or (one == other and "" not in one)


def _value(judge: JudgeFingerprint, field: str) -> str:
    value = getattr(judge, field)
    if field == "evidence":
        return f"[{', '.join(f'{name} {one}' for name, one in sorted(value.items()))}]"
    return str(value)[:12] if field == "prompt_sha256" and value else str(value) if value != "" else "none"
