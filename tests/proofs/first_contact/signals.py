"""Ctrl-C in SFT, RL and the server: at ten moments up to the first step, and in running trainings."""

from __future__ import annotations

import dataclasses
import json
import random
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.interrupts import End, Ready, Script, compiles, exported, has_rows
from tests.policies import write_corpus
from tests.proofs.rl_resume import write_prompts
from tests.training.runs import command

_SHARED = {"model": "tiny_base", "max_pixels": 4096, "row_multiple": 64, "checkpoint_every": 100}
_SFT = _SHARED | {"max_length": 256, "batch_size": 4, "row_tokens": 256, "trainable": "lora", "lora.rank": 4}
_RL = _SHARED | {
    "max_prompt_tokens": 512,
    "max_response_tokens": 24,
    "held_out": 0.15,
    "iterations": 5,
    "lora.rank": 4,
    "row_tokens": 1024,
    "eval_every": 100,
}
# After its first line of code, also while it imports packages that are written in C and C++.
_BEGINNING: Sequence[tuple[str, Ready, float]] = (
    ("0.2 s after its first line", Script.handles_signals, 0.2),
    ("NumPy is loaded", lambda script: script.has_loaded("numpy"), 0.0),
    ("jaxlib is loaded", lambda script: script.has_loaded("jaxlib"), 0.0),
    ("one second later", lambda script: script.has_loaded("jaxlib"), 1.0),
)
# Programs of a script in the order of their compilation, with seconds for which the compiler is at work.
_PROGRAMS: Mapping[str, Sequence[tuple[int, str, float]]] = {
    "SFT": (
        (1, "jit(", 0),
        (20, "jit(", 0),
        *((1, "jit(run)", wait) for wait in (0, 1, 2)),
        (1, "jit(update)", 0),
    ),
    "RL": (
        *((1, "jit(", 0), (20, "jit(", 0), (1, "jit(prefill)", 0), (1, "jit(decode)", 0.5)),
        *((1, "jit(run)", wait) for wait in (0, 2)),
    ),
    "server": (
        *((1, "jit(", 0), (10, "jit(", 0), (1, "jit(encode_images)", 0.2), (1, "jit(prefill)", 0.5)),
        *((1, "jit(decode)", wait) for wait in (0, 0.5)),
    ),
}

_SAME = "equals that of an undisturbed run bit for bit."


@dataclasses.dataclass(frozen=True)
class Found:
    """What an interrupt at a moment did."""

    stage: str
    moment: str
    end: End

    @property
    def holds(self) -> bool:
        return (
            self.end.code == 130 and self.end.error.startswith("error: interrupted; ") and not self.end.left
        )

    def row(self) -> str:
        end = self.end
        left = ", ".join(end.left) or "nothing"
        return f"| {self.stage} | {self.moment} | {end.code} | {end.seconds:.1f} | `{end.error}` | {left} |"


def main() -> str:
    """Interrupts all; prints and returns the page."""
    with tempfile.TemporaryDirectory(prefix="rmsweb-jax-signals-") as folder, ThreadPoolExecutor(3) as pool:
        commands = _commands(Path(folder))
        begun = list(pool.map(lambda stage: _begun(Path(folder), stage, commands[stage]), _PROGRAMS))
        ran = list(pool.map(lambda stage: _ran(Path(folder), stage, commands[stage]), ("SFT", "RL")))
    rows = [one for part in begun for one in part] + [one for one, _ in ran]
    good = sum(one.holds for one in rows)
    page = [
        "# Ctrl-C",
        "",
        f"SIGINT to the process group, {len(rows)} times: {good} ended with exit code 130 and one line, and "
        "left no process, temporary or half-written file. Those that compile do so anew.",
        "",
        "| script | moment | exit code | seconds | line | left |",
        "|---|---|---|---|---|---|",
        *(one.row() for one in rows),
        "",
        *(text for _, text in ran),
    ]
    print("\n".join(page))
    assert good == len(rows), f"{len(rows) - good} of {len(rows)} ended in another way"
    assert all(text.endswith(_SAME) for _, text in ran), "a continued training ended in another way"
    return "\n".join(page) + "\n"


def _commands(folder: Path) -> dict[str, list[str]]:
    rng = random.Random(0)
    write_corpus(folder / "corpus", [rng.randint(1, 12) for _ in range(40)])
    write_prompts(folder / "prompts")
    data: dict[str, dict[str, Any]] = {
        "SFT": {"corpus": folder / "corpus"},
        "RL": {"prompts": folder / "prompts"},
    }
    return {
        "SFT": command("experiments.train_sft", "configs/sft.py:smoke", _SFT | data["SFT"]),
        "RL": command("experiments.train_rl", "configs/rl.py:smoke", _RL | data["RL"]),
        "server": command("experiments.serve", "configs/serve.py:demo", {"model": "tiny_base"}),
    }


def _begun(folder: Path, stage: str, script: Sequence[str]) -> list[Found]:
    """Interrupts a script before there is anything to save."""
    moments = [
        *_BEGINNING,
        *(
            (
                f"program {count}" if name == "jit(" else f"{name}" + f" + {wait} s" * (wait > 0),
                compiles(count, name),
                wait,
            )
            for count, name, wait in _PROGRAMS[stage]
        ),
    ]
    return [
        Found(stage, moment, Script(script, folder / f"{stage}-{number}").interrupt(ready, wait))
        for number, (moment, ready, wait) in enumerate(moments)
    ]


def _ran(folder: Path, stage: str, script: Sequence[str]) -> tuple[Found, str]:
    """Interrupts a training after its second step, continues it, and compares it with an undisturbed one."""
    whole, stopped, cache = folder / f"{stage}-whole", folder / f"{stage}-stopped", folder / f"{stage}-cache"
    ends = [Script(script, whole, cache).end()]
    end = Script(script, stopped, cache).interrupt(has_rows(2))
    steps = [path.name for path in (stopped / "checkpoints").glob("*")]
    ends.append(Script(script, stopped, cache).end())
    rows = [json.loads(line)["step"] for line in (stopped / "metrics.jsonl").read_text().splitlines()]
    same = (
        not any(one.code for one in ends)
        and f"the checkpoint of step {' '.join(steps)} is saved" in end.error
        and rows == list(range(1, len(rows) + 1))
        and exported(whole) == exported(stopped)
    )
    text = (
        f"- {stage}: checkpoint after the signal: {' '.join(steps)}; steps that are logged in the end: 1 to "
        f"{rows[-1]}, each once; the export {_SAME if same else 'DIFFERS from that of an undisturbed run'}"
    )
    return Found(stage, "running, after step 2", end), text


if __name__ == "__main__":
    main()
