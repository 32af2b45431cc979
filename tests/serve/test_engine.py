import dataclasses
import threading

import numpy as np
import pytest

from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.attention import AttentionConfig
from rmsweb_jax.qwen3_vl.checkpoint import load_model
from rmsweb_jax.qwen3_vl.processor import Processor
from rmsweb_jax.serve.adapters import BASE
from rmsweb_jax.serve.batch import BatchKey, Completion, DecodeBatch, PendingRequest, TokenizedRequest
from rmsweb_jax.serve.engine import (
    EngineConfig,
    EngineStoppedError,
    OverloadedError,
    ServingEngine,
    UnknownPolicyError,
)
from rmsweb_jax.serve.protocol import BadRequestError, ChatMessage, ChatRequest
from rmsweb_jax.training.mesh import make_mesh

TEXTS = ("go", "a longer question, so that rows differ", "third", "x" * 70, "fifth and last")


def ask(text: str, **settings) -> ChatRequest:
    return ChatRequest(messages=[ChatMessage(role="user", content=text)], **settings)


def request(number: int) -> ChatRequest:
    return ask(TEXTS[number], seed=number, temperature=0.8 + number / 10)


def prepared(engine: ServingEngine, number: int) -> TokenizedRequest:
    return engine.prepare(request(number))


def answer(engine: ServingEngine, prepared: TokenizedRequest) -> list[Completion]:
    return engine.submit(prepared).future.result()


@pytest.fixture
def idle(model_folder) -> ServingEngine:
    """Not started, so that requests pile up and are decoded together."""
    shapes = EngineConfig(
        (1, 4), (64, 128), max_new_tokens=12, max_images=1, warm_widths=0, chunk=4, max_waiting=8
    )
    return ServingEngine(load_model(model_folder), Processor.from_pretrained(model_folder, 4096), shapes)


def test_a_reply_does_not_depend_on_its_batch(engine, idle):
    alone = [answer(engine, prepared(engine, number)) for number in range(len(TEXTS))]
    submitted = [idle.submit(prepared(idle, number)) for number in reversed(range(len(TEXTS)))]
    idle.start()
    together = [pending.future.result() for pending in submitted][::-1]
    idle.close()
    for (one,), (other,) in zip(alone, together, strict=True):
        assert (one.text, one.tokens, one.finish_reason) == (other.text, other.tokens, other.finish_reason)
        np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-4)
    assert len({replies[0].text for replies in alone}) == len(TEXTS)


def test_more_choices_extend_fewer(engine):
    one, four = (answer(engine, engine.prepare(ask("go", seed=5, n=n))) for n in (1, 4))
    # Another number of samples is another program: figures agree to rounding.
    assert four[0].text == one[0].text and list(four[0].tokens) == list(one[0].tokens)
    assert four[0].log_probs == pytest.approx(one[0].log_probs, abs=1e-5)
    assert len({reply.text for reply in four}) == 4


def test_both_halves_of_a_seed_count(engine):
    seeds = (1, 1 + 2**32, 2)
    texts = {answer(engine, engine.prepare(ask("go", seed=seed)))[0].text for seed in seeds}
    assert len(texts) == 3


def test_temperature_zero_is_greedy(engine):
    one, other = (answer(engine, engine.prepare(ask("go", seed=s, temperature=0)))[0] for s in (1, 2))
    assert (one.text, one.tokens) == (other.text, other.tokens)
    # How old a pool is decides how its sums are split.
    assert one.log_probs == pytest.approx(other.log_probs, abs=1e-5)


def test_limits_cut_a_reply(engine):
    full = answer(engine, engine.prepare(ask("go", seed=3, max_tokens=1000)))[0]
    cut = answer(engine, engine.prepare(ask("go", seed=3, max_tokens=4)))[0]
    assert len(full.tokens) == len(full.log_probs) == 12
    assert cut.tokens == full.tokens[:4] and cut.log_probs == pytest.approx(full.log_probs[:4], abs=1e-5)
    assert cut.finish_reason == "length"


def test_a_stop_text_ends_a_reply_wherever_tokens_begin(engine):
    full = answer(engine, engine.prepare(ask("go", seed=3)))[0]
    # Over two of the byte-sized tokens, inside the reply.
    stop = full.text[4:6]
    assert full.text.index(stop) == 4
    cut = answer(engine, engine.prepare(ask("go", seed=3, stop=["never", stop])))[0]
    assert (cut.text, cut.finish_reason) == (full.text[:4], "stop")
    assert cut.tokens == full.tokens[: len(cut.tokens)] and len(cut.tokens) < len(full.tokens)
    late = answer(engine, engine.prepare(ask("go", seed=3, stop=stop, max_tokens=3)))[0]
    assert (late.tokens, late.finish_reason) == (full.tokens[:3], "length")


def test_a_request_during_decoding_takes_a_free_slot(idle):
    """Seven requests of two widths and two numbers of replies, more than there are slots and pools."""
    asked = [ask(text, seed=number, n=1 + 3 * (number == 5)) for number, text in enumerate(TEXTS + TEXTS[:2])]
    alone = [answer_alone(idle, one) for one in asked]
    idle.start()
    submitted = [idle.submit(idle.prepare(one)) for one in asked]
    together = [[reply.text for reply in pending.future.result(timeout=3000)] for pending in submitted]
    idle.close()
    assert together == alone
    assert b"rmsweb_running_requests 0.0" in idle.metrics.text()


def answer_alone(engine: ServingEngine, request: ChatRequest) -> list[str]:
    """Replies of the plain generator, with no other request."""
    prepared = engine.prepare(request)
    pending = PendingRequest(prepared, engine.adapters.base)
    batch = DecodeBatch(BatchKey.of(pending), engine._shapes.shape(1, 128), engine._processor)
    batch.insert(pending)
    while not (complete := batch.advance(100)):
        pass
    ((_, completions),) = complete
    return [completion.text for completion in completions]


def test_a_prompt_is_prefilled_at_the_narrowest_width_with_the_same_reply(engine, idle, model_folder):
    shapes = dataclasses.replace(idle._config, prefill_widths=(32, 48, 96))
    finer = ServingEngine(load_model(model_folder), Processor.from_pretrained(model_folder, 4096), shapes)
    assert finer._shapes.shape(1, 128).prefill_widths == (32, 48, 64, 96, 128)
    assert finer._shapes.shape(1, 64).prefill_widths == (32, 48, 64)
    submitted = [finer.submit(prepared(finer, number)) for number in range(len(TEXTS))]
    lengths = [len(pending.prepared.prompt.tokens) for pending in submitted]
    assert min(lengths) <= 48 < 64 < max(lengths) <= 96, lengths
    finer.start()
    for number, pending in enumerate(submitted):
        (one,), (other,) = pending.future.result(timeout=3000), answer(engine, prepared(engine, number))
        assert one.tokens == other.tokens
        np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-4)
    finer.close()


def test_a_cancelled_request_leaves_its_slot_to_others(idle):
    waiting = [idle.submit(prepared(idle, number)) for number in range(4)]
    batch = DecodeBatch(BatchKey.of(waiting[0]), idle._shapes.shape(4, 128), idle._processor)
    for pending in waiting:
        batch.insert(pending)
    assert batch.advance(2) == [] and not batch.free
    waiting[2].cancel()
    batch.advance(1)
    assert batch.free == 1 and waiting[2] not in batch.requests
    # Its successor and the other requests are answered as usual.
    batch.insert(PendingRequest(prepared(idle, 4), idle.adapters.base))
    texts = {}
    while batch.busy:
        texts |= {pending.prepared.seed: completions[0].text for pending, completions in batch.advance(3)}
    assert sorted(texts) == [0, 1, 3, 4]
    assert texts == {number: answer_alone(idle, request(number))[0] for number in texts}
    # In the queue it is dropped as well.
    idle.start()
    assert waiting[0].future.result(timeout=3000) and waiting[2].future.cancelled()
    idle.close()


def test_a_pool_is_enlarged_for_more_and_longer_prompts(idle):
    """Running requests are unaffected."""
    submitted = [PendingRequest(prepared(idle, number), idle.adapters.base) for number in (0, 1, 3, 2)]
    batch = DecodeBatch(BatchKey.of(submitted[0]), idle._shapes.shape(1, 64), idle._processor)
    batch.insert(submitted[0])
    assert batch.advance(5) == [] and not batch.free
    assert len(submitted[2].prepared.prompt.tokens) > 64
    batch.enlarge(idle._shapes.shape(4, 128))
    for pending in submitted[1:]:
        batch.insert(pending)
    texts = {}
    while batch.busy:
        texts |= {pending.prepared.seed: completions[0].text for pending, completions in batch.advance(3)}
    assert texts == {number: answer_alone(idle, request(number))[0] for number in range(4)}


def test_a_request_that_needs_a_larger_pool_joins_running_ones(idle):
    """A pool that grows in slots and width gives every request the reply it gets alone."""
    submitted = [idle.submit(prepared(idle, 0))]
    idle._workers[0].admit()
    (batch,) = idle._workers[0].batches
    assert (batch.shape.slots, batch.shape.width) == (1, 64)
    submitted.append(idle.submit(prepared(idle, 1)))
    idle._workers[0].admit()
    assert (batch.shape.slots, batch.shape.width) == (4, 64)
    submitted += [idle.submit(prepared(idle, number)) for number in (3, 2, 4)]
    idle._workers[0].admit()
    # One more waits: there are no more slots.
    assert (batch.shape.slots, batch.shape.width, batch.free) == (4, 128, 0)
    assert idle._workers[0].batches == [batch] and len(idle._queue.waiting) == 1
    idle.start()
    for number, pending in zip((0, 1, 3, 2, 4), submitted, strict=True):
        assert pending.future.result(timeout=3000)[0].text == answer_alone(idle, request(number))[0]
    idle.close()


def test_workers_share_who_waits(model_folder):
    """Each of two takes half of them, and replies are those of one."""
    shapes = EngineConfig((4,), (64, 128), max_new_tokens=12, max_images=1, warm_widths=0, workers=2)
    engine = ServingEngine(load_model(model_folder), Processor.from_pretrained(model_folder, 4096), shapes)
    submitted = [engine.submit(prepared(engine, number)) for number in range(4)]
    for worker in engine._workers:
        worker.admit()
    assert [[len(batch.requests) for batch in worker.batches] for worker in engine._workers] == [[2], [2]]
    engine.start()
    for number, pending in enumerate(submitted):
        assert pending.future.result(timeout=3000)[0].text == answer_alone(engine, request(number))[0]
    engine.close()
    assert not engine.alive
    with pytest.raises(EngineStoppedError):
        engine.submit(prepared(engine, 0))


def test_a_worker_that_fails_ends_the_others(model_folder, monkeypatch):
    """No request waits for an engine that answers half of its requests."""
    shapes = EngineConfig((1,), (64,), max_new_tokens=12, max_images=1, warm_widths=0, workers=2)
    engine = ServingEngine(load_model(model_folder), Processor.from_pretrained(model_folder, 4096), shapes)
    failures = []
    monkeypatch.setattr(threading, "excepthook", lambda failure: failures.append(failure.exc_value))
    submitted = [engine.submit(prepared(engine, 0)) for _ in range(6)]
    failing = engine._workers[1]

    def fail(steps):
        raise MemoryError(steps)

    failing.admit()
    monkeypatch.setattr(failing.batches[0], "advance", fail)
    engine.start()
    for pending in submitted:
        pending.future.exception(timeout=3000)
    engine.close()
    assert [type(failure) for failure in failures] == [MemoryError]
    assert any(isinstance(pending.future.exception(), EngineStoppedError) for pending in submitted)


def test_devices_that_share_a_model_want_one_worker(model_folder):
    model = load_model(model_folder)
    model.attention = AttentionConfig(mesh=make_mesh(tensor=1))
    shapes = EngineConfig((1,), (64,), max_new_tokens=2, max_images=0, warm_widths=0, workers=2)
    with pytest.raises(UserError, match=r"config.workers is 2"):
        ServingEngine(model, Processor.from_pretrained(model_folder, 4096), shapes)


def test_too_many_who_wait_are_turned_away(idle):
    submitted = [idle.submit(prepared(idle, 0)) for _ in range(8)]
    with pytest.raises(OverloadedError, match="8 requests wait"):
        idle.submit(prepared(idle, 0))
    idle.start()
    assert len({pending.future.result(timeout=3000)[0].text for pending in submitted}) == 1
    idle.close()


def test_requests_are_served_in_order(model_folder):
    """One for four replies waits until others have left the only pool, and those behind it wait too."""
    shapes = EngineConfig((4,), (64,), max_new_tokens=12, max_images=1, warm_widths=0, max_pools=1)
    engine = ServingEngine(load_model(model_folder), Processor.from_pretrained(model_folder, 4096), shapes)
    done = []
    for number, replies in enumerate((1, 4, 1, 1)):
        future = engine.submit(engine.prepare(ask("go", seed=number, n=replies))).future
        future.add_done_callback(lambda _, number=number: done.append(number))
    engine.start()
    future.result(timeout=3000)
    engine.close()
    assert done.index(0) < done.index(1) <= 2 and sorted(done) == [0, 1, 2, 3]


def test_adapters_draw_otherwise_and_queued_requests_outlive_them(idle, adapter_folder):
    idle.adapters.load("other", adapter_folder)
    assert idle.adapters.names() == ["other"]
    request = idle.prepare(ask("go", seed=5))
    # In one batch they would be of one policy.
    submitted = [idle.submit(request, policy) for policy in (BASE, "other")]
    idle.unload("other")
    idle.start()
    base, other = (pending.future.result()[0].tokens for pending in submitted)
    assert base != other
    with pytest.raises(UnknownPolicyError):
        idle.submit(request, "other")
    # The next look lets go of its weights.
    idle.submit(request).future.result()
    idle.close()
    assert [batch.key.generator for batch in idle._workers[0].batches] == [idle.adapters.base]


def test_a_prompt_longer_than_every_width_is_refused(engine):
    with pytest.raises(BadRequestError, match="at most 128 are served"):
        engine.prepare(ask("x" * 200))


def test_closing_fails_waiting_requests(idle):
    future = idle.submit(prepared(idle, 0)).future
    closer = threading.Thread(target=idle.close)
    with idle._queue.changed:
        idle.start()
        closer.start()
        idle._closing = True
    closer.join()
    with pytest.raises(EngineStoppedError):
        future.result()
    with pytest.raises(EngineStoppedError):
        idle.submit(prepared(idle, 0))


def test_a_failing_batch_stops_the_engine_and_fails_all_requests(idle, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    broken = TokenizedRequest(None, 1, 1.0, 0, 1)  # pyright: ignore[reportArgumentType]
    submitted = [idle.submit(broken), idle.submit(prepared(idle, 1))]
    idle.start()
    for pending in submitted:
        with pytest.raises(EngineStoppedError):
            pending.future.result()
    assert not idle.alive


def test_warm_up_compiles_each_batch_size_at_the_warm_widths(model_folder):
    shapes = EngineConfig((1, 4), (64, 128), max_new_tokens=12, max_images=1, warm_widths=1)
    engine = ServingEngine(load_model(model_folder), Processor.from_pretrained(model_folder, 4096), shapes)
    seen = []
    engine.warm_up(lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]


@pytest.mark.parametrize("sizes", [(), (2, 1), (0, 1), (2, 2)])
def test_sizes_must_ascend(sizes):
    with pytest.raises(UserError, match="slots"):
        EngineConfig(sizes, (64,), max_new_tokens=2, max_images=0, warm_widths=1)


def test_no_prefill_is_wider_than_prompts():
    with pytest.raises(UserError, match=r"prefill_widths has 96: .* config.prompt_widths, 64"):
        EngineConfig((1,), (64,), max_new_tokens=2, max_images=0, warm_widths=1, prefill_widths=(32, 96))
