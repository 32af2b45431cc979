"""The whole stage on a tiny model: a bandit that it learns, resume, errors, export."""

import dataclasses
import gc
import hashlib
import json
import os
import re
import shutil
import signal
import sys
import weakref
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.rl import ABLATIONS, VARIANTS, get_config
from rmsweb_jax import train_rl
from rmsweb_jax.actions.reward import REWARDS, score_response
from rmsweb_jax.data.encoding import Encoder
from rmsweb_jax.data.sources import is_held_out
from rmsweb_jax.decoding.engine import Engine
from rmsweb_jax.errors import StoppedError, UserError
from rmsweb_jax.own import file_digest
from rmsweb_jax.records.dataset import write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import RlPrompt, SftSample
from rmsweb_jax.rl import metrics as evaluate_module
from rmsweb_jax.rl import train as train_module
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.rl.prompts import open_rl_data
from rmsweb_jax.rl.rollout import Rollouts
from rmsweb_jax.rl.train import train
from rmsweb_jax.settings import from_config
from rmsweb_jax.training.metrics import read_metrics
from rmsweb_jax.training.step import adamw
from tests.compilations import compiled_by_step
from tests.policies import REPLY, KilledError, perturb, random_messages, weights


def rl_prompt(number: int, images: ImageStore, target: str = "") -> RlPrompt:
    return RlPrompt(
        prompt_id=f"p{number}",
        task_id=f"t{number}",
        site="s",
        category="ui_navigation",
        messages=random_messages(number, images, repeats=1 + number % 3 if number < 19 else 200),
        target=target or REPLY % (number + 1),
    )


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    """Twenty prompts with a screenshot each, the last one much longer."""
    folder = tmp_path_factory.mktemp("prompts")
    images = ImageStore(folder)
    write_dataset(folder, (rl_prompt(number, images) for number in range(20)), "rl_prompts")
    return folder


@pytest.fixture
def config(random_policy, prompts, monkeypatch):
    """Responses are one token, and right when it does not begin with a small letter."""

    def score(response: str, target: str) -> float:
        assert score_response(target, target) == 1.0
        return 0.0 if response[:1].islower() else 1.0

    monkeypatch.setitem(REWARDS, "polarized", score)
    monkeypatch.setattr(evaluate_module, "score_response", score)
    config = get_config("smoke")
    config.model, config.prompts = str(random_policy), str(prompts)
    config.max_prompt_tokens, config.max_pixels = 256, 4096
    config.max_response_tokens, config.row_tokens = 1, 512
    config.lora.rank, config.lora.alpha = 4, 8.0
    config.learning_rate = 2e-2
    config.iterations, config.eval_every = 3, 2
    return config


def run(config, workdir: Path) -> dict:
    return train(from_config(RlConfig, config), workdir)


def curves(workdir) -> list[dict]:
    timing = ("time", "tokens_per_second", "mfu")
    return [
        {key: value for key, value in row.items() if key.partition("/")[0] not in timing}
        for row in read_metrics(workdir)
    ]


@pytest.mark.slow
def test_nothing_is_compiled_after_the_first_iteration(config, tmp_path, monkeypatch):
    found = compiled_by_step(monkeypatch, lambda: run(config, tmp_path))
    assert {"jit(zero)", "jit(run)", "jit(update)"} <= set(found.pop(1))
    # The first checkpoint copies the state.
    assert set(found.pop(2)) <= {"jit(copy)"}
    assert found == {3: []}


@pytest.mark.slow
def test_a_bandit_is_learned(config, tmp_path, random_policy):
    config.iterations, config.train_groups, config.gen_batch_groups, config.num_samples = 15, 8, 8, 8
    report = run(config, tmp_path)
    rows = read_metrics(tmp_path)
    rewards = [row["reward/mean"] for row in rows]
    assert np.mean(rewards[-5:]) > np.mean(rewards[:3]) + 0.15, rewards
    assert report["final"]["eval/reward"] > report["first"]["eval/reward"]
    assert rows[0]["logp/gap"] < 0 < rows[-1]["logp/gap"]
    # The policy starts as its reference, then leaves it; each iteration begins on policy.
    assert rows[0]["kl_ref"] >= 0 and rows[-1]["kl_ref"] > rows[0]["kl_ref"]
    assert all(row["sampler/gap_max"] < 1e-3 for row in rows)
    assert all(row["gates/accepted"] <= 1 and row["response/truncated"] <= 1 for row in rows)
    assert report["held_out"] == sum(is_held_out(f"t{number}", 0.1) for number in range(19)) > 0
    assert report["prompts"] + report["held_out"] == 19 and report["dropped_ids"] == ["p19"]
    assert json.loads((tmp_path / "report.json").read_text()) == report
    shown = [json.loads(line) for line in (tmp_path / "groups.jsonl").read_text().splitlines()]
    assert {group["fate"] for group in shown} > {"accepted", "solved"}
    assert all(len(group["responses"]) == 8 and group["category"] == "ui_navigation" for group in shown)
    assert report["final"]["eval/reward"] == report["final"]["eval/reward/category/ui_navigation"]
    assert report["final"]["eval/reward/type/click_element_by_index"] == report["final"]["eval/reward"]
    before, after = weights(random_policy), weights(tmp_path / "export")
    chex.assert_trees_all_equal(before["visual"], after["visual"])
    attention, mlp = (
        [tree["language_model"]["first_layers"][0][name] for tree in (before, after)]
        for name in ("self_attn", "mlp")
    )
    chex.assert_trees_all_equal(*mlp)
    assert (attention[0]["q_proj"]["kernel"] != attention[1]["q_proj"]["kernel"]).any()
    assert (tmp_path / "export" / "tokenizer.json").exists()


@pytest.mark.slow
def test_a_run_that_is_stopped_ends_bitwise_like_an_unbroken_one(config, tmp_path, monkeypatch):
    """Killed in its second iteration, asked to stop in its third."""
    config.iterations = 4
    config.checkpoint_every, config.learning_rate = 2, 1e-3
    whole = run(config, tmp_path / "whole")
    update = train_module.update_policy
    alive = weakref.WeakSet()

    class Counted(Engine):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            alive.add(self)

    def kill(*args, version, **kwargs):
        assert not alive, "the engine's weights outlive the sampling"
        if version == 1:
            raise KilledError
        return update(*args, version=version, **kwargs)

    def terminate(*args, version, **kwargs):
        if version == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return update(*args, version=version, **kwargs)

    for stop, error in ((kill, KilledError), (terminate, StoppedError)):
        with monkeypatch.context() as patch, pytest.raises(error):
            patch.setattr(train_module, "Engine", Counted)
            patch.setattr(train_module, "update_policy", stop)
            run(config, tmp_path / "stopped")
        assert not (tmp_path / "stopped" / "report.json").exists()
    # What the run is made of must be the same as before.
    others = {"prompts": tmp_path / "prompts", "model": tmp_path / "base"}
    write_dataset(
        others["prompts"],
        (rl_prompt(number, ImageStore(others["prompts"])) for number in range(22)),
        "rl_prompts",
    )
    shutil.copytree(config.model, others["model"])
    perturb(others["model"] / "model.safetensors")
    changed = {"prompts": r"prompts at .*records\)", "model": r"base model at .*model.safetensors\)"}
    for name, what in changed.items():
        other = config.copy_and_resolve_references()
        other[name] = str(others[name])
        with pytest.raises(UserError, match=rf"stopped: what .* has changed since it began: {what}: put"):
            run(other, tmp_path / "stopped")
    resumed = run(config, tmp_path / "stopped")
    assert len(curves(tmp_path / "whole")) == 4
    assert curves(tmp_path / "whole") == curves(tmp_path / "stopped")
    for name in ("groups.jsonl", "replies.jsonl"):
        assert (tmp_path / "whole" / name).read_text() == (tmp_path / "stopped" / name).read_text()
    chex.assert_trees_all_equal(weights(tmp_path / "whole/export"), weights(tmp_path / "stopped/export"))
    assert whole.keys() == resumed.keys() and whole["optimizer_steps"] == resumed["optimizer_steps"]


@pytest.mark.slow
def test_with_a_recurrence_a_killed_run_ends_bitwise_like_an_unbroken_one(
    config, recurrent_policy, tmp_path, monkeypatch
):
    config.model, config.iterations, config.checkpoint_every = str(recurrent_policy), 4, 2
    config.max_response_tokens = 4
    run(config, tmp_path / "whole")
    update = train_module.update_policy

    def kill(*args, version, **kwargs):
        if version == 2:
            raise KilledError
        return update(*args, version=version, **kwargs)

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(train_module, "update_policy", kill)
        run(config, tmp_path / "killed")
    run(config, tmp_path / "killed")
    assert curves(tmp_path / "whole") == curves(tmp_path / "killed")
    # Responses are drawn from the state of their prompt, and trained on in rows that share it.
    assert all(row["sampler/gap_max"] < 1e-4 for row in read_metrics(tmp_path / "whole"))
    found, base = weights(tmp_path / "killed/export"), weights(recurrent_policy)
    chex.assert_trees_all_equal(weights(tmp_path / "whole/export"), found)
    recurrence, before = (tree["language_model"]["layers"][0]["linear_attn"] for tree in (found, base))
    assert (recurrence["in_proj_qkv"]["kernel"] != before["in_proj_qkv"]["kernel"]).any()


def test_without_any_contrast_only_anchor_and_kl_are_trained(config, tmp_path, monkeypatch):
    monkeypatch.setitem(REWARDS, "polarized", lambda response, target: float(response == target))
    config.iterations = 2
    report = run(config, tmp_path)
    for row in read_metrics(tmp_path):
        assert (
            row["dynamic_sampling/exhausted"] == 1
            and row["dynamic_sampling/accepted"] == 0
            and row["dynamic_sampling/salvaged"] == 2
        )
        assert row["gates/std_rejected_unsolved"] == 1 and row["pg_loss"] == 0 and row["salvage_loss"] > 0
        assert "logp/gap" not in row
    assert report["optimizer_steps"] == 4


@pytest.mark.slow
def test_generation_goes_on_while_the_policy_is_updated(config, tmp_path):
    config.iterations, config.max_staleness, config.train_groups, config.gen_batch_groups = 8, 1, 8, 8
    # Long enough for some to be under way when enough groups are complete.
    config.num_samples, config.max_response_tokens, config.row_tokens = 8, 24, 768
    run(config, tmp_path / "run")
    rows = read_metrics(tmp_path / "run")
    assert rows[0]["staleness/0"] > 0 and "staleness/1" not in rows[0]
    assert sum(row.get("staleness/1", 0) for row in rows) > 0
    assert not any("staleness/2" in row for row in rows)
    # Tokens of the policy before the update weigh about 1, those of earlier ones other.
    assert all(0.5 < row["importance/mean"] <= 2 for row in rows)
    assert any(abs(row["importance/mean"] - 1) > 1e-3 for row in rows[1:])
    rewards = [row["reward/mean"] for row in rows]
    assert np.mean(rewards[-3:]) > np.mean(rewards[:2]), rewards
    # Complete groups are saved, and taken after a resume.
    config.iterations = 9
    run(config, tmp_path / "run")
    assert len(read_metrics(tmp_path / "run")) == 9


def test_an_iteration_counts_what_it_drops_and_frees_its_examples(config, tmp_path, monkeypatch):
    made, example, take = [], Encoder.example, Rollouts.take

    def counted(self, sample):
        made.append(weakref.ref(found := example(self, sample)))
        return found

    def dropping(self, count, oldest=0):
        if self.version not in versions:
            versions.append(self.version)
            gc.collect()
            live.append(sum(one() is not None for one in made))
        self.dropped += 1
        return take(self, count, oldest)

    versions, live = [], []
    monkeypatch.setattr(Encoder, "example", counted)
    monkeypatch.setattr(Rollouts, "take", dropping)
    run(config, tmp_path)
    rows = read_metrics(tmp_path)
    assert [row["dynamic_sampling/dropped"] for row in rows] == [
        row["dynamic_sampling/batches"] for row in rows
    ]
    assert made and live == [0, 0, 0]


@pytest.mark.slow
def test_an_engine_that_stays_leaves_memory_for_the_gradient(config, tmp_path, monkeypatch):
    held = []

    def fit(policy, sizes, layout, memory, taken, cache_dtype):
        held.append(taken)
        return sizes

    monkeypatch.setattr(train_module, "device_memory", lambda device: 2**30)
    monkeypatch.setattr(train_module, "fit_memory", fit)
    config.rollout_lanes, config.iterations = 0, 1
    for config.max_staleness in (0, 1):
        run(config, tmp_path / str(config.max_staleness))
    # One engine for sampling and one for the last evaluation; or one for both.
    waiting, staying = held[0], held[-1]
    width = json.loads((tmp_path / "1" / "report.json").read_text())["row_tokens"]
    assert staying > waiting + width * 16 * 4  # At least the hidden states of a row.


@pytest.mark.slow
def test_three_steps_in_a_row_that_are_not_finite_stop_the_run_and_are_saved(config, tmp_path, monkeypatch):
    update = train_module.update_policy
    first = iter([1.0])

    def broken(steps, state, *args, **kwargs):
        """The adapters overflow after the first step; the first iteration is whole."""
        scale = next(first, np.inf)
        params = jax.tree.map(lambda x: x * scale, state.params)
        # A copy, since the update donates what it gets.
        given = jax.tree.map(jnp.copy, state.replace(params=params))
        updated = update(steps, given, *args, **kwargs)
        return dataclasses.replace(updated, state=updated.state.replace(params=state.params), finite=True)

    monkeypatch.setattr(train_module, "update_policy", broken)
    # Two steps an iteration, and a run stops between iterations.
    with pytest.raises(UserError, match=r"not finite in 4 optimizer steps in a row.*step 3 is saved"):
        run(config, tmp_path)
    rows = read_metrics(tmp_path)
    assert [row["skipped_steps"] for row in rows] == [0, 2, 2]
    assert [row["skipped_in_a_row"] for row in rows] == [0, 2, 4]
    assert not (tmp_path / "report.json").exists()
    with pytest.raises(UserError, match="not finite in 6"):  # The checkpoint has the count.
        config.iterations = 5
        run(config, tmp_path)


@pytest.mark.slow
def test_a_rate_that_ruins_the_weights_is_named_and_they_are_not_saved(config, tmp_path, monkeypatch):
    config.num_samples, config.train_groups, config.gen_batch_groups = 8, 8, 8
    with pytest.raises(UserError, match=r"^config.learning_rate is 1e\+30: make it .* less than 1$"):
        run({**config.to_dict(), "learning_rate": 1e30}, tmp_path)
    # The first iteration as it should be; then the optimizer alone has another rate.
    run({**config.to_dict(), "iterations": 1}, tmp_path)
    (tmp_path / "report.json").unlink()
    shutil.rmtree(tmp_path / "export")
    monkeypatch.setattr(train_module, "adamw", lambda rate, **settings: adamw(1e30, **settings))
    for _ in range(2):  # The same command says the same.
        with pytest.raises(UserError) as raised:
            run(config, tmp_path)
        assert re.fullmatch(
            rf"{tmp_path}: the updates of iteration 2, at config.learning_rate=0.02, made weights whose .* "
            r"are not numbers; this iteration is not saved: lower config.learning_rate and train in another "
            "--workdir",
            str(raised.value),
        )
        assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["1"]
    # What is saved can go on.
    monkeypatch.setattr(train_module, "adamw", adamw)
    assert run(config, tmp_path)["iterations"] == 3


def test_a_signal_in_the_last_evaluation_ends_the_run_which_goes_on_from_there(config, tmp_path, monkeypatch):
    """All is saved by then: a run that noted the signal would evaluate and export first."""
    config.iterations = 1
    evaluate = train_module.evaluate

    def interrupted(rollouts, *args):
        if rollouts.version == config.iterations:
            signal.raise_signal(signal.SIGUSR1)
        return evaluate(rollouts, *args)

    def handler(number, frame):
        raise KilledError

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with monkeypatch.context() as patch, pytest.raises(KilledError):
            patch.setattr(train_module, "evaluate", interrupted)
            run(config, tmp_path)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not (tmp_path / "report.json").exists()
    assert run(config, tmp_path)["iterations"] == 1


def test_own_functions_are_part_of_the_run(config, tmp_path, monkeypatch):
    """The example's GSPO: killed before its second step, refused with a changed file, and then finished."""
    source = Path(__file__).parents[2] / "docs/examples/my_own_loss.py"
    file = tmp_path / "own_gspo.py"
    file.write_text(source.read_text())
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_gspo", raising=False)
    config.iterations, config.max_salvage_groups = 2, 0
    config.gate, config.objective.loss = "own_gspo:without_std", "own_gspo:gspo"
    update, workdir = train_module.update_policy, tmp_path / "run"

    def kill(*args, version, **kwargs):
        if version == 1:
            raise KilledError
        return update(*args, version=version, **kwargs)

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(train_module, "update_policy", kill)
        train_rl(config, workdir)
    file.write_text(source.read_text().replace("LENGTH = 2048", "LENGTH = 1024"))
    file_digest.cache_clear()  # As a process of its own.
    with pytest.raises(
        UserError, match=r"other settings \(own_files.gate, own_files.objective.loss; own_files"
    ):
        train_rl(config, workdir)
    file.write_text(source.read_text())
    file_digest.cache_clear()
    report = train_rl(config, workdir)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert (report["loss"], report["gate"], report["reward"]) == (
        "own_gspo:gspo",
        "own_gspo:without_std",
        "polarized",
    )
    assert report["own_files"] == {
        "objective": {"loss": f"own_gspo:gspo {digest}"},
        "gate": f"own_gspo:without_std {digest}",
    }
    rows = read_metrics(workdir)
    assert report["optimizer_steps"] > 1 and all(row["norm/update"] > 0 for row in rows)
    assert all("log_ratio" in row and "pg_loss" not in row for row in rows)
    config.objective.loss = "own_gspo:dr_grpo"
    with pytest.raises(UserError, match=r"objective.loss was 'own_gspo:gspo', is 'own_gspo:dr_grpo'"):
        train_rl(config, workdir)


def test_an_own_function_is_tried_before_anything_else(config, tmp_path):
    config.model = str(tmp_path / "none")
    config.objective.loss = "docs.examples.my_own_loss:without_std"
    with pytest.raises(UserError, match=r"config\.objective\.loss is .*without_std\(\) takes 1 positional"):
        run(config, tmp_path)


def test_a_reward_that_is_no_number_is_one_line(config, tmp_path, monkeypatch):
    def broken(response, target):
        return score_response(response, target) if response == target else float("nan")

    monkeypatch.setitem(REWARDS, "polarized", broken)
    with pytest.raises(UserError, match=r"^prompt p\d+ of task t\d+: the reward .* by broken is \[.*nan"):
        run(config, tmp_path)
    assert not (tmp_path / "checkpoints").exists() or not any((tmp_path / "checkpoints").iterdir())


def test_too_few_prompts_are_one_line(config, tmp_path):
    config.max_prompt_tokens = 10
    with pytest.raises(UserError, match="0 training prompts"):
        run(config, tmp_path)
    config.max_prompt_tokens, config.gen_batch_groups = 256, 32
    with pytest.raises(UserError, match="one generation batch needs 32"):
        run(config, tmp_path)


def test_a_target_that_is_no_reply_is_one_line(config, tmp_path):
    images = ImageStore(tmp_path / "bad")
    write_dataset(tmp_path / "bad", [rl_prompt(0, images, '{"action":[]}')], "rl_prompts")
    config.prompts = str(tmp_path / "bad")
    with pytest.raises(UserError, match="p0 is not a valid reply"):
        run(config, tmp_path / "run")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """Seven actions and seven other texts."""
    folder = tmp_path_factory.mktemp("sft")
    images = ImageStore(folder)

    def sample(number: int) -> SftSample:
        kind = "action" if number % 2 else "text"
        return SftSample(
            sample_id=f"s{number}",
            task_id="t",
            site="s",
            kind=kind,
            messages=random_messages(number, images, repeats=1 + number % 3 if number < 19 else 200),
            response=REPLY % (number + 1) if number % 2 else "A list of prices.",
        )

    write_dataset(folder, (sample(number) for number in range(14)), "sft_samples")
    return folder


def test_the_policy_keeps_what_is_replayed(config, corpus, tmp_path):
    """The same run twice, with and without a weight of the replay's cross-entropy."""
    config.replay, config.replay_samples, config.max_response_tokens = str(corpus), 3, 40
    config.objective.replay_kl, config.epochs, config.iterations = 0.01, 2, 3
    losses = {}
    for weight in (0.0, 3.0):
        config.objective.replay_weight = weight
        report = run(config, tmp_path / f"{weight}")
        losses[weight] = [row["replay/loss"] for row in read_metrics(tmp_path / f"{weight}")]
    assert report["replay"]["prompts"] == 7
    assert losses[3.0][-1] < losses[0.0][-1] - 0.5, losses
    assert all(row["replay/kl"] > 0 for row in read_metrics(tmp_path / "3.0"))
    encoder = Encoder.load(Path(config.model), ImageStore(corpus), 4096)
    limits = {"max_prompt_tokens": 8, "held_out": 0.0, "workdir": tmp_path}
    with pytest.raises(UserError, match="no action can be replayed: 0 are held out, 7 are over 8 tokens"):
        open_rl_data(corpus, encoder, corpus="full", score=None, **limits)


def test_the_full_corpus_is_the_actions_of_the_sft_corpus(config, prompts, corpus, tmp_path):
    config.prompts, config.iterations = str(corpus), 1
    config.update({"corpus": "full", "eval_prompts": str(prompts), "gen_batch_groups": 7})
    report = run(config, tmp_path / "run")
    assert report["prompts"] == 7 and report["held_out"] == sum(
        is_held_out(f"t{number}", 0.1) for number in range(19)
    )


def test_settings_that_cannot_work_are_one_line(config):
    for key, value in (
        ("corpus", "half"),
        ("num_samples", 1),
        ("train_groups", 3),
        ("held_out", 1.0),
        ("reward", "exact"),
        ("max_staleness", -1),
        ("rollout_engine", "vllm"),
        ("cache_dtype", "int4"),
        ("model", ""),
        ("replay", "corpus"),  # Without a weight.
    ):
        values = {**config.to_dict(), key: value}
        with pytest.raises(UserError, match=f"config.{key} is "):
            from_config(RlConfig, values)


def test_paper_variants_hold_the_papers_values():
    for size in ("8b", "32b"):
        config = get_config(size)
        lora = {"rank": 64, "alpha": 128.0, "dropout": 0.0, "targets": "attention", "vision": False}
        assert config.lora.to_dict() == lora
        assert config.gate == "salvage_ds" and config.reward == "polarized"
        assert config.objective.to_dict() == {
            "loss": "salvage_ds",
            "clip_low": 0.2,
            "clip_high": 0.32,
            "kl_coef": 1e-3,
            "salvage_weight": 0.10,
            # The paper has no replay.
            "replay_weight": 0.0,
            "replay_kl": 0.0,
        }
        groups = (
            config.train_groups,
            config.mini_batch_groups,
            config.num_samples,
            config.max_salvage_groups,
        )
        assert groups == (64, 16, 8, 64)
        assert config.max_gen_batches == 16
        assert (config.max_prompt_tokens, config.max_response_tokens) == (12_000, 2_048)
        assert (config.learning_rate, config.row_tokens, config.temperature) == (8e-6, 20_480, 1.0)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if "online" not in name])
def test_variants_hold_together(variant):
    config = get_config(variant)
    config.prompts, config.model = "prompts", "model"
    typed = from_config(RlConfig, config)
    assert typed.lora.targets == ("attention_only" if "attention_only" in variant else "attention")
    plain = get_config(variant.partition(",")[0])
    assert config.keys() == plain.keys()


def test_ablations_change_what_they_say():
    configs = {name: get_config(f"demo,{name}") for name in ABLATIONS}
    assert configs["full_corpus"].corpus == "full"
    assert configs["anchor_free"].objective.salvage_weight == 0
    assert configs["anchor_free"].max_salvage_groups == get_config("demo").max_salvage_groups
    assert configs["dapo"].gate == "contrast" and configs["dapo"].max_salvage_groups == 0
    assert configs["dapo"].objective.kl_coef == get_config("demo").objective.kl_coef
    assert configs["no_kl"].objective.kl_coef == 0
    assert configs["binary_reward"].reward == "binary" and configs["text_reward"].reward == "text"
    for unknown in ("demo,other", "demo,", "other"):
        with pytest.raises(UserError, match="unknown variant"):
            get_config(unknown)
