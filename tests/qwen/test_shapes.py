"""The shapes in annotations, checked while the model is traced (jaxtyping with beartype)."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
import jax, numpy as np, pytest
from flax import nnx
from jaxtyping import TypeCheckError, install_import_hook
import tests.typechecker

modules = "attention backends layers logprobs lora model processor sharding text vision".split()
packages = ["rmsweb_jax.decoding", "rmsweb_jax.sft.step"]
packages += [f"rmsweb_jax.qwen.{name}" for name in modules]
with install_import_hook(packages, "tests.typechecker.check"):
    from rmsweb_jax.decoding.engine import Engine
    from rmsweb_jax.decoding.requests import Sampling
    from tests.decoding.drawing import SIZES, generate, requests
    from rmsweb_jax.qwen.inputs import image_rows, vision_inputs
    from rmsweb_jax.qwen.layers import rms_norm
    from rmsweb_jax.qwen.model import score_tokens
    from rmsweb_jax.qwen.lora import LoRAConfig, add_lora
    from rmsweb_jax.qwen.model import Qwen3VL
    from tests.qwen.rows import text_inputs
    from tests.tiny import TINY

grid = (1, 4, 4)
rows = [[5, *[TINY.image_token_id] * 4, 6], [7, 8]]
inputs = text_inputs(rows)
inputs.image_index[0] = image_rows(inputs.tokens[0], [grid], [0], TINY)
patches = np.zeros((16, TINY.vision.patch_dim), np.float32)
inputs = inputs.replace(vision=vision_inputs([patches], [grid], TINY, 32, 16))


def run():
    model = Qwen3VL(TINY, rngs=nnx.Rngs(0))
    add_lora(model, LoRAConfig(rank=2, alpha=4.0, targets="attention", vision=True), nnx.Rngs(0))
    hidden = model(inputs, dropout_key=jax.random.key(0))
    scores = score_tokens(model, hidden, inputs.tokens, max_logits=TINY.text.vocab_size)
    return scores, model


scores, _ = jax.eval_shape(lambda: (run()[0], 0))
assert scores.log_probs.shape == (2, 6)
engine = Engine.for_policy(run()[1], SIZES, eos=1, cache_dtype="int8", serving=True)
sampling = Sampling(3, 4, top_p=0.9)
drawn = generate(engine, requests(engine, [[5, 6, 7], [7, 8]], sampling))
assert all(0 < len(part) <= 4 for one in drawn for part in one.tokens)
with pytest.raises(TypeCheckError):
    rms_norm(np.ones((2, 3), np.float32), np.ones(4, np.float32), 1e-6)
"""


@pytest.mark.slow
def test_annotated_shapes_are_those_of_a_forward_pass_and_of_sampling():
    subprocess.run([sys.executable, "-W", "ignore", "-c", SCRIPT], cwd=ROOT, check=True)
