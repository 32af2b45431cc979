import json
from collections import Counter
from pathlib import Path

import pytest

from collection.corpus import QualityConfig, flatten, quality_filter, stalled
from collection.steps import view
from configs.build_sft import get_config
from experiments.build_sft import main
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ActionResult, ExtractionCall, Message, SftSample, TextPart
from rmsweb_jax.records.shards import read_dataset, write_dataset
from tests.collection.trajectories import CLICK, DONE, SCROLL, SHOT, TYPE, numbered, reply, step, trajectory

GOOD = trajectory(*numbered(TYPE, CLICK, DONE))


def reasons(*trajectories, **quality):
    counts = Counter()
    kept = [run for run, _ in quality_filter(trajectories, QualityConfig(**quality), counts)]
    assert counts["kept"] == len(kept)
    return dict(counts)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (GOOD, "kept"),
        (trajectory(*numbered(TYPE, CLICK, DONE), success=False), "not_successful"),
        (trajectory(), "invalid_step"),
        (
            trajectory(*numbered(TYPE, CLICK), step(3, error="not JSON", response="{"), step(4, DONE)),
            "invalid_step",
        ),
        (trajectory(*numbered(TYPE, CLICK), step(3, CLICK, results=()), step(4, DONE)), "invalid_step"),
        (trajectory(*numbered(TYPE, CLICK), step(3, DONE, results=())), "kept"),
        (trajectory(*numbered(TYPE, CLICK), step(3, response=reply(DONE)[:-2])), "invalid_step"),
        (trajectory(*numbered(CLICK, DONE)), "too_short"),
        (trajectory(*numbered(TYPE, DONE), step(3, SCROLL, changed=False)), "too_short"),
        (trajectory(*numbered(*[TYPE] * 30, DONE)), "too_long"),
        (trajectory(*numbered(*[TYPE] * 29, DONE)), "kept"),
        (trajectory(*[step(n, TYPE) for n in (1, 2, 3)], step(4, DONE)), "stalled"),
        (trajectory(*[step(n, TYPE) for n in (1, 2)], step(3, DONE)), "kept"),
    ],
)
def test_reasons(run, reason):
    assert reasons(run) == {reason: 1}


def test_a_repaired_reply_is_kept_in_its_repaired_form():
    broken = step(3, response=reply(DONE)[:-2]).model_copy(update={"repaired": True})
    run = trajectory(*numbered(TYPE, CLICK), broken)
    assert reasons(run) == {"kept": 1}
    last = list(flatten(run, [view(item) for item in run.steps]))[-1]
    assert json.loads(last.response)["action"] == [DONE]


def test_output_makes_a_step_effective():
    result = ActionResult(action="extract_structured_data", text="", output="prices")
    extract = step(2, {"extract_structured_data": {"query": "prices"}}, results=(result,))
    assert reasons(trajectory(step(1, TYPE), extract, step(3, DONE))) == {"kept": 1}


def test_duplicates_are_kept_once_a_task():
    again = GOOD.model_copy(update={"trajectory_id": "again"})
    elsewhere = trajectory(*numbered(TYPE, CLICK, DONE), task_id="miniwob/login-user/2")
    assert reasons(GOOD, again, elsewhere) == {"kept": 2, "duplicate": 1}


def test_stall_needs_the_same_page_in_a_row():
    def views(*pages):
        return [view(step(number, CLICK, page=page)) for number, page in enumerate(pages, start=1)]

    assert stalled(views("a", "b", "b", "b"), 3)
    assert not stalled(views("a", "a", "b", "a"), 3)


def test_flatten_makes_one_sample_a_step_and_a_call():
    call = ExtractionCall(messages=(Message(role="user", content=(TextPart(text="read"),)),), response="42")
    first = step(1, TYPE).model_copy(update={"extractions": (call, call.model_copy(update={"response": ""}))})
    run = trajectory(first, step(2, DONE))
    samples = list(flatten(run, [view(item) for item in run.steps]))
    assert [(sample.kind, sample.sample_id.rsplit("#")[-1]) for sample in samples] == [
        ("action", "teacher-1/1"),
        ("extraction", "teacher-1/1/extraction-0"),
        ("action", "teacher-1/2"),
    ]
    assert samples[0].response == (
        '{"evaluation_previous_goal":"Success","memory":"","next_goal":"go on",'
        '"action":[{"input_text":{"index":1,"text":"ann"}}]}'
    )
    assert samples[1].response == "42"


def experiment(tmp_path: Path, *runs, variant="demo"):
    source = tmp_path / "collect"
    ImageStore(source).put(b"png")
    write_dataset(source, runs, "trajectories")
    config = get_config(variant)
    config.trajectories = str(source)
    workdir = tmp_path / "sft_corpus"
    workdir.mkdir()
    main(config, workdir)
    return workdir


def test_experiment_writes_samples_images_and_counts(tmp_path):
    failure = trajectory(*numbered(CLICK, DONE), success=False, attempt=2)
    workdir = experiment(tmp_path, GOOD, failure)
    samples = list(read_dataset(workdir, SftSample))
    assert len(samples) == 3
    assert ImageStore(workdir).get(SHOT) == b"png"
    report = json.loads((workdir / "report.json").read_text())
    assert (report["trajectories"], report["kept"], report["dropped"]["not_successful"]) == (2, 1, 1)
    assert report["samples"] == {"action": 3, "extraction": 0}
    assert report["sites"] == {"login-user": 3}
    assert "lowered from the paper's 3 to 1" in report["notes"][0]


def test_empty_corpus_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match=r"no trajectory passed the quality filter \(too_short 1\)"):
        experiment(tmp_path, trajectory(*numbered(CLICK, DONE)), variant="paper")
    assert not (tmp_path / "sft_corpus/report.json").exists()
