import jax
import pytest
from jax.sharding import AbstractMesh

from rmsweb_jax.errors import UserError
from rmsweb_jax.training.mesh import AXES, check_rows, make_mesh, process_rows


def test_a_mesh_that_does_not_fit_the_devices_is_one_line():
    with pytest.raises(UserError, match="does not fit"):
        make_mesh(fsdp=jax.device_count() * 3)
    assert make_mesh(fsdp=-1).shape["fsdp"] == jax.device_count()


def test_rows_that_the_mesh_does_not_divide_are_one_line():
    mesh = make_mesh(fsdp=-1)
    assert process_rows(mesh, 4 * jax.device_count()) == tuple(range(4 * jax.device_count()))
    with pytest.raises(UserError, match=r"config\.some_rows=3 rows .* = 4 devices"):
        check_rows(AbstractMesh((2, 2, 2), AXES), 3, "some_rows")
