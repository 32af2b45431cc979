"""The folder of a run: used by one command at a time, and always with the same settings."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from ml_collections import ConfigDict

from rmsweb_jax.errors import UserError
from rmsweb_jax.own import own_files
from rmsweb_jax.records.bucket import FROZEN
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.staging import CONFIG, lock_workdir, staged
from rmsweb_jax.settings import Settings, safe_keys, to_config_dict
from rmsweb_jax.storage import AnyPath, StorePath, parse_path

S = TypeVar("S", bound=Settings)
# A workdir with only these files has no results yet: settings, logs, counts, and what an evaluation asks.
_NO_RESULTS = (
    *(CONFIG, "log.txt", "progress.json", "elapsed.json", "calls.jsonl", "sizes-*.json"),
    *("benchmark.json", "notes.jsonl", "begun.json"),
)
# Section of the settings of a run with the files of its own parts.
_OWN = "own_files"
# Folders that this process has opened.
_open: set[Path] = set()


def run_stage(
    stage: Callable[[S, Any], dict[str, Any]],
    settings: S,
    workdir: str | os.PathLike[str] | StorePath,
    process: int = 0,
    live: bool = False,
) -> dict[str, Any]:
    """Runs a stage in its workdir, or returns the report of a finished one.

    Args:
      stage: called with the settings, and with the folder on disk in which it works; a `live` one is called
        with the workdir, a path of a disk or a bucket. It writes `report.json` last.
      process, live: see `staged`.

    Raises:
      UserError: as `open_run`.
    """
    path = parse_path(str(workdir), "workdir")
    with open_run(path, run_settings(settings), safe_keys(type(settings)), process, live) as folder:
        report = folder / "report.json"
        if report.exists():
            return json.loads(report.read_bytes())
        return stage(settings, path if live else folder)


def run_settings(settings: Settings) -> ConfigDict:
    """Returns what a run is made of: its settings, and the files of what they name of one's own.

    Raises:
      UserError: that cannot be imported, see `rmsweb_jax.own.find`.
    """
    config = to_config_dict(settings)
    if own := own_files(settings):
        config[_OWN] = own
    return config


@contextlib.contextmanager
def open_run(
    workdir: AnyPath,
    config: ConfigDict,
    safe_keys: Iterable[str] = (),
    process: int = 0,
    live: bool = False,
    script: str = "",
) -> Iterator[Path]:
    """Opens the workdir of a run, on disk or in a bucket, and yields the folder on disk in which it works.

    Args:
      config, safe_keys, script: see `run_settings` and `open_workdir`.
      process, live: see `staged`.

    Raises:
      UserError: as `staged` and `open_workdir`.
    """
    with (
        staged(workdir, process, live) as folder,
        open_workdir(folder, config, safe_keys, process == 0, script),
    ):
        if isinstance(workdir, Path) or process:
            yield folder
            return
        with provisional_settings(folder, workdir / CONFIG):
            (workdir / CONFIG).write_bytes((folder / CONFIG).read_bytes())
            yield folder


@contextlib.contextmanager
def open_workdir(
    workdir: Path, config: ConfigDict, safe_keys: Iterable[str] = (), first: bool = True, script: str = ""
) -> Iterator[None]:
    """Creates and locks a workdir, and refuses other settings than those of earlier runs in it.

    A run that fails before its first result counts for nothing: its settings may be corrected.

    Opening a folder again in the same process does nothing: scripts open it before they call the library,
    which opens it for users who call it directly.

    Args:
      safe_keys: dotted names of keys and sections that may change between runs in one workdir; any other
        change is refused, since a resumed run would silently mix two settings.
      first: False in all but the first process of a run, which holds the lock for them.
      script: name of the stage, for errors.

    Raises:
      UserError: another run uses it, it was begun with other settings, or a file is in the way.
    """
    make_folder(workdir)
    # Resolved, so that two names of one folder are the same.
    folder = workdir.resolve()
    if folder in _open:
        yield
        return
    with contextlib.ExitStack() as stack:
        if first:
            stack.enter_context(lock_workdir(workdir))
            stack.enter_context(provisional_settings(workdir, workdir / CONFIG))
        check_config(config, workdir, frozenset(safe_keys), write=first, script=script)
        _open.add(folder)
        stack.callback(_open.remove, folder)
        yield


@contextlib.contextmanager
def provisional_settings(folder: Path, config: AnyPath) -> Iterator[None]:
    """Removes the settings that its block has written if it raises `UserError` before the first result.

    Args:
      folder: the workdir, on disk.
      config: the file of its settings.
    """
    is_new = not config.exists()
    try:
        yield
    except UserError:
        if is_new and not _holds_results(folder):
            config.unlink(missing_ok=True)
        raise


def _holds_results(folder: Path) -> bool:
    """Returns whether a workdir holds a file that counts as a result; empty and hidden ones do not."""
    files = (path for path in folder.rglob("*") if path.is_file() and folder / FROZEN not in path.parents)
    return any(
        not any(map(path.match, _NO_RESULTS)) and path.name[0] != "." and path.stat().st_size > 0
        for path in files
    )


def make_folder(workdir: Path) -> None:
    """Creates a workdir.

    Raises:
      UserError: a file is in the way, or the system lets none be made there, as below /proc.
    """
    try:
        workdir.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError as error:
        raise UserError(f"{workdir}: no folder can be made there; use another --workdir") from error
    except (FileExistsError, NotADirectoryError) as error:
        raise UserError(f"{workdir}: a file is in the way; give the name of a folder") from error


def check_config(
    config: ConfigDict, workdir: Path, safe_keys: frozenset[str], write: bool = True, script: str = ""
) -> None:
    """Refuses a workdir that was begun with other settings; otherwise writes the settings to it.

    Args:
      safe_keys: dotted names of keys and sections that may differ.
      write: False leaves the writing to another process of the run.
      script: name of the stage, for errors.

    Raises:
      UserError: a key that is not in `safe_keys` differs; the message names all of them.
    """
    path = workdir / CONFIG
    now = flatten_settings(json.loads(config.to_json_best_effort()))
    if path.exists():
        before = _read_settings(path)
        for one, other in ((before, now), (now, before)):
            one |= {key: "" for key in other if is_within(key, frozenset((_OWN,))) and key not in one}
        # A key that only one side has comes from another version of the code, and gets a message of its own.
        keys = {key for key in before.keys() | now.keys() if not is_within(key, safe_keys)}
        if other := sorted(keys & (before.keys() ^ now.keys())):
            if len(before.keys() & now.keys()) < len(other):
                found, own = _stage(workdir) or "another stage", script or "this stage"
                raise UserError(f"{workdir}: this is the folder of {found}: give {own} another --workdir")
            raise UserError(
                f"{path}: this run was begun with other keys, by another version or variant "
                f"({', '.join(other[:5])}{', ...' * (len(other) > 5)}): "
                "continue it with that one, or use another --workdir"
            )
        changed = sorted(key for key in keys if before[key] != now[key])
        if changed:
            key = changed[0]
            raise UserError(
                f"{path}: this run was begun with other settings ({', '.join(changed)}; {key} was "
                f"{before[key]!r}, is {now[key]!r}): use the old ones or another --workdir"
            )
    content = config.to_json_best_effort(indent=1).encode()
    # Written again when a safe key has changed: the file says what the latest run used.
    if write and not (path.exists() and path.read_bytes() == content):
        write_atomic(path, content)


def _stage(workdir: Path) -> str:
    """Returns the name of the stage that has worked in a folder; "" if it left none."""
    for name in ("report.json", "progress.json"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            return str(json.loads((workdir / name).read_bytes())["stage"])
    return ""


def is_within(key: str, names: frozenset[str]) -> bool:
    """Returns True if a dotted name is one of `names`, or in a section among them."""
    return any(key == name or key.startswith(f"{name}.") for name in names)


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(path.read_text())
    except ValueError:
        tree = None
    if not isinstance(tree, dict):
        raise UserError(f"{path}: not the settings of a run; use another --workdir")
    return flatten_settings(tree)


def flatten_settings(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Converts nested settings to one dictionary with dotted names."""
    flat = {}
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            flat |= flatten_settings(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
