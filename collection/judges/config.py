"""Settings of judges, and the judges made from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from collection.judges.asking import ModelJudge
from collection.judges.base import EnvironmentReward, Judge, Recorded
from collection.judges.cross_check import CrossCheck
from collection.judges.notes import TaskNotes
from collection.judges.official.checkouts import OFFICIAL, check_checkout
from collection.judges.official.judge import OfficialJudge, check_code
from collection.judges.outcome import OwnOutcomeJudge
from collection.judges.rubric import OwnRubricJudge
from collection.judges.webjudge import OwnWebJudge
from collection.llm.cached import CachedModel
from collection.llm.config import ModelConfig, ModelEndpoint, make_model
from collection.llm.ledger import LEDGER
from collection.llm.ledger_server import LedgerAddress
from rmsweb_jax.errors import UserError
from rmsweb_jax.settings import required, safe
from rmsweb_jax.storage import local_path

# Default file name in a workdir.
REPLIES = "judge_replies.sqlite"
RECORDED: dict[str, Callable[[], Judge]] = {"reward": EnvironmentReward, "recorded": Recorded}
METHODS: dict[str, type[ModelJudge]] = {
    judge.method: judge for judge in (OwnOutcomeJudge, OwnWebJudge, OwnRubricJudge)
}


Method = Literal[
    "own_outcome",
    "own_webjudge",
    "own_rubric",
    "webvoyager",
    "browser_use",
    "webjudge",
    "agenttrek",
    "universal_verifier",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class JudgeSettings(ModelEndpoint):
    """The section of a judge that asks a model.

    Attributes:
      kind: `actor` asks the actor's model, `none` leaves the judge out.
      method: a judge of ours: `own_outcome` (last page, last screenshots), `own_webjudge` (key points,
        relevant screenshots) or `own_rubric` (points for each line of a task's rubric, and a verdict).
        Or an official judge: `webvoyager` (WebVoyager's auto_eval), `browser_use` (browser-use's for
        WebVoyager), `webjudge` (Online-Mind2Web's), `agenttrek`, or `universal_verifier` (WebTailBench's).
      official: the user's checkout of the repository that has the official judge's code.
      official_python: Python interpreter with the packages that this code imports; empty: this one.
      reference: show the benchmark's reference answer to a judge of ours.
    """

    kind: Literal["none", "actor", "gemini", "chat"] = "none"
    method: Method = "own_outcome"
    # The method pins what is in the folder, so a resumed run may find it elsewhere.
    official: str = safe("")
    official_python: str = safe("")
    reference: bool = False


@dataclasses.dataclass(frozen=True)
class RecordedSettings:
    """The section of a recorded verdict: the environment's reward, or the data set's verdict."""

    kind: Literal["none", "reward", "recorded"]


@dataclasses.dataclass(frozen=True)
class JudgesSettings:
    """The judges of recorded runs, by name.

    Attributes:
      outcome, webjudge, rubric: our own.
      webvoyager, browser_use, official_webjudge, agenttrek, universal_verifier: official ones, each with its
        checkout in `official`.
      second: another model or method, to compare with the others.
    """

    reward: RecordedSettings = RecordedSettings("reward")
    recorded: RecordedSettings = RecordedSettings("recorded")
    outcome: JudgeSettings = JudgeSettings()
    webjudge: JudgeSettings = JudgeSettings(method="own_webjudge")
    rubric: JudgeSettings = JudgeSettings(method="own_rubric")
    webvoyager: JudgeSettings = JudgeSettings(method="webvoyager")
    browser_use: JudgeSettings = JudgeSettings(method="browser_use")
    official_webjudge: JudgeSettings = JudgeSettings(method="webjudge")
    agenttrek: JudgeSettings = JudgeSettings(method="agenttrek")
    universal_verifier: JudgeSettings = JudgeSettings(method="universal_verifier")
    second: JudgeSettings = JudgeSettings()


@dataclasses.dataclass(frozen=True, kw_only=True)
class CrossCheckSettings(ModelEndpoint):
    """The section of the model that re-examines failures.

    Attributes:
      kind: as for a judge.
      of: name of the judge whose failures are re-examined.
    """

    kind: Literal["none", "actor", "gemini", "chat"] = "none"
    of: str = "outcome"


@dataclasses.dataclass(frozen=True, kw_only=True)
class JudgeDataSettings:
    """Settings of `experiments.judge`.

    Attributes:
      data: trajectory data sets from collect, evaluate or import_runs, separated by commas.
      rows: what a row of the sheet is: `policy` (each policy and data set), `site` or `kind` of the tasks.
      notes: a benchmark's notes for judges: JSONL with task_id and optional reference and rubric.
      labels: human verdicts: JSONL with trajectory_id and success, or a file of Online-Mind2Web or
        CUAVerifierBench (`collection.judges.labels`).
      labels_agent: agent of Online-Mind2Web's labels whose runs these are; empty for the runs' actor.
      reference: the judge that the others are compared with ("labels" for human labels); empty uses the
        labels if there are any.
      seed: seed of the bootstrap.
      workers: concurrent judgements.
      actor: model of the judges of kind actor, and limits for all of them.
    """

    data: str = required("--config.data=DIR with the runs to judge")
    notes: str = ""
    labels: str = ""
    labels_agent: str = ""
    rows: Literal["policy", "site", "kind"] = "policy"
    reference: str = ""
    seed: int = 0
    workers: int = safe(8)
    actor: ModelConfig = ModelConfig(kind="none", max_tokens=4096)
    judges: JudgesSettings = JudgesSettings()
    cross_check: CrossCheckSettings = CrossCheckSettings()


@dataclasses.dataclass(frozen=True)
class JudgeConfig:
    """A judge that asks a model.

    Attributes:
      model: resolved.
      method: a key of `METHODS` or `OFFICIAL`.
      notes: benchmark notes by task id.
      checkout, python: of an official judge.
    """

    model: ModelConfig
    method: str = "own_outcome"
    notes: Mapping[str, TaskNotes] = dataclasses.field(default_factory=dict)
    checkout: Path = Path()
    python: str = ""


def judge_config(
    settings: JudgeSettings, actor: ModelConfig, notes: Mapping[str, TaskNotes], name: str = "judge"
) -> JudgeConfig | None:
    """Resolves the judge of a section; the actor's limits apply to the whole run.

    Args:
      actor: resolved; gives the limits, and the model for `kind=actor`.
      name: name of the section, for errors.

    Returns:
      None if the section disables the judge.

    Raises:
      UserError: the settings contradict each other or do not fit the tasks.
    """
    if settings.kind == "none":
        return None
    if settings.method == "own_rubric" and not any(one.rubric for one in notes.values()):
        # Otherwise every run would end unjudged, after all episodes were played and paid for.
        raise UserError(
            f"config.{name}.method=own_rubric: no task here comes with a rubric; take another method"
        )
    known = (
        notes
        if settings.reference
        else {task: one.model_copy(update={"reference": None}) for task, one in notes.items()}
    )
    model = _model(settings, actor, name)
    checkout = _checkout(settings, model, name)
    return JudgeConfig(model, settings.method, known, checkout, settings.official_python)


def make_judge(
    config: JudgeConfig, workdir: Path, ledger: LedgerAddress | None = None, keep_rejected: bool = True
) -> Judge:
    """Makes a judge whose calls go through the run's ledger and whose replies are cached in `REPLIES`.

    Args:
      ledger: None if it is the workdir's file.
      keep_rejected: cache replies that hold no verdict, too.

    Raises:
      UserError: the settings contradict each other, or a file has another format.
    """
    model = _cached(config.model, workdir, ledger, keep_rejected)
    temperature = config.model.temperature
    if config.method in OFFICIAL:
        return OfficialJudge(config.method, config.checkout, model, config.notes, temperature, config.python)
    return METHODS[config.method](model, config.notes, temperature)


def make_judges(
    settings: JudgesSettings, actor: ModelConfig, notes: Mapping[str, TaskNotes], workdir: Path
) -> dict[str, Judge]:
    """Makes the judges of recorded runs, by section name; skips sections of kind none.

    Args:
      actor: resolved; of kind `none` if no judge needs it.

    Raises:
      UserError: the settings contradict each other, or there is no judge.
    """
    judges: dict[str, Judge] = {}
    for field in dataclasses.fields(settings):
        section = getattr(settings, field.name)
        if isinstance(section, JudgeSettings):
            if config := judge_config(section, actor, notes, f"judges.{field.name}"):
                judges[field.name] = make_judge(config, workdir)
        elif section.kind != "none":
            judges[field.name] = RECORDED[section.kind]()
    if not judges:
        raise UserError("config.judges: every kind is none: set that of one to actor, chat or gemini")
    return judges


def make_cross_check(settings: CrossCheckSettings, actor: ModelConfig, workdir: Path) -> CrossCheck | None:
    """Makes the cross-check of failures; None if its kind is none. Raises as `make_judges`."""
    if settings.kind == "none":
        return None
    return CrossCheck(_cached(_model(settings, actor, "cross_check"), workdir))


def _cached(
    model: ModelConfig, workdir: Path, ledger: LedgerAddress | None = None, keep_rejected: bool = True
) -> CachedModel:
    return CachedModel(make_model(model, ledger or workdir / LEDGER), workdir / REPLIES, keep_rejected)


def _checkout(settings: JudgeSettings, model: ModelConfig, name: str) -> Path:
    """Returns the folder of an official judge, checked and its code tried; `Path()` for a judge of ours."""
    official = OFFICIAL.get(settings.method)
    if official is None:
        if settings.official or settings.official_python:
            raise UserError(
                f"config.{name}.official: {settings.method} is a judge of this project; set "
                f"config.{name}.method to one of {', '.join(OFFICIAL)}"
            )
        return Path()
    if not settings.official:
        address, commit = official.repository.address, official.repository.commit
        raise UserError(
            f"config.{name}.official is empty: {settings.method} runs from its own repository; clone "
            f"https://{address}, check out {commit}, and give the folder"
        )
    if model.kind != "chat":
        raise UserError(
            f"config.{name}: {settings.method} sends chat-completions requests, and its model is of kind "
            f"{model.kind}: give one of kind chat (Gemini has such an address, too)"
        )
    folder = local_path(settings.official, f"config.{name}.official")
    check_checkout(folder, official.repository, f"config.{name}.official")
    check_code(settings.method, folder, settings.official_python)
    return folder


def _model(settings: ModelEndpoint, actor: ModelConfig, name: str) -> ModelConfig:
    if settings.kind == "actor":
        if actor.kind not in ("gemini", "chat"):
            raise UserError(
                f"config.{name}.kind=actor: the actor is {actor.kind}, which cannot judge; "
                "take gemini or chat"
            )
        return dataclasses.replace(actor, temperature=0.0)
    endpoint = {field.name: getattr(settings, field.name) for field in dataclasses.fields(ModelEndpoint)}
    shared = ("requests_per_minute", "tokens_per_minute", "cap_usd", "outage_hours")
    limits = {key: getattr(actor, key) for key in shared}
    return ModelConfig(**endpoint, **limits, temperature=0.0).resolve(f"config.{name}")
