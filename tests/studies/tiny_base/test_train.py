"""Training the base: steps learn, phases end, a killed run goes on where it was."""

import random

import jax
import numpy as np
import pytest
from tokenizers import Tokenizer

from configs.studies.tiny_base import VARIANTS, get_config
from experiments.studies.tiny_base import train as train_module
from experiments.studies.tiny_base.batches import RowEncoder
from experiments.studies.tiny_base.card import write_card
from experiments.studies.tiny_base.corpus import stream
from experiments.studies.tiny_base.run import export_model, fresh_model
from experiments.studies.tiny_base.settings import BaseConfig, ModelSettings, Phase
from experiments.studies.tiny_base.train import (
    BaseTrainState,
    RunPosition,
    join_params,
    make_optimizer,
    make_steps,
    rate_scale,
    score,
    split_params,
    train,
)
from rmsweb_jax.qwen.checkpoint import load_model, resolve_model
from rmsweb_jax.settings import from_config
from rmsweb_jax.training.metrics import read_metrics

KINDS = ("click", "type", "select", "scroll", "finish")


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_file(str(resolve_model("tiny_base") / "tokenizer.json"))


def small(tokenizer):
    settings = get_config("tiny").model.to_dict()
    settings |= {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
    }
    settings |= {"num_hidden_layers": 1, "vision_depth": 1, "vision_hidden_size": 16, "vision_heads": 2}
    return fresh_model(ModelSettings(**settings), tokenizer, 0)


class Recalls:
    """Batches of label-index pairs; counts how many were asked for."""

    def __init__(self, tokenizer):
        self.encoder = RowEncoder(tokenizer, KINDS)
        self.asked = []

    def __call__(self, phase, step):
        self.asked.append((phase, step))
        rng = random.Random(f"{phase}/{step}")
        rows = []
        for _ in range(4):
            prompt = stream.bare_prompt(stream.plain(rng, 3, 3))
            rows.append(self.encoder.row(self.encoder.encode(prompt.text), stream.recalls(rng, prompt), 48))
        return self.encoder.batch(rows, 48, 24)


SIZES = {"low": 3, "high": 3, "length": 48, "rows": 4, "mix": {"recalls": 1.0}}


def phases(*names, **sizes):
    settings = {"max_steps": 3, "window": 1, "accuracy": 2.0, "rate": 1.0, **SIZES, **sizes}
    return tuple(Phase(name=name, **settings) for name in names)


def config_of(**values):
    config = from_config(BaseConfig, get_config("smoke"))
    return config.model_copy(update={"warmup_steps": 1, "final_rate": 0.1, "checkpoint_every": 2, **values})


def test_a_step_learns_its_batch(tokenizer):
    skeleton, params = split_params(small(tokenizer))
    optimizer = make_optimizer(0.02, 0.005)
    step = make_steps(skeleton, optimizer)
    batch = Recalls(tokenizer)(0, 0)
    state, losses = BaseTrainState(params, optimizer.init(params)), []
    for _ in range(12):
        state, metrics = step(state, batch, 1.0)
        losses.append(float(metrics.loss))
    assert losses[-1] < 0.5 * losses[0]


def test_muon_is_for_the_decoders_matrices_alone(tokenizer):
    _, params = split_params(small(tokenizer))
    state = make_optimizer(0.02, 0.005).init(params)
    shaped = {
        path[-1].key
        for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]
        if any(getattr(key, "key", None) == "muon" for key in path)
        and hasattr(leaf, "ndim")
        and leaf.ndim >= 2
        if hasattr(path[-1], "key")
    }
    assert shaped == {
        name for name in params if name.startswith("language_model.") and name.endswith("kernel")
    }


def test_parameters_split_and_join(tokenizer):
    model = small(tokenizer)
    skeleton, params = split_params(model)
    again = split_params(join_params(skeleton, params))[1]
    assert params.keys() == again.keys()
    assert all(np.array_equal(params[name], again[name]) for name in params)


@pytest.mark.slow
def test_a_run_goes_through_its_phases_and_resumes(tokenizer, tmp_path):
    config = config_of(phases=phases("one", "two"))
    whole, seen = Recalls(tokenizer), []
    model, place = train(config, small(tokenizer), whole, KINDS, tmp_path / "a", lambda m, p: seen.append(p))
    assert (place.step, place.phase) == (6, 2)
    assert sorted(whole.asked) == [(phase, step) for phase in (0, 1) for step in range(3)]
    assert [row["phase"] for row in read_metrics(tmp_path / "a")] == ["one", "two"]
    assert [p.step for p in seen] == [2, 4, 6, 6]

    def killed(current, place):
        if place.step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, small(tokenizer), Recalls(tokenizer), KINDS, tmp_path / "b", killed)
    rest = Recalls(tokenizer)
    resumed, place = train(config, small(tokenizer), rest, KINDS, tmp_path / "b", lambda m, p: None)
    assert place.step == 6 and sorted(rest.asked) == [(1, 1), (1, 2)]
    ours, theirs = split_params(model)[1], split_params(resumed)[1]
    assert all(np.allclose(ours[name], theirs[name], atol=1e-6) for name in ours)


def test_a_phase_ends_once_its_questions_are_answered(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(train_module, "_LOG_EVERY", 1)
    config = config_of(phases=phases("easy", "next", accuracy=0.0))
    _, place = train(config, small(tokenizer), Recalls(tokenizer), KINDS, tmp_path, lambda m, p: None)
    assert place.step == 2


def test_errors_of_the_batch_thread_are_raised_in_the_loop(tokenizer, tmp_path):
    def broken(phase, step):
        raise ValueError("no pages")

    with pytest.raises(ValueError, match="no pages"):
        train(config_of(phases=phases("one")), small(tokenizer), broken, KINDS, tmp_path, lambda m, p: None)


def test_rates_warm_up_and_decay():
    changes = {"warmup_steps": 4, "phases": phases("one", "two", rate=0.5, max_steps=10)}
    config = config_of().model_copy(update=changes)
    assert rate_scale(config, RunPosition(0)) == pytest.approx(0.125)
    assert rate_scale(config, RunPosition(9)) == 0.5
    assert rate_scale(config, RunPosition(20, 1, 10)) == pytest.approx(0.05)


def test_export_is_read_back_and_scored(tokenizer, tmp_path):
    model = small(tokenizer)
    export_model(model, resolve_model("tiny_base"), tmp_path)
    values = score(load_model(tmp_path), [Recalls(tokenizer)(0, step) for step in range(2)], KINDS)
    assert values["chance"] == pytest.approx(1 / 3) and values["questions"] > 20
    assert 0 <= values["accuracy"] <= 1


def test_the_card_names_steps_phases_and_scores(tmp_path):
    metrics = [
        {"step": 50, "phase": "one", "accuracy": 0.5, "chance": 0.25},
        {"step": 100, "phase": "two", "accuracy": 0.75, "chance": 0.25},
    ]
    values = {
        "questions": 9.0,
        "accuracy": 0.875,
        "chance": 0.2,
        "accuracy_click": 0.5,
        "copy_accuracy": 0.99,
    }
    report = {"steps": 100, "seconds": 120, "scores": {"held out": values}}
    settings = config_of(phases=phases("one", "two", "never", length=64))
    write_card(tmp_path, report, metrics, settings, 2_000_000)
    text = (tmp_path / "README.md").read_text()
    assert "| one | 50 | 256 | 0.500 | 0.250 |" in text and "never" not in text
    assert "| held out | 9 | 0.875 | 0.200 | 0.500 |  |  | 0.990 |" in text


@pytest.mark.parametrize("variant", VARIANTS)
def test_recorded_seeds_are_used_nowhere_else(variant):
    settings = from_config(BaseConfig, get_config(variant)).recorded
    assert 100_000 <= settings.seed < settings.held_out_seed < 900_000
    assert settings.seed + max(settings.per_page, settings.per_demo_page) < settings.held_out_seed
