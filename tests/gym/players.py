"""Players of `tests.proofs.harnesses`, in environments that have openenv, or trl and torch.

python -m tests.gym.players openenv OUT SERVER MODEL
python -m tests.gym.players trl OUT MODEL
python -m tests.gym.players train OUT FOLDER STEPS sabotaged|undisturbed|untrained APPS TASK...
python -m tests.gym.players serve sabotaged|undisturbed PORT
"""

from __future__ import annotations

import base64
import functools
import io
import json
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, ClassVar

from collection.browser.config import BrowserConfig
from collection.gym import trl_task
from collection.gym.errors import LOST
from collection.gym.trl_task import WebReplies, WebTools, carry_out, rows
from configs.collect import PAGES
from tests.gym import sabotage

BROWSER = BrowserConfig(width=500, height=320, quiet_ms=50, settle_ms=1000)
TASKS = [(f"miniwob/{page}", seed) for page in PAGES for seed in range(1_000_000, 1_000_004)]
STEPS = 10


def ask(model: str, messages: list[dict[str, Any]]) -> str:
    """The reply of a policy at temperature 0."""
    body = json.dumps({"messages": messages, "temperature": 0, "max_tokens": 128}).encode()
    request = urllib.request.Request(f"{model}/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


def openenv(server: str, model: str) -> dict[str, float | None]:
    """Plays by OpenEnv's client, in a chat that grows."""
    from openenv.core import GenericEnvClient  # pyright: ignore[reportMissingImports]

    rewards: dict[str, float | None] = {}
    with GenericEnvClient(base_url=server, message_timeout_s=600.0).sync() as client:
        for task, seed in TASKS:
            result = client.reset(seed=seed, task=task)
            chat = result.observation["messages"]
            while not result.done:
                reply = ask(model, chat)
                result = client.step({"call": reply})
                chat += [{"role": "assistant", "content": reply}, *result.observation["messages"][-1:]]
            rewards[f"{task}/{seed}"] = result.reward
    return rewards


def openenv_lost(server: str) -> dict[str, int]:
    """Plays twelve episodes in one session of a sabotaged server; counts the errors."""
    from openenv.core import GenericEnvClient  # pyright: ignore[reportMissingImports]

    counts = {"episodes": 12, "lost": 0, "lost by state": 0, "played": 0}
    with GenericEnvClient(base_url=server, message_timeout_s=600.0).sync() as client:
        for seed in range(counts["episodes"]):
            client.reset(seed=seed)
            try:
                client.step({"call": "noop(0)"})
                counts["played"] += 1
            except RuntimeError as error:
                counts["lost"] += LOST in str(error)
            state = client.state()
            counts["lost by state"] += (state if isinstance(state, dict) else vars(state))["lost"]
    return counts


def trl_class(model: str) -> dict[str, float | None]:
    """Plays by TRL's class, as TRL does: what it returns is added to the chat."""
    environment = WebTools(prompt="compact", max_steps=STEPS, browser=BROWSER)
    (row,) = rows(TASKS[0][0], [0])
    rewards: dict[str, float | None] = {}
    for task, seed in TASKS:
        shown = environment.reset(seed=seed, task=task)
        chat = [*row["prompt"][:1], {"role": "user", "content": _wire(shown)}]
        while not environment._over:
            reply = ask(model, chat)
            shown = environment.act(reply)
            chat += [{"role": "assistant", "content": reply}, {"role": "user", "content": _wire(shown)}]
        rewards[f"{task}/{seed}"] = environment.get_reward()
    environment._turns.close()
    return rewards


def _wire(shown: Any) -> Any:
    if isinstance(shown, str):
        return shown
    parts = []
    for part in shown:
        if part["type"] == "image":
            file = io.BytesIO()
            part["image"].save(file, "PNG")
            url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
            parts.append({"type": "image_url", "image_url": {"url": url}})
        else:
            parts.append(part)
    return parts


# The chat template of the tiny model has no tools, which TRL asks of every template.
_TOOLS = (
    "{% if message.tool_calls %}{% for call in message.tool_calls %}{{ call.function | tojson }}"
    "{% endfor %}{% endif %}"
)


class Noted(WebReplies):
    """`WebReplies` whose rewards and seconds are kept."""

    made: ClassVar[list[dict[str, Any]]] = []

    def get_reward(self) -> float | None:
        reward = super().get_reward()
        task = self._turns.task
        Noted.made.append({"task": task.task_id if task is not None else "", "reward": reward})
        return reward


def train(folder: str, steps: int, apps: str, tasks: list[str], rate: float) -> dict[str, Any]:
    """TRL's GRPO trainer with a policy of ours, at tasks of one reply."""
    import torch
    from datasets import Dataset  # pyright: ignore[reportMissingImports]
    from transformers import AutoModelForImageTextToText, AutoTokenizer, Qwen3VLProcessor
    from transformers.models.qwen2_vl import Qwen2VLImageProcessor
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
    from trl import GRPOConfig, GRPOTrainer  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(2)
    tokens = AutoTokenizer.from_pretrained(folder, padding_side="left")
    template = tokens.chat_template.replace("{{ '<|im_end|>\\n' }}", _TOOLS + "{{ '<|im_end|>\\n' }}")
    size = {"shortest_edge": 1024, "longest_edge": 16_384}
    images = Qwen2VLImageProcessor(size=size, patch_size=16, image_mean=[0.5] * 3, image_std=[0.5] * 3)
    processor = Qwen3VLProcessor(images, tokens, Qwen3VLVideoProcessor(), chat_template=template)
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
    data = [row for seed in range(-(-steps // len(tasks))) for task in tasks for row in rows(task, [seed])]
    start = time.monotonic()
    trainer = GRPOTrainer(
        model=model,
        processing_class=processor,
        reward_funcs=carry_out,
        environment_factory=functools.partial(Noted, tasks[0], browser=BROWSER, apps=apps),
        train_dataset=Dataset.from_list(data),
        args=GRPOConfig(
            output_dir=f"{folder}-trl",
            num_generations=8,
            per_device_train_batch_size=8,
            max_steps=steps,
            max_completion_length=128,
            learning_rate=rate,
            lr_scheduler_type="constant",
            shuffle_dataset=False,
            report_to=[],
            use_cpu=True,
            bf16=False,
            logging_steps=1,
            save_strategy="no",
            seed=1,
        ),
    )
    trainer.train()
    seconds = time.monotonic() - start
    curve = [row["reward"] for row in trainer.state.log_history if "reward" in row]
    faults = sabotage.SabotagedTurns.faults
    return {"curve": curve, "episodes": Noted.made, "faults": faults, "seconds": seconds}


def main(command: str, *arguments: str) -> None:
    if command == "serve":
        from collection.gym import openenv_server

        kind, port = arguments
        if kind == "sabotaged":
            openenv_server.Turns = sabotage.SabotagedTurns
        import uvicorn

        config = openenv_server.ServerConfig("miniwob/click-button", STEPS, prompt="compact", browser=BROWSER)
        app = openenv_server.make_app(config)
        uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")
        return
    out, *rest = arguments
    start = time.monotonic()
    if command == "train":
        folder, steps, kind, apps, *tasks = rest
        if kind == "sabotaged":
            trl_task.Turns = sabotage.SabotagedTurns
        found: dict[str, Any] = train(folder, int(steps), apps, tasks, 0.0 if kind == "untrained" else 1e-4)
    else:
        players = {"openenv": openenv, "lost": openenv_lost, "trl": trl_class}
        found = {"rewards": players[command](*rest)}
        found["seconds"] = time.monotonic() - start
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
