import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmsweb_jax.errors import UserError
from rmsweb_jax.training.checkpoints import Checkpoints, abstract_like

KILLED_WHILE_SAVING = """
import os, signal, sys
from pathlib import Path
import numpy as np
import jax.numpy as jnp
from rmsweb_jax.training.checkpoints import Checkpoints

noise = np.random.default_rng(0).normal(size=(1024, 1024)).astype(np.float32)
checkpoints = Checkpoints(Path(sys.argv[1]), keep=1)
checkpoints.save(1, {"w": jnp.asarray(noise)}, {"place": 1})
checkpoints.wait()
checkpoints.save(2, {"w": jnp.asarray(noise + 1)}, {"place": 2})
os.kill(os.getpid(), signal.SIGKILL)
"""


def state(value: float):
    return {"w": jnp.full((3, 2), value), "count": jnp.asarray(7, jnp.int32)}


def steps(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.iterdir() if path.is_dir())


def test_restores_arrays_and_extra(tmp_path):
    with Checkpoints(tmp_path / "checkpoints") as checkpoints:
        assert checkpoints.latest_step() is None
        checkpoints.save(5, state(1.25), {"seconds": 2.5})
    with Checkpoints(tmp_path / "checkpoints") as checkpoints:
        assert checkpoints.latest_step() == 5
        assert checkpoints.best_step() is None
        restored, extra = checkpoints.restore(5, abstract_like(state(0.0)))
    jax.tree.map(np.testing.assert_array_equal, restored, state(1.25))
    assert extra == {"seconds": 2.5}


def test_keeps_the_latest_and_ignores_an_unfinished_one(tmp_path):
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        for step in (1, 2, 3):
            checkpoints.save(step, state(step), {})
    assert steps(tmp_path) == [2, 3]
    (tmp_path / "4.orbax-checkpoint-tmp").mkdir()
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.latest_step() == 3


@pytest.mark.parametrize("higher, best", [(True, 2), (False, 3)])
def test_keeps_the_best_and_the_latest(tmp_path, higher, best):
    accuracies = {1: 0.5, 2: 0.9, 3: 0.1, 4: None, 5: float("nan"), 6: 0.4, 7: 0.4}
    options = {"keep": 2, "best": "eval/accuracy", "higher_is_better": higher}
    with Checkpoints(tmp_path, **options) as checkpoints:
        assert checkpoints.best_step() is None
        for step, accuracy in accuracies.items():
            metrics = None if accuracy is None else {"eval/accuracy": accuracy, "loss": 1.0}
            checkpoints.save(step, state(step), {}, metrics)
        assert checkpoints.best_step() == best
    assert steps(tmp_path) == [best, 6, 7]
    with Checkpoints(tmp_path, **options) as checkpoints:
        assert checkpoints.best_step() == best
        jax.tree.map(
            np.testing.assert_array_equal, checkpoints.restore(best, abstract_like(state(0)))[0], state(best)
        )
        checkpoints.save(8, state(8), {}, {"eval/accuracy": 2.0 if higher else -1.0})
        assert checkpoints.best_step() == 8
    assert steps(tmp_path) == [7, 8]


def test_the_next_step_may_donate_arrays_being_saved(tmp_path):
    @partial(jax.jit, donate_argnums=0)
    def advance(tree):
        return jax.tree.map(lambda x: x + 1, tree)

    now = {"w": jnp.zeros((512, 512)), "b": jnp.zeros(7)}
    with Checkpoints(tmp_path, keep=3) as checkpoints:
        for step in range(3):
            checkpoints.save(step, now, {})
            for _ in range(5):
                now = advance(now)
    with Checkpoints(tmp_path, keep=3) as checkpoints:
        for step in range(3):
            restored, _ = checkpoints.restore(step, abstract_like(now))
            assert all((leaf == 5 * step).all() for leaf in jax.tree.leaves(restored))


def test_a_kill_while_saving_leaves_a_whole_checkpoint(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED_WHILE_SAVING, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    noise = np.random.default_rng(0).normal(size=(1024, 1024)).astype(np.float32)
    with Checkpoints(tmp_path, keep=1) as checkpoints:
        step = checkpoints.latest_step()
        assert step in (1, 2)
        restored, extra = checkpoints.restore(step, abstract_like({"w": jnp.asarray(noise)}))
        np.testing.assert_array_equal(restored["w"], noise + (step - 1))
        assert extra == {"place": step}
        checkpoints.save(3, restored, {})
    assert [path.name for path in tmp_path.iterdir()] == ["3"]


def test_another_shape_is_one_clear_line(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state(1.0), {})
        other = {"w": jnp.zeros((4, 2)), "count": jnp.asarray(0, jnp.int32)}
        with pytest.raises(UserError, match="does not fit"):
            checkpoints.restore(1, abstract_like(other))
