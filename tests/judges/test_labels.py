"""Labels of three forms: which run gets which, and one line for all that is not a label."""

import json
import re

import pytest

from collection.judges.judgements import RunFacts
from collection.judges.labels import read_labels
from rmsweb_jax.errors import UserError

ID = "b7258ee05d75e6c50673a59914db412{}"


def facts(number: int, actor: str = "Browser_Use", attempt: int = 1) -> RunFacts:
    task = f"online-mind2web/{ID.format(number)}"
    return RunFacts(f"{task}#{actor}-{attempt}", task, actor, actor, "shop.test", "", "done")


RUNS = [facts(number) for number in range(4)]
OSU = [
    {
        "task_id": ID.format(number),
        "confirmed_task": f"Find lamp {number}.",
        "Operator_human_label": "1",
        "Browser_Use_human_label": label,
    }
    for number, label in enumerate(["1", "0", "2", "1", "1", "1"])
]
VOTES = [
    {"task_id": ID.format(number), "annotator": f"Judge{judge}", "human_judgement_outcome": vote}
    for number, votes in enumerate(
        [("Correct", "Correct"), ("Correct", "Incorrect"), ("Incorrect",), ("Unsure", ""), ("Correct",)]
    )
    for judge, vote in enumerate(votes)
]


def write(path, entries, as_lines=False):
    lines = "".join(json.dumps(one) + "\n" for one in entries)
    path.write_text(lines if as_lines else json.dumps(entries))
    return path


def ids(*numbers: int) -> dict[int, str]:
    return {number: RUNS[number].trajectory_id for number in numbers}


def test_labels_of_our_own(tmp_path):
    mine = [{"trajectory_id": one.trajectory_id, "success": one is RUNS[0]} for one in RUNS[:2]]
    path = write(tmp_path / "labels.jsonl", [*mine, {"trajectory_id": "x", "success": True}], as_lines=True)
    found = read_labels(path, RUNS)
    assert found.verdicts == {RUNS[0].trajectory_id: True, RUNS[1].trajectory_id: False}
    assert (found.undecided, found.others) == (0, 1)


@pytest.mark.parametrize("agent", ["", "Browser_Use"])
def test_labels_of_online_mind2web_are_those_of_the_runs_agent(tmp_path, agent):
    found = read_labels(write(tmp_path / "human_label.json", OSU), RUNS, agent)
    run = ids(0, 1, 3)
    assert found.verdicts == {run[0]: True, run[1]: False, run[3]: True}
    # One was not executable, two are of tasks without a run.
    assert (found.undecided, found.others) == (1, 2)
    assert str(found).startswith("Online-Mind2Web's human labels of Browser_Use: 3 runs labelled, 1 left")


def test_an_agent_is_known_in_other_spellings_and_by_its_setting(tmp_path):
    path = write(tmp_path / "human_label.json", OSU)
    assert len(read_labels(path, [facts(0, "browser-use")]).verdicts) == 1
    assert read_labels(path, [facts(1, "sft")], "Operator").verdicts == {facts(1, "sft").trajectory_id: True}
    wrong = (
        ([facts(0, "sft")], ""),
        (RUNS, "SeeAct"),
        ([facts(0, "sft"), facts(1, "base")], "Operator"),
    )
    for some, agent in wrong:
        with pytest.raises(
            UserError, match=r"of Operator, Browser_Use, and config\.data has those of .*: give"
        ):
            read_labels(path, some, agent)


@pytest.mark.parametrize("form", ["array", "lines", "parquet"])
def test_reviewers_of_cuaverifierbench_decide_by_majority(tmp_path, form):
    path = tmp_path / f"annotations.{form}"
    if form == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(VOTES), path)
    else:
        write(path, VOTES, as_lines=form == "lines")
    found = read_labels(path, RUNS)
    run = ids(0, 2)
    assert found.verdicts == {run[0]: True, run[2]: False}
    assert (found.undecided, found.others) == (2, 1)


def test_final_labels_of_cuaverifierbench(tmp_path):
    rows = [
        {"task_id": ID.format(number), "final_human_outcome_label": label}
        for number, label in enumerate([1, 0.0, None])
    ]
    found = read_labels(write(tmp_path / "trajectories.json", rows), RUNS)
    run = ids(0, 1)
    assert found.verdicts == {run[0]: True, run[1]: False} and found.undecided == 1


@pytest.mark.parametrize(
    ("entries", "runs", "message"),
    [
        (OSU, [*RUNS, facts(1, attempt=2)], "has a label for one run, and config.data has"),
        (OSU[4:], RUNS, "no label is of a run in config.data"),
        ([*OSU, OSU[0]], RUNS, "entry 7: .* has a label already"),
        (
            [{**OSU[0], "Browser_Use_human_label": "3"}],
            RUNS,
            "Browser_Use_human_label one of .* and '3'",
        ),
        ([{**OSU[0], "Browser_Use_human_label": ["1"]}], RUNS, "entry 1: .* Browser_Use_human_label one of"),
        ([{"task_id": "a", "label": 1}], RUNS, "neither labels .* fields are label, task_id"),
        ([{"task_id": 1, "human_judgement_outcome": "Correct"}], RUNS, "entry 1: task_id has to be a text"),
    ],
    ids=["two runs", "other tasks", "twice", "unknown", "no scalar", "no form", "no text"],
)
def test_what_is_no_label_is_one_line(tmp_path, entries, runs, message):
    with pytest.raises(UserError, match=message) as raised:
        read_labels(write(tmp_path / "labels.json", entries), runs)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["labels.json", "labels.parquet"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe", None])
def test_unreadable_files_are_one_line(tmp_path, name, content):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=re.escape(str(path))) as raised:
        read_labels(path, RUNS)
    assert "\n" not in str(raised.value)
