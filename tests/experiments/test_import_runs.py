"""The stage from a foreign folder to samples: its files, its errors, and a run that was stopped."""

import errno
import json
import shutil
from pathlib import Path

import pytest

from collection.config import BuildSftSettings, ImportSettings
from configs import build_sft as build_sft_config
from configs.import_runs import VARIANTS, get_config
from experiments import build_sft
from experiments.import_runs import main
from rmsweb_jax.actions import parse_reply
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import read_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import SftSample, Trajectory, Window
from rmsweb_jax.records.tools import check_dataset
from rmsweb_jax.settings import from_config
from tests.formats.agent_runs import (
    CENTRE,
    MOLMO_ACTIONS,
    SITE,
    fara_run,
    gym_episode,
    molmo_run,
    rl_sample,
)
from tests.formats.foreign_runs import (
    TASK_ID,
    browser_use_run,
    evaluation,
    history_item,
    mind2web_v1,
    webvoyager_messages,
    webvoyager_run,
    without,
    write_json,
)
from tests.formats.runs import atif_run
from tests.scripts import run_script


def run_import(variant: str, source: Path, workdir: Path, **changes) -> dict:
    config = get_config(variant)
    config.update({"source": str(source), **changes})
    workdir.mkdir(exist_ok=True)
    main(from_config(ImportSettings, config), workdir)
    return json.loads((workdir / "report.json").read_text())


def lines(workdir: Path) -> list[dict]:
    return [json.loads(line) for line in (workdir / "import_report.jsonl").read_text().splitlines()]


def test_browser_use_to_samples(tmp_path):
    source, workdir = tmp_path / "runs", tmp_path / "imported"
    browser_use_run(source / "new")
    browser_use_run(
        source / "old", [without(history_item(number), "state_message") for number in (1, 2, 3, 4)]
    )
    (source / "usage.json").write_text("{}")
    report = run_import("browser_use", source, workdir)
    assert (report["stage"], report["kind"], report["imported"]) == ("import_runs", "browser_use", 2)
    assert [entry["run"] for entry in report["skipped"]] == ["usage.json"]
    assert [line["run"] for line in lines(workdir)] == ["new/history.json", "old/history.json", "usage.json"]
    assert [run.source for run in read_dataset(workdir, Trajectory)] == ["browser-use"] * 2
    assert json.loads((workdir / "progress.json").read_text())["done"] == 3

    config, corpus = build_sft_config.get_config("paper"), tmp_path / "sft_corpus"
    config.trajectories = str(workdir)
    corpus.mkdir()
    build_sft.main(from_config(BuildSftSettings, config), corpus)
    made = json.loads((corpus / "report.json").read_text())
    assert made["samples"] == {"action": 4, "text": 0}
    assert made["dropped"]["invalid_step"] == 1 and made["invalid_steps"] == {"no_messages": 1}
    assert made["by_source"] == {"browser-use": {"trajectories": 2, "kept": 1}}
    samples = list(read_dataset(corpus, SftSample))
    assert {sample.task_id for sample in samples} == {"browser-use/new/history"}
    shown = {
        part.sha256 for sample in samples for part in sample.messages[-1].content if part.type == "image"
    }
    assert len(shown) == 4 and all(name in ImageStore(corpus) for name in shown)


def test_runs_that_act_on_points_to_samples(tmp_path):
    played = (MOLMO_ACTIONS[1], MOLMO_ACTIONS[2], MOLMO_ACTIONS[4], MOLMO_ACTIONS[7])
    folder = molmo_run(tmp_path / "runs/Lamp--1", played)
    write_json(folder / "webvoyager_verdict.json", {"thought": "", "verdict": "SUCCESS"})
    run_import("molmoweb", tmp_path / "runs", tmp_path / "imported")
    config, corpus = build_sft_config.get_config("screenshot"), tmp_path / "sft_corpus"
    config.trajectories = str(tmp_path / "imported")
    corpus.mkdir()
    build_sft.main(from_config(BuildSftSettings, config), corpus)
    report = json.loads((corpus / "report.json").read_text())
    # The files do not say what changed: all steps count.
    assert report["samples"] == {"action": 4, "text": 0} and report["effective_steps"] == {"4": 1}
    clicked, entered, *_ = read_dataset(corpus, SftSample)
    assert parse_reply(clicked.response).actions[0].to_json() == CENTRE
    assert clicked.window == Window(width=1440, height=900) and entered.window is None
    system, user = entered.messages
    assert "by its screenshot" in system.text and user.content[-1].type == "image"
    assert user.text == (
        "<agent_history>\n<step_1>\nEvaluation: \nMemory: \nNext goal: do mouse_click\n</step_1>\n"
        "</agent_history>\n<agent_state>\n<user_request>\nFind a lamp.\n</user_request>\n"
        "<step_info>Step 2</step_info>\n</agent_state>\n"
        f"<browser_state>\nScreenshot: 1440 by 900 pixels\nPage: {SITE} - Shop\n</browser_state>\n"
    )
    assert not check_dataset(corpus).problems


def test_every_variant_imports_its_folder(tmp_path):
    browser_use_run(tmp_path / "browser_use/a")
    webvoyager_run(tmp_path / "webvoyager/taskA--1", *webvoyager_messages("Click [2]", "ANSWER; 1"))
    mind2web_v1(tmp_path / "online_mind2web" / TASK_ID)
    evaluation(tmp_path, "WebJudge_Online_Mind2Web_eval", {TASK_ID: 1})
    fara_run(tmp_path / "fara/A--1")
    molmo_run(tmp_path / "molmoweb/A--1")
    rl_sample(tmp_path / "openwebrl", task="A--1")
    gym_episode(tmp_path / "webgym", name="A--1")
    atif_run(tmp_path / "atif")
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"id": "A--1", "ques": "Find a lamp.", "web": "https://a.test/", "success": true}\n')
    for variant in VARIANTS:
        report = run_import(variant, tmp_path / variant, tmp_path / "out", tasks=str(tasks), actor="them")
        assert (report["imported"], report["successes"], report["skipped"]) == (1, 1, [])
        (run,) = read_dataset(tmp_path / "out", Trajectory)
        # A document of ours keeps its own.
        assert run.actor == ("teacher" if variant == "atif" else "them")
        assert lines(tmp_path / "out")[0]["missing"] == list(run.missing) == list(report["missing"])
        (tmp_path / "out/report.json").unlink()


def test_user_errors_are_one_line(tmp_path):
    browser_use_run(tmp_path / "runs/a")
    (tmp_path / "broken/taskA--1").mkdir(parents=True)
    for variant, source, message in (
        ("browser_use", tmp_path / "none", "no such folder: give --config.source=DIR"),
        ("browser_use", "", "config.source is empty"),
        ("webvoyager", tmp_path / "runs", "no webvoyager runs here"),
        (
            "webvoyager",
            tmp_path / "broken",
            r"none of 1 webvoyager runs .*taskA--1: no interact_messages.json",
        ),
    ):
        with pytest.raises(UserError, match=rf"^[^\n]*{message}[^\n]*$"):
            run_import(variant, source, tmp_path / "out")
    assert not (tmp_path / "out/report.json").exists()
    with pytest.raises(UserError, match=r"config\.kind is 'mystery': use one of browser_use"):
        run_import("browser_use", tmp_path / "runs", tmp_path / "out", kind="mystery")


def test_the_command_imports_and_then_returns_at_once(tmp_path):
    source, workdir = tmp_path / "runs", tmp_path / "out"
    browser_use_run(source / "a")
    flags = (
        "--config=configs/import_runs.py:browser_use",
        f"--config.source={source}",
        f"--workdir={workdir}",
    )
    assert run_script("experiments.import_runs", *flags).returncode == 0
    before = {path: path.stat().st_mtime_ns for path in workdir.iterdir()}
    shutil.rmtree(source)
    assert run_import("browser_use", source, workdir)["imported"] == 1
    assert {path: path.stat().st_mtime_ns for path in workdir.iterdir()} == before


def test_a_stopped_import_run_again_ends_with_the_unbroken_data_set(tmp_path, monkeypatch):
    for number in range(4):
        browser_use_run(tmp_path / f"runs/{number}")
    whole = run_import("browser_use", tmp_path / "runs", tmp_path / "whole")
    put, stored = ImageStore.put, []

    def put_until_full(store: ImageStore, image: bytes) -> str:
        stored.append(image)
        if len(stored) == 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        return put(store, image)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(ImageStore, "put", put_until_full)
        run_import("browser_use", tmp_path / "runs", tmp_path / "stopped")
    assert not (tmp_path / "stopped/report.json").exists()
    again = run_import("browser_use", tmp_path / "runs", tmp_path / "stopped")
    assert again | {"seconds": 0} == whole | {"seconds": 0}
    sets = [list(read_dataset(tmp_path / name, Trajectory)) for name in ("stopped", "whole")]
    assert sets[0] == sets[1] and len(sets[0]) == 4
    assert lines(tmp_path / "stopped") == lines(tmp_path / "whole")
