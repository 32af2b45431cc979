"""TRL's GRPO trainer at an OpenEnv server by its `environment_factory`, with a policy of random weights.

    python -m tests.gym.trl_run URL FOLDER EPISODES

It runs in an environment that has trl, torch and openenv. Prints what the environments have seen, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from datasets import Dataset  # pyright: ignore[reportMissingImports]
from openenv.core import GenericEnvClient  # pyright: ignore[reportMissingImports]
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer  # pyright: ignore[reportMissingImports]

from tests.gym.openenv_calls import TASK

SEEN: list[dict[str, Any]] = []


class WebTask:
    """One session at the server; its public methods are the model's tools."""

    url = ""

    def __init__(self) -> None:
        self._client = GenericEnvClient(base_url=self.url, message_timeout_s=600.0).sync()
        self._client.__enter__()
        self._reward = 0.0

    def reset(self, seed: int, **_: Any) -> str:
        """Begins an episode; returns what is added to the prompt."""
        result = self._client.reset(seed=seed, task=TASK)
        self._reward = 0.0
        SEEN.append({"seed": seed, "goal": result.observation["goal"], "calls": 0})
        return f"{result.observation['goal']}\n{result.observation['page']}"

    def act(self, call: str) -> str:
        """Carries out an action on the page.

        Args:
            call: A call such as click('3').

        Returns:
            The page afterwards.
        """
        result = self._client.step({"call": call})
        self._reward += result.reward or 0.0
        SEEN[-1]["calls"] += 1
        return result.observation["page"]

    def get_reward(self) -> float:
        """Ends the episode; returns its reward."""
        result = self._client.step({"call": "send_msg_to_user('done')"})
        return self._reward + (result.reward or 0.0)


def tokenizer() -> Any:
    """Bytes, and the special tokens of Qwen's chat format."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    vocab = {token: number for number, token in enumerate([*special, *letters])}
    made = Tokenizer(models.BPE(vocab, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(special)
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>")


def main(url: str, folder: str, episodes: int) -> None:
    import trl  # pyright: ignore[reportMissingImports]

    WebTask.url = url
    tokens = tokenizer()
    tokens.chat_template = (Path(trl.__file__).parent / "chat_templates/qwen3.jinja").read_text()
    config = Qwen3Config(
        vocab_size=len(tokens),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        eos_token_id=tokens.eos_token_id,
        pad_token_id=tokens.pad_token_id,
    )
    rows = [
        {"prompt": [{"role": "user", "content": "Do the task."}], "seed": seed}
        for seed in range(episodes // 2)
    ]
    trainer = GRPOTrainer(
        model=Qwen3ForCausalLM(config),
        processing_class=tokens,
        train_dataset=Dataset.from_list(rows),
        environment_factory=WebTask,
        args=GRPOConfig(
            output_dir=folder,
            num_generations=2,
            per_device_train_batch_size=2,
            max_steps=episodes // 2,
            max_completion_length=16,
            report_to=[],
            use_cpu=True,
            bf16=False,
            logging_steps=1,
            save_strategy="no",
        ),
    )
    trainer.train()
    rewards = [row["reward"] for row in trainer.state.log_history if "reward" in row]
    print(json.dumps({"episodes": SEEN, "rewards": rewards}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
