import importlib.util

import pytest

from rmsweb_jax.aot.abstract import slice_mesh
from rmsweb_jax.errors import UserError

needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="the TPU compiler is not installed"
)


def test_an_unknown_family_is_one_line():
    with pytest.raises(UserError, match="v9:2x2"):
        slice_mesh("v9:2x2")


@needs_libtpu
def test_a_slice_that_does_not_exist_is_one_line():
    with pytest.raises(UserError, match="no such slice"):
        slice_mesh("v5p:3x3x3")


@needs_libtpu
def test_a_mesh_that_does_not_fill_the_slice_is_one_line():
    with pytest.raises(UserError, match="8 devices"):
        slice_mesh("v5p:2x2x2", fsdp=3)


@needs_libtpu
def test_a_mesh_over_a_slice():
    assert dict(slice_mesh("v5e:4x4", fsdp=4, tensor=-1).shape) == {"data": 1, "fsdp": 4, "tensor": 4}
