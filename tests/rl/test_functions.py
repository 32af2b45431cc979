"""Loss, gate and reward of one's own: what is refused before a run, and when it goes on."""

import hashlib
import sys

import numpy as np
import pytest

from rmsweb_jax.errors import UserError
from rmsweb_jax.own import own_files
from rmsweb_jax.rl.config import Objective, RlConfig
from rmsweb_jax.rl.functions import GATES, LOSSES, REWARDS, check_functions, find_gate, find_loss, find_reward
from rmsweb_jax.rl.gates import gate_group
from rmsweb_jax.settings import from_config

OWN = """
import functools
import jax.numpy as jnp
import numpy as np
from rmsweb_jax.rl.gates import FATES, contrast

SCALE = 2.0

def loss(log_probs, batch, objective):
    metrics = {"a": jnp.sum(batch.length), "b": (jnp.sum(log_probs), 1)}
    return SCALE * jnp.sum(log_probs * batch.pg_weight), metrics

def picky(log_probs, batch, objective):
    if objective.clip_high < 0.3:
        raise ValueError("clip_high is too small")
    return jnp.sum(log_probs), {}

def two(log_probs, batch):
    return jnp.sum(log_probs), {}

def vector(log_probs, batch, objective):
    return log_probs * batch.pg_weight, {}

def alone(log_probs, batch, objective):
    return jnp.sum(log_probs)

def rows(log_probs, batch, objective):
    return jnp.sum(log_probs), {"rows": jnp.sum(log_probs, 1)}

def whole(log_probs, batch, objective):
    return jnp.sum(batch.sequence), {}

def gate(rewards):
    fates, advantages = contrast(rewards)
    rewards[:] = 0
    return fates, 0.5 * advantages

def renamed(rewards):
    return np.full(len(rewards), "good"), np.zeros_like(rewards)

def kept(rewards):
    return contrast(rewards).fates, rewards

def flat(rewards):
    return contrast(rewards).fates, rewards.mean(1)

def not_a_number(rewards):
    return np.full(len(rewards), "accepted"), np.full_like(rewards, np.nan)

def reward(response, target):
    return float(response == target)

def ratio(response, target):
    return len(target) / len(response)

def half_of_it(response, target):
    return 0.5 * (response == target)

def array(response, target):
    return np.float32(response == target)

half = functools.partial(loss)
number = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The module `own_module`."""
    file = tmp_path / "own_module.py"
    file.write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_module", raising=False)
    return file


def settings(**changed: object) -> RlConfig:
    return from_config(RlConfig, {"prompts": "prompts", "model": "model", **changed})


@pytest.mark.parametrize(("key", "known"), [("objective.loss", LOSSES), ("gate", GATES), ("reward", REWARDS)])
def test_names_of_the_recipe_are_the_settings(key, known):
    def changed(value: str) -> dict[str, object]:
        section, _, name = key.rpartition(".")
        return {section: {name: value}} if section else {name: value}

    for name in (*known, "module:name"):
        settings(**changed(name))
    for wrong in ("other", "", "a:b:c", "a b:c", "module:"):
        with pytest.raises(UserError) as raised:
            settings(**changed(wrong))
        names = ", ".join(known)
        assert str(raised.value) == f"config.{key} is {wrong!r}: use one of {names}, or module:name"


def test_own_functions_are_found_with_their_file(own):
    config = settings(
        gate="own_module:gate", reward="own_module:reward", objective={"loss": "own_module:half"}
    )
    check_functions(config)
    sha256 = hashlib.sha256(own.read_bytes()).hexdigest()
    assert own_files(config) == {
        "objective": {"loss": f"own_module:half {sha256}"},
        "gate": f"own_module:gate {sha256}",
        "reward": f"own_module:reward {sha256}",
    }
    assert own_files(settings()) == {}
    rewards = np.asarray([0.0, 0.3])
    fate, advantages = gate_group(find_gate(config.gate, 8), rewards)
    assert fate == "accepted" and rewards.tolist() == [0.0, 0.3]
    np.testing.assert_allclose(advantages, np.asarray([-0.5, 0.5]) * 0.15 / (0.3 / np.sqrt(2)), rtol=1e-4)


@pytest.mark.parametrize(
    ("find", "function", "fault"),
    [
        (find_loss, "two", "TypeError: two() takes 2 positional arguments but 3 were given"),
        (find_loss, "picky", "ValueError: clip_high is too small"),
        (find_loss, "vector", "it returned something else"),
        (find_loss, "alone", "it returned something else"),
        (find_loss, "rows", "it returned something else"),
        (find_loss, "whole", "it returned something else"),
        (find_gate, "renamed", "it returned something else"),
        (find_gate, "kept", "it returned something else"),
        (find_gate, "flat", "it returned something else"),
        (find_gate, "not_a_number", "it returned something else"),
        (find_gate, "reward", "TypeError: reward() missing 1 required positional argument: 'target'"),
        (find_reward, "ratio", "ZeroDivisionError: division by zero"),
        (find_reward, "half_of_it", "it returned something else"),
        (find_reward, "array", "it returned something else"),
        (find_reward, "gate", "TypeError: gate() takes 1 positional argument but 2 were given"),
    ],
)
def test_what_cannot_be_called_is_one_line(own, find, function, fault):
    name = f"own_module:{function}"
    with pytest.raises(UserError) as raised:
        if find is find_loss:
            find(Objective(loss=name, clip_high=0.28))
        else:
            find(name, *(4,) * (find is find_gate))
    line = str(raised.value)
    key = {find_loss: "objective.loss", find_gate: "gate", find_reward: "reward"}[find]
    assert line.startswith(f"config.{key} is 'own_module:{function}': {fault}; make it a function of ")
    assert line.endswith(" (docs/train.md)") and "\n" not in line


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("nowhere_at_all:loss", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("own_module:nothing", "AttributeError: module 'own_module' has no attribute 'nothing'"),
        ("own_broken:loss", "SyntaxError: "),
        ("sys:getsizeof", "TypeError: <module 'sys' (built-in)> is a built-in module"),
        ("own_module:number", "TypeError: 'int' object is not callable"),
    ],
)
def test_what_is_not_there_is_one_line(own, name, fault):
    (own.parent / "own_broken.py").write_text("def loss(:\n")
    with pytest.raises(UserError) as raised:
        find_loss(Objective(loss=name))
    assert str(raised.value).startswith(f"config.objective.loss is {name!r}: {fault}")
    assert "\n" not in str(raised.value)
