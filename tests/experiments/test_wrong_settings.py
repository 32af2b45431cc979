"""Wrong settings, through the scripts themselves."""

from pathlib import Path

import pytest

from rmsweb_jax.records.staging import CONFIG
from tests.compilations import compilations
from tests.scripts import run_script

OBJECTIVE = [
    ("temperature", "0", "more than 0 and at most 5"),
    ("temperature", "-1", "more than 0 and at most 5"),
    ("temperature", "1000", "more than 0 and at most 5"),
    ("objective.clip_low", "-0.1", "at least 0 and less than 1"),
    ("objective.clip_low", "2", "at least 0 and less than 1"),
    ("objective.clip_high", "-0.1", "0 or more"),
    ("objective.kl_coef", "-1", "0 or more"),
    ("objective.salvage_weight", "-0.1", "0 or more"),
    ("max_salvage_groups", "-1", "0 or more"),
    ("max_response_tokens", "0", "1 or more"),
    ("num_samples", "1", "2 or more"),
    ("train_groups", "0", "1 or more"),
    ("endpoint.concurrency", "0", "1 or more"),
    ("endpoint.timeout_s", "0", "more than 0"),
    ("endpoint.max_gap", "0", "more than 0"),
]
BOTH = [
    ("learning_rate", "-1e-3", "at least 0 and less than 1"),
    ("learning_rate", "1e30", "at least 0 and less than 1"),
    ("weight_decay", "-0.01", "at least 0 and at most 1"),
    ("clip_norm", "0", "more than 0"),
    ("epochs", "0", "1 or more"),
    ("checkpoints_kept", "0", "1 or more"),
]
SFT = [
    ("warmup_ratio", "1.5", "at least 0 and less than 1"),
    ("eval.share", "1", "at least 0 and less than 1"),
    ("batch_size", "0", "1 or more"),
    ("workers", "0", "1 or more"),
]
RL_NUMBERS = ["temperature", "objective.clip_high", "objective.kl_coef"]
NUMBERS = ["learning_rate", "lora.alpha"]
CASES = [
    *(("train_rl", key, value, f"make it {allowed}") for key, value, allowed in OBJECTIVE + BOTH),
    *(("train_sft", key, value, f"make it {allowed}") for key, value, allowed in BOTH + SFT),
    *(
        (script, key, value, "give a finite number")
        for script, keys in (("train_rl", RL_NUMBERS + NUMBERS), ("train_sft", NUMBERS))
        for key in keys
        for value in ("nan", "inf")
    ),
]
COMMANDS = {
    "train_rl": ("--config=configs/rl.py:smoke", "--config.prompts=nowhere", "--config.model=nowhere"),
    "train_sft": ("--config=configs/sft.py:smoke", "--config.corpus=nowhere"),
    "collect": ("--config=configs/collect.py:web", "--config.tasks_file=nowhere"),
    "judge": ("--config=configs/judge.py:demo", "--config.data=nowhere"),
}


def refusal(script: str, key: str, value: str, workdir: Path) -> tuple[int, list[str], list[str]]:
    """Runs a script with a wrong setting; returns its exit code, its lines, and what was compiled."""
    with compilations() as compiled:
        ended = run_script(
            f"experiments.{script}", *COMMANDS[script], f"--{key}={value}", f"--workdir={workdir}"
        )
    return ended.returncode, ended.stderr.splitlines(), compiled


@pytest.mark.parametrize(("script", "key", "value", "what"), CASES)
def test_a_wrong_setting_is_refused_before_anything_is_compiled(script, key, value, what, tmp_path):
    code, (line,), compiled = refusal(script, f"config.{key}", value, tmp_path / "run")
    assert code == 2 and compiled == []
    given = float(value) if "." in value or "e" in value else value
    assert line.startswith(f"error: config.{key} is {given}") and line.endswith(f": {what}")
    # The setting may be corrected in the same workdir.
    assert not (tmp_path / "run" / CONFIG).exists()


UNKNOWN = [
    (
        "train_rl",
        "config.objektive.kl_coef",
        "0",
        "unknown setting config.objektive.kl_coef: did you mean config.objective.kl_coef?",
    ),
    ("train_rl", "config.iterations", "many", "config.iterations is 'many': give a whole number"),
    (
        "train_rl",
        "config.reward",
        "all",
        "config.reward is 'all': use one of polarized, binary, text, or module:name",
    ),
    ("train_sft", "config.learning_rte", "1", "did you mean config.learning_rate?"),
    ("train_sft", "config.mesh", "2", "config.mesh"),
    ("train_sft", "wordir", "x", "Did you mean: workdir"),
    (
        "collect",
        "config.fleet.wrkers",
        "2",
        "unknown setting config.fleet.wrkers: did you mean config.fleet.workers?",
    ),
    (
        "collect",
        "config.guard.robots",
        "read",
        "config.guard.robots is 'read': use one of ignore, record, obey",
    ),
    ("collect", "config.actor.cap_usd", "-1", "config.actor.cap_usd is -1.0: make it 0 or more"),
    (
        "judge",
        "config.judges",
        "('oracle',)",
        "config.judges is 'oracle': use one of reward, recorded, own_outcome",
    ),
    ("judge", "config.workers", "0", "config.workers is 0: make it 1 or more"),
    ("judge", "config.data", "", "config.data is empty: give --config.data=DIR"),
]


@pytest.mark.parametrize(("script", "flag", "value", "what"), UNKNOWN)
def test_an_unknown_or_wrong_flag_is_one_line(script, flag, value, what, tmp_path):
    code, (line,), _ = refusal(script, flag, value, tmp_path / "run")
    assert code == 2 and line.startswith("error: ") and what in line and "/experiments/" not in line
