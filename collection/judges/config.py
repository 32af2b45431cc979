"""Who judges, as a config, and how to make that judge."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from collection.judges.asking import ModelJudge
from collection.judges.base import Judge
from collection.judges.cross_check import CrossCheck
from collection.judges.notes import TaskNotes
from collection.judges.outcome import OutcomeJudge
from collection.judges.recorded import EnvironmentReward, Recorded
from collection.judges.rubric import RubricVerifier
from collection.judges.webjudge import WebJudge
from collection.llm.cached import Cached
from collection.llm.config import ActorConfig, make_model
from collection.llm.ledger import LEDGER
from rmsweb_jax.errors import UserError

# Its usual name in a run's workdir.
REPLIES = "judge_replies.sqlite"
RECORDED: dict[str, Callable[[], Judge]] = {"reward": EnvironmentReward, "recorded": Recorded}
METHODS: dict[str, type[ModelJudge]] = {
    judge.method: judge for judge in (OutcomeJudge, WebJudge, RubricVerifier)
}


@dataclasses.dataclass(frozen=True)
class JudgeConfig:
    """A judge that asks a model.

    Attributes:
      model: resolved.
      method: a key of `METHODS`.
      notes: what the judge may know of tasks, by id.
    """

    model: ActorConfig
    method: str = "outcome"
    notes: Mapping[str, TaskNotes] = dataclasses.field(default_factory=dict)


def judge_config(
    section: Mapping[str, Any], actor: ActorConfig, notes: Mapping[str, TaskNotes], name: str = "judge"
) -> JudgeConfig | None:
    """Reads a judge's section; the limits of the actor are the whole run's.

    Args:
      section: `kind` (none, actor, gemini or chat), `method`, `reference`, and as of an actor.
      actor: whose limits hold and whose model `kind=actor` takes; resolved.
      name: of the section, for errors.

    Returns:
      None where nobody is to judge.

    Raises:
      UserError: the judge cannot be what it is asked to be.
    """
    settings = {"method": "outcome", "reference": False} | dict(section)
    kind, method, reference = settings["kind"], settings.pop("method"), settings.pop("reference")
    if kind == "none":
        return None
    if method not in METHODS:
        raise UserError(f"config.{name}.method={method!r}: unknown; take one of {', '.join(METHODS)}")
    if method == RubricVerifier.method and not any(one.rubric for one in notes.values()):
        # Every run would be unjudged, when all is played and paid for.
        raise UserError(f"config.{name}.method=rubric: no task here comes with a rubric; take another method")
    known = (
        notes
        if reference
        else {task: one.model_copy(update={"reference": None}) for task, one in notes.items()}
    )
    return JudgeConfig(_model(kind, settings, actor, name), method, known)


def make_judge(config: JudgeConfig, workdir: Path) -> Judge:
    """The judge, whose calls are in the run's ledger and whose replies are kept in `REPLIES`.

    Raises:
      UserError: settings do not fit each other; or the files are of something else.
    """
    return METHODS[config.method](_cached(config.model, workdir), config.notes)


def make_judges(
    sections: Mapping[str, Mapping[str, Any]],
    actor: Mapping[str, Any],
    notes: Mapping[str, TaskNotes],
    workdir: Path,
) -> dict[str, Judge]:
    """Judges of recorded runs, by the names of their sections; those of kind none are left out.

    Args:
      sections: as for `judge_config`, or of kind `reward` or `recorded`.
      actor: its section; kind `none` where no judge needs it.

    Raises:
      UserError: a judge cannot be what it is asked to be, or there is none.
    """
    judges: dict[str, Judge] = {}
    for name, section in sections.items():
        if section["kind"] in RECORDED:
            judges[name] = RECORDED[section["kind"]]()
        elif config := judge_config(section, _actor(actor), notes, f"judges.{name}"):
            judges[name] = make_judge(config, workdir)
    if not judges:
        raise UserError("config.judges: every kind is none: set that of one to actor, chat or gemini")
    return judges


def make_cross_check(
    section: Mapping[str, Any], actor: Mapping[str, Any], workdir: Path
) -> CrossCheck | None:
    """What looks at failures again; None where its kind is none. Raises as `make_judges`."""
    config = judge_config(section, _actor(actor), {}, "cross_check")
    return CrossCheck(_cached(config.model, workdir)) if config else None


def _cached(model: ActorConfig, workdir: Path) -> Cached:
    return Cached(make_model(model, workdir / LEDGER), workdir / REPLIES)


def _actor(section: Mapping[str, Any]) -> ActorConfig:
    actor = ActorConfig(**section)
    return actor if actor.kind == "none" else actor.resolve()


def _model(kind: str, settings: Mapping[str, Any], actor: ActorConfig, name: str) -> ActorConfig:
    if kind == "actor":
        if actor.kind not in ("gemini", "chat"):
            raise UserError(
                f"config.{name}.kind=actor: the actor is {actor.kind}, which cannot judge; "
                "take gemini or chat"
            )
        return dataclasses.replace(actor, label="judge", temperature=0.0)
    if kind not in ("gemini", "chat"):
        raise UserError(f"config.{name}.kind={kind!r}: unknown; take none, actor, gemini or chat")
    if kind == "chat" and not settings["base_url"]:
        raise UserError(
            f"config.{name}.kind=chat: config.{name}.base_url is empty; give the endpoint's address"
        )
    limits = {key: getattr(actor, key) for key in ("requests_per_minute", "tokens_per_minute", "cap_usd")}
    return ActorConfig(**settings, **limits, label="judge", temperature=0.0).resolve()
