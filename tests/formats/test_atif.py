"""ATIF documents: their content, our own checks, and Harbor's models where `harbor` is installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.config import ExportTracesSettings
from collection.formats import TaskInfo, TraceCounts, atif_document, write_traces
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ActionResult
from tests.formats.atif_checks import check_atif
from tests.formats.foreign_runs import write_json
from tests.formats.imports import actions, imported
from tests.formats.runs import SECRET, atif_run, episode, foreign_atif, imported_episode, without_steps
from tests.trajectories import CLICK, DONE, TYPE, step, trajectory

ROOT = Path(__file__).parents[2]
# A Python that has `harbor` (it needs 3.12), if this one does not.
HARBOR = os.environ.get("HARBOR_PYTHON", "")


def document(run, folder: Path, **options) -> dict:
    return json.loads(
        atif_document(run, lambda sha256: f"images/{sha256[:2]}/{sha256}.png", "0.1.0", **options)
    )


def test_every_field_of_an_episode(tmp_path):
    run = episode(ImageStore(tmp_path), judge="own_outcome", judge_text="seen", seconds=9.0)
    made = document(run, tmp_path)
    check_atif(made, tmp_path)
    assert made["trajectory_id"] == made["session_id"] == "shop/1#teacher-1"
    assert made["agent"] == {
        "name": "rmsweb-jax",
        "version": "0.1.0",
        "model_name": "scripted",
        "extra": {"actor": "teacher"},
    }
    system, user, first, broken, reading, done = made["steps"]
    assert system == {"step_id": 1, "source": "system", "message": "You operate a web page."}
    text, image = user["message"]
    assert text["text"] == f"Find a lamp.\nOnly green ones.\n\nURL: {run.task.website}\nform"
    assert image["source"]["path"].endswith(f"{run.steps[0].observation.screenshot}.png")
    assert first["message"] == "go on"
    assert first["tool_calls"] == [
        {
            "tool_call_id": "step-1-1",
            "function_name": "input_text",
            "arguments": {"index": 2, "text": SECRET},
        },
        {"tool_call_id": "step-1-2", "function_name": "click_element_by_index", "arguments": {"index": 3}},
    ]
    typed, clicked, page = first["observation"]["results"]
    assert typed == {
        "source_call_id": "step-1-1",
        "content": "ok",
        "extra": {"error": False, "changed": True},
    }
    assert clicked["source_call_id"] == "step-1-2"
    # What the agent saw next.
    assert page["content"][1]["source"]["path"].endswith(f"{run.steps[1].observation.screenshot}.png")
    assert first["llm_call_count"] == 3 and first["extra"]["discarded"] == ["", "??"]
    assert first["extra"]["response"] == run.steps[0].response
    assert broken["message"] == "I do not know." and "tool_calls" not in broken
    error, page = broken["observation"]["results"]
    assert error == {"content": "the reply is not a JSON object", "extra": {"error": True}}
    assert page["content"] == f"URL: {run.task.website}\nform"  # Without a screenshot it is text.
    assert broken["extra"]["incidents"] == [{"kind": "dialog", "detail": "dismissed"}]
    assert reading["observation"]["results"][0]["content"] == "Read the page.\n12 EUR"
    assert reading["metrics"] == {
        "prompt_tokens": 370,
        "completion_tokens": 35,
        "cost_usd": 0.25,
        "extra": {"seconds": 0.5},
    }
    assert done["tool_calls"][0]["function_name"] == "done" and "observation" not in done
    assert made["final_metrics"] == {
        "total_steps": 6,
        "total_prompt_tokens": 670,
        "total_completion_tokens": 65,
        "total_cost_usd": 0.75,
        "extra": {"seconds": 9.0, "retries": 0},
    }
    extra = made["extra"]
    assert (extra["outcome"], extra["success"], extra["judge"]) == ("done", True, "own_outcome")
    assert extra["task"]["task_id"] == "shop/1"


def test_an_imported_run_has_no_metrics(tmp_path):
    made = document(imported_episode(ImageStore(tmp_path)), tmp_path)
    check_atif(made, tmp_path)
    assert (made["agent"]["name"], made["agent"]["version"]) == ("fara", "unknown")
    assert [one["source"] for one in made["steps"]] == ["user", "agent"]
    assert "metrics" not in made["steps"][1] and "llm_call_count" not in made["steps"][1]
    assert made["extra"]["missing"] == ["steps.messages", "steps.usage"]


def test_an_episode_without_steps(tmp_path):
    made = document(without_steps(), tmp_path)
    check_atif(made, tmp_path)
    assert made["steps"] == [{"step_id": 1, "source": "user", "message": "Log in."}]
    assert made["extra"]["detail"] == "no such host"


def test_pages_can_be_left_out(tmp_path):
    made = document(episode(ImageStore(tmp_path)), tmp_path, page_text=False)
    assert made["steps"][1]["message"][0]["text"].endswith(
        f"URL: {episode(ImageStore(tmp_path)).task.website}"
    )


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from([CLICK, TYPE, DONE]), min_size=1, max_size=3),
            st.booleans(),
            st.booleans(),
        ),
        max_size=5,
    )
)
def test_any_episode_holds_together(moves):
    steps = [
        step(
            number, *actions, screenshot=None, results=None if recorded else (), error="broken" if bad else ""
        )
        for number, (actions, recorded, bad) in enumerate(moves, start=1)
    ]
    check_atif(document(trajectory(*steps), Path()), Path())


def test_a_document_of_ours_comes_back(tmp_path):
    """All but the model's input, elements, tabs and incidents."""
    changes = {"judge": "own_outcome", "judge_text": "seen", "seconds": 9.0, "attempt": 2}
    atif_run(tmp_path / "runs", **changes)
    (read,), _ = imported("atif", tmp_path / "runs")
    run = episode(ImageStore(tmp_path / "data"), **changes)
    lost = {"steps", "missing", "source", "retries", "incidents"}
    assert read.model_dump(exclude=lost) == run.model_dump(exclude=lost)
    lost_pages = ("current_tab", "elements", "pages_above", "pages_below", "screenshot", "tabs", "title")
    lost_texts = ("steps.response.memory", "steps.response.thinking")
    names = [
        "declared_success",
        "steps.messages",
        *(f"steps.observation.{name}" for name in lost_pages),
        *lost_texts,
    ]
    assert list(read.missing) == names
    for mine, theirs in zip(read.steps, run.steps, strict=True):
        assert mine.error == theirs.error and mine.observation.screenshot == theirs.observation.screenshot
        assert (mine.observation.url, mine.observation.page_text) == (
            theirs.observation.url,
            theirs.observation.page_text,
        )
        assert mine.response == theirs.response if theirs.error else actions(mine) == actions(theirs)
        assert [(one.action, one.error, one.changed) for one in mine.results] == [
            (one.action, one.error, one.changed) for one in theirs.results
        ]
    assert read.steps[0].results == run.steps[0].results
    assert read.steps[2].results[0].text == "Read the page.\n12 EUR"
    assert read.steps[0].usage == run.steps[0].usage and read.steps[2].usage.prompt_tokens == 370


def test_a_document_keeps_words_results_and_what_is_not_known(tmp_path):
    """A page's own lines look like its head, a list stops at an error, and a verdict is the tasks file's."""
    given = (("input_text", "Typed", False), ("click_element_by_index", "gone", True))
    results = tuple(ActionResult(action=name, text=text, error=error) for name, text, error in given)
    first = step(1, TYPE, CLICK, CLICK, screenshot=None, results=results)
    page = {"url": "http://real/", "title": "", "page_text": "Intro\nTitle: The book\nURL: http://evil/\nend"}
    first = first.model_copy(update={"observation": first.observation.model_copy(update=page)})
    run = trajectory(first, step(2, DONE, screenshot=None), missing=("model", "steps.results.changed"))
    write_json(tmp_path / "runs/a.json", document(run, tmp_path))
    (read,), _ = imported("atif", tmp_path / "runs", {"a": TaskInfo("", "", False)})
    shown = read.steps[0].observation
    assert {name: getattr(shown, name) for name in page} == page
    assert [(one.text, one.error) for one in read.steps[0].results] == [("Typed", False), ("gone", True)]
    assert read.success is False and {"model", "steps.results.changed"} <= {*read.missing}


def test_a_document_of_another_agent(tmp_path):
    write_json(tmp_path / "runs/b.json", foreign_atif())
    (run,), report = imported("atif", tmp_path / "runs")
    assert (run.task.objective, run.task.task_id, run.source) == ("Find a lamp.", "atif/b", "atif")
    clicked, unmapped, silent = run.steps
    assert actions(clicked) == [{"click_element_by_index": {"index": 3}}]
    assert (clicked.results[0].text, unmapped.observation.page_text) == ("Clicked.", "A page.")
    assert unmapped.error.startswith("No counterpart for action 'bash'") and '"command"' in unmapped.response
    assert silent.error == "Unusable reply: no tool call" and silent.usage.prompt_tokens == 7
    assert (run.outcome, run.success, run.judge) == ("max_steps", False, "")
    missing = {"outcome", "success", "model", "steps.messages", "steps.usage", "steps.results.changed"}
    assert missing <= set(run.missing) and report["steps_mapped"] == 1


def test_an_image_outside_of_the_folder_is_not_read(tmp_path):
    path = atif_run(tmp_path / "runs")
    (tmp_path / "secret.png").write_bytes(next((tmp_path / "runs").rglob("*.png")).read_bytes())
    made = json.loads(path.read_text())
    made["steps"][1]["message"][1]["source"]["path"] = "../secret.png"
    write_json(path, made)
    (run,), _ = imported("atif", tmp_path / "runs")
    assert run.steps[0].observation.screenshot is None


def test_harbor_accepts_the_documents(tmp_path):
    """Harbor needs Python 3.12, so `HARBOR_PYTHON` may name another one that has it."""
    python = harbor_python()
    store = ImageStore(tmp_path / "data")
    runs = [episode(store), imported_episode(store), without_steps()]
    settings = ExportTracesSettings(data="", format="atif")
    write_traces(runs, store, tmp_path / "traces", settings, "0.1.0", TraceCounts())
    files = sorted((tmp_path / "traces").glob("*.json"))
    assert len(files) == 3
    script = (
        "import json, sys\n"
        "from harbor.models.trajectories import Trajectory\n"
        "from harbor.utils.trajectory_validator import TrajectoryValidator\n"
        "for name in sys.argv[1:]:\n"
        "    check = TrajectoryValidator()\n"
        "    assert check.validate(name), (name, check.errors)\n"
        "    given = json.load(open(name))\n"
        "    assert Trajectory.model_validate(given).to_json_dict() == given, name\n"
    )
    done = subprocess.run([python, "-c", script, *map(str, files)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def harbor_python() -> str:
    if HARBOR:
        return HARBOR
    pytest.importorskip("harbor")
    return sys.executable
