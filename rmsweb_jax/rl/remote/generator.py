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
import queue
import secrets
import shutil
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx
import jax
import numpy as np
import openai
import orjson
from jax.experimental import multihost_utils
from PIL import Image
from pydantic import ValidationError

from rmsweb_jax.data.sources import stable_hash
from rmsweb_jax.decoding.requests import Request
from rmsweb_jax.decoding.responses import Responses
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.lora import LoRAConfig
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.peft import WEIGHTS_FILE, list_target_modules, save_adapters
from rmsweb_jax.qwen3_vl.processor import ImageResolver, Processor, open_image, target_size
from rmsweb_jax.records.images import image_names
from rmsweb_jax.rl.prompts import Prompt
from rmsweb_jax.rl.remote.config import EndpointConfig
from rmsweb_jax.rl.remote.protocols import Ask, BadAnswerError, Sample, check_answer, make_protocol
from rmsweb_jax.storage import local_path


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


class RemoteGenerator:
    """Draws at a server that loads each policy's adapters; implements `rl.rollout.Generator`.

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

    Raises:
      UserError: the environment variable of the API key is not set.
    """

    def __init__(self, config: EndpointConfig, processor: Processor, images: ImageResolver, lora: LoRAConfig):
        self._config, self._processor, self._images, self._lora = config, processor, images, lora
        self._protocol = make_protocol(config.protocol)
        self._policies: list[_Policy] = []
        self._under_way: set[Request] = set()
        self._finished: queue.SimpleQueue[tuple[Request, list[Sample] | BaseException]] = queue.SimpleQueue()
        self._tasks: dict[Request, concurrent.futures.Future[None]] = {}
        key = os.environ.get(config.api_key_env, "") if config.api_key_env else "none"
        if not key:
            raise UserError(
                f"config.endpoint.api_key_env: {config.api_key_env} is not set; export the server's key"
            )
        self._key = key
        self._worker: _Worker | None = None

    @property
    def wants(self) -> bool:
        # The server, or the limit on concurrent requests, holds back what it cannot take.
        return True

    def load(self, model: Qwen3VL, version: int) -> None:
        """Writes the adapters and makes the server load them; earlier ones are unloaded once they are done.

        Raises:
          UserError: the adapters cannot be written, or the server does not serve the model or load them.
        """
        folder = publish_adapters(
            model,
            self._lora,
            local_path(self._config.adapter_folder, "config.endpoint.adapter_folder"),
            self._config.model,
            version,
        )
        self._policies.append(_Policy(folder, version))
        _from_first(lambda: self._run(self._add_adapters(folder)))
        self._forget()

    def submit(self, request: Request) -> None:
        assert self._policies, "load a policy first"
        policy = self._policies[-1]
        policy.requests.add(request)
        self._under_way.add(request)
        if jax.process_index() == 0:
            self._tasks[request] = self._start(self._generate(request, policy))

    def poll(self) -> list[tuple[Request, Responses]]:
        """Waits for one request at least, and returns those that are complete.

        Raises:
          UserError: the server is down or refuses, or a response cannot be trained on.
        """
        if not self._under_way:
            return []
        # Requests have no name that processes share but their prompt and seed.
        names = {(one.prompt.sample_id, one.seed, one.prompt_id): one for one in self._under_way}

        def wait() -> list[tuple[list[Any], list[tuple[Any, ...]]]]:
            complete = []
            while not complete or not self._finished.empty():
                request, samples = self._finished.get()
                if self._tasks.pop(request, None) is None:
                    continue  # It was cancelled after its last response.
                if isinstance(samples, BaseException):
                    raise samples
                name = [request.prompt.sample_id, request.seed, request.prompt_id]
                complete.append((name, [tuple(sample) for sample in samples]))
            return complete

        complete = []
        for name, samples in _from_first(wait):
            request = names[tuple(name)]
            self._under_way.discard(request)
            policy = next(one for one in self._policies if request in one.requests)
            policy.requests.discard(request)
            complete.append((request, _responses([Sample(*one) for one in samples], policy.version)))
        self._forget()
        return complete

    def cancel(self, requests: Iterable[Request]) -> None:
        for request in list(requests):
            self._under_way.discard(request)
            for policy in self._policies:
                policy.requests.discard(request)
            task = self._tasks.pop(request, None)
            if task is not None:
                task.cancel()

    def unload(self) -> None:
        """Cancels requests, makes the server unload all adapters and deletes their folders."""
        self.cancel(set(self._under_way))
        self._finished = queue.SimpleQueue()
        policies, self._policies = self._policies, []
        for policy in policies:
            self._drop(policy)
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _forget(self) -> None:
        """Unloads earlier policies without requests."""
        for policy in [one for one in self._policies[:-1] if not one.requests]:
            self._policies.remove(policy)
            self._drop(policy)

    def _drop(self, policy: _Policy) -> None:
        if jax.process_index() == 0:
            # Its failure is ignored: the server may have been restarted or stopped.
            with contextlib.suppress(UserError):
                self._run(self._post(self._protocol.unload, {"lora_name": policy.folder.name}, retry=False))
            shutil.rmtree(policy.folder, ignore_errors=True)

    def _start(self, work: Coroutine[Any, Any, _T]) -> concurrent.futures.Future[_T]:
        if self._worker is None:
            self._worker = _Worker(self._config, self._key)
        return self._worker.start(work)

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return self._start(work).result()

    async def _add_adapters(self, folder: Path) -> None:
        config = self._config
        assert self._worker is not None
        with _user_errors(config.root + "/v1/models"):
            names = [model.id async for model in self._worker.client.models.list()]
        if config.model not in names:
            raise UserError(
                f"{config.root} serves {', '.join(names) or 'nothing'}, not config.endpoint.model "
                f"({config.model}): correct one of them"
            )
        try:
            await self._post(self._protocol.load, {"lora_name": folder.name, "lora_path": str(folder)})
        except UserError as error:
            # The name identifies the weights: a retry, or a killed run, has loaded the same ones.
            if "already" not in str(error):
                raise

    async def _generate(self, request: Request, policy: _Policy) -> None:
        try:
            prompt = request.prompt
            assert isinstance(prompt, Prompt)
            # Encoded once for all samples, in a thread: the event loop must keep the requests going.
            images, example = await asyncio.gather(
                asyncio.to_thread(self._data_urls, prompt), asyncio.to_thread(prompt.encoded)
            )
            tokens = example.prompt.tolist()
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._sample(request, prompt, policy, images, tokens, number))
                    for number in range(request.sampling.num_samples)
                ]
            self._finished.put((request, [task.result() for task in tasks]))
        except BaseExceptionGroup as failed:
            # The others fail for the same reason, or were cancelled by the first one; users get one line.
            self._finished.put((request, failed.exceptions[0]))
        except Exception as error:
            self._finished.put((request, error))

    async def _sample(
        self,
        request: Request,
        prompt: Prompt,
        policy: _Policy,
        images: list[str],
        tokens: list[int],
        number: int,
    ) -> Sample:
        # By id and index, so that a retry and another order of requests give the same response.
        seed = stable_hash(int(request.seed), prompt.prompt_id, number) if self._config.seeded else None
        ask = Ask(
            policy.folder.name,
            prompt.messages,
            images,
            tokens,
            request.sampling,
            seed,
            self._processor.end_id,
            tuple(self._processor.banned_ids),
        )
        url = self._config.root + self._protocol.path
        data = await self._post(self._protocol.path, self._protocol.body(ask))
        try:
            return check_answer(self._protocol.read(data), ask, self._processor.config.text.vocab_size)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise UserError(
                f"{url}: the answer is not understood ({where}: {first['msg']}); check "
                "config.endpoint.base_url and config.endpoint.protocol"
            ) from None
        except BadAnswerError as error:
            raise UserError(f"{url}: prompt {prompt.prompt_id}: {error}") from error

    async def _post(self, path: str, body: dict[str, Any], retry: bool = True) -> bytes:
        """POSTs and returns the answer, whose form depends on the protocol.

        Raises:
          UserError: the server does not answer or refuses.
        """
        assert self._worker is not None
        client = self._worker.client if retry else self._worker.client.with_options(max_retries=0)
        with _user_errors(self._config.root + path):
            async with self._worker.gate:
                # Not a typed call: answers hold more fields than OpenAI's, and paths need not begin by /v1.
                response = await client.post(self._config.root + path, cast_to=httpx.Response, body=body)
        return response.content

    def _data_urls(self, prompt: Prompt) -> list[str]:
        vision = self._processor.config.vision
        unit = vision.patch_size * vision.spatial_merge_size
        return [
            png_data_url(self._images(name), self._processor.max_pixels, unit)
            for name in image_names(prompt.messages)
        ]


@dataclasses.dataclass
class _Policy:
    """Adapters at the server, and the requests that use them."""

    folder: Path
    version: int
    requests: set[Request] = dataclasses.field(default_factory=set)


@contextlib.contextmanager
def _user_errors(url: str) -> Iterator[None]:
    """Turns errors of the client into one line."""
    try:
        yield
    except openai.APIStatusError as error:
        message = str(error.message).removeprefix(f"Error code: {error.status_code}").removeprefix(" - ")
        message = " ".join(message.split())[:300] or "no reason given"
        raise UserError(
            f"{url}: status {error.status_code}: {message}; {_remedy(error.status_code)}"
        ) from error
    except (openai.APIConnectionError, openai.APITimeoutError) as error:
        cause = error.__cause__ or error
        raise UserError(
            f"{url}: no answer ({type(cause).__name__}: {' '.join(str(cause).split())[:200]}); check "
            "config.endpoint.base_url and that the server is up, then run the same command again"
        ) from error


def _remedy(status: int) -> str:
    if status in (401, 403):
        return "check the API key (config.endpoint.api_key_env)"
    if status == 404:
        return (
            "check config.endpoint, and that the server lets adapters be loaded (vLLM: --enable-lora and "
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1; SGLang: --enable-lora; ours: --config.allow_adapters=True)"
        )
    if status >= 500:
        return "check that the server is up, then run the same command again"
    return "check config.endpoint and the server's settings"


class _Worker:
    """The client, and a thread that runs its event loop.

    Attributes:
      gate: bounds the requests that are sent at once.
    """

    def __init__(self, config: EndpointConfig, key: str):
        self._loop = asyncio.new_event_loop()
        self.client = openai.AsyncOpenAI(
            base_url=config.root + "/v1", api_key=key, timeout=config.timeout_s, max_retries=config.retries
        )
        self.gate = asyncio.Semaphore(config.concurrency)
        # A daemon thread, so that a run that ends with an error does not wait for it.
        self._thread = threading.Thread(target=self._loop.run_forever, name="endpoint", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, _T]) -> concurrent.futures.Future[_T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Cancels what is left and ends the thread; the server sees closed connections."""

        async def end() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.client.close()

        self.start(end()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def png_data_url(source: bytes | Image.Image, max_pixels: int, unit: int) -> str:
    """Encodes a screenshot in the size of training, so that the server does not resize it again."""
    image = open_image(source)
    image = image.resize(target_size(*image.size, max_pixels, unit), Image.Resampling.BICUBIC)
    png = io.BytesIO()
    image.save(png, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(png.getvalue()).decode()}"


def _responses(samples: Sequence[Sample], version: int) -> Responses:
    return Responses(
        tokens=tuple(np.asarray(sample.tokens, np.int32) for sample in samples),
        log_probs=tuple(np.asarray(sample.log_probs, np.float32) for sample in samples),
        truncated=np.asarray([sample.truncated for sample in samples]),
        versions=tuple(np.full(len(sample.tokens), version, np.int32) for sample in samples),
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
