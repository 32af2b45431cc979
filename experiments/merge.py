"""Merges the adapters of a PEFT folder into their base model: a folder that all stages and servers take.

    python -m experiments.merge --adapter=FOLDER --output=runs/merged

They may be on any matrices, with patterns of ranks and alphas, rank-stabilized, or DoRA. The base is the
model that the adapters name, or `--base`.
"""

from __future__ import annotations

from absl import app, flags

from experiments import cli
from rmsweb_jax.errors import UserError
from rmsweb_jax.storage import local_path


def main() -> None:
    adapter = flags.DEFINE_string("adapter", "", "A PEFT folder, or the name of one on the Hub.")
    output = flags.DEFINE_string("output", "", "The folder to write.")
    base = flags.DEFINE_string("base", "", "The base model; default: the one that the adapters name.")

    def entry(argv: list[str]) -> None:
        if len(argv) > 1 or not adapter.value or not output.value:
            raise UserError("give --adapter=FOLDER and --output=FOLDER")
        from rmsweb_jax.export.adapters import merge_adapters  # It imports jax.

        folder = local_path(output.value, "--output")
        print(f"{merge_adapters(adapter.value, folder, base.value)}: the merged model")

    with cli.user_errors(continues=False):
        app.run(entry, flags_parser=cli.parse_flags)


if __name__ == "__main__":
    main()
