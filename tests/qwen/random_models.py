"""Models with random weights that numpy draws: to compile a model's own initializers takes seconds."""

import jax.numpy as jnp
import numpy as np
from flax import nnx

from rmsweb_jax.qwen.config import Qwen3VLConfig
from rmsweb_jax.qwen.lora import LoRAParam, add_lora
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.training.config import LoRAConfig


def random_model(
    config: Qwen3VLConfig,
    lora: LoRAConfig | None = None,
    *,
    embedding_std: float = 0.5,
    lora_std: float = 0.1,
    remat: str = "none",
) -> Qwen3VL:
    """A float32 model, the same in every call, with adapters that do something if `lora` is given.

    Its base is the same with and without adapters.
    """

    def build() -> Qwen3VL:
        model = Qwen3VL(config, rngs=nnx.Rngs(0), remat=remat)
        if lora is not None:
            add_lora(model, lora, nnx.Rngs(1))
        return model

    model, rng = nnx.eval_shape(build), np.random.default_rng(0)
    variables = nnx.to_flat_state(nnx.state(model, nnx.Param))
    # Adapters last, so that the base is the same without them.
    for path, variable in sorted(variables, key=lambda item: isinstance(item[1], LoRAParam)):
        if path[-1] in ("scale", "bias"):
            drawn = np.full(variable.shape, path[-1] == "scale")
        else:
            stds = {"embedding": embedding_std, "kernel": variable.shape[-2] ** -0.5}
            drawn = stds.get(path[-1], lora_std) * rng.standard_normal(variable.shape)
        variable.set_value(jnp.asarray(drawn, variable.dtype))
    return model
