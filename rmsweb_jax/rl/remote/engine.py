"""Rollouts at an inference server (vLLM, SGLang, or our own), which loads the adapters from PEFT folders."""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import io
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
import orjson
from jax.experimental import multihost_utils
from PIL import Image
from pydantic import ValidationError

from rmsweb_jax.data.sources import stable_hash
from rmsweb_jax.decoding.sampler import Responses, SamplingParams
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.lora import LoRAConfig
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.peft import WEIGHTS_FILE, list_target_modules, save_adapters
from rmsweb_jax.qwen3_vl.processor import ImageResolver, Processor, open_image, target_size
from rmsweb_jax.records.images import image_names
from rmsweb_jax.rl.prompts import Prompt
from rmsweb_jax.rl.remote.client import Client, EndpointConfig, RefusedError, not_understood
from rmsweb_jax.rl.remote.protocols import Ask, BadAnswerError, Sample, check_answer, make_protocol
from rmsweb_jax.rl.rollout import RolloutFuture


def publish_adapters(model: Qwen3VL, lora: LoRAConfig, root: Path, base: str, version: int) -> Path:
    """Writes the model's adapters as a new folder below `root`; a reader sees all of it or nothing.

    Its name contains the version and a hash of the weights. All processes must call this; the first one
    writes.

    Args:
      base: name of the base model.

    Raises:
      UserError: the folder cannot be written.
    """
    root = root.absolute()
    # Hidden and renamed when complete, so that the server cannot load a part of it.
    temporary = root / f".adapters.{secrets.token_hex(8)}.tmp"
    # Every process: the adapters may be sharded over all of them.
    save_adapters(model, lora, temporary, base)
    if jax.process_index() != 0:
        return root
    try:
        list_target_modules(temporary)
        digest = hashlib.sha256((temporary / WEIGHTS_FILE).read_bytes()).hexdigest()
        folder = root / f"policy-{version:06d}-{digest[:12]}"
        # A killed run may have left it.
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(temporary, folder)
    except OSError as error:
        raise UserError(
            f"cannot write adapters below {root} ({error}); see config.endpoint.adapter_folder"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


_T = TypeVar("_T")


class RemoteRolloutEngine:
    """Generates at a server that loads each policy's adapters; implements `rl.rollout.RolloutEngine`.

    Every sample is a request with a seed of its own, a function of (seed, prompt id, sample index) that does
    not depend on concurrent requests and retries. It depends on the server whether a seed repeats a response:
    ours does, vLLM does up to rounding that differs with the batch (exactly with VLLM_BATCH_INVARIANT=1),
    SGLang with --enable-deterministic-inference. A server with a prefix cache computes the prompt, which is
    sent K times, once.

    With several processes all must make the same calls; only the first one sends requests.

    Args:
      processor: that of the trained model; the server must tokenize prompts in the same way.
      images: returns the bytes of a screenshot by SHA-256, as `ImageStore.get`.
      lora: configuration of the policy's adapters.
      first_wait_s: longest wait before the first retry of a request.
    """

    def __init__(
        self,
        config: EndpointConfig,
        processor: Processor,
        images: ImageResolver,
        lora: LoRAConfig,
        first_wait_s: float = 1.0,
    ):
        self._config, self._processor, self._images, self._lora = config, processor, images, lora
        self._first_wait_s = first_wait_s
        self._protocol = make_protocol(config.protocol)
        self._connection: _Connection | None = None
        self._folder: Path | None = None

    def load(self, model: Qwen3VL, version: int) -> None:
        """Writes the adapters and makes the server load them; unloads the previous policy.

        Raises:
          UserError: the adapters cannot be written, or the server does not serve the model or load them.
        """
        self.unload()
        self._folder = publish_adapters(
            model, self._lora, Path(self._config.adapter_folder), self._config.model, version
        )
        _from_first(self._connect)

    def generate(
        self, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: SamplingParams
    ) -> RolloutFuture:
        """Starts generating, see `RolloutEngine.generate`; errors are raised by `result`.

        Raises (from `result`):
          UserError: the server is down or refuses, or a response cannot be trained on.
          CancelledError: `unload` was called first.
        """
        if self._connection is None and jax.process_index() == 0:
            raise ValueError("load a policy first")
        connection = self._connection
        if connection is None:
            return _RemoteFuture(None)
        return _RemoteFuture(connection.start(self._generate(connection.client, prompts, seeds, sampling)))

    def unload(self) -> None:
        """Cancels running requests, makes the server unload the adapters and deletes their folder."""
        if self._connection is not None and self._folder is not None:
            connection, folder, self._connection = self._connection, self._folder, None
            connection.cancel()
            # One attempt, and its failure is ignored: the server may have been restarted or stopped.
            forget = connection.client.call(self._protocol.unload, {"lora_name": folder.name}, attempts=1)
            with contextlib.suppress(UserError):
                connection.run(forget)
            connection.close()
            shutil.rmtree(folder, ignore_errors=True)
        self._folder = None

    def _connect(self) -> None:
        connection = _Connection(Client(self._config, self._first_wait_s))
        try:
            connection.run(self._add_adapters(connection.client))
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    async def _add_adapters(self, client: Client) -> None:
        assert self._folder is not None
        config = self._config
        names = await client.models()
        if config.model not in names:
            raise UserError(
                f"{config.root} serves {', '.join(names) or 'nothing'}, not config.endpoint.model "
                f"({config.model}): correct one of them"
            )
        try:
            request = {"lora_name": self._folder.name, "lora_path": str(self._folder)}
            await client.call(self._protocol.load, request)
        except RefusedError as error:
            # The name identifies the weights: a retry, or a killed run, has loaded the same ones.
            if error.status != 400 or "already" not in str(error):
                raise

    async def _generate(
        self, client: Client, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: SamplingParams
    ) -> list[list[Sample]]:
        try:
            async with asyncio.TaskGroup() as group:
                drawn = []
                for prompt, seed in zip(prompts, seeds, strict=True):
                    # Encoded once for all samples, in a thread: the event loop must keep the requests going.
                    images = group.create_task(asyncio.to_thread(self._data_urls, prompt))
                    samples = range(sampling.num_samples)
                    drawn.append(
                        [
                            group.create_task(self._sample(client, prompt, images, seed, number, sampling))
                            for number in samples
                        ]
                    )
        except BaseExceptionGroup as failed:
            # The others fail for the same reason, or were cancelled by the first one; users get one line.
            raise failed.exceptions[0] from None
        return [[task.result() for task in tasks] for tasks in drawn]

    async def _sample(
        self,
        client: Client,
        prompt: Prompt,
        images: asyncio.Task[list[str]],
        seed: int,
        number: int,
        sampling: SamplingParams,
    ) -> Sample:
        assert self._folder is not None
        tokens = prompt.encoded().prompt.tolist()
        # By id and index, so that a retry and another order of requests give the same response.
        own_seed = stable_hash(int(seed), prompt.prompt_id, number) if self._config.seeded else None
        ask = Ask(self._folder.name, prompt.messages, await images, tokens, sampling, own_seed)
        url = self._config.root + self._protocol.path
        data = await client.call(self._protocol.path, self._protocol.body(ask))
        try:
            answer = self._protocol.read(data)
        except ValidationError as error:
            raise UserError(not_understood(url, error)) from None
        try:
            return check_answer(answer, tokens, sampling, self._processor.config.text.vocab_size)
        except BadAnswerError as error:
            raise UserError(f"{url}: prompt {prompt.prompt_id}: {error}") from error

    def _data_urls(self, prompt: Prompt) -> list[str]:
        return [
            png_data_url(self._images(name), self._processor.max_pixels, self._unit)
            for name in image_names(prompt.messages)
        ]

    @property
    def _unit(self) -> int:
        vision = self._processor.config.vision
        return vision.patch_size * vision.spatial_merge_size


def png_data_url(source: bytes | Image.Image, max_pixels: int, unit: int) -> str:
    """Encodes a screenshot in the size of training, so that the server does not resize it again."""
    image = open_image(source)
    image = image.resize(target_size(*image.size, max_pixels, unit), Image.Resampling.BICUBIC)
    png = io.BytesIO()
    image.save(png, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(png.getvalue()).decode()}"


class _Connection:
    """A client, and a thread that runs its event loop."""

    def __init__(self, client: Client):
        self.client = client
        self._loop = asyncio.new_event_loop()
        # A daemon thread, so that a run that ends with an error does not wait for it.
        self._thread = threading.Thread(target=self._loop.run_forever, name="endpoint", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, _T]) -> concurrent.futures.Future[_T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return self.start(work).result()

    def cancel(self) -> None:
        """Cancels all running work; the server sees closed connections."""

        async def cancel() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.run(cancel())

    def close(self) -> None:
        self.cancel()
        self.run(self.client.close())
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@dataclasses.dataclass(frozen=True)
class _RemoteFuture:
    """Responses that are being generated; None in processes that send no requests."""

    _started: concurrent.futures.Future[list[list[Sample]]] | None

    def result(self) -> list[Responses]:
        def wait() -> list[list[tuple[Any, ...]]]:
            assert self._started is not None
            return [[tuple(sample) for sample in samples] for samples in self._started.result()]

        return [_responses([Sample(*sample) for sample in samples]) for samples in _from_first(wait)]


def _responses(samples: Sequence[Sample]) -> Responses:
    return Responses(
        tokens=tuple(np.asarray(sample.tokens, np.int32) for sample in samples),
        log_probs=tuple(np.asarray(sample.log_probs, np.float32) for sample in samples),
        truncated=np.asarray([sample.truncated for sample in samples]),
    )


def _from_first(work: Callable[[], Any]) -> Any:
    """Runs `work` in the first process; all return its value (plain data) or raise its UserError."""
    outcome: dict[str, Any] = {}
    if jax.process_index() == 0:
        try:
            outcome = {"value": work()}
        except UserError as error:
            outcome = {"error": str(error)}
    data = np.frombuffer(orjson.dumps(outcome), np.uint8)
    # The size first: a broadcast needs arrays of one shape on all processes.
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(data))))
    mine = data if jax.process_index() == 0 else np.zeros(size, np.uint8)
    outcome = orjson.loads(np.asarray(multihost_utils.broadcast_one_to_all(mine)).tobytes())
    if "error" in outcome:
        raise UserError(outcome["error"])
    return outcome["value"]
