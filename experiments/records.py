r"""Inspects, verifies, exports, publishes and upgrades data set folders.

    python -m experiments.records list --data=runs/demo
    python -m experiments.records verify --data=runs/demo/collect
    python -m experiments.records sample --data=runs/demo/collect --num_samples=2 --seed=1 --output=sampled
    python -m experiments.records export --data=runs/demo/sft_corpus --images --output=sft.parquet
    python -m experiments.records export --data=runs/demo/sft_corpus --format=trl --output=trl.parquet
    python -m experiments.records publish --data=runs/demo/collect --output=gs://bucket/collect
    python -m experiments.records upgrade --data=runs/old/collect --output=runs/new/collect

`list`, `verify`, `sample`, `export` and `upgrade` read from buckets too. `list` looks below the folder, and
`verify` does if it holds no data set itself; both read the episodes so far of a run that has not ended.
`upgrade` writes a data set of an earlier version to a new folder.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import orjson
from absl import app, flags
from rich.console import Console
from rich.table import Table

from experiments import cli
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.bucket import publish_dataset
from rmsweb_jax.records.dataset import sample_dataset
from rmsweb_jax.records.episodes import EPISODES, find_episodes, has_not_ended
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.messages import WRITERS
from rmsweb_jax.records.shards import MANIFEST, read_manifest
from rmsweb_jax.records.tools import check_dataset, dataset_folders, export_jsonl, readable, upgrade
from rmsweb_jax.storage import AnyPath, StorePath, fetch_folder, local_path, parse_path

_WIDE = 2000  # Columns at most of a table that goes to a file: names of folders stay whole.
_ORIGIN = 60


class NotSoundError(UserError):
    exit_code = 1


def list_datasets(data: AnyPath) -> None:
    """Prints a table of the data sets in a folder and below it."""
    table = Table("folder", "kind", "records", "shards", "MB", "version", "from")
    for name in ("records", "shards", "MB", "version"):
        next(column for column in table.columns if column.header == name).justify = "right"
    for folder in dataset_folders(data):
        table.add_row(str(folder), *_row(folder))
    if not table.row_count:
        raise UserError(f"{data}: no data set here or below: give the folder of a run")
    _print(table)


def _print(table: Table) -> None:
    Console(width=None if sys.stdout.isatty() else _WIDE).print(table)


def _row(folder: AnyPath) -> list[str]:
    try:
        if isinstance(folder, Path) and has_not_ended(folder):
            return ["trajectories", str(len(find_episodes(folder / EPISODES)[0])), *[""] * 3, "not ended"]
        manifest = read_manifest(folder)
    except UserError as error:
        return ["?", *[""] * 4, str(error)]
    origin = ", ".join(f"{name}={value}" for name, value in manifest.provenance.items())
    return [
        manifest.kind,
        str(manifest.records),
        str(len(manifest.shards)),
        f"{sum(shard.bytes for shard in manifest.shards) / 1e6:.1f}",
        str(manifest.schema_version),
        origin if len(origin) <= _ORIGIN else origin[: _ORIGIN - 1] + "…",
    ]


def verify(data: AnyPath) -> None:
    """Prints what a data set or a run that has not ended holds, or each of those below the folder.

    Raises:
      NotSoundError: after a line for each problem.
    """
    problems = 0
    for folder in [data] if (data / MANIFEST).exists() else [*dataset_folders(data)] or [data]:
        check = check_dataset(folder)
        what = "episodes so far of a run that has not ended" if check.goes_on else "readable records"
        print(
            f"{folder}: {check.records} {what}, {check.images} images, "
            f"{check.without_screenshot} steps without a screenshot, {len(check.problems)} problems"
        )
        for problem in check.problems:
            print(problem)
        problems += len(check.problems)
    if problems:
        raise NotSoundError(f"{data}: {problems} problems, see above")


def sample(data: AnyPath, num_samples: int, seed: int, output: str) -> None:
    """Prints random records as JSON; their screenshots become files in a folder, if there is one."""
    images = ImageStore(data)
    folder = local_path(output, "--output") if output else None

    def show(name: str) -> str:
        if folder is None:
            return images.where(name)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.png"
        path.write_bytes(images.get(name))
        return str(path)

    for place, record in sample_dataset(data, num_samples, seed):
        print(f"record {place}")
        print(orjson.dumps(readable(record, show), option=orjson.OPT_INDENT_2).decode())


def export(data: AnyPath, output: str, format_: str, images: bool) -> None:
    """Writes a data set as one file, or as the folder that LLaMA-Factory reads."""
    if not output:
        raise UserError("--output: give the file to write")
    path = local_path(output, "--output")
    if not path.parent.is_dir():
        raise UserError(f"--output: {path.parent} is no folder: make it first")
    if format_ == "jsonl":
        if images:
            raise UserError("--images: JSON lines hold no images: use --format=parquet")
        count = export_jsonl(data, path)
    else:
        try:
            if format_ == "parquet":
                from rmsweb_jax.records.parquet import export_parquet

                count = export_parquet(data, path, images)
            else:
                count = WRITERS[format_](data, path)
        except ImportError as error:
            raise UserError(
                f"Parquet needs pyarrow: pip install '.[parquet]' in the checkout ({error})"
            ) from error
    print(f"{path}: {count} records")


def publish(data: Path, output: str) -> None:
    """Copies a data set to a bucket."""
    target = parse_path(output, "--output")
    if not isinstance(target, StorePath):
        raise UserError("--output: give the folder of a bucket: gs://BUCKET/FOLDER or s3://BUCKET/FOLDER")
    manifest = publish_dataset(data, target)
    print(f"{target}: {manifest.records} records in {len(manifest.shards)} shards")


def upgrade_old(data: AnyPath, output: str) -> None:
    """Writes a data set of an earlier version in today's layout."""
    if not output:
        raise UserError("--output: give the new folder")
    new = local_path(output, "--output")
    old = fetch_folder(data) if isinstance(data, StorePath) else data
    print(f"{new}: {upgrade(old, new)} records")


def main() -> None:
    data = flags.DEFINE_string(
        "data", None, "A data set folder; for list and verify, any above.", required=True
    )
    num_samples = flags.DEFINE_integer("num_samples", 1, "sample: how many records.", lower_bound=1)
    seed = flags.DEFINE_integer("seed", 0, "sample: of the draw.")
    formats = ["jsonl", "parquet", *WRITERS]
    format_ = flags.DEFINE_enum(
        "format", "parquet", formats, "export: the file's format, or whose; llama_factory's is a folder."
    )
    output = flags.DEFINE_string("output", "", "The file or folder to write, or a folder in a bucket.")
    images = flags.DEFINE_bool("images", False, "export: put the screenshots into the file (Parquet).")

    def entry(argv: list[str]) -> None:
        folder = parse_path(data.value, "--data")
        commands: dict[str, Callable[[], None]] = {
            "list": lambda: list_datasets(folder),
            "verify": lambda: verify(folder),
            "sample": lambda: sample(folder, num_samples.value, seed.value, output.value),
            "export": lambda: export(folder, output.value, format_.value, images.value),
            "publish": lambda: publish(local_path(data.value, "--data"), output.value),
            "upgrade": lambda: upgrade_old(folder, output.value),
        }
        if len(argv) != 2 or argv[1] not in commands:
            raise UserError(f"give one command: {', '.join(commands)}; for example list --data={folder}")
        if isinstance(folder, StorePath):
            folder.store.check()
        if not folder.is_dir():
            raise UserError(f"--data: {folder} is no folder")
        commands[argv[1]]()

    with cli.user_errors(continues=False):
        app.run(entry, flags_parser=cli.parse_flags)


if __name__ == "__main__":
    main()
