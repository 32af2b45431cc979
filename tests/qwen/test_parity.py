"""The model against transformers' Qwen3-VL in float32: outputs of every part, gradients, greedy decoding."""

from __future__ import annotations

import functools
import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rmsweb_jax.data.batching import Example
from rmsweb_jax.decoding.requests import Sampling
from rmsweb_jax.decoding.sizes import EngineSizes
from rmsweb_jax.qwen.backends import make_attend, make_recur
from rmsweb_jax.qwen.checkpoint import load_model
from rmsweb_jax.qwen.config import Qwen3VLConfig
from rmsweb_jax.qwen.inputs import ModelInputs, mrope_positions
from rmsweb_jax.qwen.lora import LoRAParam, add_lora, peft_config, to_peft_tensors
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.qwen.text import LayerContext, mrope_cos_sin
from rmsweb_jax.qwen.vision import VisionOutput
from rmsweb_jax.training.config import LoRAConfig
from tests.decoding.drawing import draw
from tests.qwen.references import (
    CONTROL,
    WINDOW,
    Segment,
    SegmentPosition,
    lay_out,
    random_config,
    random_delta_config,
    random_segment,
    reference_model,
    reference_outputs,
    torch_inputs,
)
from tests.qwen.rows import predecessors, token_log_probs
from tests.references import peft, torch

# Of Qwen3-VL, and from this one on of Qwen3.5.
DELTA = 100
SEEDS = (*range(8), *range(DELTA, DELTA + 8))
# Tied and untied embeddings, packed and padded rows, DeepStack layers alone and loops over layers.
QUICK_SEEDS = (0, 1, 3, DELTA, DELTA + 3)
LENGTH = 128
# Programs run once or twice here: plain machine code in half the time.
FAST_COMPILE = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
NEW = 64


class Case(NamedTuple):
    """A random model in both implementations, and a batch: padded left and right, packed, 0 to 4 images."""

    seed: int
    folder: Any
    config: Qwen3VLConfig
    reference: Any
    model: Qwen3VL
    segments: list[Segment]
    inputs: ModelInputs
    places: list[SegmentPosition]


def make_case(seed: int, folder: Any) -> Case:
    config = random_delta_config(seed - DELTA) if seed >= DELTA else random_config(seed)
    rng = np.random.default_rng(seed)
    zero, one, two, other, four = (random_segment(count, config, rng) for count in (0, 1, 2, 1, 4))
    rows = [[(7, zero), (0, one)], [(0, two), (3, other)], [(5, four)], [(0, zero)]]
    inputs, places = lay_out(rows, LENGTH, config, WINDOW if seed % 2 else 0)
    reference = reference_model(config, seed)
    reference.save_pretrained(folder)
    segments = [segment for row in rows for _, segment in row]
    return Case(seed, folder, config, reference, load_model(folder), segments, inputs, places)


@pytest.fixture(
    scope="module",
    params=[pytest.param(seed, marks=() if seed in QUICK_SEEDS else pytest.mark.slow) for seed in SEEDS],
)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(request.param, tmp_path_factory.mktemp("hf"))


class Outputs(NamedTuple):
    vision: VisionOutput
    layers: list[jax.Array]
    logits: jax.Array


@FAST_COMPILE
def all_outputs(model: Qwen3VL, inputs: ModelInputs) -> Outputs:
    """Outputs of every part: layers are called one by one, logits come from the whole model."""
    language = model.language_model
    x, deepstack = model.embed(inputs)
    attend = make_attend(model.attention, inputs.until)
    cos, sin = mrope_cos_sin(inputs.positions, model.config.text)
    recur, parent = None, None
    if inputs.tables is not None:
        recur = make_recur(model.attention, inputs.until, inputs.tables)
        parent = jnp.asarray(inputs.tables.parent)
    context = LayerContext(cos, sin, attend, False, recur, parent)
    layers = []
    for number, layer in enumerate(language.list_layers()):
        layers.append(layer(x, context, None)[0])
        x = layers[-1] + deepstack[number] if number < len(deepstack) else layers[-1]
    assert inputs.vision is not None
    return Outputs(model.visual(inputs.vision), layers, model.logits(model(inputs)))


def test_every_part_matches(case):
    out = jax.device_get(all_outputs(case.model, case.inputs))
    assert len(out.layers) == case.config.text.num_hidden_layers
    for segment, (row, columns) in zip(case.segments, case.places, strict=True):
        expected = reference_outputs(case.reference, segment)
        np.testing.assert_allclose(out.logits[row, columns], expected.logits, atol=1e-4)
        # Norms of the recurrence's heads enlarge the rounding of single tokens.
        atol = 2e-4 if case.config.text.delta else 1e-4
        for ours, theirs in zip(out.layers, expected.layers, strict=True):
            np.testing.assert_allclose(ours[row, columns], theirs, atol=atol)
        if segment.grids:
            index = case.inputs.image_index[row, columns]
            rows = index[index >= 0]
            parts = [out.vision.features, *out.vision.deepstack]
            assert len(parts) == 1 + case.config.num_deepstack
            for ours, theirs in zip(parts, expected.vision, strict=True):
                np.testing.assert_allclose(ours[rows], theirs, atol=1e-4)


@pytest.mark.parametrize(
    "case", [pytest.param(seed, marks=pytest.mark.slow) for seed in (0, DELTA, DELTA + 2)], indirect=True
)
def test_bfloat16_errs_no_more_than_the_reference(case):
    """Squared errors of all logits against float32, of which rounding makes much more in both."""
    model = load_model(case.folder, jnp.bfloat16)
    inputs = jax.tree.map(jnp.asarray, case.inputs)
    ours = np.asarray(jax.jit(lambda model, inputs: model.logits(model(inputs)))(model, inputs))
    small = type(case.reference).from_pretrained(case.folder, dtype=torch.bfloat16).eval()
    errors = np.zeros(2)
    for segment, (row, columns) in zip(case.segments, case.places, strict=True):
        expected = reference_outputs(case.reference, segment).logits
        given = torch_inputs(segment)
        with torch.no_grad():
            theirs = small(**given).logits[0].float().numpy()
        errors += [np.square(found - expected).sum() for found in (ours[row, columns], theirs)]
    assert 0 < errors[0] <= 1.5**2 * errors[1]


def test_positions_match(case):
    for segment in case.segments:
        inputs = torch_inputs(segment)
        kinds = inputs.get("mm_token_type_ids", torch.zeros_like(inputs["input_ids"]).int())
        grids = inputs.get("image_grid_thw")
        expected, _ = case.reference.model.get_rope_index(inputs["input_ids"], kinds, image_grid_thw=grids)
        found = mrope_positions(segment.tokens, segment.grids, case.config)
        np.testing.assert_array_equal(found, expected[:, 0].numpy())


def test_config_survives_transformers(case, tmp_path):
    case.reference.config.save_pretrained(tmp_path)
    assert Qwen3VLConfig.from_hf(tmp_path / "config.json") == case.config


@FAST_COMPILE
def loss_gradient(model: Qwen3VL, inputs: ModelInputs) -> tuple[jax.Array, Any]:
    """Mean negative log-likelihood of all predicted tokens, and its gradient by the adapters."""
    graphdef, adapters, rest = nnx.split(model, LoRAParam, ...)
    count = (predecessors(inputs.until) >= 0).sum()

    def loss(adapters: Any) -> jax.Array:
        return -token_log_probs(nnx.merge(graphdef, adapters, rest), inputs).log_probs.sum() / count

    return jax.value_and_grad(loss)(adapters)


def reference_loss_gradient(
    reference: Any,
    segments: list[Segment],
    config: dict[str, Any],
    tensors: dict[str, np.ndarray],
) -> tuple[float, dict[str, np.ndarray]]:
    """The same of torch `peft`, with the adapters in `tensors`, a segment at a time."""
    policy = peft.get_peft_model(reference, peft.LoraConfig(**config))  # pyright: ignore
    missing = peft.set_peft_model_state_dict(
        policy, {name: torch.tensor(value) for name, value in tensors.items()}
    )
    assert not missing.unexpected_keys
    count = sum(len(segment.tokens) - 1 for segment in segments)
    total = 0.0
    for segment in segments:
        inputs = torch_inputs(segment)
        logits = policy(**inputs).logits[0, :-1]
        loss = torch.nn.functional.cross_entropy(logits, inputs["input_ids"][0, 1:], reduction="sum") / count
        loss.backward()
        total += loss.item()
    gradients = {
        name.replace(".default", ""): value.grad.numpy().copy()
        for name, value in policy.named_parameters()
        if value.grad is not None
    }
    policy.unload()
    return total, gradients


@pytest.mark.parametrize(
    "case",
    [1, DELTA, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, DELTA + 2, DELTA + 3))],
    indirect=True,
)
def test_adapter_gradients_match_peft(case):
    # One with q, k and v fused, one with adapters on the vision tower.
    targets = "attention" if case.seed in (2, DELTA + 2) else "all_linear"
    config = LoRAConfig(rank=4, alpha=8.0, targets=targets, vision=case.seed == 1)
    graphdef, state = nnx.split(case.model)
    model = nnx.merge(graphdef, state)
    add_lora(model, config, nnx.Rngs(1))
    rng = np.random.default_rng(case.seed)
    for _, variable in nnx.to_flat_state(nnx.state(model, LoRAParam)):
        variable.set_value(jnp.asarray(0.1 * rng.standard_normal(variable.shape, np.float32)))
    loss, gradients = loss_gradient(model, case.inputs)
    expected_loss, expected = reference_loss_gradient(
        case.reference, case.segments, peft_config(model, config), to_peft_tensors(model)
    )
    assert float(loss) == pytest.approx(expected_loss, rel=1e-5)
    nnx.update(model, gradients)
    found = to_peft_tensors(model)
    assert found.keys() == expected.keys()
    for name, ours in found.items():
        theirs = expected[name]
        shared = re.fullmatch(r"(.*\.self_attn)\.[qkv]_proj\.lora_A\.weight", name)
        if config.targets == "attention" and shared:
            # q, k and v share one A, so its gradient is the sum over the three copies that PEFT keeps.
            theirs = np.sum([expected[f"{shared[1]}.{part}_proj.lora_A.weight"] for part in "qkv"], axis=0)
        assert np.linalg.norm(ours - theirs) <= 1e-4 * np.linalg.norm(theirs), name
        assert np.linalg.norm(theirs) > 0, name


@pytest.mark.parametrize(
    "case",
    [0, DELTA, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (3, DELTA + 3))],
    indirect=True,
)
def test_greedy_decoding_matches_and_equals_the_full_forward(case):
    prompts = case.segments[:3]
    examples = [
        Example(
            str(number),
            one.tokens.astype(np.int32),
            len(one.tokens),
            np.zeros(0, bool),
            one.patches,
            one.grids,
        )
        for number, one in enumerate(prompts)
    ]
    sizes = EngineSizes(
        lanes=2,
        prompts=2,
        prompt_width=64,
        response_width=NEW,
        chunks=(8, 16),
        images=max(len(one.grids) for one in prompts),
        window=64,
    )
    # A sampled image token would break the reference, and ours never draws one.
    out = draw(case.model, examples, Sampling(1, NEW, 0.0), banned=tuple(CONTROL), sizes=sizes)
    replies = np.stack([one.tokens[0] for one in out])
    for prompt, reply in zip(prompts, replies, strict=True):
        expected = case.reference.generate(
            **torch_inputs(prompt), max_new_tokens=NEW, do_sample=False, suppress_tokens=list(CONTROL)
        )
        np.testing.assert_array_equal(reply, expected[0, len(prompt.tokens) :].numpy())
    assert not np.isin(replies, CONTROL).any()

    whole = [
        [(0, Segment(np.concatenate([prompt.tokens, reply]), prompt.patches, prompt.grids))]
        for prompt, reply in zip(prompts, replies, strict=True)
    ]
    inputs, places = lay_out(whole, LENGTH, case.config)
    scored = FAST_COMPILE(token_log_probs)(case.model, inputs).log_probs
    for number, (row, columns) in enumerate(places):
        steps = slice(columns.stop - NEW, columns.stop)
        np.testing.assert_allclose(out[number].log_probs[0], scored[row, steps], atol=1e-4)


def test_configurations_differ_where_models_do():
    """The generator's own promise, so that a change of seeds cannot quietly narrow the proof."""
    configs = [random_config(seed) for seed in SEEDS]
    texts = [config.text for config in configs]
    groups = {text.num_attention_heads // text.num_key_value_heads for text in texts}
    beyond = [config.text.num_hidden_layers - config.num_deepstack for config in configs]
    assert len(set(configs)) == len(configs) >= 8
    assert {config.tie_word_embeddings for config in configs} == {True, False}
    assert len(groups) >= 3 and len({text.num_key_value_heads for text in texts}) >= 3
    assert len({config.num_deepstack for config in configs}) >= 3
    assert len({config.vision.deepstack_visual_indexes for config in configs}) >= 6
    assert 0 in beyond and max(beyond) > 8 and len(set(beyond)) >= 4
    assert max(config.vision.depth for config in configs) > 8
