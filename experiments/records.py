r"""Inspects, verifies, exports, repairs and publishes data set folders.

    python -m experiments.records list --data=runs/demo
    python -m experiments.records verify --data=runs/demo/collect
    python -m experiments.records sample --data=runs/demo/collect --num_samples=2 --seed=1
    python -m experiments.records export --data=runs/demo/sft_corpus --images --output=sft.parquet
    python -m experiments.records repair --data=runs/demo --apply
    python -m experiments.records publish --data=runs/demo/collect --output=gs://bucket/collect
    python -m experiments.records versions --data=gs://bucket/collect

`list`, `verify`, `sample` and `export` read from buckets too: the newest version, or FOLDER@VERSION. `list`
and `repair` look below the folder, and `verify` does if it holds no data set itself. `repair` changes nothing
without `--apply`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
from absl import app, flags
from rich.console import Console
from rich.table import Table

from experiments import cli
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import MANIFEST, read_manifest, sample_dataset, version_name
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.publish import publish_dataset
from rmsweb_jax.records.tools import (
    check_dataset,
    dataset_folders,
    export_jsonl,
    find_repairs,
    folders,
    readable,
)
from rmsweb_jax.records.versions import list_versions, pinned
from rmsweb_jax.storage import AnyPath, StorePath, local_path, parse_path
from rmsweb_jax.workdir import lock_workdir

_WIDE = 200  # Columns of a table that goes to a file.
_ORIGIN = 60


class NotSoundError(UserError):
    exit_code = 1


def list_datasets(data: AnyPath) -> None:
    """Prints a table of the data sets in a folder and below it."""
    table = Table("folder", "kind", "records", "shards", "MB", "version", "finished", "from")
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
        manifest = read_manifest(folder)
    except UserError as error:
        return ["?", *[""] * 5, str(error)]
    origin = ", ".join(f"{name}={value}" for name, value in manifest.provenance.items())
    return [
        manifest.kind,
        str(manifest.records),
        str(len(manifest.shards)),
        f"{sum(shard.bytes for shard in manifest.shards) / 1e6:.1f}",
        str(manifest.schema_version),
        "yes" if manifest.finished else "no",
        origin if len(origin) <= _ORIGIN else origin[: _ORIGIN - 1] + "…",
    ]


def versions(data: AnyPath) -> None:
    """Prints a table of the versions of a published data set."""
    if not isinstance(data, StorePath):
        raise UserError(f"--data={data}: data sets on disk have no versions: give one in a bucket")
    table, newest = Table("version", "records", "shards", "images", "newest"), pinned(data.at(""))
    for version in list_versions(data.at("")):
        manifest = read_manifest(version)
        counts = (manifest.records, len(manifest.shards), manifest.images.images if manifest.images else 0)
        table.add_row(str(version), *map(str, counts), "yes" if version == newest else "")
    _print(table)


def verify(data: AnyPath) -> None:
    """Prints what a data set holds, or each of those below the folder.

    Raises:
      NotSoundError: after a line for each problem.
    """
    is_dataset = (data / MANIFEST).exists() or (isinstance(data, StorePath) and data.version)
    problems = 0
    for folder in [data] if is_dataset else [*dataset_folders(data)] or [data]:
        check = check_dataset(folder)
        print(
            f"{folder}: {check.records} readable records, {check.images} images, "
            f"{check.without_screenshot} steps without a screenshot, {len(check.problems)} problems"
        )
        for problem in check.problems:
            print(problem)
        problems += len(check.problems)
    if problems:
        raise NotSoundError(f"{data}: {problems} problems, see above")


def sample(data: AnyPath, num_samples: int, seed: int) -> None:
    """Prints random records as JSON, images as their files."""
    images = ImageStore(data)
    for place, record in sample_dataset(data, num_samples, seed):
        print(f"record {place}")
        print(orjson.dumps(readable(record, images), option=orjson.OPT_INDENT_2).decode())


def export(data: AnyPath, output: str, format_: str, images: bool) -> None:
    """Writes a data set as one file."""
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
            from rmsweb_jax.records.parquet import export_parquet
        except ImportError as error:
            raise UserError(f"Parquet needs pyarrow: pip install 'rmsweb-jax[parquet]' ({error})") from error
        count = export_parquet(data, path, images)
    print(f"{path}: {count} records")


def publish(data: Path, output: str) -> None:
    """Copies a data set to a bucket."""
    target = parse_path(output, "--output")
    if not isinstance(target, StorePath):
        raise UserError("--output: give the folder of a bucket: gs://BUCKET/FOLDER or s3://BUCKET/FOLDER")
    manifest = publish_dataset(data, target)
    images = manifest.images
    print(
        f"{target.at(version_name(manifest.encode()))}: {manifest.records} records in "
        f"{len(manifest.shards)} shards, {images.images if images else 0} images in "
        f"{len(images.packs) if images else 0} packs, {len(manifest.files)} other files"
    )


def repair(data: Path, apply: bool) -> None:
    """Prints what stopped writers left, and clears it up if asked to."""
    with _locked(data):
        repairs = find_repairs(data)
        for one in repairs:
            print(one.what)
            if apply and one.apply:
                one.apply()
    repairable = sum(one.apply is not None for one in repairs)
    if not repairable:
        print(f"{data}: nothing to repair")
    elif apply:
        print(f"{data}: {repairable} repaired")
    else:
        print(f"{data}: nothing was changed; add --apply to do this")


@contextlib.contextmanager
def _locked(data: Path) -> Iterator[None]:
    """Locks the folder and all folders around it: files of a running stage look like leftovers."""
    with contextlib.ExitStack() as stack:
        for folder in [*folders(data), *data.absolute().parents]:
            if (folder / ".lock").exists():
                stack.enter_context(lock_workdir(folder))
        yield


def main() -> None:
    data = flags.DEFINE_string(
        "data", None, "A data set folder; for list and repair, any above.", required=True
    )
    num_samples = flags.DEFINE_integer("num_samples", 1, "sample: how many records.", lower_bound=1)
    seed = flags.DEFINE_integer("seed", 0, "sample: of the draw.")
    format_ = flags.DEFINE_enum("format", "parquet", ["jsonl", "parquet"], "export: the file's format.")
    output = flags.DEFINE_string("output", "", "export: the file to write; publish: the folder in a bucket.")
    images = flags.DEFINE_bool("images", False, "export: put the screenshots into the file (Parquet).")
    apply = flags.DEFINE_bool("apply", False, "repair: do what it would do.")

    def entry(argv: list[str]) -> None:
        folder = parse_path(data.value, "--data")
        commands: dict[str, Callable[[], None]] = {
            "list": lambda: list_datasets(folder),
            "verify": lambda: verify(folder),
            "versions": lambda: versions(folder),
            "sample": lambda: sample(pinned(folder), num_samples.value, seed.value),
            "export": lambda: export(pinned(folder), output.value, format_.value, images.value),
            "repair": lambda: repair(local_path(data.value, "--data"), apply.value),
            "publish": lambda: publish(local_path(data.value, "--data"), output.value),
        }
        if len(argv) != 2 or argv[1] not in commands:
            raise UserError(f"give one command: {', '.join(commands)}; for example list --data={folder}")
        if isinstance(folder, StorePath):
            folder.store.check()
        if not folder.is_dir():
            raise UserError(f"--data: {folder} is no folder")
        commands[argv[1]]()

    with cli.user_errors():
        app.run(entry, flags_parser=cli.parse_flags)


if __name__ == "__main__":
    main()
