import dataclasses
import math

import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen import sharding
from rmsweb_jax.qwen.config import SIZES
from rmsweb_jax.qwen.lora import TARGETS, LoRAParam, add_lora
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.qwen.quantize import quantize_base
from rmsweb_jax.qwen.sharding import (
    RULES,
    axis_sizes,
    check_mesh,
    param_shardings,
    param_spec,
)
from rmsweb_jax.training.config import LoRAConfig, MeshConfig
from rmsweb_jax.training.mesh import AXES

MESH = AbstractMesh((1, 4, 2), AXES)
RANK = 4
# Untied, so that every kind of parameter is there.
CONFIG = dataclasses.replace(SIZES["tiny"], tie_word_embeddings=False)
RECURRENT = dataclasses.replace(SIZES["tiny_qwen35"], tie_word_embeddings=False)


def parameters(targets, config=CONFIG, rank=RANK, quantize=False):
    def build() -> Qwen3VL:
        model = Qwen3VL(config, rngs=nnx.Rngs(0))
        if quantize:
            quantize_base(model)
        add_lora(model, LoRAConfig(rank=rank, alpha=8.0, targets=targets, vision=True), nnx.Rngs(0))
        return model

    return nnx.state(nnx.eval_shape(build), nnx.Param)


def by_name(flat):
    return [(".".join(map(str, path)), leaf) for path, leaf in flat]


def specs(tree):
    return {
        path: leaf.get_value().spec for path, leaf in by_name(nnx.to_flat_state(param_shardings(tree, MESH)))
    }


@pytest.mark.parametrize(
    ("targets", "path", "expected"),
    [
        ("all_linear", "language_model.layers.0.mlp.up_proj.kernel", P(None, "fsdp", "tensor")),
        ("all_linear", "language_model.first_layers.1.mlp.up_proj.kernel", P("fsdp", "tensor")),
        ("all_linear", "language_model.layers.0.mlp.down_proj.kernel", P(None, "tensor", "fsdp")),
        # The rank is split where the matrix has no other axis for `fsdp`, unless that does not divide it.
        ("all_linear", "language_model.layers.0.mlp.down_proj.lora.a", P(None, "tensor", "fsdp")),
        ("all_linear", "language_model.layers.0.mlp.up_proj.lora.b", P(None, "fsdp", "tensor")),
        ("all_linear", "language_model.layers.0.mlp.up_proj.lora.a", P(None, "fsdp", None)),
        ("attention", "language_model.layers.0.self_attn.qkv_lora.a", P(None, "fsdp", None)),
        ("attention", "language_model.layers.0.self_attn.qkv_lora.b", P(None, "fsdp", None)),
        ("all_linear", "language_model.embed_tokens.embedding", P("tensor", "fsdp")),
        ("all_linear", "language_model.layers.0.input_layernorm.scale", P()),
        ("all_linear", "language_model.norm.scale", P()),
        ("all_linear", "visual.blocks.attn.qkv.kernel", P(None, "fsdp", "tensor")),
        ("all_linear", "visual.blocks.attn.qkv.lora.b", P(None, "fsdp", "tensor")),
        ("all_linear", "visual.blocks.attn.qkv.bias", P()),
    ],
)
def test_matrices_are_split_by_the_names_of_their_axes(targets, path, expected):
    assert specs(parameters(targets))[path] == expected


def test_a_rank_that_the_mesh_does_not_divide_is_whole():
    found = specs(parameters("all_linear", rank=6))
    assert found["language_model.layers.0.mlp.up_proj.lora.b"] == P(None, None, "tensor")


@pytest.mark.parametrize("config", [CONFIG, RECURRENT], ids=["attention", "recurrence"])
def test_every_matrix_names_its_axes_and_no_name_is_unused(config):
    sizes = {name: axis.size for name, axis in axis_sizes(config).items()} | {"lora_rank": RANK}
    used = set()
    for targets in ("all_linear", "attention"):
        for path, leaf in by_name(nnx.to_flat_state(parameters(targets, config, quantize=True))):
            stacked = path.startswith(("language_model.layers.", "visual.blocks."))
            axes = leaf.get_metadata().get("axes", ())
            assert leaf.ndim == stacked + len(axes or "1"), path
            assert not axes or leaf.shape[stacked:] == tuple(sizes[axis] for axis in axes), path
            used |= set(axes)
    assert used == set(sizes)
    assert set(RULES) - set(axis_sizes(RECURRENT)) == set()
    assert config is not RECURRENT or set(RULES) < used


def test_every_matrix_is_split_and_so_is_the_optimizer_state():
    state = parameters("all_linear")
    optimizer = jax.eval_shape(optax.adamw(1e-3).init, state.filter(LoRAParam))
    for tree in (state, optimizer):
        specs = [sharding.spec for sharding in jax.tree.leaves(param_shardings(tree, MESH))]
        shapes = [leaf.shape for leaf in jax.tree.leaves(tree)]
        split = sum(any(spec) for spec in specs)
        assert len(specs) == len(shapes) and split > 20
        # What is whole is small: norms, biases and scalars.
        assert all(len(shape) <= 2 for spec, shape in zip(specs, shapes, strict=True) if not any(spec))


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("size", ["8b", "32b"])
def test_adapters_are_split_evenly(size, targets):
    """Those of rank 64 are gigabytes with their float32 moments, which are split like them."""
    mesh = AbstractMesh((1, 16, 1), AXES)
    adapters = parameters(targets, SIZES[size], rank=64).filter(LoRAParam)
    found = by_name(nnx.to_flat_state(adapters))
    assert len(found) > 20
    for path, leaf in found:
        shard = NamedSharding(mesh, param_spec(leaf, mesh)).shard_shape(leaf.shape)
        assert math.prod(shard) <= 1.2 * leaf.size / mesh.size, path


@pytest.mark.parametrize("size", sorted(SIZES))
def test_released_sizes_fit_the_usual_meshes(size):
    for shape in [(1, 16, 1), (2, 2, 2), (1, 32, 1), (4, 8, 2)]:
        check_mesh(SIZES[size], AbstractMesh(shape, AXES))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 1, 16), r"tensor=16 does not divide 8 kv_heads \(a divisor of 8 would\)"),
        ((1, 3, 1), r"fsdp=3 does not divide 4096 embed \(a divisor of 128 would\)"),
        ((1, 3, 3), r"fsdp=3 .*; tensor=3 does not divide 151936 vocab, 32 heads, 8 kv_heads"),
    ],
)
def test_a_mesh_that_does_not_divide_the_model_is_one_line(shape, message):
    with pytest.raises(UserError, match=message) as raised:
        check_mesh(SIZES["8b"], AbstractMesh(shape, AXES))
    assert "\n" not in str(raised.value)
    with pytest.raises(UserError, match="does not divide"):
        param_spec(nnx.Param(jnp.zeros((8, 151_937), jnp.int8), axes=("embed", "vocab")), MESH)


@pytest.mark.parametrize(
    ("devices", "full", "chosen"),
    [(1, 0, 1), (8, 8, 1), (16, 16, 1), (64, 16, 4), (64, 1, 8), (6, 3, 2)],
)
def test_the_mesh_has_as_many_rows_as_a_step_fills(monkeypatch, devices, full, chosen):
    """Rows are full up to `full` shards, and beyond them the fuller the fewer they are."""
    monkeypatch.setattr(sharding.jax, "device_count", lambda: devices)
    made = sharding.choose_mesh(MeshConfig(tensor=0), SIZES["8b"], lambda shards: min(1.0, full / shards))
    assert made == MeshConfig(data=1, fsdp=-1, tensor=chosen)


def test_a_given_mesh_is_kept():
    given = MeshConfig(data=2, fsdp=4, tensor=1)
    assert sharding.choose_mesh(given, SIZES["8b"], lambda shards: 0.0) == given
