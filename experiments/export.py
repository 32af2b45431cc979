r"""Writes a trained model as a folder that is ready for a hub: `release` in the workdir.

    python -m experiments.export --config=configs/export.py:merged --config.run=runs/demo/rl \
        --config.results=rl=runs/demo/evaluate/rl --workdir=runs/demo/release

It holds the weights (merged, or PEFT adapters), tokenizer, chat template and image processor, generation
defaults, a model card that is filled from the run, and `SHA256SUMS`. It appears whole or not at all; one
that is there already is left alone.
"""

from __future__ import annotations

from pathlib import Path

from experiments import cli
from rmsweb_jax.export.config import ExportSettings
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.storage import parse_path

FOLDER = "release"


def main(settings: ExportSettings, workdir: Path) -> None:
    """Writes the folder.

    Raises:
      UserError: a setting is wrong, the training has not finished, something that the folder needs is gone,
        or `release` is there already.
    """
    # They import jax.
    from collection.report.card import render_card
    from collection.report.evaluations import read_evaluations
    from experiments.release_card import make_card
    from rmsweb_jax.export.folder import (
        new_folder,
        write_adapters,
        write_generation,
        write_merged,
        write_processor,
        write_sums,
    )
    from rmsweb_jax.export.lineage import read_run

    run = read_run(parse_path(settings.run, "config.run"))
    evaluations = read_evaluations(settings.results) if settings.results else []
    folder = workdir / FOLDER
    with new_folder(folder) as new:
        if settings.format == "merged":
            write_merged(run, new)
        else:
            write_adapters(run, new, settings.base_model or str(run.config["model"]))
        write_processor(run.export, new, run.config["max_pixels"])
        write_generation(run.export, new, settings.temperature)
        card = make_card(run, settings, evaluations, sorted(path.name for path in new.iterdir()))
        write_atomic(new / "README.md", render_card(card).encode())
        write_sums(new)
    print(f"{folder}: {settings.format} weights of {run.folder}; the card is README.md")


if __name__ == "__main__":
    # Nothing is left half done that another setting could spoil.
    cli.run(main, "configs/export.py:merged", ExportSettings, free=True, uses_jax=True)
