"""People's verdicts on recorded runs, from files of three forms.

- Ours: JSON lines with `trajectory_id` and `success`.
- Online-Mind2Web's `human_label.json`: one JSON array; each entry has `task_id` and, for each agent, a field
  `AGENT_human_label` that is "0" (failure), "1" (success) or "2" (not executable). Fields read in the file
  itself (`data/evaluation_results/online_mind2web_evaluation_results` of OSU-NLP-Group/Online-Mind2Web, its
  first 45 entries) and in that repository's HUMAN_EVALUATIONS.md.
- CUAVerifierBench (microsoft/CUAVerifierBench on the hub), exported as JSON lines, a JSON array or Parquet.
  Config `annotations`: `task_id`, `annotator` and `human_judgement_outcome` ("Correct", "Incorrect" or other
  words), a row a reviewer; the strict majority counts. Config `trajectories`: `task_id` and
  `final_human_outcome_label` (1, 0 or null). Fields read in the data set's card; its rows were not at hand.

The last two name tasks, not runs: a label is that of the only run of its task.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from collection.judges.judgements import RunFacts
from collection.tasks.files import read_lines
from rmsweb_jax.errors import UserError

_SUFFIX = "_human_label"
_OSU = {"0": False, "1": True, "2": None}
_VOTE, _FINAL = "human_judgement_outcome", "final_human_outcome_label"
_VOTES = {"correct": True, "incorrect": False}
_WHAT = "labels (trajectory_id and success, one a line)"


class Label(BaseModel):
    """A human verdict; a line of a labels file of our own form. Other fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    trajectory_id: str
    success: bool


@dataclasses.dataclass(frozen=True)
class Labels:
    """People's verdicts by trajectory id.

    Attributes:
      source: what the labels are.
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
    """Reads the labels of `runs` from a file of any of the three forms.

    Args:
      agent: agent of Online-Mind2Web's file whose labels are read; empty for the runs' actor.

    Raises:
      UserError: the file is unreadable or of no known form, an entry is not as it has to be, a run has two
        labels, a task has several runs of which the label could be, or no label is of a run.
    """
    entries = _entries(path)
    first = entries[0] if entries else {}
    if "trajectory_id" in first or "task_id" not in first:
        named, source = _own(path), "labels"
        labelled = {one.trajectory_id: named[one.trajectory_id] for one in runs if one.trajectory_id in named}
        by_name: Mapping[str, bool | None] = labelled
    else:
        named, source, only = _foreign(path, entries, runs, agent)
        by_name = _of_runs(path, named, [one for one in runs if only in ("", one.actor)])
    if not by_name:
        raise UserError(f"{path}: no label is of a run in config.data: give the labels of these runs")
    verdicts = {run: verdict for run, verdict in by_name.items() if verdict is not None}
    return Labels(verdicts, source, len(by_name) - len(verdicts), len(named) - len(by_name))


def _own(path: Path) -> dict[str, bool]:
    lines = read_lines(path, Label.model_validate_json, _WHAT)
    if lines.bad:
        raise UserError(f"{lines.warning(path)}: fix them, because missing labels bias the figures")
    labels: dict[str, bool] = {}
    for number, label in lines.good:
        if label.trajectory_id in labels:
            raise UserError(f"{path}: line {number}: {label.trajectory_id} has a label already: keep one")
        labels[label.trajectory_id] = label.success
    return labels


def _entries(path: Path) -> list[dict[str, Any]]:
    """Returns the entries of a foreign file; of one of ours, at least the first that is JSON."""
    try:
        if path.suffix == ".parquet":
            return _parquet(path)
        text = path.read_bytes().decode("utf-8-sig")
        found = json.loads(text) if text.lstrip().startswith("[") else list(_lines(text))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}: give a file of {_WHAT}") from error
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error}): give a file of {_WHAT}") from error
    return [one for one in found if isinstance(one, dict)]


def _lines(text: str) -> Iterator[Any]:
    for line in filter(str.strip, text.splitlines()):
        try:
            yield json.loads(line)
        except ValueError:
            return  # `_own` says which line it is.


def _parquet(path: Path) -> list[dict[str, Any]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UserError(f"Parquet needs pyarrow: pip install 'rmsweb-jax[parquet]' ({error})") from error
    try:
        file = parquet.ParquetFile(path)
        # Screenshots are in the same file.
        wanted = [name for name in ("task_id", _VOTE, _FINAL) if name in file.schema_arrow.names]
        return file.read(columns=wanted).to_pylist()
    except pyarrow.ArrowInvalid as error:
        raise UserError(f"{path}: not Parquet ({error}): give a file of {_WHAT}") from error


def _foreign(
    path: Path, entries: Sequence[Mapping[str, Any]], runs: Sequence[RunFacts], agent: str
) -> tuple[dict[str, bool | None], str, str]:
    """Returns labels by task id, their source, and the actor whose runs they are of ("" for all)."""
    first = entries[0]
    if _VOTE in first:
        return _votes(path, entries), "CUAVerifierBench's reviewers, by majority", ""
    if _FINAL in first:
        final = _unique(path, entries, _FINAL, {1: True, 0: False, None: None})
        return final, "CUAVerifierBench's final label", ""
    agents = [key.removesuffix(_SUFFIX) for key in first if key.endswith(_SUFFIX)]
    if not agents:
        raise UserError(
            f"{path}: neither {_WHAT} nor the labels of Online-Mind2Web or CUAVerifierBench: fields are "
            f"{', '.join(sorted(first))}"
        )
    actors = sorted({one.actor for one in runs})
    if agent:
        if agent not in agents:
            raise UserError(f"config.labels_agent={agent!r}: {path} has labels of {', '.join(agents)}")
        if len(actors) > 1:
            raise UserError(
                f"config.labels_agent={agent!r}: the runs are of {', '.join(actors)}: give one's alone"
            )
        chosen, actor = agent, actors[0] if actors else ""
    else:
        known = {_plain(one): one for one in agents}
        matching = [one for one in actors if _plain(one) in known]
        if len(matching) != 1:
            raise UserError(
                f"{path} has labels of the runs of {', '.join(agents)}, and config.data has those of "
                f"{', '.join(actors)}: say whose they are with --config.labels_agent=AGENT"
            )
        chosen, actor = known[_plain(matching[0])], matching[0]
    values = {**_OSU, **{int(key): value for key, value in _OSU.items()}}
    found = _unique(path, entries, f"{chosen}{_SUFFIX}", values)
    return found, f"Online-Mind2Web's human labels of {chosen}", actor


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())


def _unique(
    path: Path, entries: Sequence[Mapping[str, Any]], field: str, values: Mapping[Any, bool | None]
) -> dict[str, bool | None]:
    """Reads one label a task."""
    labels: dict[str, bool | None] = {}
    for number, entry in enumerate(entries, start=1):
        task, value = entry.get("task_id"), entry.get(field)
        if not isinstance(task, str) or isinstance(value, (list, dict)) or value not in values:
            known = ", ".join(map(repr, values))
            raise UserError(f"{path}: entry {number}: {field} is {value!r}: it has to be one of {known}")
        if task in labels:
            raise UserError(f"{path}: entry {number}: {task} has a label already: keep one")
        labels[task] = values[value]
    return labels


def _votes(path: Path, entries: Sequence[Mapping[str, Any]]) -> dict[str, bool | None]:
    """Reads a vote a reviewer; a task without a strict majority is undecided."""
    votes: dict[str, Counter[bool | None]] = {}
    for number, entry in enumerate(entries, start=1):
        task, vote = entry.get("task_id"), entry.get(_VOTE)
        if not isinstance(task, str) or not isinstance(vote, (str, type(None))):
            raise UserError(f"{path}: entry {number}: task_id and {_VOTE} have to be texts")
        votes.setdefault(task, Counter())[_VOTES.get((vote or "").strip().lower())] += 1
    return {
        task: None if cast[True] == cast[False] else cast[True] > cast[False] for task, cast in votes.items()
    }


def _of_runs(
    path: Path, labels: Mapping[str, bool | None], runs: Sequence[RunFacts]
) -> dict[str, bool | None]:
    """Returns labels by trajectory id; a run's task id is the label's, or ends in it behind a slash."""
    found: dict[str, bool | None] = {}
    seen: dict[str, str] = {}
    for run in runs:
        names = (run.task_id, run.task_id.rpartition("/")[2])
        name = next((one for one in names if one in labels), None)
        if name is None:
            continue
        if name in seen:
            raise UserError(
                f"{path}: {name} has a label for one run, and config.data has {seen[name]} and "
                f"{run.trajectory_id}: give the data of the labelled runs alone"
            )
        seen[name] = run.trajectory_id
        found[run.trajectory_id] = labels[name]
    return found
