"""Judges, made from their settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from collection.judges.base import EnvironmentReward, Judge, Recorded, Verdict
from collection.judges.config import JudgeDataSettings, JudgeSettings
from collection.judges.cross_check import CrossCheck
from collection.judges.model_judge import OwnJudge
from collection.judges.notes import TaskNotes
from collection.judges.official.checkouts import OFFICIAL, check_checkout
from collection.llm.build import make_model
from collection.llm.calls import Calls
from collection.llm.config import ModelConfig, ModelEndpoint
from collection.llm.model import ImageSource
from rmsweb_jax import own
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import JudgeFingerprint, Trajectory
from rmsweb_jax.storage import local_path


@dataclasses.dataclass(frozen=True)
class JudgeConfig:
    """A judge.

    Attributes:
      model: resolved; None for a judge that asks none.
      method: a key of `PROMPTS` or `OFFICIAL`, or `module:name` of one of the user's.
      notes: benchmark notes by task id.
      checkout, python: of an official judge.
      screenshots: whether it sees them.
    """

    model: ModelConfig | None
    method: str = "own_outcome"
    notes: Mapping[str, TaskNotes] = dataclasses.field(default_factory=dict)
    checkout: Path = Path()
    python: str = ""
    screenshots: bool = True


def judge_config(
    settings: JudgeSettings,
    actor: ModelConfig,
    notes: Mapping[str, TaskNotes],
    name: str = "judge",
    folder: str = "judge.official",
) -> JudgeConfig | None:
    """Resolves the judge of a section; the actor's limits apply to the whole run.

    Args:
      actor: resolved; gives the limits, and the model for `kind=actor`.
      name, folder: names of the section and of the key with an official judge's checkout, for errors.

    Returns:
      None if the section disables the judge.

    Raises:
      UserError: the settings contradict each other or do not fit the tasks.
    """
    if settings.is_off:
        return None
    if settings.method == "own_rubric" and not any(one.rubric for one in notes.values()):
        # Otherwise every run would end unjudged, after all episodes were played and paid for.
        raise UserError(
            f"config.{name}.method=own_rubric: no task here comes with a rubric; take another method"
        )
    if settings.reference and settings.method in OFFICIAL:
        raise UserError(
            f"config.{name}.reference: the code of {settings.method} takes no reference answers; set it to "
            "False, or take a judge of this project"
        )
    if not settings.screenshots and settings.method in OFFICIAL:
        raise UserError(
            f"config.{name}: {settings.method} judges by screenshots; show them, or take a judge of this "
            "project"
        )
    known = (
        notes
        if settings.reference
        else {task: one.model_copy(update={"reference": None}) for task, one in notes.items()}
    )
    if settings.is_own:
        asks = own.takes(own.find(f"{name}.method", settings.method), "model")
        if asks and settings.kind == "none":
            raise UserError(
                f"config.{name}.kind is 'none', but {settings.method} takes a model: set actor or chat"
            )
        asked = judge_model(settings, actor, name) if asks else None
        return JudgeConfig(asked, settings.method, known, screenshots=settings.screenshots)
    model = judge_model(settings, actor, name)
    checkout = _checkout(settings, model, name, folder)
    return JudgeConfig(
        model, settings.method, known, checkout, settings.official_python, settings.screenshots
    )


def make_judge(config: JudgeConfig, calls: Calls, keep_rejected: bool = True) -> Judge:
    """Makes a judge whose calls and replies are kept in those of the run.

    Args:
      keep_rejected: keep replies that hold no verdict, too; else they are asked for again by the next run.

    Raises:
      UserError: the settings contradict each other.
    """
    model = config.model and make_model(config.model, calls)
    if ":" in config.method:
        made = own.make("judge.method", config.method, Judge, model=model, notes=config.notes)
        return UserJudge(config.method, made)
    assert config.model and model
    temperature = config.model.temperature
    if config.method in OFFICIAL:
        # Here and below: a web server's packages take half a second to load.
        from collection.judges.official.judge import OfficialJudge

        return OfficialJudge(config.method, config.checkout, model, config.notes, temperature, config.python)
    return OwnJudge(config.method, model, config.notes, temperature, keep_rejected, config.screenshots)


class UserJudge:
    """A judge of the user's, `module:name`: its verdicts say which file they are from."""

    def __init__(self, method: str, judge: Judge):
        self.name, self._judge = judge.name, judge
        source = f"sha256:{own.file_digest('judge.method', method)}"
        self._fingerprint = JudgeFingerprint(method=method, source=source)

    def judge(self, trajectory: Trajectory, images: ImageSource) -> Verdict:
        verdict = self._judge.judge(trajectory, images)
        if not isinstance(verdict, Verdict):
            raise UserError(f"{self._fingerprint.method}: it gave a {type(verdict).__name__}, not a Verdict")
        return dataclasses.replace(verdict, fingerprint=verdict.fingerprint or self._fingerprint)


def make_judges(
    settings: JudgeDataSettings, actor: ModelConfig, notes: Mapping[str, TaskNotes], calls: Calls
) -> dict[str, Judge]:
    """Makes the judges of recorded runs, by name.

    Args:
      actor: resolved; of kind `none` if no judge needs it.
      calls: of the run.

    Raises:
      UserError: the settings contradict each other, or there is no judge.
    """
    judges: dict[str, Judge] = {}
    for name in settings.judges:
        if name in ("reward", "recorded"):
            judges[name] = EnvironmentReward() if name == "reward" else Recorded()
            continue
        folder = getattr(settings.official, name, "")
        ours = name not in OFFICIAL
        section = JudgeSettings(
            kind="actor",
            method=name,
            official=folder,
            official_python="" if ours else settings.official.python,
            reference=settings.show_references and ours,
            screenshots=settings.show_screenshots,
        )
        config = judge_config(section, actor, notes, "judges", f"official.{name}")
        assert config is not None
        judges[name] = make_judge(config, calls)
    if not judges:
        raise UserError("config.judges is empty: name one")
    return judges


def make_cross_check(actor: ModelConfig, calls: Calls, screenshots: bool) -> CrossCheck:
    """Makes the cross-check of failures. Raises as `make_judges`."""
    model = make_model(judge_model(JudgeSettings(kind="actor"), actor, "cross_check"), calls)
    return CrossCheck(model, screenshots)


def _checkout(settings: JudgeSettings, model: ModelConfig, name: str, key: str) -> Path:
    """Returns the folder of an official judge, checked and its code tried; `Path()` for a judge of ours."""
    official = OFFICIAL.get(settings.method)
    if official is None:
        if settings.official or settings.official_python:
            raise UserError(
                f"config.{key}: {settings.method} is a judge of this project; set "
                f"config.{name}.method to one of {', '.join(OFFICIAL)}"
            )
        return Path()
    if not settings.official:
        address, commit = official.repository.address, official.repository.commit
        raise UserError(
            f"config.{key} is empty: {settings.method} runs from its own repository; clone "
            f"https://{address}, check out {commit}, and give the folder"
        )
    if model.kind != "chat":
        raise UserError(
            f"config.{name}: {settings.method} sends chat-completions requests, and its model is of kind "
            f"{model.kind}: give one of kind chat (Gemini has such an address, too)"
        )
    folder = local_path(settings.official, f"config.{key}")
    check_checkout(folder, official.repository, f"config.{key}")
    from collection.judges.official.judge import check_code

    check_code(settings.method, folder, settings.official_python)
    return folder


def judge_model(settings: ModelEndpoint, actor: ModelConfig, name: str) -> ModelConfig:
    """Resolves the model of a judge's section, with the actor's limits. Raises as `judge_config`."""
    if settings.kind == "actor":
        if actor.kind not in ("gemini", "chat"):
            raise UserError(
                f"config.{name}.kind=actor: the actor is {actor.kind}, which cannot judge; "
                "take gemini or chat"
            )
        return actor.model_copy(update={"temperature": 0.0})
    endpoint = {name: getattr(settings, name) for name in ModelEndpoint.model_fields}
    shared = ("requests_per_minute", "tokens_per_minute", "cap_usd", "outage_hours")
    limits = {key: getattr(actor, key) for key in shared}
    return ModelConfig(**endpoint, **limits, temperature=0.0).resolve(f"config.{name}")
