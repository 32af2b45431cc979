"""Checks a model on this machine's devices, TPU, GPU or CPU, in about ten minutes, and writes a page.

    python -m experiments.verify --model=/models/Qwen3-VL-8B-Instruct --output=runs/verify

Kernels against references; all devices against few; twenty SFT steps, a rollout and an RL update, timed.
`--golden=FILE` also compares logits with those that transformers computed from the same weights, which

    python -m experiments.verify --model=/models/Qwen3-VL-8B-Instruct --write_golden=FILE

writes on a machine with torch and memory for the weights in float32. The exit code is 1 if a check fails.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import jax
from absl import app, flags

from experiments import cli
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen3_vl.checkpoint import resolve_model
from rmsweb_jax.storage import local_path
from rmsweb_jax.verify.checks import Check, environment, run_checks, write_report
from rmsweb_jax.verify.golden import compare_golden, read_golden, write_golden
from rmsweb_jax.verify.kernels import decode_kernel, training_kernels
from rmsweb_jax.verify.training import Setup, rl, sft, sharded


class CheckFailedError(UserError):
    exit_code = 1


def verify(folder: Path, output: Path, golden_file: Path | None = None) -> None:
    """Runs all checks, and writes `verify.json` and `verify.md`.

    Raises:
      UserError: the folder holds no model that these devices can load, or the file is not of its logits.
      CheckFailedError: a check failed; the report is written.
    """
    begin = time.monotonic()
    setup = Setup(folder)
    text, dtype = setup.config.text, setup.dtype
    golden = read_golden(golden_file, setup.config) if golden_file else None
    # A model that cannot be loaded is bad input, not a failed check.
    setup.policy(setup.sft)
    on_tpu = jax.default_backend() == "tpu"
    parts: dict[str, Callable[[], Iterable[Check]]] = {
        "kernels of training": lambda: training_kernels(text, dtype, setup.sizes.kernel_lengths),
        "kernel of decoding": lambda: decode_kernel(text, dtype, compiled=on_tpu),
        "all devices": lambda: sharded(setup),
    }
    if golden is not None:
        parts["golden logits"] = lambda: compare_golden(golden, setup.policy(setup.sft), folder, setup.mesh)
    parts |= {"SFT": lambda: sft(setup), "rollout and RL": lambda: rl(setup)}
    checks = run_checks(parts, functools.partial(print, flush=True))
    about = environment(folder.resolve().name)
    print(f"\n{write_report(output, about, checks, time.monotonic() - begin)}")
    failed = [check.name for check in checks if check.ok is False]
    if failed:
        more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        raise CheckFailedError(f"{failed[0]}{more} failed: see {output / 'verify.md'}")


def main() -> None:
    model = flags.DEFINE_string("model", None, "Model folder, tiny_base, or a Hub name.", required=True)
    output = flags.DEFINE_string("output", "", "Folder for verify.json and verify.md.")
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

    with cli.user_errors():
        app.run(entry, flags_parser=cli.parse_flags)


if __name__ == "__main__":
    main()
