"""The model against transformers' Qwen3-VL, numerically."""

import jax
import numpy as np
import pytest
import torch

from rmsweb_jax.qwen3_vl.checkpoint import load_model
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.inputs import ModelInputs, image_rows, image_starts, mrope_positions, vision_inputs
from tests.qwen3_vl.conftest import IMAGE_TOKEN, reference_model, variants

GRIDS = {"none": [], "wide": [(1, 4, 10)], "multi": [(1, 6, 2), (1, 2, 4), (1, 8, 8)]}


def make_row(grids, rng):
    tokens = list(rng.integers(1, 80, 3))
    for grid in grids:
        tokens += [92] + [IMAGE_TOKEN] * (grid[1] * grid[2] // 4) + [93] + list(rng.integers(1, 80, 4))
    return np.array(tokens + list(rng.integers(1, 80, 5)), np.int32)


def make_inputs(tokens, grids, patches, config, num_patches=160, window=0):
    starts = image_starts(grids, window)
    return ModelInputs(
        tokens=tokens[None],
        positions=mrope_positions(tokens, grids, config)[:, None],
        segment_ids=np.ones((1, len(tokens)), np.int32),
        slot_ids=np.zeros((1, len(tokens)), np.int32),
        image_index=image_rows(tokens, grids, starts, config)[None],
        vision=vision_inputs(patches, grids, config, num_patches, window) if grids else None,
    )


def reference_outputs(model, tokens, grids, patches):
    ids = torch.tensor(tokens[None].astype(np.int64))
    kwargs = {}
    if grids:
        kwargs = {
            "pixel_values": torch.tensor(np.concatenate(patches)),
            "image_grid_thw": torch.tensor(grids),
            "mm_token_type_ids": (ids == IMAGE_TOKEN).int(),
        }
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=torch.ones_like(ids), **kwargs).logits[0].numpy()


@pytest.fixture(scope="module", params=sorted(variants()))
def pair(request, tmp_path_factory):
    config = variants()[request.param]
    reference = reference_model(config, seed=len(request.param))
    folder = tmp_path_factory.mktemp("hf")
    reference.save_pretrained(folder)
    return config, reference, load_model(folder)


@pytest.mark.parametrize("images", sorted(GRIDS))
def test_logits_match(pair, images):
    config, reference, model = pair
    rng = np.random.default_rng(0)
    grids = GRIDS[images]
    tokens = make_row(grids, rng)
    patches = [rng.standard_normal((h * w, config.vision.patch_dim)).astype(np.float32) for _, h, w in grids]
    expected = reference_outputs(reference, tokens, grids, patches)
    for window in (0, 80):
        inputs = make_inputs(tokens, grids, patches, config, window=window)
        logits = model.logits(jax.jit(lambda m, i: m(i))(model, inputs))
        np.testing.assert_allclose(logits[0], expected, atol=1e-4)


def test_vision_and_every_deepstack_output_match(pair):
    config, reference, model = pair
    rng = np.random.default_rng(1)
    grids = GRIDS["multi"]
    patches = [rng.standard_normal((h * w, config.vision.patch_dim)).astype(np.float32) for _, h, w in grids]
    with torch.no_grad():
        expected = reference.model.visual(torch.tensor(np.concatenate(patches)), grid_thw=torch.tensor(grids))
    out = model.visual(vision_inputs(patches, grids, config, 120))
    rows = sum(h * w for _, h, w in grids) // 4
    np.testing.assert_allclose(out.features[:rows], expected.pooler_output.numpy(), atol=1e-4)
    assert len(out.deepstack) == len(expected.deepstack_features) == config.num_deepstack
    for ours, theirs in zip(out.deepstack, expected.deepstack_features, strict=True):
        np.testing.assert_allclose(ours[:rows], theirs.numpy(), atol=1e-4)


def test_positions_match(pair):
    config, reference, _ = pair
    rng = np.random.default_rng(2)
    for grids in GRIDS.values():
        tokens = make_row(grids, rng)
        ids = torch.tensor(tokens[None].astype(np.int64))
        expected, _ = reference.model.get_rope_index(
            ids, (ids == IMAGE_TOKEN).int(), image_grid_thw=torch.tensor(grids) if grids else None
        )
        np.testing.assert_array_equal(mrope_positions(tokens, grids, config), expected[:, 0].numpy())


def test_config_survives_transformers(pair, tmp_path):
    config, reference, _ = pair
    reference.config.save_pretrained(tmp_path)
    assert Qwen3VLConfig.from_hf(tmp_path / "config.json") == config
