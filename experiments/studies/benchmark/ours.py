"""Our side: the compiled programs of supervised fine-tuning, on one device."""

from __future__ import annotations

import os
from typing import Any

import flax
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments.studies.benchmark import side
from experiments.studies.benchmark.side import Job, Values
from rmsweb_jax.data.batching import Batch, Branch, Example, Tree, lay_out, on_mesh
from rmsweb_jax.data.packing import Part, RowShape
from rmsweb_jax.data.sft import VALUES
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.checkpoint import load_model
from rmsweb_jax.qwen3_vl.config import Qwen3VLConfig
from rmsweb_jax.qwen3_vl.inputs import Grid
from rmsweb_jax.qwen3_vl.lora import LoRAConfig, add_lora
from rmsweb_jax.qwen3_vl.model import Qwen3VL
from rmsweb_jax.qwen3_vl.peft import save_adapters
from rmsweb_jax.sft.loss import target_scores
from rmsweb_jax.sft.step import init_state, sft_steps, split_model
from rmsweb_jax.training.mesh import make_mesh
from rmsweb_jax.training.optimizer import adamw


class Forward:
    """Log-probabilities of the scored tokens, without adapters."""

    def __init__(self, model: Qwen3VL, batch: Batch):
        graphdef, self._params = nnx.split(model)

        @jax.jit
        def run(params: Any, batch: Batch) -> jax.Array:
            return target_scores(nnx.merge(graphdef, params), batch).log_probs

        self._run, self._batch = run, batch

    def step(self) -> None:
        self._log_probs = jax.block_until_ready(self._run(self._params, self._batch))

    def values(self) -> Values:
        # Without the places of a row that hold no scored token.
        log_probs = np.asarray(self._log_probs, np.float64)[np.asarray(self._batch.scored.branch) > 0]
        return Values(float(-log_probs.mean()), log_probs=tuple(log_probs.tolist()))


class Train:
    """One update of the adapters: gradient, clipping, AdamW."""

    def __init__(self, job: Job, model: Qwen3VL, batch: Batch, mesh: Any):
        graphdef, params, self._frozen = split_model(model, "lora")
        optimizer = adamw(job.learning_rate, weight_decay=job.weight_decay, clip_norm=job.clip_norm)
        self._state = init_state(params, optimizer, mesh)
        samples = int(np.asarray(batch.scored.branch).max(axis=1).sum())
        self._steps = sft_steps(graphdef, self._state, optimizer, samples, mesh)
        self._batch, self._key = batch, jax.random.key(job.seed)

    def step(self) -> None:
        steps, state = self._steps, self._state
        total = steps.add(steps.zero(state.params), state.params, self._frozen, self._batch, self._key)
        self._state, self._metrics = jax.block_until_ready(steps.update(state, total))

    def values(self) -> Values:
        metrics = self._metrics
        return Values(float(metrics["loss/train"]), float(metrics["norm/gradient"]))


class OurSide:
    """See `experiments.studies.benchmark.side.Side`.

    Raises:
      UserError: JAX has no such device here.
    """

    def __init__(self, job: Job):
        try:
            self._device = jax.devices()[0]
        except (RuntimeError, AssertionError) as error:  # The latter where no plugin knows the platform.
            raise UserError(
                f"config.device={job.device}: JAX has no such device here; install one"
            ) from error
        self._job, self._mesh = job, make_mesh(data=-1)
        dtype = jnp.dtype(job.dtype)
        self._model = load_model(job.model, dtype, remat=job.remat, mesh=self._mesh)
        self._batch = on_mesh(
            load_batch(job.samples, self._model.config, job.response, job.packed), self._mesh
        )

    def describe(self) -> dict[str, str]:
        return {
            "jax": jax.__version__,
            "flax": flax.__version__,
            "device": self._device.device_kind,
            "attention": self._model.attention.backend,
        }

    def start(self, program: str) -> None:
        if program == "forward":
            self._program = Forward(self._model, self._batch)
            return
        config = LoRAConfig(self._job.rank, self._job.alpha)
        add_lora(self._model, config, nnx.Rngs(self._job.seed))
        save_adapters(self._model, config, self._job.adapters, self._job.model)
        self._program = Train(self._job, self._model, self._batch, self._mesh)

    def step(self) -> None:
        self._program.step()

    def values(self) -> Values:
        return self._program.values()

    def reset_peak(self) -> None:
        # JAX cannot reset a device's peak: it includes loading and tuning, and is never too low.
        side.reset_peak()

    def peak_bytes(self) -> int:
        stats = self._device.memory_stats()
        return stats["peak_bytes_in_use"] if stats else side.peak_bytes()


def load_batch(path: str | os.PathLike[str], config: Qwen3VLConfig, response: int, packed: int) -> Batch:
    """Reads the samples in the layout of supervised fine-tuning, `packed` in a row."""
    with np.load(path) as file:
        tokens, grids, patches = file["tokens"], file["grids"], file["patches"]
    samples, length = tokens.shape
    images = np.split(patches, samples)
    examples = [
        Example(
            sample_id=str(number),
            tokens=tokens[number],
            prompt_length=length - response,
            action_mask=np.zeros(response, bool),
            patches=(images[number],),
            grids=(_grid(grids[number]),),
        )
        for number in range(samples)
    ]
    values = {"weight": 1 / response}
    trees = [Tree(example, (Branch(example.target, values),)) for example in examples]
    parts = [Part(number, (0,)) for number in range(samples)]
    rows = [tuple(parts[start : start + packed]) for start in range(0, samples, packed)]
    shape = RowShape(packed * length, len(rows), images=packed, window=len(images[0]))
    return lay_out(trees.__getitem__, rows, shape, config, names=VALUES)


def _grid(values: np.ndarray) -> Grid:
    frames, height, width = values.tolist()
    return frames, height, width
