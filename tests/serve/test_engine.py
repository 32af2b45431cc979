"""The thread around the engine: what clients of one process see of each other."""

import dataclasses
import queue
import threading
from collections.abc import Callable

import numpy as np
import pytest
from flax import nnx

from rmsweb_jax.data.batching import Example
from rmsweb_jax.decoding.requests import Drawn, Request, Sampling
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.checkpoint import load_model
from rmsweb_jax.qwen.lora import add_lora, save_adapters
from rmsweb_jax.qwen.processor import Processor
from rmsweb_jax.serve.config import ServeSettings, ServingMesh
from rmsweb_jax.serve.engine import Report, ServingEngine
from rmsweb_jax.serve.protocol import ApiError
from rmsweb_jax.serve.server import serving_engine
from rmsweb_jax.settings import from_config, to_config_dict
from rmsweb_jax.training.config import LoRAConfig
from tests.compilations import compilations
from tests.serve.conftest import CONFIG

TEXTS = ("go", "a longer question, so that rows differ", "third", "x" * 70, "fifth and last")


@dataclasses.dataclass
class Call:
    """A request, and its replies once they are drawn."""

    request: Request
    reports: "queue.SimpleQueue[Report]"

    def tokens(self) -> list[tuple[int, ...]]:
        """Waits for all replies."""
        drawn: list[tuple[int, ...]] = [()] * self.request.sampling.num_samples
        ended = 0
        while ended < len(drawn):
            report = self.reports.get(timeout=3000)
            if isinstance(report, ApiError):
                raise report
            assert isinstance(report, Drawn)
            drawn[report.sample] += report.tokens
            ended += report.finish is not None
        return drawn


@pytest.fixture
def ask(processor: Processor) -> Callable[..., Call]:
    def ask(engine: ServingEngine, number: int, adapter: str = "", **sampling) -> Call:
        tokens = processor.encode_text(TEXTS[number])
        prompt = Example("", np.asarray(tokens, np.int32), len(tokens), np.zeros(0, bool))
        settings = Sampling(max_response_tokens=12, temperature=0.8 + number / 10)
        reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
        request = Request(prompt, dataclasses.replace(settings, **sampling), number)
        engine.submit(request, reports.put, adapter)
        return Call(request, reports)

    return ask


@pytest.fixture
def idle(make):
    engine = make()
    yield engine
    if engine._thread.is_alive():
        engine.close()


def test_replies_are_the_same_alone_and_together(engine, idle, ask):
    """More requests and samples than there are lanes."""
    samples = (1, 3, 1, 6, 2)
    alone = [ask(engine, number, num_samples=n).tokens() for number, n in enumerate(samples)]
    calls = [ask(idle, number, num_samples=samples[number]) for number in reversed(range(5))]
    idle.start()
    assert [call.tokens() for call in calls][::-1] == alone
    assert len({replies[0] for replies in alone}) == len(TEXTS)
    # More replies extend fewer.
    assert ask(engine, 3, num_samples=2).tokens() == alone[3][:2]


def test_a_cancelled_request_leaves_its_lanes_to_others(idle, engine, ask):
    calls = [ask(idle, number, num_samples=4) for number in range(3)]
    idle.cancel(calls[0].request)
    idle.cancel(calls[2].request, 1)
    idle.start()
    assert calls[1].tokens() == ask(engine, 1, num_samples=4).tokens()
    three = [calls[2].reports.get(timeout=3000) for _ in range(3 * 3)]
    assert {report.sample for report in three if isinstance(report, Drawn)} == {0, 2, 3}
    assert calls[0].reports.empty()


def test_a_reply_that_has_ended_can_be_cancelled(idle, ask):
    """A stop text may be found after the engine's own end of the reply."""
    call = ask(idle, 0, num_samples=2)
    first, second = (Drawn(call.request, sample, (5,), (-1.0,), finish="length") for sample in (0, 1))
    idle._hand_out(first)
    idle.cancel(call.request, 0)
    idle._hand_out(second)
    assert call.tokens() == [(5,), (5,)]
    assert idle._pending == {}


def test_too_many_who_wait_are_turned_away(make, ask):
    engine = make(max_waiting=2)
    calls = [ask(engine, 0) for _ in range(6)]
    with pytest.raises(ApiError, match="6 requests wait"):
        ask(engine, 0)
    engine.start()
    assert len({call.tokens()[0] for call in calls}) == 1
    engine.close()


def test_adapters_draw_otherwise_and_requests_outlive_them(idle, ask, adapter_folder):
    idle.start()
    idle.load("other", adapter_folder)
    assert list(idle.adapters) == ["other"]
    calls = [ask(idle, 0, adapter=adapter) for adapter in ("", "other")]
    idle.unload("other")
    base, other = (call.tokens() for call in calls)
    assert base != other
    assert idle.adapters == {}
    with pytest.raises(ApiError, match="'other' is not loaded"):
        idle.unload("other")
    for name in ("a", "b"):
        idle.load(name, adapter_folder)
    with pytest.raises(ApiError, match="'a' has already been loaded"):
        idle.load("a", adapter_folder)
    with pytest.raises(ApiError, match="all 2 slots are used"):
        idle.load("c", adapter_folder)
    assert ask(idle, 0, adapter="b").tokens() == other
    with pytest.raises(KeyError):
        ask(idle, 0, adapter="other")


def test_adapters_of_a_larger_rank_are_refused(make, adapter_folder):
    engine = make(adapter_rank=1)
    engine.start()
    with pytest.raises(ApiError, match=r"lora_path: .*rank"):
        engine.load("other", adapter_folder)
    assert engine.alive and engine.adapters == {}
    engine.close()


@pytest.mark.parametrize("on_a_mesh", [False, True])
def test_nothing_compiles_after_warm_up(engine, make, ask, on_a_mesh):
    """Odd prompts, settings and numbers of replies."""
    if on_a_mesh:
        engine = make(mesh=ServingMesh(tensor=-1))
        engine.engine.warm_up()
        engine.start()
    with compilations() as compiled:
        calls = [
            ask(engine, number, num_samples=number + 1, max_response_tokens=2 * number + 1, top_p=0.9)
            for number in range(5)
        ]
        calls += [ask(engine, 1, temperature=0.0, presence_penalty=1.0, top_log_probs=3)]
        for call in calls:
            call.tokens()
    assert compiled == []
    if on_a_mesh:
        engine.close()


def test_closing_fails_waiting_requests(idle, ask):
    call = ask(idle, 0)
    closer = threading.Thread(target=idle.close)
    with idle.engine._called:
        idle.start()
        closer.start()
        idle.engine._stopped = True
    closer.join()
    with pytest.raises(ApiError, match="has stopped"):
        call.tokens()
    with pytest.raises(ApiError, match="has stopped"):
        ask(idle, 0)


def test_a_failing_engine_fails_all_that_waits_and_stops(idle, ask, adapter_folder, monkeypatch, caplog):
    def fail():
        raise MemoryError("no room")

    monkeypatch.setattr(idle.engine, "_step", fail)
    calls = [ask(idle, number) for number in range(2)]
    idle.start()
    for call in calls:
        with pytest.raises(ApiError, match="has stopped"):
            call.tokens()
    assert not idle.alive and "no room" in caplog.text
    with pytest.raises(ApiError, match="has stopped"):
        idle.load("other", adapter_folder)


def test_an_adapter_that_cannot_be_put_into_its_slot_stops_nothing(idle, ask, adapter_folder, monkeypatch):
    def fail(*_):
        raise MemoryError("no room")

    monkeypatch.setattr(idle.engine, "set_adapters", fail)
    idle.start()
    with pytest.raises(MemoryError, match="no room"):
        idle.load("other", adapter_folder)
    assert len(ask(idle, 0).tokens()) == 1 and idle.adapters == {}


def test_adapters_that_would_be_served_in_part_are_refused(idle, model_folder, tmp_path):
    config = LoRAConfig(rank=2, alpha=4.0, targets="all_linear")
    model = load_model(model_folder)
    add_lora(model, config, nnx.Rngs(1))
    save_adapters(model, config, tmp_path, "tiny")
    with pytest.raises(ApiError, match=r"lora_path: .*attention"):
        idle.load("other", tmp_path)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        *(
            ({name: 0}, f"config.{name} is 0: make it 1 or more")
            for name in ("samples", "prompt_tokens", "adapter_rank")
        ),
        *(
            ({name: -1}, f"config.{name} is -1: make it 0 or more")
            for name in ("lanes", "max_images", "adapters")
        ),
    ],
)
def test_settings_out_of_range(settings, reason):
    with pytest.raises(UserError, match=reason):
        from_config(ServeSettings, {**to_config_dict(CONFIG).to_dict(), **settings})


def test_chunks_must_ascend(model_folder, processor, make):
    with pytest.raises(UserError, match="chunks"):
        serving_engine(make()._model, processor, CONFIG.model_copy(update={"chunks": (64, 32)}))
