r"""Writes a trained model as a folder that is ready for a hub: `release` in the workdir.

    python -m experiments.export --config=configs/export.py:merged --config.run=runs/demo/rl \
        --config.results=rl=runs/demo/evaluate/rl --workdir=runs/demo/release

It holds the weights (merged, or PEFT adapters), tokenizer, chat template and image processor, generation
defaults, a model card that is filled from the run, and `SHA256SUMS`. It appears whole or not at all; one
that is there already is left alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from collection.report.card import render_card
from collection.report.evaluations import read_evaluations
from experiments import cli
from experiments.release_card import make_card
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.release.files import new_folder, write_generation, write_processor, write_sums
from rmsweb_jax.release.run import read_run
from rmsweb_jax.release.weights import write_adapters, write_merged

# Nothing is left half done that another setting could spoil.
SAFE_KEYS = (
    "run",
    "format",
    "name",
    "base_model",
    "license",
    "results",
    "temperature",
    "max_file_gb",
    "seed",
)
FORMATS = ("merged", "adapter")
FOLDER = "release"


def main(config: ConfigDict, workdir: Path) -> None:
    """Writes the folder.

    Raises:
      UserError: a setting is wrong, the training has not finished, something that the folder needs is gone,
        or `release` is there already.
    """
    settings = config.to_dict()
    check_settings(settings)
    run = read_run(Path(settings["run"]))
    named = settings["results"]
    evaluations = read_evaluations(named, seed=settings["seed"]) if named else []
    folder = workdir / FOLDER
    with new_folder(folder) as new:
        if settings["format"] == "merged":
            write_merged(run, new, round(settings["max_file_gb"] * 1e9))
        else:
            write_adapters(run, new, settings["base_model"] or str(run.config["model"]))
        write_processor(run.export, new, run.config["max_pixels"])
        write_generation(run.export, new, settings["temperature"])
        card = make_card(run, settings, evaluations, sorted(path.name for path in new.iterdir()))
        write_atomic(new / "README.md", render_card(card).encode())
        write_sums(new)
    print(f"{folder}: {settings['format']} weights of {run.folder}; the card is README.md")


def check_settings(settings: dict[str, Any]) -> None:
    """Raises UserError for what no export could use."""
    if not settings["run"]:
        raise UserError("config.run is empty: give --config.run=DIR, a workdir of train_sft or train_rl")
    if settings["format"] not in FORMATS:
        raise UserError(f"config.format is {settings['format']!r}: use one of {', '.join(FORMATS)}")
    for name in ("temperature", "max_file_gb"):
        if not settings[name] > 0:
            raise UserError(f"config.{name} is {settings[name]}: make it more than 0")


if __name__ == "__main__":
    cli.run(main, "configs/export.py:merged", SAFE_KEYS)
