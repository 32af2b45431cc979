"""Compiles every training program of a run for a TPU slice, without a TPU.

    python -m experiments.compile_tpu --config=configs/sft.py:8b --topology=v5p:2x2x2

Prints a table of each program's memory and operations of a device; with `--output=FILE` writes it as JSON.
The exit code is 1 if a program does not fit. There is no estimate of step time.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
from collections.abc import Callable
from typing import TypeVar

from absl import flags
from jax.sharding import Mesh
from ml_collections import ConfigDict, config_flags

from experiments.cli import run_config
from rmsweb_jax.aot.abstract import HBM_GIB, slice_mesh
from rmsweb_jax.aot.programs import Program, full_rows, rl_programs, sampler_programs, sft_programs
from rmsweb_jax.aot.report import Compiled, compile_program, table
from rmsweb_jax.data.packing import TreeSize
from rmsweb_jax.errors import UserError
from rmsweb_jax.qwen.config import SIZES, Qwen3VLConfig
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.rl.config import RlConfig
from rmsweb_jax.settings import from_config
from rmsweb_jax.sft.config import SftConfig
from rmsweb_jax.storage import local_path
from rmsweb_jax.training.mesh import choose_remat

Settings = TypeVar("Settings", SftConfig, RlConfig)


class DoesNotFitError(UserError):
    exit_code = 1


def architecture(config: ConfigDict) -> Qwen3VLConfig:
    """Reads the run's model folder, or takes the released size that the config's variant names."""
    folder = local_path(str(config.model), "config.model") / "config.json"
    if folder.exists():
        return Qwen3VLConfig.from_hf(folder)
    variant = str(config_flags.get_config_filename(flags.FLAGS["config"])).partition(":")[2].partition(",")[0]
    if variant not in SIZES:
        raise UserError(
            f"no model at {config.model}, and {variant!r} is no size: use one of {', '.join(SIZES)}"
        )
    return SIZES[variant]


Compile = Callable[[Program], Compiled]


def programs(
    config: ConfigDict, mesh: Mesh, compile_: Compile, response: int, images: int, hbm_gib: float
) -> list[Program]:
    """Makes the programs of the config's training stage."""
    # No corpus or model is read.
    model = architecture(config)
    if "prompts" in config:
        settings = from_config(RlConfig, {**config.to_dict(), "prompts": "none", "model": "none"})
        group = TreeSize(settings.max_prompt_tokens, (response,) * (settings.num_samples + 1))
        shape, work = full_rows(settings, model, mesh, group, images)
        settings = with_remat(settings, lambda one: rl_programs(one, model, mesh, shape, work)[0], compile_)
        update = rl_programs(settings, model, mesh, shape, work)
        return [*update, *sampler_programs(settings, model, mesh, images, hbm_gib)]
    settings = from_config(SftConfig, {**config.to_dict(), "corpus": "none"})
    sample = TreeSize(settings.max_length - response, (response,))
    shape, work = full_rows(settings, model, mesh, sample, images)
    settings = with_remat(settings, lambda one: sft_programs(one, model, mesh, shape, work)[0], compile_)
    return sft_programs(settings, model, mesh, shape, work)


def with_remat(settings: Settings, gradient: Callable[[Settings], Program], compile_: Compile) -> Settings:
    """Replaces `remat` "auto" by the policy with which training would compile its gradient."""
    if settings.remat != "auto":
        return settings

    def change(policy: str) -> Settings:
        return settings.model_copy(update={"remat": policy})

    return change(choose_remat(lambda policy: compile_(gradient(change(policy))).fits))


def main() -> None:
    topology = flags.DEFINE_string("topology", "v5p:2x2x2", "Slice, for example v5e:4x4 or v6e:4x4.")
    response = flags.DEFINE_integer("response", 2048, "Tokens of a target (SFT), or of each response (RL).")
    images = flags.DEFINE_integer("images", 1, "Screenshots of a prompt.")
    output = flags.DEFINE_string("output", "", "JSON file for the results.")

    def entry(config: ConfigDict) -> None:
        if "mesh" not in config:
            raise UserError("--config: give a variant of configs/sft.py or configs/rl.py")
        sizes = config.to_dict()["mesh"]
        if not sizes["tensor"]:
            logging.warning("config.mesh.tensor=0 is taken as 1; training chooses it by its data")
        mesh = slice_mesh(topology.value, **sizes)
        hbm_gib = HBM_GIB[topology.value.partition(":")[0]]
        done: dict[str, Compiled] = {}

        def compile_(program: Program) -> Compiled:
            if program.name not in done:  # A gradient is also compiled to choose `remat`.
                done[program.name] = compile_program(program, hbm_gib, mesh.size)
            return done[program.name]

        wanted = programs(config, mesh, compile_, response.value, images.value, hbm_gib)
        results = [compile_(program) for program in wanted]
        print(f"{' '.join(sys.argv[1:])}: {mesh.size} devices\n\n{table(results, hbm_gib)}")
        if output.value:
            rows = [dataclasses.asdict(result) for result in results]
            write_atomic(local_path(output.value, "--output"), json.dumps(rows, indent=1).encode())
        too_large = [result for result in results if not result.fits]
        if too_large:
            raise DoesNotFitError(
                f"{too_large[0].name} does not fit {topology.value}: take a larger slice, a smaller "
                "config.row_tokens, config.remat=full, or split over config.mesh.tensor "
                f"({too_large[0].error})"
            )

    run_config(entry, "configs/sft.py:8b")


if __name__ == "__main__":
    main()
