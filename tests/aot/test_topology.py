import importlib.util

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from rmsweb_jax.aot.abstract import slice_mesh
from rmsweb_jax.errors import UserError
from rmsweb_jax.training.performance import compiler_options

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


@needs_libtpu
@pytest.mark.parametrize("topology", ["v4:2x2x4", "v5e:4x4", "v5p:2x2x4", "v6e:4x4", "tpu7x:2x2x2"])
def test_every_chip_compiles_gathered_weights_with_the_options_of_training(topology, monkeypatch):
    # libtpu ends the process at a flag that it does not know, as those of the tests for CPUs.
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    mesh = slice_mesh(topology, fsdp=-1)
    rows = NamedSharding(mesh, P("fsdp"))

    def loss(weights: jax.Array, x: jax.Array) -> jax.Array:
        def layer(x: jax.Array, weight: jax.Array) -> tuple[jax.Array, None]:
            return jax.lax.with_sharding_constraint(jnp.tanh(x @ weight), rows), None

        return jax.lax.scan(layer, x, weights)[0].astype(jnp.float32).sum()

    split = NamedSharding(mesh, P(None, "fsdp"))
    weights = jax.ShapeDtypeStruct((4, 2048, 2048), jnp.bfloat16, sharding=split)
    x = jax.ShapeDtypeStruct((4096, 2048), jnp.bfloat16, sharding=rows)
    options = compiler_options(mesh.devices.flat[0], ())
    compiled = jax.jit(jax.grad(loss), compiler_options=options).lower(weights, x).compile()
    assert compiled.memory_analysis().peak_memory_in_bytes > 0
