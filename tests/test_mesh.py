import jax
import pytest
from flax import nnx
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

from rmsweb_jax.errors import UserError
from rmsweb_jax.mesh import AXES, make_mesh, param_shardings, param_spec
from rmsweb_jax.qwen3_vl.checkpoint import resolve_model
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.lora import LoRAConfig, add_lora
from rmsweb_jax.qwen3_vl.model import Qwen3VL

MESH = AbstractMesh((1, 4, 2), AXES)


@pytest.mark.parametrize(
    ("path", "shape", "expected"),
    [
        (("layers", "mlp", "up_proj", "kernel"), (33, 64, 256), P(None, "fsdp", "tensor")),
        (("layers", "mlp", "down_proj", "kernel"), (33, 256, 64), P(None, "tensor", "fsdp")),
        (("layers", "mlp", "down_proj", "lora", "a"), (33, 256, 8), P(None, "tensor", None)),
        (("layers", "mlp", "up_proj", "lora", "b"), (33, 8, 256), P(None, None, "tensor")),
        (("embed_tokens", "embedding"), (1001, 64), P(None, "fsdp")),
        (("norm", "scale"), (64,), P()),
    ],
)
def test_matrices_are_split_where_they_divide(path, shape, expected):
    assert param_spec(path, shape, MESH) == expected


def test_every_matrix_of_the_decoder_is_split():
    config = Qwen3VLConfig.from_hf(resolve_model("tiny_base") / "config.json")

    def build() -> Qwen3VL:
        model = Qwen3VL(config, rngs=nnx.Rngs(0))
        add_lora(model, LoRAConfig(rank=4, alpha=8.0), nnx.Rngs(0))
        return model

    state = nnx.state(nnx.eval_shape(build), nnx.Param)
    shardings = param_shardings(state, MESH)
    split = {
        ".".join(map(str, path)): leaf.get_value().spec
        for path, leaf in nnx.to_flat_state(shardings)
        if str(path[-1]) in ("kernel", "a", "b") and path[0] == "language_model"
    }
    assert len(split) > 20
    assert all(any(spec) for spec in split.values()), [name for name, spec in split.items() if not any(spec)]


def test_a_mesh_that_does_not_fit_the_devices_is_one_line():
    with pytest.raises(UserError, match="does not fit"):
        make_mesh(fsdp=jax.device_count() * 3)
    assert make_mesh(fsdp=-1).shape["fsdp"] == jax.device_count()
