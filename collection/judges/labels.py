"""People's verdicts on recorded runs, from JSON lines, a JSON array or Parquet, by the columns of a form.

- Ours: `trajectory_id` and `success`.
- Online-Mind2Web's `human_label.json`: `task_id` and, for each agent, `AGENT_human_label`, which is "0"
  (failure), "1" (success) or "2" (not executable). Fields read in the file itself
  (`data/evaluation_results/online_mind2web_evaluation_results` of OSU-NLP-Group/Online-Mind2Web, its first 45
  entries) and in that repository's HUMAN_EVALUATIONS.md.
- CUAVerifierBench (microsoft/CUAVerifierBench on the hub). Config `annotations`: `task_id` and
  `human_judgement_outcome` ("Correct", "Incorrect" or other words), a row a reviewer; the strict majority
  counts. Config `trajectories`: `task_id` and `final_human_outcome_label` (1, 0 or null). Fields read in the
  data set's card; its rows were not at hand.

The last two name tasks, not runs: a label is that of the only run of its task.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collection.judges.judgements import RunFacts
from rmsweb_jax.errors import UserError

_SUFFIX = "_human_label"
_VOTE, _FINAL = "human_judgement_outcome", "final_human_outcome_label"
_WHAT = "labels (trajectory_id and success, one a line)"


@dataclasses.dataclass(frozen=True)
class _Form:
    """The columns of a file of labels.

    Attributes:
      source: what the labels are.
      key, value: columns with the name of a run or task, and with its label.
      verdicts: values, as JSON writes them, and what they mean; None says neither success nor failure.
      votes: a name may have several rows, whose strict majority counts; other values are undecided.
    """

    source: str
    key: str
    value: str
    verdicts: Mapping[str, bool | None]
    votes: bool = False


_OURS = _Form("labels", "trajectory_id", "success", {"true": True, "false": False})
_OF_CUA = "CUAVerifierBench's"
_REVIEWERS = _Form(
    f"{_OF_CUA} reviewers, by majority", "task_id", _VOTE, {'"correct"': True, '"incorrect"': False}, True
)
_FINALS = _Form(f"{_OF_CUA} final label", "task_id", _FINAL, {"1": True, "0": False, "null": None})


def _of_agent(agent: str) -> _Form:
    verdicts = {"0": False, "1": True, "2": None}
    quoted = {f'"{value}"': verdict for value, verdict in verdicts.items()}
    return _Form(
        f"Online-Mind2Web's human labels of {agent}", "task_id", f"{agent}{_SUFFIX}", verdicts | quoted
    )


@dataclasses.dataclass(frozen=True)
class Labels:
    """People's verdicts by trajectory id.

    Attributes:
      undecided: labels of the runs that say neither success nor failure (not executable, a tie).
      others: labels of other runs or tasks.
    """

    verdicts: Mapping[str, bool]
    source: str
    undecided: int
    others: int

    def __str__(self) -> str:
        return (
            f"{self.source}: {len(self.verdicts)} runs labelled, {self.undecided} left undecided, "
            f"{self.others} labels are of other runs or tasks"
        )


def read_labels(path: Path, runs: Sequence[RunFacts], agent: str = "") -> Labels:
    """Reads the labels of `runs`.

    Args:
      agent: agent of Online-Mind2Web's file whose labels are read; empty for the runs' actor.

    Raises:
      UserError: the file is unreadable or of no known form, an entry is not as it has to be, a run has two
        labels, a task has several runs of which the label could be, or no label is of a run.
    """
    rows = _rows(path)
    form, runs = _form(path, rows[0], runs, agent)
    said = _read(path, rows, form)
    found: dict[str, bool | None] = {}
    used: dict[str, str] = {}
    for run in runs:
        # A run's task id is the label's, or ends in it behind a slash.
        names = (run.trajectory_id,) if form is _OURS else (run.task_id, run.task_id.rpartition("/")[2])
        name = next((one for one in names if one in said), None)
        if name is None:
            continue
        if name in used:
            raise UserError(
                f"{path}: {name} has a label for one run, and config.data has {used[name]} and "
                f"{run.trajectory_id}: give the data of the labelled runs alone"
            )
        used[name], found[run.trajectory_id] = run.trajectory_id, said[name]
    if not found:
        raise UserError(f"{path}: no label is of a run in config.data: give the labels of these runs")
    verdicts = {run: verdict for run, verdict in found.items() if verdict is not None}
    return Labels(verdicts, form.source, len(found) - len(verdicts), len(said) - len(found))


def _rows(path: Path) -> list[dict[str, Any]]:
    rows: list[Any]
    number = 0
    try:
        if path.suffix == ".parquet":
            rows = _parquet(path)
        else:
            text = path.read_bytes().decode("utf-8-sig")
            rows = json.loads(text) if text.lstrip().startswith("[") else []
            for line in [] if rows else text.splitlines():
                number += 1
                rows += [json.loads(line)] if line.strip() else []
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}: give a file of {_WHAT}") from error
    except ValueError as error:
        where = f"line {number}: " if number else ""
        raise UserError(f"{path}: {where}not JSON ({error}): give a file of {_WHAT}") from error
    if not rows or not all(isinstance(one, dict) for one in rows):
        raise UserError(f"{path}: no objects are in it: give a file of {_WHAT}")
    return rows


def _parquet(path: Path) -> list[dict[str, Any]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UserError(f"Parquet needs pyarrow: pip install 'rmsweb-jax[parquet]' ({error})") from error
    try:
        file = parquet.ParquetFile(path)
        # Screenshots are in the same file.
        columns = [
            name
            for name in file.schema_arrow.names
            if name in ("trajectory_id", "success", "task_id", _VOTE, _FINAL) or name.endswith(_SUFFIX)
        ]
        return file.read(columns=columns).to_pylist()
    except pyarrow.ArrowInvalid as error:
        raise UserError(f"{path}: not Parquet ({error}): give a file of {_WHAT}") from error


def _form(
    path: Path, first: Mapping[str, Any], runs: Sequence[RunFacts], agent: str
) -> tuple[_Form, Sequence[RunFacts]]:
    """Returns the form of a file, and the runs that its labels can be of."""
    for form in (_OURS, _REVIEWERS, _FINALS):
        if form.key in first and form.value in first:
            return form, runs
    agents = [key.removesuffix(_SUFFIX) for key in first if key.endswith(_SUFFIX)]
    if not agents:
        raise UserError(
            f"{path}: neither {_WHAT} nor the labels of Online-Mind2Web or CUAVerifierBench: fields are "
            f"{', '.join(sorted(first)) or 'none'}"
        )
    actors = sorted({one.actor for one in runs})
    if agent:
        if agent not in agents:
            raise UserError(f"config.labels_agent={agent!r}: {path} has labels of {', '.join(agents)}")
        if len(actors) > 1:
            raise UserError(
                f"config.labels_agent={agent!r}: the runs are of {', '.join(actors)}: give one's alone"
            )
        return _of_agent(agent), runs
    known = {_plain(one): one for one in agents}
    matching = [one for one in actors if _plain(one) in known]
    if len(matching) != 1:
        raise UserError(
            f"{path} has labels of the runs of {', '.join(agents)}, and config.data has those of "
            f"{', '.join(actors)}: say whose they are with --config.labels_agent=AGENT"
        )
    return _of_agent(known[_plain(matching[0])]), [one for one in runs if one.actor == matching[0]]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())


def _read(path: Path, rows: Sequence[Mapping[str, Any]], form: _Form) -> dict[str, bool | None]:
    """Returns the label of each name, of the votes the strict majority."""
    given: dict[str, list[bool | None]] = {}
    for number, row in enumerate(rows, start=1):
        name, value = row.get(form.key), row.get(form.value)
        text = json.dumps(value.strip().lower() if isinstance(value, str) else value)
        if not isinstance(name, str) or not (text in form.verdicts or form.votes):
            known = "any" if form.votes else f"one of {', '.join(form.verdicts)}"
            raise UserError(
                f"{path}: entry {number}: {form.key} has to be a text, and {form.value} {known}: they are "
                f"{name!r} and {value!r}"
            )
        if name in given and not form.votes:
            raise UserError(f"{path}: entry {number}: {name} has a label already: keep one")
        given.setdefault(name, []).append(form.verdicts.get(text))
    passed = {name: votes.count(True) - votes.count(False) for name, votes in given.items()}
    return {name: None if not margin else margin > 0 for name, margin in passed.items()}
