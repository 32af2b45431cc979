"""The engine against the training forward, and its promise: a response depends on its own request alone."""

import collections
import dataclasses
import gc
import weakref
from collections.abc import Iterator
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from rmsweb_jax.data.batching import Example
from rmsweb_jax.decoding import cache, programs
from rmsweb_jax.decoding.engine import Engine
from rmsweb_jax.decoding.requests import Sampling, join
from rmsweb_jax.decoding.sizes import EngineSizes, fit_sizes, token_bytes
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.attention import AttentionConfig
from rmsweb_jax.qwen.inputs import image_rows, image_starts, mrope_positions, vision_inputs
from rmsweb_jax.qwen.layers import LoRAParam
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.training.config import LoRAConfig
from tests.compilations import compilations
from tests.decoding.drawing import (
    SIZES,
    busy,
    draw,
    generate,
    requests,
    step,
    text_example,
    tokens_of,
    with_sizes,
)
from tests.qwen import conftest as models
from tests.qwen.conftest import IMAGE_TOKEN
from tests.qwen.random_models import random_model
from tests.qwen.rows import log_probs, logits, text_inputs
from tests.tiny import TINY

# A layer of each kind, with DeepStack and without: these tests compile many programs.
BASE = dataclasses.replace(
    models.BASE,
    text=dataclasses.replace(models.BASE.text, num_hidden_layers=2),
    vision=dataclasses.replace(models.BASE.vision, depth=1),
)
# One with a recurrence, and one with attention.
RECURRENT = dataclasses.replace(
    models.variants()["recurrent"],
    text=dataclasses.replace(models.variants()["recurrent"].text, num_hidden_layers=2),
    vision=dataclasses.replace(models.variants()["recurrent"].vision, depth=1),
)
PROMPTS = [[5, 6, 7, 8, 9, 3, 1, 2, 4, 6, 11, 12, 13], [11, 12], [40, 41, 42, 43]]
NEW = 6
SAMPLING = Sampling(4, NEW)


def forget() -> None:
    """Drops programs that were compiled with blocks of another size, which is not among their arguments."""
    cast(Any, programs.allocate).clear_cache()
    cast(Any, programs.decode).clear_cache()


def make_model(targets, config=BASE) -> Qwen3VL:
    """A model, with random adapters unless `targets` is None."""
    lora = None if targets is None else LoRAConfig(rank=4, alpha=8, targets=targets)
    return random_model(config, lora, embedding_std=0.4)


@pytest.fixture(scope="module")
def model() -> Qwen3VL:
    return make_model("attention")


@pytest.fixture(scope="module", params=[BASE, RECURRENT], ids=["attention", "recurrence"])
def either(request) -> Qwen3VL:
    return make_model("attention", request.param)


def assert_scored(model, prompts, drawn, temperature=1.0, atol=1e-4, length=32):
    """Log-probabilities are those of the training forward on the whole sequence."""
    for sample in range(len(drawn[0].tokens)):
        rows = [[*prompt, *one.tokens[sample].tolist()] for prompt, one in zip(prompts, drawn, strict=True)]
        scored = log_probs(model, text_inputs(rows, length=length), temperature)
        for number, (prompt, row) in enumerate(zip(prompts, rows, strict=True)):
            expected = scored[number, len(prompt) : len(row)]
            np.testing.assert_allclose(drawn[number].log_probs[sample], expected, rtol=1e-5, atol=atol)


@pytest.mark.parametrize("config", [BASE, RECURRENT], ids=["attention", "recurrence"])
@pytest.mark.parametrize(
    "targets", ["attention", *(pytest.param(one, marks=pytest.mark.slow) for one in (None, "all_linear"))]
)
def test_greedy_equals_the_full_forward(targets, config):
    model = make_model(targets, config)
    drawn = draw(model, PROMPTS, Sampling(2, NEW, temperature=0))
    for prompt, responses in zip(PROMPTS, drawn, strict=True):
        tokens = list(prompt)
        for _ in range(NEW):
            scores = logits(model, text_inputs([tokens], length=32))
            tokens.append(int(jnp.argmax(scores[0, len(tokens) - 1])))
        assert [part.tolist() for part in responses.tokens] == [tokens[len(prompt) :]] * 2


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_equal_the_training_forward(either, temperature):
    drawn = draw(either, PROMPTS, Sampling(4, NEW, temperature), seeds=3)
    assert_scored(either, PROMPTS, drawn, temperature)


@pytest.mark.parametrize(
    "chunk", [3, *(pytest.param(count, marks=pytest.mark.slow) for count in (1, 2, *range(4, 13)))]
)
def test_prompts_are_prefilled_at_any_split(either, chunk):
    """Each of the four responses begins with the state of its prompt."""
    sizes = with_sizes(chunks=(chunk,), prompt_width=chunk * -(-13 // chunk))
    drawn = draw(either, PROMPTS, SAMPLING, seeds=3, sizes=sizes)
    assert_scored(either, PROMPTS, drawn, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("chunks", [(64,), (100,), (8, 104)])
def test_prompts_of_several_blocks_of_the_recurrence(chunks):
    prompts = [(np.arange(count) * 7 % 90).tolist() for count in (200, 65, 64, 129)]
    sizes = with_sizes(prompt_width=chunks[-1] * -(-200 // chunks[-1]), chunks=chunks)
    policy = make_model("attention", RECURRENT)
    drawn = draw(policy, prompts, SAMPLING, seeds=3, sizes=sizes)
    assert_scored(policy, prompts, drawn, atol=1e-5, length=256)


def test_long_responses_come_round_the_ring(model, monkeypatch):
    # Blocks of which a response has several; room for ten tokens is then a ring of three.
    monkeypatch.setattr(cache, "BLOCK", 4)
    monkeypatch.setattr(programs, "BLOCK", 4)
    forget()
    sizes = with_sizes(lanes=2, samples=2, response_width=10)
    drawn = draw(model, PROMPTS * 2, Sampling(3, 10), seeds=3, sizes=sizes)
    forget()
    assert_scored(model, PROMPTS * 2, drawn, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("int8", 0.05), pytest.param("float8_e4m3fn", 0.2, marks=pytest.mark.slow)]
)
def test_caches_of_8_bits_are_near(model, dtype, tolerance):
    drawn = draw(model, PROMPTS, SAMPLING, seeds=3, cache_dtype=dtype)
    assert_scored(model, PROMPTS, drawn, atol=tolerance)
    with pytest.raises(AssertionError):
        assert_scored(model, PROMPTS, drawn, atol=1e-6)


@pytest.mark.slow
@settings(max_examples=3)
@given(
    order=st.permutations(range(6)),
    lanes=st.sampled_from([1, 2, 8]),
    samples=st.sampled_from([1, 4]),
    slots=st.sampled_from([2, 4]),
    serving=st.booleans(),
    cancelled=st.dictionaries(st.integers(0, 5), st.integers(0, 6), max_size=3),
)
def test_a_response_depends_on_its_own_request_alone(order, lanes, samples, slots, serving, cancelled):
    """In every order, with any sizes and neighbours, also if some of these are cancelled after some calls."""
    sizes = with_sizes(lanes=lanes, samples=samples, prompts=slots)
    engine = Engine.for_policy(SHARED["model"], sizes, eos=17, serving=serving)
    # More samples than lanes.
    asked = requests(engine, PROMPTS * 2, Sampling(9, NEW), list(range(6)))
    for number in order:
        engine.submit(asked[number])
    found, calls = collections.defaultdict(list), 0
    while busy(engine):
        for number, call in cancelled.items():
            if call == calls:
                engine.cancel(asked[number], None if number % 2 else 3)
        for report in step(engine):
            found[asked.index(report.request), report.sample] += report.tokens
            assert not report.error
        calls += 1
    if "tokens" not in SHARED:
        whole = Engine.for_policy(SHARED["model"], with_sizes(lanes=64), eos=17)
        drawn = generate(whole, requests(whole, PROMPTS * 2, Sampling(9, NEW), list(range(6))))
        SHARED["tokens"] = tokens_of(drawn)
    for number, expected in enumerate(SHARED["tokens"]):
        for sample, tokens in enumerate(expected):
            got = found[number, sample]
            # What was cancelled has a part of its response.
            whole = number not in cancelled or (number % 2 == 0 and sample != 3)
            assert got == (tokens if whole else tokens[: len(got)])


SHARED: dict[str, Any] = {"model": make_model("attention")}


def test_seeds_ids_and_samples_differ(model):
    drawn = tokens_of(draw(model, [PROMPTS[0]] * 3, SAMPLING, seeds=[1, 2, 1], prompt_ids=[7, 7, 8]))
    assert len({tuple(part) for responses in drawn for part in responses}) > 10


def test_end_token_stops_and_banned_tokens_never_come(model):
    free = tokens_of(draw(model, PROMPTS, SAMPLING, seeds=1))
    end = free[0][0][2]
    for one, other in zip(free, draw(model, PROMPTS, SAMPLING, seeds=1, eos=end), strict=True):
        for tokens, found, cut in zip(one, other.tokens, other.truncated, strict=True):
            expected = tokens[: tokens.index(end) + 1] if end in tokens else tokens
            assert found.tolist() == expected and cut == (end not in tokens)
    allowed = [1, 2, 3]
    banned = tuple(sorted(set(range(BASE.text.vocab_size)) - set(allowed)))
    for temperature in (0, 1):
        kept = tokens_of(draw(model, PROMPTS, Sampling(2, NEW, temperature), banned=banned))
        assert np.isin(kept, allowed).all()


def test_images_reach_the_samples(model):
    grids = [(1, 4, 6), (1, 2, 2)]
    prompts = [[1, *[IMAGE_TOKEN] * 6, 2, 3], [4, IMAGE_TOKEN, 5]]
    rng = np.random.default_rng(0)
    patches = [rng.standard_normal((h * w, BASE.vision.patch_dim)).astype(np.float32) for _, h, w in grids]
    examples = [
        Example(str(number), np.asarray(prompt, np.int32), len(prompt), np.zeros(0, bool), (part,), (grid,))
        for number, (prompt, part, grid) in enumerate(zip(prompts, patches, grids, strict=True))
    ]
    # A prompt of text goes between them, in the same slots.
    asked = [examples[0], text_example(PROMPTS[1]), examples[1]]
    sizes = with_sizes(images=1, window=24, prompts=2)
    drawn = draw(model, asked, Sampling(2, NEW), sizes=sizes)[::2]
    for sample in range(2):
        rows = [[*prompt, *one.tokens[sample].tolist()] for prompt, one in zip(prompts, drawn, strict=True)]
        inputs = text_inputs(rows, length=16)
        for number, (row, grid, start) in enumerate(zip(rows, grids, image_starts(grids), strict=True)):
            tokens = np.array(row, np.int32)
            inputs.positions[:, number, : len(row)] = mrope_positions(tokens, [grid], BASE)
            inputs.image_index[number, : len(row)] = image_rows(tokens, [grid], [start], BASE)
        inputs = dataclasses.replace(inputs, vision=vision_inputs(patches, grids, BASE, 32))
        scores = log_probs(model, inputs)
        for number, prompt in enumerate(prompts):
            expected = scores[number, len(prompt) : len(prompt) + NEW]
            np.testing.assert_allclose(drawn[number].log_probs[sample], expected, atol=1e-4)


def test_a_new_policy_brings_its_vision_tower():
    """An update donates the arrays of the one before."""
    grid, rng = (1, 4, 6), np.random.default_rng(0)
    patches = (rng.standard_normal((24, BASE.vision.patch_dim)).astype(np.float32),)
    prompt = np.asarray([1, *[IMAGE_TOKEN] * 6, 2, 3], np.int32)
    example = Example("0", prompt, len(prompt), np.zeros(0, bool), patches, (grid,))
    sizes = with_sizes(images=1, window=24)
    policy = make_model("attention")
    engine = Engine.for_policy(policy, sizes, eos=-1)
    before = generate(engine, requests(engine, [example], SAMPLING))
    old = jax.tree.leaves(nnx.state(policy.visual))
    nnx.update(policy.visual, jax.tree.map(lambda x: x + 0.1, nnx.state(policy.visual)))
    for leaf in old:
        leaf.delete()
    engine.load_adapters(1, policy, version=1)
    other = text_example(PROMPTS[0])
    _, after = generate(engine, requests(engine, [other, example], SAMPLING))
    (expected,) = draw(policy, [example], SAMPLING, sizes=sizes, prompt_ids=[1])
    assert tokens_of([after]) == tokens_of([expected]) != tokens_of(before)


def test_the_first_token_has_the_version_that_read_the_prompt(model):
    engine = Engine.for_policy(model, with_sizes(lanes=4, samples=4), eos=-1, serving=True)
    first, second = requests(engine, PROMPTS[1:], Sampling(4, 8))
    engine.submit(first)
    step(engine)
    engine.submit(second)
    step(engine)
    # The second prompt is read, and waits for lanes.
    engine.load_adapters(1, model, version=5)
    found = dict(join(engine.stream()))
    assert {tuple(versions.tolist()) for versions in found[second].versions} == {(0, *[5] * 7)}


def test_reference_policy_draws_without_adapters(model):
    expected = tokens_of(draw(make_model(None), PROMPTS, SAMPLING))
    assert tokens_of(draw(model, PROMPTS, SAMPLING, adapters=False)) == expected
    assert tokens_of(draw(model, PROMPTS, SAMPLING)) != expected


def test_each_request_uses_its_own_adapters_and_a_swap_holds_for_what_follows(model):
    other = random_model(BASE, LoRAConfig(rank=2, alpha=8, targets="attention"), embedding_std=0.4)
    engine = Engine(make_model(None), SIZES, eos=-1, adapters=2, adapter_rank=4)
    engine.load_adapters(1, model, version=3)
    asked = requests(engine, PROMPTS * 2, SAMPLING, list(range(6)))
    for number, request in enumerate(asked):
        request.adapter = number % 2
    drawn = generate(engine, asked)
    with_adapters = tokens_of(draw(model, PROMPTS * 2, SAMPLING, seeds=list(range(6))))
    without = tokens_of(draw(make_model(None), PROMPTS * 2, SAMPLING, seeds=list(range(6))))
    assert tokens_of(drawn) == [(with_adapters if n % 2 else without)[n] for n in range(6)]
    assert {version for one in drawn[1::2] for part in one.versions for version in part} == {3}
    # Swapped while sequences are under way: their tokens say which version drew them.
    engine.load_adapters(2, other, version=1)
    (request,) = requests(engine, [PROMPTS[0]], Sampling(4, 16))
    request.adapter = 1
    engine.submit(request)
    drawn = step(engine)
    engine.load_adapters(1, other, version=4)
    found = dict(join([*drawn, *engine.stream()]))
    for versions in found[request].versions:
        assert versions.tolist() == [3] * engine.sizes.steps + [4] * (16 - engine.sizes.steps)
    with pytest.raises(UserError, match=r"rank 4 do not fit the engine's rank 2"):
        Engine(make_model(None), SIZES, eos=-1, adapters=1, adapter_rank=2).load_adapters(1, model)


def test_nothing_is_compiled_after_the_warm_up(either):
    engine = Engine.for_policy(either, with_sizes(), eos=17, serving=True)
    engine.warm_up()
    with compilations() as compiled:
        for count, length in ((1, 2), (3, 13), (9, 5)):
            sampling = Sampling(count, 3 + count, 0.5, top_p=0.9 if count > 1 else 1.0)
            generate(engine, requests(engine, [[4] * length], sampling))
        engine.set_adapters(1, engine.prepare_adapters(either))
    assert "set_adapters" not in str(compiled) and "decode" not in str(compiled), compiled
    # The adapters of the policy are still those of the model.
    assert_scored(either, PROMPTS, generate(engine, requests(engine, PROMPTS, SAMPLING)))


def test_lanes_are_refilled_as_sequences_end(either):
    engine = Engine.for_policy(either, with_sizes(lanes=4, samples=4, steps=1), eos=-1)
    lengths = [1, 16, 2, 3] * 3
    asked = [requests(engine, [PROMPTS[1]], Sampling(4, length))[0] for length in lengths]
    generate(engine, asked)
    # Ideal: the tokens over four lanes.
    assert engine.tokens == 4 * sum(lengths)
    assert engine.steps <= 1.2 * sum(lengths)


@pytest.mark.parametrize("serving", [False, True])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("calls", [0, 1, 2, 3])
def test_a_request_is_cancelled_in_every_state(model, serving, whole, calls):
    """Waiting, while it is prefilled (three chunks), and while it is decoded."""
    engine = Engine.for_policy(model, with_sizes(chunks=(4,), prompts=1, lanes=2), eos=-1, serving=serving)
    first, second = requests(engine, [PROMPTS[0][:12], PROMPTS[1]], Sampling(2, 16))
    engine.submit(first)
    engine.submit(second)
    for _ in range(calls):
        step(engine)
    for request in (first, second)[calls % 2 :]:
        for sample in [None] if whole else [0, 1]:
            engine.cancel(request, sample)
    left = first if calls % 2 else None
    ended = []
    for _ in range(40):
        ended += [report.request for report in step(engine) if report.finish]
    assert ended == [left] * 2 * (left is not None) and not busy(engine)
    # Its slot and lanes are free.
    assert len(generate(engine, requests(engine, [PROMPTS[2]] * 3, SAMPLING))) == 3


def test_cancelled_samples_and_requests_are_not_reported(model):
    engine = Engine.for_policy(model, with_sizes(lanes=2), eos=-1)
    first, second, third = requests(engine, PROMPTS, Sampling(4, 16))
    for request in (first, second, third):
        engine.submit(request)
    step(engine)
    engine.cancel(first)
    engine.cancel(second, 1)
    reports = collections.Counter()
    for report in engine.stream():
        reports[report.request, report.sample] += report.finish is not None
    assert set(reports) == {(second, 0), (second, 2), (second, 3), *((third, sample) for sample in range(4))}
    assert set(reports.values()) == {1}


def test_a_stream_goes_on_where_another_was_left(model):
    """And has nothing of a request that was cancelled in between, though it was drawn in the same step."""
    engine = Engine.for_policy(model, with_sizes(prompts=8), eos=-1)
    first, second, third = requests(engine, [*PROMPTS[1:], PROMPTS[1]], Sampling(2, 8), [1, 2, 3])
    expected = tokens_of(generate(engine, [first, second]))
    drawn = []
    for one in engine.stream([first, third, second]):
        drawn.append(one)
        if any(other.request is third for other in engine._reports):
            break
    engine.cancel(third)
    rest = list(engine.stream())
    assert rest and third not in {one.request for one in rest}
    found = dict(join([*drawn, *rest]))
    assert tokens_of([found[first], found[second]]) == expected
    assert not busy(engine) and list(engine.stream()) == []


@pytest.mark.parametrize(
    ("length", "sampling", "line"),
    [
        (17, Sampling(), "a prompt of 17 tokens: at most 16"),
        (3, Sampling(1, 17), "a limit of 17 tokens: at most 16"),
        (3, Sampling(0, 4), "0 samples"),
        (3, Sampling(1, 4, top_p=0.5), "serving=True"),
    ],
)
def test_what_does_not_fit_is_refused(model, length, sampling, line):
    engine = Engine.for_policy(model, SIZES, eos=-1)
    with pytest.raises(UserError, match=line):
        engine.submit(requests(engine, [[1] * length], sampling)[0])


@dataclasses.dataclass(frozen=True)
class Damaged:
    """A prompt that cannot be encoded."""

    error: Exception
    sample_id: str = "broken"
    prompt_length: int = 3

    def encoded(self) -> Example:
        raise self.error


@pytest.mark.parametrize("error", [UserError("broken: no picture"), OSError("broken: no picture")])
@pytest.mark.parametrize("serving", [False, True])
def test_a_prompt_that_cannot_be_encoded_ends_its_own_request(model, serving, error):
    engine = Engine.for_policy(model, SIZES, eos=-1, serving=serving)
    asked = requests(engine, [PROMPTS[0], Damaged(error), PROMPTS[2]], SAMPLING)
    longer = dataclasses.replace(text_example(PROMPTS[1]), prompt_length=1)
    images = Example("two", np.arange(4, dtype=np.int32), 4, np.zeros(0, bool), (), ((1, 2, 2),) * 2)
    asked += requests(engine, [longer, images], SAMPLING)
    finished = collections.Counter(
        (asked.index(one.request), one.finish, one.error) for one in engine.stream(asked) if one.finish
    )
    assert finished == {
        (0, "length", ""): 4,
        (1, "error", "broken: no picture"): 4,
        (2, "length", ""): 4,
        (3, "length", ""): 4,
        (4, "error", "a prompt with 2 images: at most 0 are served"): 4,
    }
    with pytest.raises(UserError, match=r"^broken: no picture$"):
        generate(engine, requests(engine, [Damaged(error)], SAMPLING))


def test_short_prompts_go_between_the_chunks_of_long_ones(either):
    sizes = with_sizes(prompt_width=64, prompts=8, chunks=(4,), steps=1)
    engine = Engine.for_policy(either, sizes, eos=-1, serving=True)
    long, other, *short = requests(engine, [[4] * 60, [5] * 60, [6] * 3, [7] * 4, [8] * 2], Sampling(1, 2))
    engine.submit(long)
    engine.submit(other)
    step(engine)
    for request in short:
        engine.submit(request)
    ended = []
    while busy(engine):
        calls = engine.chunks
        ended += [(report.request, calls) for report in step(engine) if report.finish]
    order = [request for request, _ in ended]
    assert order == [*short, long, other]
    # Each waits for a chunk of the long one at most; that one for all of the short ones.
    assert [calls for _, calls in ended[:3]] == [2, 4, 6]
    assert ended[3][1] == 15 + 3


def test_images_return_after_another_prompt(model):
    """Prompts with images whose chunks take turns draw what they draw alone."""
    rng = np.random.default_rng(0)
    patches = [rng.standard_normal((24, BASE.vision.patch_dim)).astype(np.float32) for _ in range(2)]
    rows = [[1, 2, 3, 4, 5, *[IMAGE_TOKEN] * 6, 2, 3], [*[IMAGE_TOKEN] * 6, 5]]
    examples = [
        Example(str(number), np.asarray(row, np.int32), len(row), np.zeros(0, bool), (part,), ((1, 4, 6),))
        for number, (row, part) in enumerate(zip(rows, patches, strict=True))
    ]
    drawn = []
    for together in (False, True):
        sizes = with_sizes(images=1, window=24, chunks=(8,))
        engine = Engine.for_policy(model, sizes, eos=-1, serving=True)
        asked = requests(engine, examples, SAMPLING)
        if together:
            engine.submit(asked[0])
            found = dict(join([*step(engine), *engine.stream([asked[1]])]))
            drawn.append(tokens_of([found[request] for request in asked]))
        else:
            drawn.append(tokens_of([generate(engine, [request])[0] for request in asked]))
    assert drawn[0] == drawn[1]


def test_memory_that_does_not_suffice_is_one_line(model, monkeypatch):
    def full(**_: Any) -> Any:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes")

    monkeypatch.setattr(programs, "allocate", full)
    with pytest.raises(UserError, match="memory does not hold weights and caches of 4 prompts of 16 tokens"):
        Engine(model, SIZES, eos=-1)


def test_a_log_probability_that_is_not_a_number_is_an_error():
    model = make_model(None)
    model.language_model.norm.scale[...] = model.language_model.norm.scale[...].at[0].set(jnp.nan)
    engine = Engine(model, SIZES, eos=-1)
    asked = requests(engine, PROMPTS[:2], SAMPLING)
    finished = collections.Counter(
        (report.request, report.finish, report.error[:18]) for report in engine.stream(asked)
    )
    assert finished == {(request, "error", "a log-probability "): 4 for request in asked}


def test_an_engine_that_has_drawn_nothing_is_freed_with_its_last_owner(model):
    """Its weights and caches would otherwise stay on the devices until the garbage collector runs."""
    engine = Engine.for_policy(model, SIZES, eos=-1)
    asked = requests(engine, [[1, 2]], SAMPLING)[0]
    engine.submit(asked)
    engine.cancel(asked)
    gone = weakref.ref(engine)
    gc.disable()
    try:
        del engine
        assert gone() is None
    finally:
        gc.enable()


def test_damaged_adapters_are_refused(model):
    engine = Engine(make_model(None), SIZES, eos=-1, adapters=1, adapter_rank=4)
    damaged = nnx.clone(model)
    nnx.update(damaged, jax.tree.map(lambda x: x * np.nan, nnx.state(damaged, LoRAParam)))
    with pytest.raises(UserError, match="not finite"):
        engine.load_adapters(1, damaged)


class TestRestrictions:
    @pytest.fixture(scope="class")
    def engine(self) -> Engine:
        return Engine(make_model(None), SIZES, eos=-1, serving=True)

    def first_logits(self, prompt):
        scores = logits(make_model(None), text_inputs([prompt], length=32))[0, len(prompt) - 1]
        return np.asarray(scores, np.float64)

    @pytest.mark.parametrize(
        "limits",
        [
            {"top_k": 3},
            {"top_p": 0.4},
            {"top_k": 5, "top_p": 0.6},
            {"top_p": 1e-9},
            {"top_k": 2, "temperature": 3.0},
        ],
    )
    def test_only_likely_tokens_are_drawn(self, engine, limits):
        temperature = limits.get("temperature", 1.0)
        probs = np.exp(self.first_logits(PROMPTS[0]) / temperature)
        probs /= probs.sum()
        order = np.argsort(-probs)
        kept = set(order[: limits.get("top_k", len(probs))].tolist())
        before = np.cumsum(probs[order]) - probs[order]
        kept &= set(order[before < limits.get("top_p", 1.0)].tolist())
        (drawn,) = generate(engine, requests(engine, [PROMPTS[0]], Sampling(64, 1, **limits)))
        found = {int(tokens[0]) for tokens in drawn.tokens}
        assert found <= kept and (len(found) > 1 or len(kept) == 1)
        # Log-probabilities are those of the whole distribution.
        np.testing.assert_allclose(
            [part[0] for part in drawn.log_probs],
            [np.log(probs[part[0]]) for part in drawn.tokens],
            atol=1e-4,
        )

    @pytest.mark.parametrize(
        "penalties",
        [
            {"presence_penalty": 2.0},
            {"frequency_penalty": 1.5},
            {"presence_penalty": -1.0, "frequency_penalty": 0.3},
        ],
    )
    def test_penalties_lower_what_was_drawn(self, engine, penalties):
        model, tokens = make_model(None), list(PROMPTS[1])
        drawn: collections.Counter[int] = collections.Counter()
        for _ in range(NEW):
            inputs = text_inputs([tokens], length=32)
            scores = np.array(logits(model, inputs)[0, len(tokens) - 1], np.float64)
            for token, count in drawn.items():
                scores[token] -= penalties.get("frequency_penalty", 0) * count
                scores[token] -= penalties.get("presence_penalty", 0)
            tokens.append(int(scores.argmax()))
            drawn[tokens[-1]] += 1
        asked = requests(engine, [PROMPTS[1]], Sampling(2, NEW, temperature=0, **penalties))
        assert tokens_of(generate(engine, asked)) == [[tokens[len(PROMPTS[1]) :]] * 2]

    def test_the_most_likely_tokens(self, engine):
        (request,) = requests(engine, [PROMPTS[0]], Sampling(2, 3, top_log_probs=4))
        first = next(engine.stream([request]))
        whole = self.first_logits(PROMPTS[0])
        whole -= np.log(np.exp(whole).sum())
        order = np.argsort(-whole)[:4]
        assert list(first.top[0].tokens) == order.tolist()
        np.testing.assert_allclose(first.top[0].log_probs, whole[order], atol=1e-4)

    def test_a_constraint_allows_its_tokens_alone(self, engine):
        class Alternate:
            """Allows 7 at even and 9 at odd places."""

            def __init__(self):
                self.taken = 0

            def allowed(self, mask):
                mask[:] = 0
                mask[0] = 1 << (9 if self.taken % 2 else 7)

            def take(self, tokens):
                self.taken += len(tokens)

        bound, free = requests(engine, [PROMPTS[0], PROMPTS[2]], Sampling(2, NEW))
        bound.constrain = Alternate
        drawn = tokens_of(generate(engine, [bound, free]))
        assert drawn[0] == [[7, 9] * 3] * 2
        alone = requests(engine, [PROMPTS[0], PROMPTS[2]], Sampling(2, NEW))[1]
        assert drawn[1] == tokens_of(generate(engine, [alone]))[0]


def test_sizes_fit_the_memory():
    sizes = EngineSizes(1, 1, 12_288, 2048, samples=8, chunks=(128, 1024))
    each = token_bytes(BASE.text, "bfloat16", "model")
    text = BASE.text
    assert each == 2 * 2 * text.num_hidden_layers * text.num_key_value_heads * text.head_dim
    for free in (40, 400, 4000):
        free = free * 12_288 * each // 10
        fitted = fit_sizes(sizes, each, free, 4)
        used = fitted.prompts // 4 * 12_288 * each + fitted.lanes // 4 * 2048 * each
        assert used <= free and fitted.lanes % 4 == 0 and fitted.prompts >= 8
        # One more lane for each sample of a prompt would not fit, or there are as many as pay.
        assert fitted.lanes // 4 == 256 or used + 8 * 2048 * each + 2 * 12_288 * each > free
    with pytest.raises(UserError, match="two prompts of 12288 tokens with one response need"):
        fit_sizes(sizes, each, 12_288 * each, 1)


@pytest.mark.slow
def test_the_kernel_decodes_as_xla_does(wide_model):
    sizes = EngineSizes(4, 3, 128, 70, samples=2, chunks=(64,), steps=70)
    asked = [np.arange(2, 2 + count) % 50 for count in (3, 100, 40)]
    drawn = []
    for backend in ("dense", "pallas"):
        wide_model.attention = AttentionConfig(backend, interpret=True)
        drawn.append(draw(wide_model, [list(map(int, one)) for one in asked], Sampling(2, 70), sizes=sizes))
    assert tokens_of(drawn[0]) == tokens_of(drawn[1])
    for one, other in zip(*drawn, strict=True):
        np.testing.assert_allclose(np.stack(one.log_probs), np.stack(other.log_probs), atol=1e-5)


@pytest.fixture
def wide_model(monkeypatch) -> Iterator[Qwen3VL]:
    """Heads, and blocks of a ring, as the kernel wants them."""
    monkeypatch.setattr(cache, "BLOCK", 64)
    monkeypatch.setattr(programs, "BLOCK", 64)
    text = dataclasses.replace(
        TINY.text,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=128,
        mrope_section=(32, 16, 16),
    )
    forget()
    yield random_model(dataclasses.replace(TINY, text=text), embedding_std=0.4)
    forget()
