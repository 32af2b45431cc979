"""The ablations' command on hand-made results: plan, result files, refusals, page; the draw of prompts."""

import json
from pathlib import Path
from typing import Any

import pytest

from collection.evaluation.results import to_json
from configs import rl
from configs.studies.ablations import get_config
from experiments.studies.ablations import run as ablations
from experiments.studies.ablations.prompts import draw
from experiments.studies.ablations.records import (
    SFT,
    SFT_ON_PROMPTS,
    BrowserRun,
    TrainingRun,
    load_runs,
    run_path,
    save,
)
from experiments.studies.ablations.settings import VARIANTS, AblationSettings
from rmsweb_jax.errors import UserError
from rmsweb_jax.settings import from_config
from tests.evaluation.made import results
from tests.studies.ablations.test_figures import HELD_OUT, TASKS, played, training

REPORTS = {
    "collect": {"teacher": "scripted", "tasks": 240, "trajectories": 632},
    "sft_corpus": {"samples": {"action": 1034, "text": 0}},
    "sft": {"parameters": {"base": 2_387_392}},
    "collect_policy": {},
    "mine": {"prompts": 182},
    "prompts": {
        "mined": {"accepted": 90, "solved": 50, "hard": 42},
        "drawn": 126,
        "drawn_mined": 120,
        "held_out": {"hard": 20},
    },
}


def make_corpus(root: Path) -> Path:
    """The finished stages that all trainings share."""
    for stage, report in REPORTS.items():
        (root / stage).mkdir(parents=True)
        (root / stage / "report.json").write_text(json.dumps(report))
    for folder, name in (("sft/export", "model.safetensors"), ("prompts/prompts", "a.array_record")):
        (root / folder).mkdir()
        (root / folder / name).write_bytes(folder.encode())
    (root / "sft_corpus/a.array_record").write_bytes(b"corpus")
    save(root / "prompts/held_out.json", HELD_OUT)
    return root


def finish_training(folder: Path, stage: str = "rl") -> None:
    """Writes the files that the stages of one training and its evaluation leave."""
    row = {"step": 1, "kl_ref": 0.5}
    counts = {"samples": 100, "steps": 4} if stage == "sft" else {"prompts": 100, "optimizer_steps": 4}
    files: dict[str, Any] = {
        f"{stage}/report.json": {**counts, "seconds": 9.0},
        "evaluate/rl/report.json": {"seconds": 5.0},
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(to_json(content))
    solved = [[number % 2 == 0] for number in range(len(TASKS))]
    results("rl", solved, lambda task, run: {"task_id": TASKS[task]}).write(folder / "evaluate/rl")
    (folder / stage / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    replies = [
        {"step": step, "sample_id": prompt, "reward": float(step == 2 and number < 3)}
        for step in (1, 2)
        for number, prompt in enumerate(HELD_OUT.prompts)
    ]
    (folder / "rl").mkdir(exist_ok=True)
    (folder / "rl/report.json").write_text("{}") if stage == "sft" else None
    (folder / "rl/replies.jsonl").write_text("".join(json.dumps(reply) + "\n" for reply in replies))


@pytest.fixture
def config(tmp_path):
    make_corpus(tmp_path / "corpus")
    demo = tmp_path / "demo/sft_corpus"
    demo.mkdir(parents=True)
    (demo / "report.json").write_text("{}")
    config = get_config("demo")
    config.run = str(tmp_path / "demo")
    config.output = str(tmp_path / "results")
    config.variants = ("full", "dapo")
    config.seeds = (42, 43)
    config.browser_seeds = 1
    return config


def save_all(config, tmp_path: Path, but: tuple[tuple[str, int], ...] = ()) -> Path:
    folder, settings = Path(config.output), from_config(AblationSettings, config)
    for variant, seed, type_ in ablations.missing(settings, folder):
        if (variant, seed) not in but:
            make = training if type_ is TrainingRun else played
            save(run_path(folder, variant, seed, type_), make(variant, seed, set(range(10 + seed % 2))))
    ablations.begin(settings, tmp_path / "corpus", folder)
    return folder


def test_result_files_alone_make_the_page(config, tmp_path, capsys):
    save_all(config, tmp_path)
    # As after a checkout: without any run.
    config.run = str(tmp_path / "nowhere")
    (tmp_path / "other").mkdir()
    ablations.main(from_config(AblationSettings, config), tmp_path / "other")
    assert "ablations.md: 4 trainings and 3 evaluations are there, 0 missing" in capsys.readouterr().out
    page = (tmp_path / "other/ablations.md").read_text()
    assert "Not run yet" not in page
    assert "| dapo | 25.0 (" in page
    assert "| the salvage anchor helps | +1.7 / +5.9 / +1.0 |" in page
    figures = json.loads((tmp_path / "other/figures.json").read_bytes())
    assert [row["variant"] for row in figures["variants"]] == ["full", "dapo"]


def test_missing_results_are_run_or_listed(config, tmp_path):
    save_all(config, tmp_path, but=(("dapo", 43),))
    (tmp_path / "demo/sft_corpus/report.json").unlink()
    with pytest.raises(UserError, match=r"sft_corpus has not finished: run `python -m experiments\.demo`"):
        ablations.main(from_config(AblationSettings, config), tmp_path)
    assert "Not run yet: dapo 43." in (tmp_path / "ablations.md").read_text()


@pytest.mark.parametrize("variant", ["dapo", SFT_ON_PROMPTS])
def test_finished_stages_are_collected_and_not_run_again(config, tmp_path, variant):
    config.variants = ("full", variant)
    folder = save_all(config, tmp_path, but=((variant, 42),))
    finish_training(tmp_path / variant / "42", "sft" if variant == SFT_ON_PROMPTS else "rl")
    ablations.main(from_config(AblationSettings, config), tmp_path)
    (run,) = load_runs(folder, [variant], [42], TrainingRun)
    assert run.exact == "111" + 77 * "0"
    assert run.curves["kl_ref"] == (0.5,)
    assert (run.prompts, run.optimizer_steps) == (100, 4)
    in_browser = load_runs(folder, [variant], [42], BrowserRun)[-1]
    assert list(in_browser.tasks.values())[:3] == [(True,), (False,), (True,)]


def test_a_training_that_answered_too_little_is_named(config, tmp_path):
    save_all(config, tmp_path, but=(("dapo", 42),))
    finish_training(tmp_path / "dapo/42")
    (tmp_path / "dapo/42/rl/replies.jsonl").write_text('{"step": 2, "sample_id": "p0", "reward": 1.0}\n')
    with pytest.raises(UserError, match=r"dapo/42/rl: it answered 1 of 80 prompts"):
        ablations.main(from_config(AblationSettings, config), tmp_path)


@pytest.mark.parametrize("change", ["iterations", "model"])
def test_results_of_other_settings_or_inputs_are_not_mixed(config, tmp_path, change):
    folder = save_all(config, tmp_path, but=(("dapo", 43),))
    if change == "iterations":
        config.iterations = 11
    else:
        (tmp_path / "corpus/sft/export/model.safetensors").write_bytes(b"another")
    with pytest.raises(UserError, match="iterations" if change == "iterations" else "sft/export"):
        ablations.begin(from_config(AblationSettings, config), tmp_path / "corpus", folder)


def test_a_damaged_result_is_named(config, tmp_path):
    folder = save_all(config, tmp_path)
    run_path(folder, "dapo", 42, TrainingRun).write_text("{")
    with pytest.raises(UserError, match=r"dapo-42\.json: not a result"):
        ablations.main(from_config(AblationSettings, config), tmp_path)


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
        ablations.main(from_config(AblationSettings, config), tmp_path)


def test_the_plan_trains_seed_by_seed_and_plays_last(tmp_path):
    corpus = make_corpus(tmp_path / "corpus")
    settings = AblationSettings(
        variants=("full", "full_corpus", SFT_ON_PROMPTS), seeds=(42, 43), browser_seeds=1
    )
    chains = ablations.plan(settings, tmp_path)
    assert [chain.name for chain in chains] == [
        *(f"{variant} {seed}" for seed in (42, 43) for variant in settings.variants),
        "sft in the browser",
        *(f"{variant} 42 in the browser" for variant in settings.variants),
    ]
    commands = {chain.name: " ".join(chain.stages[0].command()) for chain in chains}
    assert "configs/rl.py:demo " in commands["full 42"] and "--config.seed=42 " in commands["full 42"]
    assert f"prompts={corpus / 'prompts/prompts'}" in commands["full 42"]
    assert f"prompts={corpus / 'sft_corpus'}" in commands["full_corpus 42"]
    for name in ("full 42", "full_corpus 42"):
        assert f"eval_prompts={corpus / 'prompts/held_out'}" in commands[name]
    # 30 iterations of 4 steps; 126 prompts are 4 steps of 32 samples.
    supervised = next(chain for chain in chains if chain.name == f"{SFT_ON_PROMPTS} 42").stages
    assert supervised[0].settings[-1] == "--config.epochs=30"
    assert "--config.learning_rate=0.0" in supervised[1].settings


def test_the_sft_policy_is_played_once(config, tmp_path):
    settings = from_config(AblationSettings, config)
    browser = {key[:2] for key in ablations.missing(settings, tmp_path) if key[2] is BrowserRun}
    assert browser == {(SFT, 0), ("full", 42), ("dapo", 42)}


def test_prompts_are_drawn_in_equal_numbers():
    fates = {f"a{n}": "accepted" for n in range(9)} | {f"s{n}": "solved" for n in range(5)}
    fates |= {f"u{n}": "unsolved" for n in range(2)} | {f"i{n}": "incompetent" for n in range(2)}
    chosen = draw([fates], per_class=100, seed=0)
    assert sorted(name[0] for name in chosen) == sorted("aaaassssiiuu")
    assert chosen == sorted(set(chosen)) == draw([dict(reversed(fates.items()))], per_class=100, seed=0)
    assert len(draw([fates], per_class=3, seed=0)) == 9
    # A class with too few is filled up.
    filled = draw([fates, {"x0": "unsolved", "y0": "solved"}], per_class=5, seed=0)
    assert len(filled) == 15 and "x0" in filled and "y0" not in filled
    with pytest.raises(UserError, match=r"no prompts that are hard under config\.model"):
        draw([{"a": "accepted", "s": "solved"}], per_class=3, seed=0)


def test_every_ablation_of_rl_is_offered():
    assert set(rl.ABLATIONS) <= set(VARIANTS)
