import io
import json

import pytest
from PIL import Image

from collection.agent.prompt import GUIDANCE_TAG
from collection.config import QualityConfig
from collection.corpus.filter import (
    DROP_REASONS,
    SAMPLE_DROP_REASONS,
    FilterCounts,
    ParsedTrajectory,
    flatten,
    make_samples,
    quality_filter,
    unscorable,
)
from collection.corpus.steps import view
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ActionResult, ExtractionCall, Message, TextPart
from tests.trajectories import CLICK, DONE, SCROLL, TYPE, numbered, reply, step, trajectory

GOOD = trajectory(*numbered(TYPE, CLICK, DONE))


def user(*parts, text="read"):
    return (Message(role="user", content=(TextPart(text=text), *parts)),)


def without_messages(number):
    return step(number, CLICK).model_copy(update={"messages": ()})


def guided(number):
    return step(number, CLICK).model_copy(update={"messages": user(text=f"<{GUIDANCE_TAG}>\nScroll first")})


def on_pages(names):
    return [step(number, CLICK, page=page) for number, page in enumerate(names, start=1)]


def filtered(*trajectories, **quality):
    drops = []
    counts = FilterCounts(drops.append)
    kept = list(quality_filter(trajectories, QualityConfig(**quality), counts))
    assert counts.trajectories == len(trajectories) == len(kept) + len(drops)
    assert counts.kept == len(kept) and counts.dropped.total() == len(drops)
    return kept, drops, counts


@pytest.mark.parametrize(
    ("run", "reason", "detail"),
    [
        (GOOD, "", ""),
        (trajectory(*numbered(TYPE, CLICK, DONE), success=False), "not_successful", "done"),
        # A right answer that says no.
        (trajectory(*numbered(TYPE, CLICK, DONE), declared_success=False), "not_successful", "done"),
        (trajectory(), "invalid_step", "no_steps"),
        (
            trajectory(*numbered(TYPE, CLICK), step(3, error="not JSON", response="{"), step(4, DONE)),
            "invalid_step",
            "step 3: unusable_reply",
        ),
        (
            trajectory(*numbered(TYPE, CLICK), step(3, CLICK, results=()), step(4, DONE)),
            "invalid_step",
            "step 3: no_results",
        ),
        (trajectory(*numbered(TYPE, CLICK), step(3, DONE, results=())), "", ""),
        (
            trajectory(*numbered(TYPE, CLICK), step(3, response=reply(DONE)[:-2])),
            "invalid_step",
            "step 3: unusable_reply",
        ),
        (
            trajectory(step(1, TYPE), without_messages(2), step(3, DONE)),
            "invalid_step",
            "step 2: no_messages",
        ),
        (trajectory(step(1, TYPE), guided(2), step(3, DONE)), "invalid_step", "step 2: guidance"),
        (trajectory(*numbered(CLICK, DONE)), "too_short", "2 effective steps"),
        (
            trajectory(*numbered(TYPE, DONE), step(3, SCROLL, changed=False)),
            "too_short",
            "2 effective steps",
        ),
        (trajectory(*numbered(*[TYPE] * 30, DONE)), "too_long", "31 effective steps"),
        (trajectory(*numbered(*[TYPE] * 29, DONE)), "", ""),
        (trajectory(*[step(n, TYPE) for n in (1, 2, 3)], step(4, DONE)), "stalled", "step 3"),
        (trajectory(*[step(n, TYPE) for n in (1, 2)], step(3, DONE)), "", ""),
        (trajectory(*on_pages("abbb")), "stalled", "step 4"),
        (trajectory(*on_pages("aaba"), step(5, DONE)), "", ""),
    ],
)
def test_reasons(run, reason, detail):
    kept, drops, _ = filtered(run)
    assert bool(kept) == (not reason)
    assert [(drop.reason, drop.detail) for drop in drops] == ([(reason, detail)] if reason else [])
    for drop in drops:
        assert drop.reason in DROP_REASONS
        assert (drop.level, drop.id, drop.site) == ("trajectory", run.trajectory_id, "login-user")


def test_a_repaired_reply_is_kept_in_its_repaired_form():
    broken = step(3, response=reply(DONE)[:-2]).model_copy(update={"repaired": True})
    kept, _, _ = filtered(trajectory(*numbered(TYPE, CLICK), broken))
    last, _ = list(flatten(kept[0]))[-1]
    assert json.loads(last.response)["action"] == [DONE]


def test_a_target_holds_only_executed_actions():
    cut = step(
        1, CLICK, DONE, results=(ActionResult(action="click_element_by_index", text="", changed=True),)
    )
    ((sample, _),) = flatten(ParsedTrajectory(trajectory(cut), (view(cut),)))
    assert json.loads(sample.response)["action"] == [CLICK]


def test_output_makes_a_step_effective():
    result = ActionResult(action="extract_structured_data", text="", output="prices")
    extract = step(2, {"extract_structured_data": {"query": "prices"}}, results=(result,))
    kept, _, counts = filtered(trajectory(step(1, TYPE), extract, step(3, DONE)))
    assert len(kept) == 1 and counts.report()["effective_steps"] == {"3": 1}


def test_duplicates_are_kept_once_a_task():
    again = GOOD.model_copy(update={"trajectory_id": "again"})
    elsewhere = trajectory(*numbered(TYPE, CLICK, DONE), task_id="miniwob/login-user/2")
    kept, drops, _ = filtered(GOOD, again, elsewhere)
    assert [run.trajectory for run in kept] == [GOOD, elsewhere]
    assert [(drop.id, drop.reason, drop.detail) for drop in drops] == [
        ("again", "duplicate", f"of {GOOD.trajectory_id}")
    ]
    kept, drops, _ = filtered(GOOD, again, drop_duplicates=False)
    assert [run.trajectory for run in kept] == [GOOD, again] and not drops


def test_one_sample_a_step_and_a_call(tmp_path):
    call = ExtractionCall(messages=user(), response="42")
    calls = (
        call,
        call.model_copy(update={"response": " \n"}),
        call.model_copy(update={"messages": ()}),
    )
    first = step(1, TYPE, screenshot=None).model_copy(update={"extractions": calls})
    run = trajectory(first, step(2, DONE, screenshot=None))
    drops = []
    parsed = ParsedTrajectory(run, tuple(map(view, run.steps)))
    samples = list(make_samples([parsed], {}, [ImageStore(tmp_path)], FilterCounts(drops.append)))
    assert [(sample.kind, sample.sample_id.rsplit("#")[-1]) for sample in samples] == [
        ("action", "teacher-1/1"),
        ("text", "teacher-1/1/extraction-0"),
        ("action", "teacher-1/2"),
    ]
    assert samples[0].response == (
        '{"evaluation_previous_goal":"Success","memory":"","next_goal":"go on",'
        '"action":[{"input_text":{"index":1,"text":"ann"}}]}'
    )
    assert samples[1].response == "42"
    assert [(drop.id.rsplit("/")[-1], drop.reason) for drop in drops] == [
        ("extraction-1", "empty_reply"),
        ("extraction-2", "no_messages"),
    ]


def png(color=(0, 0, 0)):
    buffer = io.BytesIO()
    Image.new("RGB", (4, 3), color).save(buffer, "PNG")
    return buffer.getvalue()


def test_a_sample_without_a_usable_screenshot_is_dropped_by_itself(tmp_path):
    source, more = (ImageStore(tmp_path / name) for name in ("source", "more"))
    good, elsewhere = source.put(png()), more.put(png((1, 2, 3)))
    broken, changed, text = source.put(png()[:-20]), source.put(png((9, 9, 9))), source.put(b"<html>")
    source.path(changed).write_bytes(png((8, 8, 8)))
    shots = [good, "f" * 64, broken, elsewhere, changed, "not a digest", text]
    steps = [step(n, TYPE, page=f"{n}", screenshot=shot) for n, shot in enumerate(shots, start=1)]
    drops = []
    counts = FilterCounts(drops.append)
    runs = quality_filter([trajectory(*steps, step(8, DONE, screenshot=None))], QualityConfig(), counts)
    samples = list(make_samples(runs, {}, [source, more], counts))
    assert [sample.sample_id.rsplit("/")[-1] for sample in samples] == ["1", "4", "8"]
    assert [(drop.level, drop.id.rsplit("/")[-1], drop.reason, drop.detail) for drop in drops] == [
        ("sample", "2", "no_screenshot", "f" * 64),
        ("sample", "3", "unreadable_image", broken),
        ("sample", "5", "unreadable_image", changed),
        ("sample", "6", "no_screenshot", "not a digest"),
        ("sample", "7", "unreadable_image", text),
    ]
    report = counts.report()
    assert report["samples"] == {"action": 3, "text": 0}
    assert report["samples_dropped"] == dict.fromkeys(SAMPLE_DROP_REASONS, 0) | {
        "no_screenshot": 2,
        "unreadable_image": 3,
    }
    assert report["by_site"] == {"login-user": {"trajectories": 1, "kept": 1, "samples": 3}}


def test_guidance_never_passes_through_an_extraction_either(tmp_path):
    call = ExtractionCall(messages=user(text=f"<{GUIDANCE_TAG}>"), response="42")
    run = trajectory(
        step(1, TYPE, screenshot=None).model_copy(update={"extractions": (call,)}),
        *[step(n, CLICK, page=f"{n}", screenshot=None) for n in (2, 3)],
        step(4, DONE, screenshot=None),
    )
    counts = FilterCounts()
    kept, images = quality_filter([run], QualityConfig(), counts), ImageStore(tmp_path)
    samples = make_samples(kept, {}, [images], counts)
    assert {sample.kind for sample in samples} == {"action"}
    assert counts.samples_dropped == {"guidance": 1}


def test_a_target_must_earn_the_full_reward():
    assert unscorable(reply(DONE)) is None
    assert "lacks the key" in (unscorable('{"action":[]}') or "")


def test_counts_by_site_and_source(tmp_path):
    imported = trajectory(
        *numbered(TYPE, CLICK, DONE, screenshot=None), task_id="browser-use/b.com/1", source="browser-use"
    )
    lacking = trajectory(
        without_messages(1), task_id="webvoyager/a.com/1", source="webvoyager", missing=("steps.messages",)
    )
    kept, _, counts = filtered(GOOD, imported, lacking)
    report = counts.report()
    assert [run.trajectory for run in kept] == [GOOD, imported]
    assert report["by_source"] == {
        "browser-use": {"trajectories": 1, "kept": 1},
        "own": {"trajectories": 1, "kept": 1},
        "webvoyager": {"trajectories": 1, "kept": 0},
    }
    assert report["by_site"]["a.com"] == {"trajectories": 1, "kept": 0, "samples": 0}
    assert report["invalid_steps"] == {"no_messages": 1}
