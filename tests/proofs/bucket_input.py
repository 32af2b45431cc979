"""Reading training data from a bucket: tokens per second at 50 ms a request, and objects and requests.

`tests/proofs/buckets.py` calls these functions. The store is fake-gcs-server behind `FaultyProxy`, both of
which share the machine's cores with the reader.
"""

from __future__ import annotations

import io
import json
import os
import random
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from experiments.sizes import store_sizes
from rmsweb_jax.data.encoding import Encoder
from rmsweb_jax.data.sft import open_sft_data
from rmsweb_jax.data.sources import BatchOrder, RecordSource, Workers
from rmsweb_jax.qwen3_vl.checkpoint import resolve_model
from rmsweb_jax.records.dataset import read_dataset, write_dataset
from rmsweb_jax.records.images import ImageStore, read_ahead, record_images
from rmsweb_jax.records.publish import publish_dataset
from rmsweb_jax.records.schema import ImagePart, Message, SftSample, TextPart, Trajectory
from rmsweb_jax.records.versions import pinned
from rmsweb_jax.sft.config import SftConfig
from rmsweb_jax.storage import StorePath, parse_path
from rmsweb_jax.training.mesh import MeshConfig
from tests.proofs.result import ROOT
from tests.records.sets import trajectory
from tests.storage.faulty_proxy import Faults, FaultyProxy
from tests.storage.servers import serve, variables

DELAY_S = 0.05
CORES = 2
_THREADS = 16
_PAGE_WORDS = 1_000
# Large enough that no sample is dropped: the tiny base's tokens are short.
_MAX_LENGTH = 12_000


def input_rate(folder: Path, num_samples: int = 512) -> dict[str, Any]:
    """Measures the input pipeline of SFT on two cores: records and screenshots to rows of tokens and patches.

    Each sample has a page's text and a screenshot of 1280 x 800, resized as in the paper's training. A fresh
    process reads each sample once from a bucket whose requests take `DELAY_S` longer, with an empty cache;
    another one reads the same from the disk. Opening the data set is not part of the rate.

    Args:
      folder: empty; for the data set, caches and logs.
    """
    corpus, model = folder / "corpus", resolve_model("tiny_base")
    write_dataset(corpus, _samples(num_samples, ImageStore(corpus)), "sft_samples")
    store_sizes(corpus, SftSample, str(model), SftConfig.max_pixels)
    with FaultyProxy() as proxy, serve("gs", folder / "store.log", proxy) as environment:
        with variables(environment):
            bucket = parse_path("gs://runs/input-rate", "bucket")
            assert isinstance(bucket, StorePath)
            published = publish_dataset(corpus, bucket)
        proxy.faults = Faults(delay_s=DELAY_S)
        before = sum(proxy.count().requests.values())
        from_bucket = _measure(str(bucket), folder, environment)
        requests = sum(proxy.count().requests.values()) - before
    assert published.images
    return {
        "delay_s": DELAY_S,
        "cores": CORES,
        "samples": num_samples,
        "objects_read": len(published.shards) + len(published.images.packs) + 1,
        "requests": requests,
        "bytes": sum(shard.bytes for shard in published.shards)
        + sum(pack.bytes for pack in published.images.packs),
        "bucket": from_bucket,
        "disk": _measure(str(corpus), folder, {}),
    }


def _measure(corpus: str, folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    workdir = folder / f"read-{time.monotonic_ns()}"
    workdir.mkdir()
    run = subprocess.run(
        [sys.executable, "-m", "tests.proofs.bucket_input", corpus, str(workdir)],
        cwd=ROOT,
        env={**os.environ, **environment, "JAX_PLATFORMS": "cpu", "RMSWEB_CACHE": str(workdir / "cache")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(run.stdout.splitlines()[-1])


def _read_once(corpus: str, workdir: Path) -> dict[str, Any]:
    """Reads an epoch as `train_sft` does. The process's own CPU time says whether encoding is the bound."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    begin = time.monotonic()
    data_folder = pinned(parse_path(corpus, "corpus"))
    encoder = Encoder.load(resolve_model("tiny_base"), ImageStore(data_folder), SftConfig.max_pixels)
    data = open_sft_data(
        data_folder,
        encoder,
        workdir,
        MeshConfig(),
        max_length=_MAX_LENGTH,
        batch_size=SftConfig.batch_size,
        seed=0,
        held_out=0.0,
        held_out_tokens=0,
        row_tokens=SftConfig.row_tokens,
        row_multiple=SftConfig.row_multiple,
    )
    opened = time.monotonic() - begin
    steps = data.num_samples // data.batch_size
    tokens, waits, cpu, start = 0, [], time.process_time(), time.monotonic()
    for batch in data.steps(0, steps, Workers(threads=4)):
        tokens += batch.useful.tokens
        waits.append(time.monotonic() - start - sum(waits))
    seconds = time.monotonic() - start
    return {
        "open_s": round(opened, 2),
        "steps": steps,
        "tokens": tokens,
        "seconds": round(seconds, 2),
        "tokens_per_s": round(tokens / seconds),
        "first_step_s": round(waits[0], 2),
        # Of the cores that the process may use, in the first case together with store and proxy.
        "cpu_share": round((time.process_time() - cpu) / seconds / CORES, 2),
    }


def requests_per_thousand(folder: Path, episodes: int = 1_000, steps: int = 5) -> dict[str, Any]:
    """Counts objects and requests of a thousand episodes, and of a thousand training steps, in two layouts.

    `objects`: each record and each screenshot is an object. `packs`: what `publish_dataset` writes.

    Args:
      folder: empty; for the data sets and caches.
      episodes, steps: number of episodes, and of steps with a screenshot in each.

    Returns:
      For each layout the objects, and the requests that write all episodes, read them all once, and read the
      samples of a thousand training steps of four in a random order.
    """
    collect, corpus = folder / "collect", folder / "corpus"
    runs = list(_episodes(episodes, steps, ImageStore(collect)))
    write_dataset(collect, runs, "trajectories")
    samples = list(_one_a_step(runs))
    images = ImageStore(corpus)
    for sample in samples:
        for name in record_images(sample):
            images.link_from(ImageStore(collect), name)
    write_dataset(corpus, samples, "sft_samples")
    order = BatchOrder(np.asarray([len(sample.response) for sample in samples]), 4, seed=0)
    numbers = [int(number) for step in range(1_000) for number in order[step]]
    cache = {"RMSWEB_CACHE": str(folder / "cache")}
    with (
        FaultyProxy() as proxy,
        serve("gs", folder / "store.log", proxy) as environment,
        variables({**environment, **cache}),
    ):
        bucket = parse_path("gs://runs/requests", "bucket")
        assert isinstance(bucket, StorePath)
        layouts = {
            "objects": _count_objects(bucket / "objects", collect, runs, samples, numbers, proxy),
            "packs": _count_packs(bucket / "packs", collect, corpus, numbers, proxy),
        }
    return {"episodes": episodes, "screenshots": episodes * steps, "training_steps": 1_000, **layouts}


def _count_objects(
    bucket: StorePath,
    collect: Path,
    runs: list[Trajectory],
    samples: list[SftSample],
    numbers: list[int],
    proxy: FaultyProxy,
) -> dict[str, int]:
    images, names = (
        ImageStore(collect),
        list(dict.fromkeys(name for run in runs for name in record_images(run))),
    )

    def write(name: str, data: bytes) -> None:
        (bucket / name).write_bytes(data)

    def write_all(pool: ThreadPoolExecutor) -> None:
        list(pool.map(lambda run: write(f"{run.task.seed}.json", run.model_dump_json().encode()), runs))
        list(pool.map(lambda name: write(f"{name}.png", images.get(name)), names))

    def read_all(pool: ThreadPoolExecutor) -> None:
        list(pool.map(lambda run: (bucket / f"{run.task.seed}.json").read_bytes(), runs))
        list(pool.map(lambda name: (bucket / f"{name}.png").read_bytes(), names))

    def train(pool: ThreadPoolExecutor) -> None:
        files = [f"sample-{number}.json" for number in numbers]
        files += [f"{name}.png" for number in numbers for name in record_images(samples[number])]
        list(pool.map(lambda file: (bucket / file).read_bytes(), files))

    with ThreadPoolExecutor(_THREADS) as pool:
        figures = {"write": _requests(proxy, lambda: write_all(pool)), "objects": len(bucket.entries())}
        figures["read"] = _requests(proxy, lambda: read_all(pool))
        # The samples of training are records too.
        texts = {number: samples[number].model_dump_json().encode() for number in set(numbers)}
        list(pool.map(lambda one: write(f"sample-{one[0]}.json", one[1]), texts.items()))
        figures["train"] = _requests(proxy, lambda: train(pool))
    return figures


def _count_packs(
    bucket: StorePath, collect: Path, corpus: Path, numbers: list[int], proxy: FaultyProxy
) -> dict[str, int]:
    def read_all() -> None:
        folder = pinned(bucket / "collect")
        images = ImageStore(folder)
        for run in read_ahead(read_dataset(folder, Trajectory), images):
            for name in record_images(run):
                images.get(name)

    def train() -> None:
        folder = pinned(bucket / "corpus")
        source, images = RecordSource(folder, SftSample), ImageStore(folder)
        for number in numbers:
            for name in record_images(source[number]):
                images.get(name)

    write = _requests(proxy, lambda: publish_dataset(collect, bucket / "collect"))
    objects = len((bucket / "collect").entries())
    publish_dataset(corpus, bucket / "corpus")
    figures = {"write": write, "objects": objects, "read": _requests(proxy, read_all)}
    # Another machine's cache: packs of equal bytes would be there already.
    with variables({"RMSWEB_CACHE": os.environ["RMSWEB_CACHE"] + "-training"}):
        figures["train"] = _requests(proxy, train)
    return figures


def _requests(proxy: FaultyProxy, act: Callable[[], object]) -> int:
    before = sum(proxy.count().requests.values())
    act()
    return sum(proxy.count().requests.values()) - before


def _samples(count: int, images: ImageStore) -> Iterator[SftSample]:
    """Samples of one decision each: a page's text, a screenshot and a reply."""
    draw, pages = random.Random(0), _screenshots(16)
    words = [f"{kind}{number}" for kind in ("link", "button", "price", "city") for number in range(200)]
    for number in range(count):
        text = " ".join(draw.choices(words, k=draw.randrange(_PAGE_WORDS // 2, 3 * _PAGE_WORDS // 2)))
        name = images.put(_labelled(pages[number % len(pages)], number))
        yield SftSample(
            sample_id=f"{number:06d}",
            task_id=f"task-{number // 8}",
            site="page",
            kind="extraction",
            messages=(Message(role="user", content=(TextPart(text=text), ImagePart(sha256=name))),),
            response=" ".join(draw.choices(words, k=60)),
        )


def _episodes(count: int, steps: int, images: ImageStore) -> Iterator[Trajectory]:
    pages = _screenshots(16)
    for number in range(count):
        run = trajectory(number, None)
        names = [
            images.put(_labelled(pages[(number + step) % len(pages)], number * steps + step))
            for step in range(steps)
        ]
        observations = (run.steps[0].observation.model_copy(update={"screenshot": name}) for name in names)
        played = tuple(
            run.steps[0].model_copy(update={"number": at, "observation": seen, "response": f"reply {at}"})
            for at, seen in enumerate(observations, start=1)
        )
        yield run.model_copy(update={"steps": played})


def _one_a_step(runs: Iterable[Trajectory]) -> Iterator[SftSample]:
    for run in runs:
        for step in run.steps:
            assert step.observation.screenshot
            image = ImagePart(sha256=step.observation.screenshot)
            yield SftSample(
                sample_id=f"{run.trajectory_id}/{step.number}",
                task_id=run.task.task_id,
                site="page",
                kind="action",
                messages=(Message(role="user", content=(image,)),),
                response=step.response,
            )


def _screenshots(count: int) -> list[bytes]:
    """Pages of 1280 x 800 with blocks, text and a noisy picture, about as large as real screenshots."""
    draw, pages = random.Random(1), []
    for _ in range(count):
        page = Image.new("RGB", (1280, 800), "white")
        pen = ImageDraw.Draw(page)
        for row in range(20, 780, 26):
            pen.rectangle(
                (20, row, draw.randrange(40, 260), row + 18), fill=f"#{draw.randrange(1 << 24):06x}"
            )
            pen.text((300, row), " ".join(f"{draw.randrange(10**6)}" for _ in range(20)), fill="black")
        picture = Image.frombytes("RGB", (96, 64), draw.randbytes(96 * 64 * 3))
        page.paste(picture, (1100, 40))
        file = io.BytesIO()
        page.save(file, "png")
        pages.append(file.getvalue())
    return pages


def _labelled(png: bytes, number: int) -> bytes:
    """The same picture in other bytes: with a comment before the end chunk, which has 12 bytes."""
    body = b"tEXt" + b"number\0%d" % number
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    return png[:-12] + chunk + png[-12:]


if __name__ == "__main__":
    print(json.dumps(_read_once(sys.argv[1], Path(sys.argv[2]))))
