"""Labels that a reader gives by a key press, as files that other scripts read.

`episodes.jsonl` has lines with `trajectory_id` and `success`, which `experiments.judge` reads as
`config.labels`; `mined.jsonl` has lines with `task_id` and `label`: keep, wrong or unsure.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import make_folder, write_atomic

# Below the first folder that is shown.
LABELS_FOLDER = "viewer_labels"
CHOICES = {"episodes": ("solved", "failed"), "mined": ("keep", "wrong", "unsure")}
# Kind of what is labelled -> the fields of a line: its name, and its label.
_FIELDS = {"episodes": ("trajectory_id", "success"), "mined": ("task_id", "label")}
# What a line has for a label.
_WRITTEN = {"solved": True, "failed": False}


class Labels:
    """Reads and writes the labels in a folder, which is made with the first one.

    Raises:
      UserError: a file there is damaged.
    """

    def __init__(self, folder: Path):
        self._folder, self._lock = folder, threading.Lock()
        self._labels = {kind: self._read(kind) for kind in CHOICES}

    def get(self, kind: str, name: str) -> str:
        """The label of an episode or a mined pair; empty without one."""
        return self._labels[kind].get(name, "")

    def put(self, kind: str, name: str, label: str) -> None:
        """Saves a label, in place of an earlier one; "" takes it back.

        Raises:
          ValueError: there is no such kind or label.
        """
        if kind not in CHOICES or label not in ("", *CHOICES[kind]):
            raise ValueError(f"no label {label!r} of {kind!r}")
        with self._lock:
            labels = {**self._labels[kind], name: label}
            if not label:
                del labels[name]
            make_folder(self._folder)
            lines = [
                json.dumps(
                    dict(zip(_FIELDS[kind], (one, _WRITTEN.get(given, given)), strict=True)),
                    ensure_ascii=False,
                )
                for one, given in sorted(labels.items())
            ]
            write_atomic(self._folder / f"{kind}.jsonl", "".join(f"{line}\n" for line in lines).encode())
            self._labels[kind] = labels

    def _read(self, kind: str) -> dict[str, str]:
        path, (name, label) = self._folder / f"{kind}.jsonl", _FIELDS[kind]
        if not path.exists():
            return {}
        choices = {_WRITTEN.get(one, one): one for one in CHOICES[kind]}
        try:
            lines = [json.loads(line) for line in path.read_bytes().splitlines()]
            return {line[name]: choices[line[label]] for line in lines}
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: not a file of labels ({error}): move it away") from error
