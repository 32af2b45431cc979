"""An optimizer step's groups in rows: what is scored, with which weights, and what it costs."""

import dataclasses

import numpy as np
import pytest

from configs.rl import get_config
from rmsweb_jax.data.encoding import SampleSize
from rmsweb_jax.data.packing import Packer, RowShape, useful_work
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.flops import Work
from rmsweb_jax.qwen.tree_attention.rule import visible_pairs
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.rl.rollout import MiniBatch
from rmsweb_jax.rl.step import VALUES, micro_batches, rl_packer, trees_of
from rmsweb_jax.settings import from_config
from tests.rl.conftest import CONFIG

SAMPLES = 8


def packer(width: int, rows: int) -> Packer:
    return Packer(RowShape(width, rows, images=3, window=8), CONFIG)


# Rows of one group, and rows that hold several groups, of which some are cut.
PACKERS = {"wide": packer(96, 2), "narrow": packer(40, 2), "together": packer(160, 1)}
all_packers = pytest.mark.parametrize("packer", PACKERS.values(), ids=PACKERS)


@pytest.fixture
def batch(make_turn):
    """Three accepted groups and two salvaged ones; every third prompt has no image."""
    groups = [make_turn(n, accepted=n < 3, length=10 + 3 * n, image=n % 3 != 2) for n in range(5)]
    return MiniBatch(tuple(groups[:3]), tuple(groups[3:]))


def micros_of(batch, packer, *, salvage=True, held=None):
    return list(micro_batches(trees_of(batch, salvage=salvage), packer, CONFIG, held))


@all_packers
def test_rows_hold_what_the_groups_hold(batch, packer):
    seen = {}
    groups = (*batch.accepted, *batch.salvaged)
    for micro in micros_of(batch, packer):
        inputs, scored = micro.batch.inputs, micro.batch.scored
        assert inputs.tokens.shape == scored.tokens.shape == (packer.shape.rows, packer.shape.width)
        for span in micro.spans:
            place = slice(span.start, span.stop)
            tokens, index = scored.tokens[span.row, place], scored.index[span.row, place]
            assert (span.tree, span.branch) not in seen
            seen[span.tree, span.branch] = tokens
            # The state before the first token is that of the prompt's end, and each token's that of the next.
            prompt = groups[span.tree].prompt.encoded().prompt
            before = slice(index[0] + 1 - len(prompt), index[0] + 1)
            assert inputs.tokens[span.row, before].tolist() == prompt.tolist()
            assert inputs.tokens[span.row, index[1:]].tolist() == tokens[:-1].tolist()
    assert len(seen) == 5 * SAMPLES + 2
    for number, group in enumerate(groups):
        for sample, response in enumerate(group.responses):
            assert seen[number, sample].tolist() == response.tolist()
    for number in (3, 4):
        assert seen[number, SAMPLES].tolist() == groups[number].prompt.encoded().target.tolist()


@all_packers
def test_weights_are_means_of_sequence_means(batch, packer):
    total = {"pg_weight": 0.0, "kl_weight": 0.0, "salvage_weight": 0.0}
    for micro in micros_of(batch, packer):
        values = micro.batch.scored.values
        for name in total:
            total[name] += float(values[name].sum())
        for span in micro.spans:
            part, length = (span.row, slice(span.start, span.stop)), span.stop - span.start
            pg, kl = values["pg_weight"][part], values["kl_weight"][part]
            np.testing.assert_allclose(pg, 1 / length / 24 if span.tree < 3 else 0, rtol=1e-5)
            np.testing.assert_allclose(kl, 1 / length / 40 if span.branch < SAMPLES else 0, rtol=1e-5)
            if span.tree < 3:
                advantage = batch.accepted[span.tree].advantages[span.branch]
                np.testing.assert_allclose(values["advantages"][part], advantage, rtol=1e-6)
    assert all(value == pytest.approx(1, rel=1e-5) for value in total.values())


@all_packers
def test_anchor_reads_the_action_span_only(batch, packer):
    for micro in micros_of(batch, packer):
        for span in micro.spans:
            weights = micro.batch.scored.values["salvage_weight"][span.row, span.start : span.stop]
            if span.branch < SAMPLES:
                assert not weights.any()
            else:
                assert (weights > 0).tolist() == [False, True, True, False]
    without = micros_of(batch, packer, salvage=False)
    assert not any(micro.batch.scored.values["salvage_weight"].any() for micro in without)
    assert all(span.branch < SAMPLES for micro in without for span in micro.spans)


@all_packers
def test_responses_carry_what_drew_them(batch, packer):
    accepted = list(batch.accepted)
    log_probs = tuple(-1.0 - np.arange(len(part), dtype=np.float32) for part in accepted[1].responses)
    accepted[1] = dataclasses.replace(accepted[1], log_probs=log_probs)
    for micro in micros_of(MiniBatch(tuple(accepted[:2]), ()), packer):
        values = micro.batch.scored.values
        for span in micro.spans:
            part = span.row, slice(span.start, span.stop)
            expected = log_probs[span.branch] if span.tree == 1 else np.zeros(span.stop - span.start)
            np.testing.assert_array_equal(values["behaviour_log_probs"][part], expected)


def picture(inputs, unit):
    """The patches that each place of each row shows: [B, W, unit, patch_dim], zeros where there is text."""
    index = inputs.image_index
    patches = inputs.vision.patches.reshape(-1, unit, inputs.vision.patches.shape[-1])
    return np.where(index[..., None, None] >= 0, patches[index], 0)


@pytest.mark.parametrize("width", [40, 96])
def test_each_process_makes_its_own_rows_of_the_same_batch(batch, width):
    """Joined, the rows of two processes with two devices each are those that one process makes."""
    chosen = packer(width, 4)
    owned = [0, 3], [1, 2]
    order = np.argsort(np.concatenate(owned))
    whole = micros_of(batch, chosen)
    parts = [micros_of(batch, chosen, held=held) for held in owned]
    for all_rows, *halves in zip(whole, *parts, strict=True):

        def joined(read, axis=0, halves=halves):
            return np.take(np.concatenate([read(half.batch) for half in halves], axis), order, axis)

        inputs, scored = all_rows.batch.inputs, all_rows.batch.scored
        for name in ("tokens", "until", "image_index"):
            found = joined(lambda batch, name=name: getattr(batch.inputs, name))
            np.testing.assert_array_equal(found, getattr(inputs, name), err_msg=name)
        np.testing.assert_array_equal(joined(lambda batch: batch.inputs.positions, 1), inputs.positions)
        for name in ("index", "tokens", "branch"):
            found = joined(lambda batch, name=name: getattr(batch.scored, name))
            np.testing.assert_array_equal(found, getattr(scored, name), err_msg=name)
        for name in VALUES:
            found = joined(lambda batch, name=name: batch.scored.values[name])
            np.testing.assert_array_equal(found, scored.values[name], err_msg=name)
        # On the mesh, each row's block of patches is where the row is.
        per_row = len(inputs.vision.patches) // chosen.shape.rows
        patches = np.zeros_like(inputs.vision.patches)
        for held, half in zip(owned, halves, strict=True):
            blocks = half.batch.inputs.vision.patches.reshape(len(held), per_row, -1)
            patches.reshape(chosen.shape.rows, per_row, -1)[held] = blocks
        unit = CONFIG.vision.merge_unit
        together = inputs.replace(vision=inputs.vision.replace(patches=patches))
        np.testing.assert_array_equal(picture(together, unit), picture(inputs, unit))
        assert all_rows.spans == halves[0].spans == halves[1].spans
        assert all_rows.executed == halves[0].executed == halves[1].executed


@all_packers
def test_executed_work_is_what_the_attention_rule_lets_through(batch, packer):
    """All devices wait for the costliest row; padding sees itself only, and is not counted."""
    shape = packer.shape
    patches = shape.images * shape.window
    trees = trees_of(batch, salvage=True)
    for micro in micros_of(batch, packer):
        seen = np.asarray(visible_pairs(micro.batch.inputs.until)).sum(2)
        pairs = []
        for row in range(shape.rows):
            own = [span for span in micro.spans if span.row == row]
            prompts = sum(trees[tree].size.prompt for tree in {span.tree for span in own})
            used = prompts + sum(span.stop - span.start for span in own)
            assert (seen[row, used:] == 1).all()
            pairs.append(seen[row, :used].sum())
        assert micro.executed == Work(
            tokens=shape.rows * shape.width,
            pairs=shape.rows * max(pairs),
            scored=shape.rows * int(micro.batch.scored.count),
            patches=shape.rows * patches,
            patch_pairs=shape.rows * patches * shape.window,
        )


def test_useful_work_counts_a_cut_groups_prompt_once(batch):
    trees = trees_of(batch, salvage=True)
    work = useful_work([tree.size for tree in trees])
    prompts = sum(tree.size.prompt for tree in trees)
    scored = sum(count for tree in trees for count in tree.size.branches)
    images = [count for tree in trees for count in tree.size.patches]
    assert (work.tokens, work.scored, work.patches) == (prompts + scored, scored, sum(images))
    assert work.patch_pairs == sum(count**2 for count in images)
    # The narrow rows repeat prompts; what they execute is more, what is useful is not.
    executed = [
        sum((micro.executed for micro in micros_of(batch, chosen)), start=Work(0, 0, 0)).tokens
        for chosen in PACKERS.values()
    ]
    assert min(executed) >= work.tokens


def settings(**changes) -> RlConfig:
    config = get_config("smoke")
    config.model, config.prompts = "model", "prompts"
    config.update({"num_samples": 8, "row_multiple": 8, "max_response_tokens": 32, **changes})
    return from_config(RlConfig, config)


MEASURES = [SampleSize(f"p{n}", 14 + 5 * n, 4, (8,) * (n % 3), f"t{n}") for n in range(8)]


@pytest.mark.parametrize("shards", [1, 2, 8])
def test_chosen_rows_fit_every_single_response(shards):
    config = settings(row_tokens=160)
    chosen = rl_packer(MEASURES, config, CONFIG, shards)
    shape = chosen.shape
    assert 45 + 32 <= shape.width <= 160 and shape.width % 8 == 0
    assert shape.rows == shards and shape.window == 8 and shape.images >= 2
    # All processes of a run, and a resumed one, choose the same.
    assert rl_packer(MEASURES, config, CONFIG, shards) == chosen
    sizes = [
        dataclasses.replace(measure.tree, branches=(response,))
        for measure in MEASURES
        for response in (1, 32)
    ]
    assert chosen.pack(sizes)


def test_a_row_must_hold_a_prompt_and_a_response():
    rl_packer(MEASURES, settings(row_tokens=80), CONFIG, 1)
    with pytest.raises(UserError, match="row_tokens is 72: raise it to 80"):
        rl_packer(MEASURES, settings(row_tokens=72), CONFIG, 1)
    # A salvage target is trained on as well, and may be the longer one.
    targets = [SampleSize("p", 40 + 60, 60, ())]
    with pytest.raises(UserError, match="up to 100 tokens"):
        rl_packer(targets, settings(row_tokens=96), CONFIG, 1)


def test_text_prompts_need_no_room_for_images():
    chosen = rl_packer([SampleSize("p", 40, 4, ())], settings(row_tokens=160), CONFIG, 1)
    assert (chosen.shape.images, chosen.shape.window) == (0, 0)
