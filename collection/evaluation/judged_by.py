"""Descriptions of judges, and whether two evaluations had the same."""

from __future__ import annotations

from collections.abc import Sequence

from rmsweb_jax.records.schema import JudgeFingerprint

UNKNOWN = "a judge that was not recorded"
Judges = Sequence[JudgeFingerprint]
_FIELDS = ("method", "source", "model", "model_version", "prompt_sha256", "temperature", "evidence")


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

    Judges that were not recorded may be any, so they differ from all, and from each other.
    """
    if not first or not second:
        return "no judge is recorded" + ("" if not first and not second else " for one of them")
    if _all_in(first, second) and _all_in(second, first):
        return ""
    if len(first) == len(second) == 1:
        one, other = first[0], second[0]
        fields = [name for name in _FIELDS if getattr(one, name) != getattr(other, name)]
        # An unknown version equals any.
        if "" in (one.model_version, other.model_version) and len(fields) > 1:
            fields = [name for name in fields if name != "model_version"]
        return "; ".join(f"{name} {_value(one, name)} and {_value(other, name)}" for name in fields)
    return " and ".join("+".join(f"{one.method} {one.id}" for one in judges) for judges in (first, second))


def _all_in(some: Judges, others: Judges) -> bool:
    return all(any(one.same_judge(other) for other in others) for one in some)


def _value(judge: JudgeFingerprint, field: str) -> str:
    value = getattr(judge, field)
    if field == "evidence":
        return f"[{', '.join(f'{name} {one}' for name, one in sorted(value.items()))}]"
    return str(value)[:12] if field == "prompt_sha256" and value else str(value) if value != "" else "none"
