import grain.python as grain
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmsweb_jax.checkpoints import Checkpoints, abstract_like
from rmsweb_jax.errors import UserError


def iterator() -> grain.DatasetIterator:
    return iter(grain.MapDataset.range(10).seed(1).shuffle().repeat().to_iter_dataset())


def state(value: float):
    return {"w": jnp.full((3, 2), value), "count": jnp.asarray(7, jnp.int32)}


def test_restores_arrays_extra_and_data_position(tmp_path):
    data = iterator()
    for _ in range(3):
        next(data)
    with Checkpoints(tmp_path / "checkpoints") as checkpoints:
        assert checkpoints.latest_step() is None
        checkpoints.save(5, state(1.25), {"seconds": 2.5}, data)
    expected = [next(data) for _ in range(4)]

    fresh = iterator()
    with Checkpoints(tmp_path / "checkpoints") as checkpoints:
        assert checkpoints.latest_step() == 5
        restored, extra = checkpoints.restore(5, abstract_like(state(0.0)), fresh)
    jax.tree.map(np.testing.assert_array_equal, restored, state(1.25))
    assert extra == {"seconds": 2.5}
    assert [next(fresh) for _ in range(4)] == expected


def test_keeps_the_latest_and_ignores_an_unfinished_one(tmp_path):
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        for step in (1, 2, 3):
            checkpoints.save(step, state(step), {})
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["2", "3"]
    (tmp_path / "4.orbax-checkpoint-tmp").mkdir()
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.latest_step() == 3


def test_another_shape_is_one_clear_line(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state(1.0), {})
        other = {"w": jnp.zeros((4, 2)), "count": jnp.asarray(0, jnp.int32)}
        with pytest.raises(UserError, match="does not fit"):
            checkpoints.restore(1, abstract_like(other))
