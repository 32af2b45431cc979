"""vLLM on a random checkpoint, in a process of its own environment."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import psutil
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rmsweb_jax.data.batching import Example
from rmsweb_jax.qwen.config import Qwen3VLConfig
from tests.decoding.sides import SPECIAL, screenshot
from tests.serve.servers import VLLM_ENVIRONMENT

_WORKER = Path(__file__).with_name("vllm_worker.py")
_NAMES = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")


def write_processor(config: Qwen3VLConfig, folder: Path) -> None:
    """Writes a tokenizer of one word a token, and the settings of pictures, which vLLM needs."""
    special = {getattr(config, name): token for name, token in zip(SPECIAL, _NAMES, strict=True)}
    words = {special.get(number, f"w{number}"): number for number in range(config.text.vocab_size)}
    backend = Tokenizer(models.WordLevel(words, unk_token="w0"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens([AddedToken(name, special=True) for name in _NAMES])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="w1", pad_token="w0")
    tokenizer.save_pretrained(folder)
    vision = config.vision
    sizes = {
        "patch_size": vision.patch_size,
        "temporal_patch_size": vision.temporal_patch_size,
        "merge_size": vision.spatial_merge_size,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "size": {"shortest_edge": 32**2, "longest_edge": 2**24},
        "processor_class": "Qwen3VLProcessor",
    }
    images = sizes | {"image_processor_type": "Qwen2VLImageProcessorFast"}
    videos = sizes | {"video_processor_type": "Qwen3VLVideoProcessor"}
    (folder / "preprocessor_config.json").write_text(json.dumps(images))
    (folder / "video_preprocessor_config.json").write_text(json.dumps(videos))


class VllmSide:
    """vLLM with all cores. A context manager.

    Args:
      folder: of the weights.
      eager: leave out its compilation.
    """

    def __init__(self, config: Qwen3VLConfig, folder: Path, samples: int, eager: bool):
        write_processor(config, folder)
        self._config = config
        environment = os.environ | {
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "4",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            # In one process: a scheduler that waits busily would take a core from the computation.
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        }
        self._log = (folder / f"vllm-{eager}.log").open("wb")
        self._process = subprocess.Popen(
            [
                VLLM_ENVIRONMENT / "bin/python",
                _WORKER,
                folder,
                str(samples),
                "eager" if eager else "compiled",
            ],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def __enter__(self) -> Self:
        assert self._read() == "ready"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def cpu_seconds(self) -> float:
        """CPU seconds that vLLM has used."""
        used = psutil.Process(self._process.pid).cpu_times()
        return used.user + used.system

    def run(self, prompts: Sequence[Example], new: int) -> float:
        """Draws `new` tokens for each response; returns seconds."""
        asked = {"new": new, "prompts": [self._prompt(prompt) for prompt in prompts]}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._read())
        assert answer["counts"] == [new], answer
        assert answer["lengths"] == [prompt.prompt_length for prompt in prompts], answer
        return answer["seconds"]

    def _prompt(self, prompt: Example) -> tuple[list[int], str]:
        tokens, png = prompt.prompt.tolist(), ""
        inside = self._config.image_token_id
        if inside in tokens:
            first, count = tokens.index(inside), tokens.count(inside)
            tokens = [*tokens[: first + 1], *tokens[first + count :]]
            file = io.BytesIO()
            number = int(prompt.sample_id.removeprefix("prompt-"))
            screenshot(self._config, number, int(count**0.5)).save(file, "PNG")
            png = base64.b64encode(file.getvalue()).decode()
        return tokens, png

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise SystemExit(f"error: vLLM ended:\n{Path(self._log.name).read_text()[-3000:]}")
        return line
