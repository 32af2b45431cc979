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
_WHAT = "labels (trajectory_id and success, one a line)"


@dataclasses.dataclass(frozen=True)
class _Form:
    """The columns of a file of labels.

    Attributes:
      source: what the labels are.
      key, value: columns with the name of a run or task, and with its label.
      verdicts: values, as JSON writes them in lower case; None says neither success nor failure.
      votes: a name may have several rows, whose strict majority counts; other values are undecided.
    """

    source: str
    key: str
    value: str
    verdicts: Mapping[str, bool | None]
    votes: bool = False


_FORMS = (
    _Form("labels", "trajectory_id", "success", {"true": True, "false": False}),
    _Form(
        "CUAVerifierBench's reviewers, by majority",
        *("task_id", "human_judgement_outcome", {'"correct"': True, '"incorrect"': False}, True),
    ),
    _Form(
        "CUAVerifierBench's final label",
        *("task_id", "final_human_outcome_label", {"1": True, "0": False, "null": None}),
    ),
)
_OF_AGENT = {"1": True, "0": False, "2": None, '"1"': True, '"0"': False, '"2"': None}


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
    found = [form for form in _FORMS if form.key in rows[0] and form.value in rows[0]]
    form, runs = (found[0], runs) if found else _form_of_agent(path, rows[0], runs, agent)
    said = _read(path, rows, form)
    verdicts: dict[str, bool | None] = {}
    used: dict[str, str] = {}
    for run in runs:
        # A run's task id is the label's, or ends in it behind a slash.
        names = (run.trajectory_id,) if form is _FORMS[0] else (run.task_id, run.task_id.rpartition("/")[2])
        for name in [one for one in names if one in said][:1]:
            if name in used:
                raise UserError(
                    f"{path}: {name} has a label for one run, and config.data has {used[name]} and "
                    f"{run.trajectory_id}: give the data of the labelled runs alone"
                )
            used[name], verdicts[run.trajectory_id] = run.trajectory_id, said[name]
    if not verdicts:
        raise UserError(f"{path}: no label is of a run in config.data: give the labels of these runs")
    decided = {run: verdict for run, verdict in verdicts.items() if verdict is not None}
    return Labels(decided, form.source, len(verdicts) - len(decided), len(said) - len(verdicts))


def _rows(path: Path) -> list[dict[str, Any]]:
    rows: list[Any]
    number = 0
    try:
        if path.suffix == ".parquet":
            from pyarrow import parquet

            file = parquet.ParquetFile(path)
            # Screenshots are in other columns.
            wanted = {"trajectory_id", "task_id", *(form.value for form in _FORMS)}
            columns = [name for name in file.schema_arrow.names if name in wanted or name.endswith(_SUFFIX)]
            rows = file.read(columns=columns).to_pylist()
        else:
            text = path.read_bytes().decode("utf-8-sig")
            rows = json.loads(text) if text.lstrip().startswith("[") else []
            for line in [] if rows else text.splitlines():
                number += 1
                rows += [json.loads(line)] if line.strip() else []
    except ImportError as error:
        raise UserError(f"Parquet needs pyarrow: pip install '.[parquet]' ({error})") from error
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}: give a file of {_WHAT}") from error
    except ValueError as error:
        where = f"line {number}: " if number else ""
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: {where}cannot be read ({reason}): give a file of {_WHAT}") from error
    if not rows or not all(isinstance(one, dict) for one in rows):
        raise UserError(f"{path}: no objects are in it: give a file of {_WHAT}")
    return rows


def _form_of_agent(
    path: Path, first: Mapping[str, Any], runs: Sequence[RunFacts], agent: str
) -> tuple[_Form, Sequence[RunFacts]]:
    """Returns the form of Online-Mind2Web's labels of an agent, and the runs that are the agent's."""
    agents = {_plain(key[: -len(_SUFFIX)]): key[: -len(_SUFFIX)] for key in first if key.endswith(_SUFFIX)}
    if not agents:
        raise UserError(
            f"{path}: neither {_WHAT} nor the labels of Online-Mind2Web or CUAVerifierBench: fields are "
            f"{', '.join(sorted(first)) or 'none'}"
        )
    actors = sorted({one.actor for one in runs})
    chosen = [one for one in actors if _plain(agent or one) in agents]
    # One that is named has to be the actor of all runs.
    if len(chosen) != 1 or (agent and len(actors) > 1):
        raise UserError(
            f"{path} has labels of the runs of {', '.join(agents.values())}, and config.data has those of "
            f"{', '.join(actors)}: give the runs of one, and say whose they are with "
            f"--config.labels_agent=AGENT (now {agent!r})"
        )
    name = agents[_plain(agent or chosen[0])]
    form = _Form(f"Online-Mind2Web's human labels of {name}", "task_id", f"{name}{_SUFFIX}", _OF_AGENT)
    return form, [one for one in runs if one.actor == chosen[0]]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())


def _read(path: Path, rows: Sequence[Mapping[str, Any]], form: _Form) -> dict[str, bool | None]:
    """Returns the label of each name, of the votes the strict majority."""
    margins: dict[str, int] = {}
    for number, row in enumerate(rows, start=1):
        name, value = row.get(form.key), row.get(form.value)
        # Whole numbers of a column with gaps are written as 1.0.
        value = int(value) if isinstance(value, float) and value.is_integer() else value
        text = json.dumps(value.strip().lower() if isinstance(value, str) else value)
        if not isinstance(name, str) or not (text in form.verdicts or form.votes):
            known = "any" if form.votes else f"one of {', '.join(form.verdicts)}"
            raise UserError(
                f"{path}: entry {number}: {form.key} has to be a text, and {form.value} {known}: they are "
                f"{name!r} and {value!r}"
            )
        if name in margins and not form.votes:
            raise UserError(f"{path}: entry {number}: {name} has a label already: keep one")
        verdict = form.verdicts.get(text)
        margins[name] = margins.get(name, 0) + (0 if verdict is None else 1 if verdict else -1)
    return {name: margin > 0 if margin else None for name, margin in margins.items()}
