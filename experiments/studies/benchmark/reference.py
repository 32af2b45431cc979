"""The reference: transformers' Qwen3-VL with PEFT adapters in torch, in its usual training setup.

It has scaled-dot-product attention (FlashAttention's kernel on a GPU, since no sample is padded), the kernels
of liger-kernel where that is installed next to a GPU, `logits_to_keep` at the scored positions, gradient
checkpointing where ours rematerialises, and fused AdamW. In bfloat16 it runs autocast around a bfloat16 base
with float32 adapters (transformers' Trainer with `bf16=True`). Nothing is compiled. Rotary positions are
precomputed, as in our batches.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
from typing import Any

import numpy as np
import peft
import torch
import transformers
from peft import PeftModel
from torch.nn import functional
from transformers import Qwen3VLForConditionalGeneration

from experiments.studies.benchmark import side
from experiments.studies.benchmark.side import Job, Values
from rmsweb_jax.errors import UserError


class ReferenceSide:
    """See `experiments.studies.benchmark.side.Side`.

    Raises:
      UserError: torch has no such device here.
    """

    def __init__(self, job: Job):
        if job.device == "cuda" and not torch.cuda.is_available():
            raise UserError("config.device=cuda: torch has no such device here; install a CUDA build of it")
        torch.set_num_threads(job.threads)
        if job.device == "cuda":
            # XLA's default for float32 products on a GPU.
            torch.set_float32_matmul_precision("high")
        self._job, self._device, self._dtype = job, torch.device(job.device), getattr(torch, job.dtype)
        self._kernels = "torch"
        if job.device == "cuda" and importlib.util.find_spec("liger_kernel"):
            kernels = importlib.import_module("liger_kernel.transformers")
            # Not its loss: both sides have logits of the scored positions alone.
            kernels.apply_liger_kernel_to_qwen3_vl(fused_linear_cross_entropy=False)
            self._kernels = f"liger-kernel {importlib.metadata.version('liger-kernel')}"
        model: Any = Qwen3VLForConditionalGeneration.from_pretrained(
            job.model, dtype=self._dtype, attn_implementation="sdpa"
        )
        self._model = model.to(self._device).eval()
        self._load_samples()
        self._program = ""

    def _load_samples(self) -> None:
        samples = np.load(self._job.samples)
        tokens = torch.from_numpy(samples["tokens"].astype(np.int64))
        length, scored = tokens.shape[1], self._job.response
        is_image = tokens == int(samples["image_token"])
        inputs = {
            "input_ids": tokens,
            "mm_token_type_ids": is_image.int(),
            "position_ids": torch.from_numpy(samples["positions"].astype(np.int64)),
            "pixel_values": torch.from_numpy(samples["patches"]),
            "image_grid_thw": torch.from_numpy(samples["grids"].astype(np.int64)),
            # Each position predicts the next token.
            "logits_to_keep": torch.arange(length - scored - 1, length - 1),
        }
        self._inputs = {name: value.to(self._device) for name, value in inputs.items()}
        self._targets = tokens[:, length - scored :].to(self._device)

    def describe(self) -> dict[str, str]:
        device = "cpu" if self._device.type == "cpu" else torch.cuda.get_device_name()
        return {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "peft": peft.__version__,
            "device": device,
            "attention": "sdpa",
            "kernels": self._kernels,
        }

    def start(self, program: str) -> None:
        self._program = program
        if program == "forward":
            return
        job = self._job
        self._model = PeftModel.from_pretrained(self._model, job.adapters, is_trainable=True).train()
        if job.remat == "full":
            self._model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self._trained = [value for value in self._model.parameters() if value.requires_grad]
        self._optimizer = torch.optim.AdamW(
            self._trained, lr=job.learning_rate, weight_decay=job.weight_decay, fused=True
        )

    def step(self) -> None:
        if self._program == "forward":
            with torch.inference_mode():
                self._log_probs = -self._negative_log_likelihoods()
        else:
            self._train_step()
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def _negative_log_likelihoods(self) -> torch.Tensor:
        """[B * R] float32 of the scored tokens, sample by sample."""
        logits = self._model(**self._inputs, use_cache=False).logits
        return functional.cross_entropy(
            logits.float().flatten(0, 1), self._targets.flatten(), reduction="none"
        )

    def _train_step(self) -> None:
        with self._autocast():
            # All samples have as many targets, so this equals the mean of their means.
            loss = self._negative_log_likelihoods().mean()
        loss.backward()
        self._gradient_norm = torch.nn.utils.clip_grad_norm_(self._trained, self._job.clip_norm)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._loss = loss.detach()

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self._dtype == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, self._dtype)

    def values(self) -> Values:
        if self._program == "train":
            return Values(self._loss.item(), self._gradient_norm.item())
        log_probs = self._log_probs.double().cpu()
        return Values(float(-log_probs.mean()), log_probs=tuple(log_probs.tolist()))

    def reset_peak(self) -> None:
        side.reset_peak()
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def peak_bytes(self) -> int:
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated()
        return side.peak_bytes()
