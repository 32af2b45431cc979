"""Rollouts at an inference server (vLLM, or our own), which loads the adapters from PEFT folders."""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import contextlib
import fcntl
import hashlib
import io
import os
import queue
import secrets
import shutil
import threading
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import httpx
import jax
import numpy as np
import orjson
from PIL import Image
from pydantic import ValidationError

from rmsweb_jax.data.sources import stable_hash
from rmsweb_jax.decoding.requests import Request, Responses
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.lora import WEIGHTS_FILE, save_adapters
from rmsweb_jax.qwen.model import Qwen3VL
from rmsweb_jax.qwen.processor import ImageResolver, Processor, open_image, target_size
from rmsweb_jax.records.images import image_names
from rmsweb_jax.rl.config import EndpointConfig
from rmsweb_jax.rl.prompts import Prompt
from rmsweb_jax.rl.remote.protocol import (
    CHAT,
    LOAD_ADAPTERS,
    UNLOAD_ADAPTERS,
    Answer,
    Ask,
    BadAnswerError,
    Sample,
    chat_body,
    check_answer,
)
from rmsweb_jax.storage import local_path
from rmsweb_jax.training.config import LoRAConfig
from rmsweb_jax.training.mesh import from_all_processes, is_first

# Seconds that a process waits for its own responses before it hears of those of the others.
_POLL_S = 0.1
_T = TypeVar("_T")


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
    save_adapters(model, lora, temporary, base, listed=True)
    if not is_first():
        return root
    try:
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


def version_of(policy: str) -> int:
    """Returns the version in the name of published adapters."""
    return int(policy.split("-")[1])


def _lock(folder: Path) -> IO[str]:
    """Locks a folder of adapters until the file is closed: two runs would remove each other's.

    Raises:
      UserError: another run holds the lock, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / ".lock", "a")  # noqa: SIM115 - closed with the endpoint
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(
            f"config.endpoint.adapter_folder: {folder} is in use by another run; give each run its own"
        ) from None
    except OSError as error:
        raise UserError(f"config.endpoint.adapter_folder: cannot write to {folder} ({error})") from error
    return file


class _UnderWay(NamedTuple):
    """A request, and the task of the process that sends it; None in the others.

    Attributes:
      policy: the newest one at its submission; it is sent by this one, or a later one.
    """

    request: Request
    policy: Path
    task: concurrent.futures.Future[None] | None


class Endpoint:
    """Draws at a server that loads each policy's adapters; has the methods of `rl.rollout.Sampler`.

    A prompt's seed is a function of (seed, prompt id) that does not depend on concurrent requests and
    retries. It depends on the server whether a seed repeats a response: ours does, vLLM does up to rounding
    that differs with the batch (exactly with VLLM_BATCH_INVARIANT=1).

    With several processes all must make the same calls; each sends its share of the requests.

    Args:
      processor: that of the trained model; the server must tokenize prompts in the same way.
      images: returns the bytes of a screenshot by SHA-256, as `ImageStore.get`.
      lora: configuration of the policy's adapters.

    Attributes:
      held: names of policies that others ask for: they stay at the server, also those of a killed run.

    Raises:
      UserError: the environment variable of the API key is not set, or another run has the adapters' folder.
    """

    def __init__(self, config: EndpointConfig, processor: Processor, images: ImageResolver, lora: LoRAConfig):
        self._config, self._processor, self._images, self._lora = config, processor, images, lora
        # Folders of the adapters at the server.
        self._policies: list[Path] = []
        self.held: set[str] = set()
        # By a number that all processes give the same request.
        self._under_way: dict[int, _UnderWay] = {}
        self._submitted = 0
        # Version of the policy and responses by these numbers, or why there are none.
        self._finished: queue.SimpleQueue[tuple[int, int, list[Sample] | Exception]] = queue.SimpleQueue()
        self._key = os.environ.get(config.api_key_env, "") if config.api_key_env else "none"
        if not self._key:
            raise UserError(
                f"config.endpoint.api_key_env: {config.api_key_env} is not set; export the server's key"
            )
        self._worker: _Worker | None = None
        folder = local_path(config.adapter_folder, "config.endpoint.adapter_folder")
        self._lock = _lock(folder) if is_first() else None

    @property
    def policy(self) -> str:
        """Name of the newest adapters at the server; that of the first process in the others."""
        return self._policies[-1].name

    @property
    def policies(self) -> list[str]:
        """Names of all adapters at the server."""
        return [policy.name for policy in self._policies]

    def load(self, model: Qwen3VL, version: int) -> None:
        """Writes the adapters and makes the server load them; earlier ones are unloaded once they are done.

        Raises:
          UserError: the adapters cannot be written, or the server does not serve the model or load them.
        """
        outcome: dict[str, Any] = {"error": "", "folder": "", "held": []}
        try:
            root = local_path(self._config.adapter_folder, "config.endpoint.adapter_folder")
            folder = publish_adapters(model, self._lora, root, self._config.model, version)
            outcome["folder"] = str(folder)
            if is_first():
                # A killed run has left them, and they take the server's slots.
                for left in sorted(root.absolute().glob("policy-*")) if not self._policies else ():
                    if left.name in self.held:
                        self._run(self._add_adapters(left))
                        outcome["held"].append(str(left))
                    elif left != folder:
                        self._drop(left)
                self._run(self._add_adapters(folder))
        except UserError as failed:
            outcome["error"] = str(failed)
        # The first process names the folder, and knows whether the server has it.
        outcome = orjson.loads(from_all_processes(orjson.dumps(outcome))[0])
        if outcome["error"]:
            raise UserError(outcome["error"])
        self._policies += [Path(name) for name in (*outcome["held"], outcome["folder"])]
        self._forget()

    def submit(self, request: Request) -> None:
        """Queues a request, which is also sent while the policy is updated."""
        assert self._policies, "load a policy first"
        number, policy = self._submitted, self._policies[-1]
        self._submitted += 1
        mine = number % jax.process_count() == jax.process_index()
        task = self._start(self._generate(number, request)) if mine else None
        self._under_way[number] = _UnderWay(request, policy, task)

    def poll(self) -> list[tuple[Request, Responses]]:
        """Waits for one request at least, and returns those that are complete.

        Raises:
          UserError: the server is down or refuses, or a response cannot be trained on.
        """
        complete: list[tuple[Request, Responses]] = []
        while self._under_way and not complete:
            parts = [orjson.loads(part) for part in from_all_processes(orjson.dumps(self._own_finished()))]
            for error in (part["error"] for part in parts if part["error"]):
                raise UserError(error)
            for number, version, samples in (one for part in parts for one in part["complete"]):
                responses = _responses([Sample(*one) for one in samples], version)
                complete.append((self._under_way.pop(number).request, responses))
        self._forget()
        return complete

    def _own_finished(self) -> dict[str, Any]:
        """Waits for a request of this process, but not for long if there are others."""
        complete: list[tuple[int, int, list[Any]]] = []
        timeout = None if jax.process_count() == 1 else _POLL_S
        with contextlib.suppress(queue.Empty):
            while True:
                number, version, drawn = self._finished.get(timeout=0 if complete else timeout)
                if number not in self._under_way:  # Dropped when its last response was there.
                    continue
                if isinstance(drawn, UserError):
                    return {"error": str(drawn), "complete": []}
                if isinstance(drawn, Exception):
                    raise drawn
                complete.append((number, version, [tuple(sample) for sample in drawn]))
        return {"error": "", "complete": complete}

    def unload(self) -> None:
        """Drops all requests, makes the server unload all adapters and deletes their folders."""
        for one in self._under_way.values():
            if one.task is not None:
                one.task.cancel()
        self._under_way.clear()
        policies, self._policies = self._policies, []
        for policy in policies:
            self._drop(policy)
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _forget(self) -> None:
        """Unloads policies before those that requests may be drawn by, but those that are held."""
        asked = [self._policies.index(one.policy) for one in self._under_way.values()]
        oldest = min(asked, default=len(self._policies) - 1)
        for policy in [one for one in self._policies[:oldest] if one.name not in self.held]:
            self._policies.remove(policy)
            self._drop(policy)

    def _drop(self, folder: Path) -> None:
        if is_first():
            # Its failure is ignored: the server may have been restarted or stopped.
            with contextlib.suppress(UserError):
                self._run(self._post(UNLOAD_ADAPTERS, {"lora_name": folder.name}, retry=False))
            shutil.rmtree(folder, ignore_errors=True)

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
            await self._post(LOAD_ADAPTERS, {"lora_name": folder.name, "lora_path": str(folder)})
        except UserError as error:
            # The name identifies the weights: a retry, or a killed run, has loaded the same ones.
            if "already" not in str(error):
                raise

    async def _generate(self, number: int, request: Request) -> None:
        assert self._worker is not None
        try:
            # Nothing is sent, and no image made, for more prompts than may be under way.
            async with self._worker.gate:
                # The newest one: it may have changed since the request was submitted.
                policy = self._policies[-1].name
                samples = await self._samples(request, policy)
                self._finished.put((number, version_of(policy), samples))
        except Exception as error:
            self._finished.put((number, 0, error))

    async def _samples(self, request: Request, policy: str) -> list[Sample]:
        prompt, config = request.prompt, self._config
        assert isinstance(prompt, Prompt)
        # In threads: the event loop must keep the other requests going.
        images, example = await asyncio.gather(
            asyncio.to_thread(self._data_urls, prompt), asyncio.to_thread(prompt.encoded)
        )
        ask = Ask(
            policy,
            prompt.messages,
            images,
            example.prompt.tolist(),
            request.sampling,
            stable_hash(int(request.seed), prompt.prompt_id) if config.seeded else None,
            self._processor.end_id,
            tuple(self._processor.banned_ids),
        )
        data = await self._post(CHAT, chat_body(ask))
        try:
            answer = Answer.model_validate_json(data)
            return check_answer(answer, ask, self._processor.config.text.vocab_size)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise UserError(
                f"{config.root}{CHAT}: the answer is not understood ({where}: {first['msg']}); check "
                "config.endpoint.base_url"
            ) from None
        except BadAnswerError as error:
            raise UserError(f"{config.root}{CHAT}: prompt {prompt.prompt_id}: {error}") from error

    async def _post(self, path: str, body: dict[str, Any], retry: bool = True) -> bytes:
        """POSTs and returns the answer.

        Raises:
          UserError: the server does not answer or refuses.
        """
        assert self._worker is not None
        client = self._worker.client if retry else self._worker.client.with_options(max_retries=0)
        with _user_errors(self._config.root + path):
            # Not a typed call: answers hold more fields than OpenAI's.
            response = await client.post(self._config.root + path, cast_to=httpx.Response, body=body)
        return response.content

    def _data_urls(self, prompt: Prompt) -> list[str]:
        vision = self._processor.config.vision
        unit = vision.patch_size * vision.spatial_merge_size
        return [
            png_data_url(self._images(name), self._processor.max_pixels, unit)
            for name in image_names(prompt.messages)
        ]


@contextlib.contextmanager
def _user_errors(url: str) -> Iterator[None]:
    """Turns errors of the client into one line."""
    import openai

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
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1; ours: --config.adapters)"
        )
    if status >= 500:
        return "check that the server is up, then run the same command again"
    return "check config.endpoint and the server's settings"


class _Worker:
    """The client, and a thread that runs its event loop.

    Attributes:
      gate: bounds the prompts that are under way at once.
    """

    def __init__(self, config: EndpointConfig, key: str):
        # Imported here: it takes a second to load, and most runs draw with an engine of their own.
        import openai

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
