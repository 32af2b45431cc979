"""The ablations' command on hand-made results: what is planned, kept, refused and written."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from collection.ablations.records import SFT, load_runs, run_path, save
from collection.evaluation.results import to_json
from configs import rl
from configs.ablations import get_config
from experiments import ablations
from experiments.chains import Chain, Stage, core_shares, run_chains
from rmsweb_jax.errors import UserError
from rmsweb_jax.progress import Progress
from tests.ablations.test_figures import TASKS, make

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
    """What the stages leave behind of one training and its evaluation."""
    row = {"step": 1, "refill/batches": 2, "kl_ref": 0.5, "eval/reward": 0.8, "eval/exact": 0.7}
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


def keep_all(config, but: tuple[tuple[str, int], ...] = ()) -> Path:
    folder = Path(config.output) / "ablations"
    wanted = [(SFT, 0), *((variant, seed) for variant in config.variants for seed in config.seeds)]
    for variant, seed in wanted:
        if (variant, seed) not in but:
            save(run_path(folder, variant, seed), make(variant, seed, set(range(10 + seed % 2))))
    ablations.begin(config.to_dict(), folder)
    return folder


def test_results_alone_make_the_page_and_nothing_runs_again(config, tmp_path, capsys):
    folder = keep_all(config)
    # As after a checkout: neither the demo's run nor a workdir is there.
    config.run = str(tmp_path / "nowhere")
    ablations.main(config, tmp_path)
    assert "ablations.md: 5 of 5 results are there" in capsys.readouterr().out
    page = (tmp_path / "results/ablations.md").read_text()
    assert "Missing" not in page
    assert "| dapo | 26.2 (" in page
    assert "no interval leaves out zero" in page
    for variant in config.variants:
        assert f"![{variant}](ablations/{variant}.svg)" in page
        assert (folder / f"{variant}.svg").read_text().startswith("<svg xmlns")
    widths = {line.count("|") for line in page.splitlines() if line.startswith("| dapo")}
    assert widths == {line.count("|") for line in page.splitlines() if line.startswith("| variant")}


def test_what_is_missing_is_run_or_said(config, tmp_path):
    keep_all(config, but=(("dapo", 43),))
    (tmp_path / "demo/mine/report.json").unlink()
    with pytest.raises(UserError, match=r"mine has not finished: run `python -m experiments\.demo`"):
        ablations.main(config, tmp_path)
    assert "**Missing so far** (1): dapo 43." in (tmp_path / "results/ablations.md").read_text()


def test_finished_stages_are_collected_and_not_run_again(config, tmp_path):
    folder = keep_all(config, but=(("dapo", 43),))
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
    folder = keep_all(config, but=(("dapo", 43),))
    if change == "iterations":
        config.iterations = 11
    else:
        (tmp_path / "demo/sft/export/model.safetensors").write_bytes(b"another")
    with pytest.raises(UserError, match="iterations" if change == "iterations" else "sft/export"):
        ablations.begin(config.to_dict(), folder)


def test_a_damaged_result_is_named(config, tmp_path):
    folder = keep_all(config)
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
def test_settings_that_cannot_be_used_are_told(config, tmp_path, key, value, message):
    config[key] = value
    with pytest.raises(UserError, match=message):
        ablations.main(config, tmp_path)


def test_the_plan_is_seed_by_seed_on_the_right_corpus(tmp_path):
    settings = get_config("demo").to_dict()
    settings["variants"] = ("full", "full_corpus", "dapo")
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
    assert set(rl.ABLATIONS) <= set(get_config("demo").variants)


def script(folder: Path, name: str, text: str) -> Stage:
    """A stage that runs `text` in a module of its own, which finds its workdir in `workdir`."""
    (folder / f"{name}.py").write_text(
        "import json, os, pathlib, sys\nworkdir = pathlib.Path(sys.argv[-1].partition('=')[2])\n" + text
    )
    return Stage(folder / name, name, ())


@pytest.fixture
def run(tmp_path):
    def run(chains: list[Chain], jobs: int) -> dict[str, str]:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        progress = Progress(tmp_path, "test", len(chains))
        return {chain.name: error for chain, error in run_chains(chains, jobs, environment, progress)}

    return run


def test_chains_run_in_order_and_a_failure_ends_its_own_alone(tmp_path, run):
    done = "(workdir / 'report.json').write_text(json.dumps(sorted(os.sched_getaffinity(0))))\n"
    first = script(tmp_path, "first", done)
    second = script(
        tmp_path, "second", f"assert os.path.exists({str(first.folder / 'report.json')!r})\n{done}"
    )
    bad = script(tmp_path, "bad", "print('error: no such thing', file=sys.stderr); sys.exit(2)\n")
    never = script(tmp_path, "never", done)
    silent = script(tmp_path, "silent", "")
    chains = [
        Chain(("a", 1), "good", (first, second)),
        Chain(("b", 1), "bad", (bad, never)),
        Chain(("c", 1), "silent", (silent,)),
    ]
    errors = run(chains, 2)
    assert errors["good"] == ""
    assert re.search(r"bad: no such thing \(log: .*bad/log\.txt\)", errors["bad"])
    assert not never.done
    # A stage that ends well without a report has not done its work.
    assert "exit code 0" in errors["silent"]
    cores = json.loads((first.folder / "report.json").read_text())
    assert set(cores) in core_shares(2)
    before = (first.folder / "report.json").stat().st_mtime_ns
    assert run(chains[:1], 1) == {"good": ""}
    assert (first.folder / "report.json").stat().st_mtime_ns == before


def test_closing_stops_what_runs_in_order(tmp_path):
    # Opening a pipe waits for its other side, so that the quick one ends when the slow one is under way.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    slow = script(
        tmp_path,
        "slow",
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"
        f"open({str(pipe)!r}, 'w')\nsignal.sigwait([signal.SIGINT])\n(workdir / 'stopped').touch()\n",
    )
    quick = script(tmp_path, "quick", f"open({str(pipe)!r})\n(workdir / 'report.json').touch()\n")
    chains = [Chain(("a", 1), "slow", (slow,)), Chain(("b", 1), "quick", (quick,))]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    running = run_chains(chains, 2, environment, Progress(tmp_path, "test", 2))
    chain, error = next(running)
    assert (chain.name, error) == ("quick", "")
    running.close()
    assert (slow.folder / "stopped").exists()


@pytest.mark.parametrize("jobs", [1, 2, 3, 7])
def test_cores_are_dealt_out(jobs):
    cores = os.sched_getaffinity(0)
    shares = core_shares(jobs)
    assert len(shares) == jobs
    assert all(shares)
    assert set().union(*shares) == cores
    if jobs <= len(cores):
        assert sum(map(len, shares)) == len(cores)
