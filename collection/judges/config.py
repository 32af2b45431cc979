"""Settings of judges, and the judges made from them."""

from __future__ import annotations

from typing import Annotated, Literal

from collection.llm.config import ModelConfig, ModelEndpoint
from rmsweb_jax.settings import Settings, part_name, required, safe

_METHODS = (
    *("own_outcome", "own_rubric"),
    *("webvoyager", "browser_use", "webjudge", "agenttrek", "universal_verifier"),
)


class JudgeSettings(ModelEndpoint):
    """The section of a judge.

    Attributes:
      kind: its model: `actor` is the actor's; with `none` there is no judge, except for one of your own.
      method: a judge of ours: `own_outcome` (last page, last screenshots) or `own_rubric` (points for each
        line of a task's rubric, and a verdict). Or an official judge: `webvoyager` (WebVoyager's auto_eval),
        `browser_use` (browser-use's for WebVoyager), `webjudge` (Online-Mind2Web's), `agenttrek`, or
        `universal_verifier` (WebTailBench's). Or one of your own, `module:name` (docs/own.md).
      official: the user's checkout of the repository that has the official judge's code.
      official_python: Python interpreter with the packages that this code imports; empty: this one.
      reference: show the benchmark's reference answer to a judge of ours.
      screenshots: show screenshots; False for a model that takes text alone, and a judge of ours.
    """

    kind: Literal["none", "actor", "gemini", "chat"] = "none"
    method: Annotated[str, part_name(*_METHODS)] = "own_outcome"
    # The method pins what is in the folder, so a resumed run may find it elsewhere.
    official: str = safe("")
    official_python: str = safe("")
    reference: bool = False
    screenshots: bool = True

    @property
    def is_own(self) -> bool:
        """True if the judge is a class of the user's."""
        return ":" in self.method

    @property
    def is_off(self) -> bool:
        return self.kind == "none" and not self.is_own


class OfficialSettings(Settings):
    """Checkouts of the repositories that have the official judges' code (docs/evaluate.md).

    Attributes:
      webvoyager, browser_use, webjudge, agenttrek, universal_verifier: folder of the judge of that
        name.
      python: Python interpreter with the packages that this code imports; empty: this one.
    """

    # The methods pin what is in the folders, so a resumed run may find them elsewhere.
    webvoyager: str = safe("")
    browser_use: str = safe("")
    webjudge: str = safe("")
    agenttrek: str = safe("")
    universal_verifier: str = safe("")
    python: str = safe("")


class JudgeDataSettings(Settings):
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
      workers: concurrent judgements.
      actor: model of the judges, and limits for all of them.
      judges: `reward` (the environment's) and `recorded` verdicts, and others by method, also of your own.
      show_references: show the benchmark's reference answers to judges of ours.
      show_screenshots: show judges screenshots; False for a model that takes text alone, and judges of ours.
      cross_check: name of the judge whose failures the actor's model examines again; empty: none.
    """

    data: str = required("--config.data=DIR with the runs to judge")
    notes: str = ""
    labels: str = ""
    labels_agent: str = ""
    rows: Literal["policy", "site", "kind"] = "policy"
    reference: str = ""
    workers: int = safe(8, ge=1)
    actor: ModelConfig = ModelConfig(kind="none", max_tokens=4096)
    judges: tuple[Annotated[str, part_name("reward", "recorded", *_METHODS)], ...] = ("reward", "recorded")
    show_references: bool = False
    show_screenshots: bool = True
    official: OfficialSettings = OfficialSettings()
    cross_check: str = ""
