"""Checks a model on this machine's devices, TPU, GPU or CPU, in minutes, and writes a page.

    python -m experiments.verify --model=/models/Qwen3-VL-8B-Instruct --output=runs/verify

Kernels of attention against plain ones, an SFT step, a rollout and an RL step; a line for each check.
`--golden=FILE` also compares logits with those that transformers computed from the same weights, which

    python -m experiments.verify --model=/models/Qwen3-VL-8B-Instruct --write_golden=FILE

writes on a machine with torch and memory for the weights in float32. The exit code is 1 if a check fails.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import traceback
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags
from flax import nnx
from PIL import Image
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from experiments import cli
from rmsweb_jax.data.batching import Branch, Example, Tree, lay_out, on_mesh, round_up
from rmsweb_jax.data.encoding import SampleSize
from rmsweb_jax.data.packing import Packer, Part, RowShape
from rmsweb_jax.decoding.attention import KeySpan, attend_ring, merge
from rmsweb_jax.decoding.engine import Engine
from rmsweb_jax.decoding.quantized import swap_last_axes, to_cache
from rmsweb_jax.decoding.requests import Request, Sampling, join
from rmsweb_jax.decoding.sizes import sizes_for
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.attention import BACKENDS, TPU_LANES, AttentionConfig
from rmsweb_jax.qwen.backends import choose_attention, make_attend
from rmsweb_jax.qwen.checkpoint import resolve_model
from rmsweb_jax.qwen.config import Qwen3VLConfig
from rmsweb_jax.qwen.layers import LoRAParam
from rmsweb_jax.qwen.processor import MAX_PIXELS, Processor, image_patches
from rmsweb_jax.qwen.sharding import axis_sizes
from rmsweb_jax.records.schema import ImagePart, Message, TextPart
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.rl.prompts import Prompt
from rmsweb_jax.rl.rollout import MiniBatch, make_group
from rmsweb_jax.rl.step import rl_steps, update_policy
from rmsweb_jax.sft.data import VALUES
from rmsweb_jax.sft.step import init_state, sft_steps, split_model
from rmsweb_jax.sft.train import load_policy
from rmsweb_jax.storage import local_path
from rmsweb_jax.training.mesh import make_mesh, row_shards
from rmsweb_jax.training.performance import compiler_options
from rmsweb_jax.training.step import adamw

# Largest errors by the dtype of the computation: of attention over a vector's length, of logits over their
# standard deviation, the share of positions with another most likely token, and of the sampler's
# log-probabilities against training (mean, nats).
LIMITS = {
    "float32": {"kernel": 1e-4, "logits": 1e-3, "tokens": 0.01, "sampler": 1e-3},
    "bfloat16": {"kernel": 0.03, "logits": 0.1, "tokens": 0.1, "sampler": 0.05},
}
_TOP, _RANDOM_TOKENS, _IMAGE_SIDES = 16, 40, (4, 3)
_TEXT = (
    "The page shows a table of flights from Oslo to Lisbon on Friday, with departure times and prices. Which "
    "flight is the cheapest, and when does it land? Answer in one sentence."
)
_ARRAYS = ("tokens", "top_ids", "top_logits", "std")


class CheckFailedError(UserError):
    exit_code = 1


class Sizes(NamedTuple):
    """Amounts of work.

    Attributes:
      prompt, response: tokens of each.
      groups, samples: prompts, at least, and responses to each.
      row_groups: groups of a row.
      image_side: of a prompt's image, in tokens.
      kernel: tokens of the row in which kernels are checked.
    """

    prompt: int = 2048
    response: int = 256
    groups: int = 8
    samples: int = 8
    row_groups: int = 1
    image_side: int = 16
    kernel: int = 2048


# Two cores compute 2B parameters.
CPU = Sizes(prompt=16, response=4, groups=2, samples=2, row_groups=2, image_side=2, kernel=512)


class Report:
    """The checks so far; each is printed as it is made."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.failed: list[str] = []
        self._begin = time.monotonic()

    def at_most(self, name: str, measured: float, limit: float) -> None:
        # NaN is within no limit.
        self.add(name, f"{measured:.4g} (at most {limit:g})", bool(measured <= limit))

    def add(self, name: str, text: str, ok: bool) -> None:
        self.lines.append(f"{'ok' if ok else 'NO'}  {name}: {text}")
        print(f"[{time.monotonic() - self._begin:4.0f} s] {self.lines[-1]}", flush=True)
        self.failed += [] if ok else [name]


class Setup:
    """The model that is checked, with adapters that are not zero.

    Raises:
      UserError: the folder holds no model, or the devices do not divide it.
    """

    def __init__(self, folder: Path):
        self.folder, self.config = folder, Qwen3VLConfig.from_hf(folder / "config.json")
        on_cpu = jax.default_backend() == "cpu"
        self.sizes, self.dtype = (CPU, "float32") if on_cpu else (Sizes(), "bfloat16")
        # Both kinds of sharding, as far as the devices allow.
        heads = axis_sizes(self.config)["kv_heads"].count
        self.mesh = make_mesh(fsdp=-1, tensor=2 if jax.device_count() % 2 == 0 and heads % 2 == 0 else 1)
        stored = json.loads((folder / "config.json").read_bytes())
        stored = stored.get("dtype") or stored.get("torch_dtype")
        self.settings = RlConfig(
            prompts="none",
            model=str(folder),
            dtype=self.dtype,
            # A CPU holds the weights of the file next to those of the sampler.
            param_dtype="bfloat16" if stored == "bfloat16" else self.dtype,
        )
        self.model = load_policy(self.settings, folder, self.mesh, self.settings.lora, seed=0)
        rng = np.random.default_rng(0)
        for _, variable in nnx.to_flat_state(nnx.state(self.model, LoRAParam)):
            variable.set_value(variable[...] + 0.01 * rng.standard_normal(variable.shape, np.float32))
        self.model.set_remat("full")
        self.limits = LIMITS[self.dtype]

    @property
    def shape(self) -> RowShape:
        """Rows that hold groups with their salvage targets, one row a shard."""
        sizes = self.sizes
        width = sizes.row_groups * (sizes.prompt + (sizes.samples + 1) * sizes.response)
        side = sizes.image_side * self.config.vision.spatial_merge_size
        return RowShape(round_up(width, 128), row_shards(self.mesh), sizes.row_groups, side**2)

    def examples(self) -> list[Example]:
        """Prompts of an image and random text, each with a random target."""
        sizes, config, side = self.sizes, self.config, math.isqrt(self.shape.window)
        rng = np.random.default_rng(1)
        shown = [config.vision_start_token_id, *[config.image_token_id] * sizes.image_side**2]
        shown.append(config.vision_end_token_id)
        found = []
        for number in range(max(sizes.groups, row_shards(self.mesh))):
            text = rng.integers(0, text_tokens(config), sizes.prompt + sizes.response - len(shown))
            patches = rng.standard_normal((side**2, config.vision.patch_dim), np.float32)
            tokens, mask = np.asarray([*shown, *text], np.int32), np.ones(sizes.response, bool)
            found.append(Example(str(number), tokens, sizes.prompt, mask, (patches,), ((1, side, side),)))
        return found

    def programs(self, make: Any, *arguments: Any) -> tuple[Any, Any, Any]:
        """Programs of training with a fresh optimizer, their state, and the weights that are not trained."""
        graphdef, params, frozen = split_model(self.model, "lora")
        optimizer = adamw(2e-4, weight_decay=0.0, clip_norm=1.0)
        # Steps take over the arrays that they train; the model keeps its own.
        state = init_state(jax.tree.map(jnp.copy, params), optimizer, self.mesh)
        options = compiler_options(self.mesh.devices.flat[0], ())
        return make(graphdef, state, optimizer, *arguments, self.mesh, options), state, frozen


def text_tokens(config: Qwen3VLConfig) -> int:
    """Number of tokens of text; they come first in the vocabulary."""
    special = (config.image_token_id, config.video_token_id)
    return min(*special, config.vision_start_token_id, config.vision_end_token_id)


# --- Kernels ---


def shared_prefix(length: int) -> np.ndarray:
    """Makes a row of a prompt and eight responses to it: the end of the last token that sees each token."""
    until, each = np.full(length, length, np.int32), length // 16
    for start in range(length // 2, length, each):
        until[start : start + each] = start + each
    return until


def deviation(found: Any, exact: Any) -> float:
    """Largest error of a vector, over its length and the mean length of all; NaN if a number is none."""
    error, size = (jnp.linalg.norm(x.astype(jnp.float32), axis=-1) for x in (found - exact, exact))
    worst = jnp.max(error / (size + size.mean()))
    return float(jnp.where(jnp.isfinite(error).all(), worst, jnp.nan))


def check_kernels(report: Report, setup: Setup) -> None:
    """Every back end that computes these heads here against the dense one, and the kernel of decoding."""
    text, length, limit = setup.config.text, setup.sizes.kernel, setup.limits["kernel"]
    rng, until = np.random.default_rng(0), shared_prefix(length)[None]

    def random(*shape: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal(shape, np.float32), setup.dtype)

    heads, own = text.num_attention_heads, text.num_key_value_heads
    arrays = [random(1, length, count, text.head_dim) for count in (heads, own, own, heads)]

    def with_gradients(attention: AttentionConfig, arrays: list[jax.Array]) -> list[jax.Array]:
        @jax.jit
        def run(q: Any, k: Any, v: Any, grad: Any) -> Any:
            out, pull = jax.vjp(make_attend(attention, until), q, k, v)
            return out, *pull(grad.astype(out.dtype))

        return list(run(*arrays))

    with jax.default_matmul_precision("highest"):
        exact = with_gradients(AttentionConfig("dense"), [x.astype(jnp.float32) for x in arrays])
    for backend in [name for name in BACKENDS if name != "dense"]:
        try:
            attention = choose_attention(text.head_dim, setup.dtype, backend=backend)
        except UserError:  # It does not compute such heads on this platform.
            continue
        pairs = zip(with_gradients(attention, arrays), exact, strict=True)
        # `max` would hide NaN.
        worst = float(np.max([deviation(*pair) for pair in pairs]))
        name = f"attention {backend}, {length} tokens, {heads} heads of {text.head_dim}"
        report.at_most(f"{name}, forward and gradients", worst, limit)

    # Spans of a ring: all, within, over its end. On a CPU the kernel is interpreted.
    compiled = jax.default_backend() == "tpu"
    places = 2048 if compiled else 256
    span = KeySpan(*jnp.asarray([(0, places), (5, places // 2), (places - 9, 30)], jnp.int32).T)
    queries = random(3, own, heads // own, TPU_LANES) * TPU_LANES**-0.5
    keys, values = (random(3, own, places, TPU_LANES) for _ in range(2))
    for cache in ("model", "int8"):
        stored, mixed = (to_cache(part, cache) for part in (keys, values))
        found = attend_ring(queries, stored, mixed, span, AttentionConfig("pallas", interpret=not compiled))
        dense = attend_ring(queries, swap_last_axes(stored), mixed, span, AttentionConfig("dense"))
        error = deviation(merge(found), merge(dense))
        report.at_most(f"decode kernel, {places} places, cache {cache}", error, limit)


# --- Golden logits ---


def golden_image(config: Qwen3VLConfig) -> Image.Image:
    """A gradient with a bar, of 4 x 3 tokens, so that nothing is resized."""
    unit = config.vision.patch_size * config.vision.spatial_merge_size
    columns, rows = (unit * side for side in _IMAGE_SIDES)
    y, x = np.indices((rows, columns))
    pixels = np.stack([255 * x // columns, 255 * y // rows, 128 + 0 * x], -1)
    pixels[rows // 3 : rows // 2, columns // 4 :] = (250, 20, 60)
    return Image.fromarray(pixels.astype(np.uint8))


def config_digest(config: Qwen3VLConfig) -> str:
    """Digest of a model's architecture."""
    return hashlib.sha256(json.dumps(config.to_hf(), sort_keys=True).encode()).hexdigest()


def write_golden(path: Path, folder: Path) -> None:
    """Computes the logits of prompts with an image by transformers, in float32 on the CPU.

    The prompts are random tokens, and a text if the folder has a tokenizer.

    Raises:
      UserError: torch is missing.
    """
    try:
        import torch
    except ImportError as error:
        raise UserError("golden logits are computed by transformers in torch: pip install torch") from error
    from transformers import PreTrainedTokenizerFast, Qwen3VLForConditionalGeneration
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    config = Qwen3VLConfig.from_hf(folder / "config.json")
    vision, image = config.vision, golden_image(config)
    pixels = Qwen2VLImageProcessorPil(
        patch_size=vision.patch_size,
        temporal_patch_size=vision.temporal_patch_size,
        merge_size=vision.spatial_merge_size,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
        size=dict.fromkeys(("shortest_edge", "longest_edge"), image.width * image.height),
    )(images=[image], return_tensors="pt")
    image_tokens = math.prod(_IMAGE_SIDES)
    shown = [
        config.vision_start_token_id,
        *[config.image_token_id] * image_tokens,
        config.vision_end_token_id,
    ]
    text = np.random.default_rng(0).integers(0, text_tokens(config), _RANDOM_TOKENS).tolist()
    prompts = {"random": [*text[:8], *shown, *text[8:]]}
    if (folder / "tokenizer.json").exists():
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
        body = f"{_TEXT}<|vision_start|>{'<|image_pad|>' * image_tokens}<|vision_end|>"
        chat = f"<|im_start|>user\n{body}<|im_end|>\n<|im_start|>assistant\n"
        prompts["text"] = tokenizer.encode(chat, add_special_tokens=False)
    model = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    tensors: dict[str, np.ndarray] = {}
    for name, tokens in prompts.items():
        ids = torch.tensor([tokens])
        inputs = {**pixels, "input_ids": ids, "attention_mask": torch.ones_like(ids)}
        inputs["mm_token_type_ids"] = (ids == config.image_token_id).int()
        with torch.inference_mode():
            logits = model(**inputs).logits[0].float()
        top = logits.topk(min(_TOP, logits.shape[1]))
        for key, array in zip(_ARRAYS, (ids[0], top.indices, top.values, logits.std(-1)), strict=True):
            tensors[f"{name}.{key}"] = array.numpy()
    versions = " ".join(f"{name} {metadata.version(name)}" for name in ("torch", "transformers"))
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, {"config": config_digest(config), "versions": versions})


def read_golden(path: Path, config: Qwen3VLConfig) -> tuple[str, dict[str, list[np.ndarray]]]:
    """Returns the versions that wrote a file, and for each prompt its arrays.

    Raises:
      UserError: it is no file of golden logits, or that of another model.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            if about["config"] != config_digest(config):
                raise UserError(f"{path} is of another model than this config.json: write one for this model")
            names = sorted({key.rpartition(".")[0] for key in file.keys()})  # noqa: SIM118 - no mapping
            arrays = {name: [file.get_tensor(f"{name}.{key}") for key in _ARRAYS] for name in names}
            return about["versions"], arrays
    except (OSError, SafetensorError, KeyError) as error:
        raise UserError(f"{path} is no file of golden logits ({error}): write it again") from error


def check_golden(report: Report, setup: Setup, golden: tuple[str, dict[str, list[np.ndarray]]]) -> None:
    """The logits of the model without its adapters, and the tokens of the texts."""
    versions, prompts = golden
    config, image = setup.config, golden_image(setup.config)
    patches, grid = image_patches(image, config.vision, MAX_PIXELS)
    width = round_up(max(len(arrays[0]) for arrays in prompts.values()), 128)
    # The mesh must divide the rows: those that are not read are padding.
    shape = RowShape(width, row_shards(setup.mesh), 1, round_up(len(patches), config.vision.merge_unit))
    compute = nnx.jit(lambda model, inputs: model.logits(model(inputs, adapters=False)[:1])[0])
    for name, (tokens, top_ids, top_logits, std) in prompts.items():
        numbers, mask = tokens.astype(np.int32), np.zeros(0, bool)
        example = Example(name, numbers, len(tokens), mask, (patches,), (grid,))
        tree = Tree(example, (Branch(example.target),))
        batch = lay_out(lambda _, tree=tree: tree, [(Part(0, ()),)], shape, config)
        logits = np.asarray(compute(setup.model, on_mesh(batch, setup.mesh).inputs))[: len(tokens)]
        errors = np.abs(np.take_along_axis(logits, top_ids, 1) - top_logits) / std[:, None]
        where = f"golden logits of {versions}, {name}, {len(tokens)} tokens"
        report.at_most(f"{where}: largest error", float(errors.max()), setup.limits["logits"])
        differing = float((logits.argmax(1) != top_ids[:, 0]).mean())
        report.at_most(f"{where}: other most likely tokens", differing, setup.limits["tokens"])
        if name == "text":
            message = Message(role="user", content=(TextPart(text=_TEXT), ImagePart(sha256="0" * 64)))
            ours = Processor.from_pretrained(setup.folder).encode_prompt([message], lambda _: image).tokens
            report.add("tokens of the text", f"{len(ours)}", ours.tolist() == tokens.tolist())


# --- Training ---


def check_sft(report: Report, setup: Setup) -> None:
    """Two steps on the same rows: the first compiles and the second is timed."""
    values = {"weight": 1 / setup.sizes.response, "action": 1.0}
    trees = [Tree(example, (Branch(example.target, values),)) for example in setup.examples()]
    packer = Packer(setup.shape, setup.config)
    rows = packer.pack([tree.size for tree in trees])
    steps, state, frozen = setup.programs(sft_steps, len(trees))
    found: list[dict[str, float]] = []
    begin = time.monotonic()
    for _ in range(2):
        begin, total = time.monotonic(), steps.zero(state.params)
        for one in rows:
            batch = on_mesh(
                lay_out(trees.__getitem__, one, packer.shape, setup.config, names=VALUES), setup.mesh
            )
            total = steps.add(total, state.params, frozen, batch, jax.random.key(0))
        state, metrics = steps.update(state, total)
        found.append({name: float(value) for name, value in jax.device_get(metrics).items()})
    seconds = time.monotonic() - begin
    first, second = (metrics["loss/train"] for metrics in found)
    report.at_most("SFT: loss after a step over the loss before", second / first, 0.9999)
    norm = found[0]["norm/gradient"]
    report.add("SFT: norm of the gradient", f"{norm:.4g}", math.isfinite(norm) and norm > 0)
    tokens = len(trees) * (setup.sizes.prompt + setup.sizes.response)
    report.add("SFT: tokens a second", f"{tokens / seconds:.4g}", True)


def check_rl(report: Report, setup: Setup) -> None:
    """Draws responses, and updates on them twice: the first update compiles and the second is timed."""
    sizes, config, examples = setup.sizes, setup.config, setup.examples()
    sampling = Sampling(sizes.samples, sizes.response)
    engine_sizes = sizes_for(
        [(example.prompt_length, [len(part) for part in example.patches]) for example in examples],
        samples=sizes.samples,
        response_tokens=sizes.response,
        lanes=sizes.samples * len(examples),
        shards=row_shards(setup.mesh),
    )
    end = config.vision_end_token_id  # Never drawn, so that every response has all of its tokens.
    special = (config.image_token_id, config.video_token_id, config.vision_start_token_id, end)
    engine = Engine.for_policy(setup.model, engine_sizes, eos=end, banned=special)
    engine.warm_up()
    begin = time.monotonic()
    requests = [
        Request(example, sampling, prompt_id=number, adapter=engine.policy)
        for number, example in enumerate(examples)
    ]
    joined = dict(join(engine.stream(requests)))
    drawn = [joined[request] for request in requests]
    seconds = time.monotonic() - begin
    del engine  # Gradients need the memory.
    log_probs = np.concatenate([part for one in drawn for part in one.log_probs])
    every = len(log_probs) == len(examples) * sizes.samples * sizes.response
    report.add("rollout: tokens", f"{len(log_probs)}", every and bool(np.isfinite(log_probs).all()))
    report.add("rollout: tokens a second", f"{len(log_probs) / seconds:.4g}", True)

    groups = []
    for number, (example, one) in enumerate(zip(examples, drawn, strict=True)):
        patches = tuple(len(part) for part in example.patches)
        size = SampleSize(example.sample_id, example.length, example.num_targets, patches)
        prompt = Prompt(size, lambda example=example: example, target="")
        # Alternating rewards pass both gates; equal ones do not, and train the salvage anchor.
        rewards = [float(sample % 2 and number % 2 == 0) for sample in range(sizes.samples)]
        groups.append(make_group(prompt, one, rewards))
    batch = MiniBatch(
        tuple(turn for group in groups if group.accepted for turn in group.turns),
        tuple(turn for group in groups if not group.accepted for turn in group.turns),
    )
    steps, state, frozen = setup.programs(rl_steps, setup.settings.objective)
    packer = Packer(setup.shape, config)
    common: dict[str, Any] = {"salvage": True, "version": 0}
    first = update_policy(steps, state, frozen, [batch], packer, config, setup.mesh, **common)
    gaps = np.concatenate([np.abs(one.old - one.sampled) for one in first.responses])
    report.at_most("sampler against training: mean gap in nats", float(gaps.mean()), setup.limits["sampler"])
    report.at_most("RL: divergence before the first update", abs(first.metrics.get("ppo_kl", math.nan)), 0.0)
    norm = first.metrics.get("norm/gradient", math.nan)
    report.add("RL: norm of the gradient", f"{norm:.4g}", math.isfinite(norm) and norm > 0)
    last = update_policy(steps, first.state, frozen, [batch], packer, config, setup.mesh, **common).metrics
    finite = last["optimizer_steps"] == 1 and all(map(math.isfinite, last.values()))
    report.add("RL: tokens a second of an update", f"{last['tokens_per_second/update']:.4g}", finite)


def verify(folder: Path, output: Path, golden_file: Path | None = None) -> None:
    """Runs all checks, and writes `verify.md`.

    Raises:
      UserError: the folder holds no model that these devices can load, or the file is not of its logits.
      CheckFailedError: a check failed; the page is written.
    """
    golden = read_golden(golden_file, Qwen3VLConfig.from_hf(folder / "config.json")) if golden_file else None
    report, setup = Report(), Setup(folder)
    parts: dict[str, Any] = {"kernels": check_kernels}
    if golden is not None:
        parts["golden logits"] = lambda report, setup: check_golden(report, setup, golden)
    for name, part in (parts | {"SFT": check_sft, "rollout and RL": check_rl}).items():
        try:
            part(report, setup)
        except Exception as error:
            # In full on the terminal, one line on the page; the next part runs all the same.
            traceback.print_exc()
            report.add(name, " ".join(f"{type(error).__name__}: {error}".split())[:300], False)
    devices = jax.devices()
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("jax", "flax", "numpy"))
    head = f"# {folder.resolve().name} on {len(devices)} x {devices[0].device_kind}\n\n"
    output.mkdir(parents=True, exist_ok=True)
    (output / "verify.md").write_text(
        f"{head}{versions}, {setup.dtype}\n\n" + "".join(f"    {line}\n" for line in report.lines)
    )
    if report.failed:
        raise CheckFailedError(f"{'; '.join(report.failed)} failed: see {output / 'verify.md'}")


def main() -> None:
    model = flags.DEFINE_string("model", None, "Model folder, tiny_base, or a Hub name.", required=True)
    output = flags.DEFINE_string("output", "", "Folder for verify.md.")
    golden = flags.DEFINE_string("golden", "", "File of golden logits to compare with.")
    write = flags.DEFINE_string("write_golden", "", "File of golden logits to write; nothing is checked.")

    def entry(argv: list[str]) -> None:
        if len(argv) > 1:
            raise UserError(f"unexpected argument {argv[1]!r}: give --model and --output")
        if bool(write.value) == bool(output.value) or (write.value and golden.value):
            raise UserError("give --output=FOLDER, with --golden=FILE or without, or --write_golden=FILE")
        folder = resolve_model(model.value)
        if write.value:
            write_golden(local_path(write.value, "--write_golden"), folder)
            return
        golden_file = local_path(golden.value, "--golden") if golden.value else None
        verify(folder, local_path(output.value, "--output"), golden_file)

    with cli.user_errors(continues=False):
        app.run(entry, flags_parser=cli.parse_flags)


if __name__ == "__main__":
    main()
