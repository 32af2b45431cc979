"""One evaluation, and one request to stop, by several processes.

test_evaluate.py runs this as `python -m tests.sft.evaluate_together POLICY CORPUS COORDINATOR COUNT NUMBER`;
what this process found is printed as JSON.
"""

import collections
import json
import signal
import sys
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from rmsweb_jax.data.encoding import Encoder
from rmsweb_jax.qwen.checkpoint import load_model
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import SftSample
from rmsweb_jax.sft.config import EvalConfig
from rmsweb_jax.sft.data import SftData, open_sft_data
from rmsweb_jax.sft.evaluate import Evaluator
from rmsweb_jax.sft.step import split_model
from rmsweb_jax.signals import StopRequest
from rmsweb_jax.training.mesh import any_process, make_mesh

CONFIG = EvalConfig(share=0.5, every=1, replies=4, max_reply_tokens=6, best="eval/action_accuracy")


def open_corpus(policy: Path, corpus: Path, mesh: Mesh) -> SftData:
    return open_sft_data(
        corpus,
        Encoder.load(policy, ImageStore(corpus), 4096),
        corpus,
        mesh,
        max_length=256,
        batch_size=4,
        seed=0,
        held_out=CONFIG.share,
        held_out_tokens=CONFIG.tokens,
        row_tokens=512,
        row_multiple=128,
    )


def evaluate(policy: Path, corpus: Path) -> dict[str, Any]:
    """Metrics and replies of the policy, split over all devices."""
    mesh = make_mesh(fsdp=-1)
    model = load_model(policy, mesh=mesh)
    graphdef, params, frozen = split_model(model, "all")
    evaluator = Evaluator(CONFIG, open_corpus(policy, corpus, mesh), graphdef, mesh)
    metrics, replies = evaluator(params, frozen)
    return {"metrics": metrics, "replies": [reply.reply for reply in replies]}


def stop(number: int) -> list[bool]:
    """The stop decision before and after a signal to one process."""
    with StopRequest() as request:
        before = any_process(request.requested)
        if number == 1:
            signal.raise_signal(signal.SIGTERM)
        return [before, any_process(request.requested)]


class Counts(collections.Counter):
    """How often this process measures and encodes each sample."""

    def watch(self, name: str) -> None:
        method = getattr(Encoder, name)

        def counted(encoder: Encoder, sample: SftSample) -> Any:
            self[name, sample.sample_id] += 1
            return method(encoder, sample)

        setattr(Encoder, name, counted)

    def of(self, name: str) -> dict[str, int]:
        return {sample: count for (method, sample), count in self.items() if method == name}


if __name__ == "__main__":
    policy, corpus, coordinator, count, number = sys.argv[1:]
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(coordinator, int(count), int(number), initialization_timeout=1200)
    stopping = stop(int(number))
    counts = Counts()
    counts.watch("size")
    counts.watch("example")
    found = {"stop": stopping, **evaluate(Path(policy), Path(corpus))}
    print(json.dumps(found | {"measured": counts.of("size"), "encoded": counts.of("example")}))
