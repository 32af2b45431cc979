"""The ablations' command on hand-made results: plan, result files, refusals, page."""

import json
from pathlib import Path
from typing import Any

import pytest

from collection.evaluation.results import to_json
from configs import rl
from configs.studies.ablations import get_config
from experiments.studies.ablations import run as ablations
from experiments.studies.ablations.records import SFT, load_runs, run_path, save
from experiments.studies.ablations.settings import AblationSettings
from rmsweb_jax.errors import UserError
from rmsweb_jax.settings import from_config
from tests.studies.ablations.test_figures import TASKS, make

REPORTS = {
    "collect": {"teacher": "scripted", "tasks": 240, "trajectories": 632},
    "sft_corpus": {"samples": {"action": 1034, "extraction": 0}},
    "sft": {"parameters": {"base": 2_387_392}},
    "mine": {"prompts": 182},
}


def make_demo(root: Path) -> Path:
    for stage, report in REPORTS.items():
        (root / stage).mkdir(parents=True)
        (root / stage / "report.json").write_text(json.dumps(report))
    for folder, name in (("sft/export", "model.safetensors"), ("mine/prompts", "a.array_record")):
        (root / folder).mkdir()
        (root / folder / name).write_bytes(folder.encode())
    (root / "sft_corpus/a.array_record").write_bytes(b"corpus")
    return root


def finish_training(folder: Path) -> None:
    """Writes the files that the stages of one training and its evaluation leave."""
    row = {"step": 1, "dynamic_sampling/batches": 2, "kl_ref": 0.5, "eval/reward": 0.8, "eval/exact": 0.7}
    report = {"prompts": 100, "held_out": 10, "iterations": 1, "optimizer_steps": 4, "seconds": 9.0}
    tasks = [
        {
            "task_id": task,
            "site": "click-button",
            "successes": [number % 2 == 0],
            "steps": [2],
            "outcomes": ["done"],
            "trajectory_ids": ["t"],
        }
        for number, task in enumerate(TASKS)
    ]
    results = {"label": "rl", "model": "m", "runs": 1, "tasks": tasks}
    files: dict[str, Any] = {
        "rl/config.json": {"corpus": "mined"},
        "rl/report.json": {**report, "first": row, "final": {**row, "eval/reward": 0.9}},
        "evaluate/rl/report.json": {"seconds": 5.0},
        "evaluate/rl/results.json": results,
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(to_json(content))
    (folder / "rl/metrics.jsonl").write_text(json.dumps(row) + "\n")


@pytest.fixture
def config(tmp_path):
    config = get_config("demo")
    config.run = str(make_demo(tmp_path / "demo"))
    config.output = str(tmp_path / "results")
    config.variants = ("full", "dapo")
    config.seeds = (42, 43)
    return config


def save_all(config, but: tuple[tuple[str, int], ...] = ()) -> Path:
    folder = Path(config.output)
    wanted = [(SFT, 0), *((variant, seed) for variant in config.variants for seed in config.seeds)]
    for variant, seed in wanted:
        if (variant, seed) not in but:
            save(run_path(folder, variant, seed), make(variant, seed, set(range(10 + seed % 2))))
    ablations.begin(from_config(AblationSettings, config), folder)
    return folder


def test_result_files_alone_make_the_page(config, tmp_path, capsys):
    save_all(config)
    # As after a checkout: without the demo's run.
    config.run = str(tmp_path / "nowhere")
    ablations.main(config, tmp_path)
    assert "ablations.md: 5 of 5 results are there" in capsys.readouterr().out
    page = (tmp_path / "ablations.md").read_text()
    assert "Not run yet" not in page
    assert "| dapo | 26.2 (" in page
    assert "none of 1 variants" in page
    for variant in config.variants:
        assert f"![Training dynamics of {variant}]({variant}.svg)" in page
        assert (tmp_path / f"{variant}.svg").read_text().startswith("<svg xmlns")
    figures = json.loads((tmp_path / "figures.json").read_bytes())
    assert [row["variant"] for row in figures["variants"]] == ["full", "dapo"]


def test_missing_results_are_run_or_listed(config, tmp_path):
    save_all(config, but=(("dapo", 43),))
    (tmp_path / "demo/mine/report.json").unlink()
    with pytest.raises(UserError, match=r"mine has not finished: run `python -m experiments\.demo`"):
        ablations.main(config, tmp_path)
    assert "Not run yet: dapo 43." in (tmp_path / "ablations.md").read_text()


def test_finished_stages_are_collected_and_not_run_again(config, tmp_path):
    folder = save_all(config, but=(("dapo", 43),))
    finish_training(tmp_path / "dapo/43")
    ablations.main(config, tmp_path)
    (run,) = load_runs(folder, ["dapo"], [43])[1:]
    assert list(run.tasks.values())[:3] == [(True,), (False,), (True,)]
    assert run.training is not None
    assert run.training.generation_batches == 2
    assert run.training.curves["kl_ref"] == (0.5,)
    assert run.training.after is not None
    assert run.training.after.reward == 0.9


@pytest.mark.parametrize("change", ["iterations", "model"])
def test_results_of_other_settings_or_inputs_are_not_mixed(config, tmp_path, change):
    folder = save_all(config, but=(("dapo", 43),))
    if change == "iterations":
        config.iterations = 11
    else:
        (tmp_path / "demo/sft/export/model.safetensors").write_bytes(b"another")
    with pytest.raises(UserError, match="iterations" if change == "iterations" else "sft/export"):
        ablations.begin(from_config(AblationSettings, config), folder)


def test_a_damaged_result_is_named(config, tmp_path):
    folder = save_all(config)
    run_path(folder, "dapo", 42).write_text("{")
    with pytest.raises(UserError, match=r"dapo-42\.json: not a result"):
        ablations.main(config, tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("variants", ("full", "grpo"), "'grpo': use some of full"),
        ("seeds", (1, 1), "none twice"),
        ("jobs", 0, "make it 1 or more"),
    ],
)
def test_invalid_settings_are_reported(config, tmp_path, key, value, message):
    config[key] = value
    with pytest.raises(UserError, match=message):
        ablations.main(config, tmp_path)


def test_the_plan_is_seed_by_seed_on_the_right_corpus(tmp_path):
    settings = AblationSettings(variants=("full", "full_corpus", "dapo"))
    chains = ablations.plan(settings, tmp_path)
    assert [chain.key for chain in chains][:5] == [
        (SFT, 0),
        ("full", 42),
        ("full_corpus", 42),
        ("dapo", 42),
        ("full", 43),
    ]
    commands = {chain.name: " ".join(chain.stages[0].command()) for chain in chains}
    assert "configs/rl.py:demo --config.seed=42" in commands["full 42"]
    assert "configs/rl.py:demo,dapo " in commands["dapo 43"]
    assert "prompts=runs/demo/mine/prompts" in commands["dapo 42"]
    assert "prompts=runs/demo/sft_corpus" in commands["full_corpus 42"]


def test_every_ablation_of_rl_is_in_the_table():
    assert set(rl.ABLATIONS) <= set(AblationSettings().variants)
