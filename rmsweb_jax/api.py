"""The public interface of the accelerator side: a policy to chat with, and the two training runs."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import AxisType, Mesh
from jaxtyping import Float32, Int32
from ml_collections import ConfigDict
from PIL import Image
from pydantic import ValidationError

from rmsweb_jax.data.batching import Batch, Branch, Example, Tree, lay_out, on_mesh, round_up
from rmsweb_jax.data.packing import Part, RowShape
from rmsweb_jax.data.sources import stable_hash
from rmsweb_jax.decoding.engine import Engine
from rmsweb_jax.decoding.requests import Request, Sampling, join
from rmsweb_jax.decoding.sizes import sizes_for
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.checkpoint import load_model, resolve_model
from rmsweb_jax.qwen.model import Qwen3VL, TokenScores
from rmsweb_jax.qwen.processor import MAX_PIXELS, ImageResolver, Processor, open_image
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ImagePart, Message, TextPart
from rmsweb_jax.settings import from_config
from rmsweb_jax.sft.step import target_scores
from rmsweb_jax.training.mesh import AXES, row_shards
from rmsweb_jax.workdir import run_stage

if TYPE_CHECKING:
    from rmsweb_jax.rl.config import RlConfig
    from rmsweb_jax.sft.config import SftConfig

ImageLike = Image.Image | bytes | str | os.PathLike[str]
# Images of a prompt, or the store of a data set whose messages refer to images by SHA-256.
Images = ImageLike | Sequence[ImageLike] | ImageStore
# A user's text, or a chat: messages as records, or as dictionaries in the form of Hugging Face's templates,
# {"role": "user", "content": "text" or [{"type": "text", "text": ...}, {"type": "image", "image": ...}]}.
Prompt = str | Sequence[Message | Mapping[str, Any]]

# Shapes are rounded up to multiples of these or more, because each shape compiles a program.
_MIN_WIDTH, _MIN_WINDOW = 256, 64


@dataclasses.dataclass(frozen=True)
class ReplyScore:
    """Log-probabilities of a reply under a policy.

    Attributes:
      tokens: the reply's tokens and its `<|im_end|>`.
      log_probs: natural logarithm of each token's probability given all tokens before it.
    """

    tokens: Int32[np.ndarray, " tokens"]
    log_probs: Float32[np.ndarray, " tokens"]

    @property
    def total(self) -> float:
        """Log-probability of the whole reply."""
        # In float64: a float32 sum over 2,000 tokens would lose digits.
        return float(self.log_probs.sum(dtype=np.float64))


class Policy:
    """A vision-language policy: it answers prompts, samples replies and scores them.

    Args:
      model: the model, on `mesh` if given.
      processor: the processor of the same model.
      mesh: devices that share the model; None: the default device.
    """

    def __init__(self, model: Qwen3VL, processor: Processor, mesh: Mesh | None = None):
        self.model, self.processor = model, processor
        devices = np.asarray(jax.devices()[:1]).reshape(1, 1, 1)
        self._mesh = mesh or Mesh(devices, AXES, axis_types=(AxisType.Auto,) * len(AXES))

    @classmethod
    def load(
        cls,
        name: str | os.PathLike[str],
        *,
        dtype: Any = None,
        max_pixels: int = MAX_PIXELS,
        mesh: Mesh | None = None,
    ) -> Policy:
        """Loads a model folder, the packaged `tiny_base`, or a model of the Hugging Face Hub (`org/name`).

        Args:
          dtype: dtype of weights and computation; by default bfloat16 on accelerators and float32 on CPUs.
          max_pixels: limit for resized images.
          mesh: devices that share the model, see `rmsweb_jax.training.mesh.make_mesh`.

        Raises:
          UserError: there is no such model, or its files cannot be used.
        """
        folder = resolve_model(name)
        if dtype is None:
            dtype = jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16
        model = load_model(folder, dtype, mesh=mesh)
        return cls(model, Processor.from_pretrained(folder, max_pixels), mesh)

    def chat(
        self,
        prompt: Prompt,
        images: Images = (),
        *,
        system: str = "",
        temperature: float = 0.0,
        seed: int = 0,
        max_new_tokens: int = 512,
    ) -> str:
        """Replies to a user's text and images, or to a chat; greedily unless a temperature is given.

        Args:
          images: images after the text.
          system: system message at the start of the prompt; "" for none.

        Raises:
          UserError: an image cannot be read, or prompt and reply would exceed the model's context.
        """
        example = self._example(*read_prompt(prompt, images, system))
        return self._generate([example], 1, temperature, seed, max_new_tokens, 1)[0][0]

    def sample(
        self,
        prompts: Sequence[Prompt],
        n: int = 8,
        *,
        images: ImageStore | str | os.PathLike[str] | None = None,
        temperature: float = 1.0,
        seed: int = 0,
        max_new_tokens: int = 512,
        batch_size: int = 8,
    ) -> list[list[str]]:
        """Samples `n` replies to each prompt.

        A reply depends on its prompt, the seed and its number among the `n`. The other prompts and the batch
        size change its logits by rounding at most. Equal prompts get equal replies.

        Args:
          images: the data set folder of recorded messages, or its `ImageStore`, for their screenshots.
          batch_size: prompts that are decoded together.

        Raises:
          UserError: as `chat`.
        """
        if isinstance(prompts, str):
            raise UserError("sample takes a list of prompts; give [prompt]")
        store = ImageStore(images) if isinstance(images, (str, os.PathLike)) else images or ()
        # All prompts are encoded first, so that a bad one fails before anything is sampled.
        examples = [self._example(*read_prompt(prompt, store)) for prompt in prompts]
        return self._generate(examples, n, temperature, seed, max_new_tokens, batch_size)

    def score(self, prompt: Prompt, reply: str, images: Images = ()) -> ReplyScore:
        """Computes the log-probabilities of a reply's tokens after a prompt, by the forward pass of training.

        Raises:
          UserError: as `chat`.
        """
        example = self._example(*read_prompt(prompt, images), reply)
        self._check_length(example.length)
        tree = Tree(example, (Branch(example.target),))
        # The mesh must divide the rows, so the others are empty.
        shape = RowShape(
            width=_round(example.length, _MIN_WIDTH),
            rows=row_shards(self._mesh),
            images=len(example.grids),
            window=_round(max(map(len, example.patches), default=0), _MIN_WINDOW),
        )
        batch = lay_out(lambda _: tree, [(Part(0, (0,)),)], shape, self.model.config)
        scores = _score(*nnx.split(self.model), on_mesh(batch, self._mesh))
        return ReplyScore(example.target, np.asarray(scores.log_probs)[0, : example.num_targets])

    def _example(self, messages: Sequence[Message], images: ImageResolver, reply: str = "") -> Example:
        """Encodes a prompt, with the reply, if any, as its targets."""
        prompt = self.processor.encode_prompt(messages, images)
        target = self.processor.encode_response(reply).tokens
        # The id decides about random numbers, so equal prompts with equal images get equal replies.
        content = hashlib.sha256(prompt.tokens.tobytes())
        for patches in prompt.patches:
            content.update(patches.tobytes())
        return Example(
            sample_id=content.hexdigest(),
            tokens=np.concatenate([prompt.tokens, target]),
            prompt_length=len(prompt.tokens),
            action_mask=np.zeros(len(target), bool),
            patches=prompt.patches,
            grids=prompt.grids,
        )

    def _generate(
        self,
        examples: Sequence[Example],
        n: int,
        temperature: float,
        seed: int,
        max_new_tokens: int,
        batch_size: int,
    ) -> list[list[str]]:
        for name, value in (("n", n), ("max_new_tokens", max_new_tokens), ("batch_size", batch_size)):
            if value < 1:
                raise UserError(f"{name} is {value}: make it 1 or more")
        if not examples:
            return []
        for example in examples:
            self._check_length(example.prompt_length, max_new_tokens)
        processor = self.processor
        sizes = sizes_for(
            # Rounded up, so that calls with similar prompts share programs.
            [
                (
                    _round(example.length, _MIN_WIDTH),
                    [_round(len(part), _MIN_WINDOW) for part in example.patches],
                )
                for example in examples
            ],
            samples=n,
            response_tokens=max_new_tokens,
            lanes=min(batch_size, len(examples)) * n,
            shards=row_shards(self._mesh),
        )
        engine = Engine.for_policy(
            self.model, sizes, eos=processor.end_id, banned=tuple(processor.banned_ids)
        )
        sampling = Sampling(n, max_new_tokens, temperature)
        requests = [
            Request(example, sampling, seed, stable_hash(example.sample_id), engine.policy)
            for example in examples
        ]
        drawn = dict(join(engine.stream(requests)))
        return [[processor.decode_response(one) for one in drawn[request].tokens] for request in requests]

    def _check_length(self, prompt: int, reply: int = 0) -> None:
        context = self.model.config.text.max_position_embeddings
        if prompt + reply > context:
            new = f" and {reply} new ones (max_new_tokens)" if reply else ""
            raise UserError(
                f"{prompt} tokens{new} exceed the model's context of {context}: shorten the prompt, or give "
                "fewer or smaller images"
            )


@functools.partial(jax.jit, static_argnums=0)
def _score(graphdef: Any, state: Any, batch: Batch) -> TokenScores:
    return target_scores(nnx.merge(graphdef, state), batch)


def _round(value: int, least: int) -> int:
    """Rounds up to a multiple of `least`, or of a power of two that leaves at most a quarter unused."""
    return round_up(max(value, 1), max(least, 1 << max(value.bit_length() - 3, 0)))


def read_prompt(prompt: Prompt, images: Images = (), system: str = "") -> tuple[list[Message], ImageResolver]:
    """Converts a prompt to messages, and a function from SHA-256 to their images.

    Raises:
      UserError: an image cannot be read, a message has another form, or images come with messages.
    """
    found: dict[str, Image.Image] = {}

    def add(image: ImageLike) -> ImagePart:
        opened = read_image(image)
        # Of the pixels, with the size: two images of unlike shape may have equal bytes.
        sha256 = hashlib.sha256(f"{opened.size}".encode() + opened.tobytes()).hexdigest()
        found[sha256] = opened
        return ImagePart(sha256=sha256)

    if isinstance(images, (Image.Image, bytes, str, os.PathLike)):
        images = [images]
    if isinstance(prompt, str):
        shown = () if isinstance(images, ImageStore) else images
        parts = [TextPart(text=prompt), *(add(image) for image in shown)]
        messages = [Message(role="user", content=tuple(parts))]
    elif isinstance(images, ImageStore) or not images:
        messages = [_message(message, add) for message in prompt]
    else:
        raise UserError("images go into the messages' content; give them apart with a text only")
    if system:
        messages.insert(0, Message(role="system", content=(TextPart(text=system),)))

    def resolve(sha256: str) -> bytes | Image.Image:
        return images.get(sha256) if isinstance(images, ImageStore) and sha256 not in found else found[sha256]

    return messages, resolve


def read_image(image: ImageLike) -> Image.Image:
    """Reads an image as upright RGB.

    Raises:
      UserError: the file cannot be read, or is not a usable image.
    """
    if isinstance(image, (Image.Image, bytes)):
        return open_image(image)
    try:
        return open_image(Path(image).read_bytes())
    except (OSError, UserError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{image}: {reason}; give the path of a PNG or JPEG") from error


def _message(message: Message | Mapping[str, Any], add: Callable[[ImageLike], ImagePart]) -> Message:
    if isinstance(message, Message):
        return message
    try:
        content = message["content"]
        content = [{"type": "text", "text": content}] if isinstance(content, str) else content
        parts = [add(part["image"]) if part["type"] == "image" else part for part in content]
        return Message.model_validate({"role": message["role"], "content": parts})
    except (KeyError, TypeError, ValidationError) as error:
        raise UserError(
            f"{str(message)[:80]} is not a message: give a role and a content, which is a text or a list of "
            '{"type": "text", "text": ...} and {"type": "image", "image": ...}'
        ) from error


def train_sft(
    config: ConfigDict | Mapping[str, Any] | SftConfig, workdir: str | os.PathLike[str]
) -> dict[str, Any]:
    """Fine-tunes a model on an SFT corpus; calling it again resumes.

    Args:
      config: such as `configs.sft.get_config("demo")`, as a `ConfigDict`, a dictionary or an `SftConfig`.
      workdir: gets checkpoints, metrics, `report.json` and the model in `export`.

    Returns:
      The report.

    Raises:
      UserError: a setting, the corpus or the model cannot be used, or the workdir was begun with other
        settings.
    """
    # Imported here: training takes seconds to import, and a policy does not need it.
    from rmsweb_jax.sft.config import SftConfig
    from rmsweb_jax.sft.train import train

    return run_stage(train, from_config(SftConfig, config), workdir, jax.process_index(), live=True)


def train_rl(
    config: ConfigDict | Mapping[str, Any] | RlConfig, workdir: str | os.PathLike[str]
) -> dict[str, Any]:
    """Trains a policy by Salvage-DS on mined prompts; calling it again resumes.

    Args:
      config: such as `configs.rl.get_config("demo")`, as a `ConfigDict`, a dictionary or an `RlConfig`.
      workdir: as `train_sft`.

    Returns:
      The report.

    Raises:
      UserError: a setting, the prompts, the model or the endpoint cannot be used, or the workdir was begun
        with other settings.
    """
    from rmsweb_jax.rl.config import RlConfig
    from rmsweb_jax.rl.train import train

    return run_stage(train, from_config(RlConfig, config), workdir, jax.process_index(), live=True)
