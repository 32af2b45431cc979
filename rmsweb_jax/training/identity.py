"""What a run is made of: hashes of its base model and data sets, kept in each of its checkpoints.

A resumed run goes on only with the same. Settings and own code are compared by `rmsweb_jax.workdir`, when it
is opened.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.dataset import records_digest
from rmsweb_jax.records.shards import read_manifest
from rmsweb_jax.storage import AnyPath
from rmsweb_jax.training.distributed import differences
from rmsweb_jax.training.mesh import from_all_processes

_THREADS = 8
# The files of a model folder that training reads, or copies to its export.
_SUFFIXES = (".json", ".txt", ".jinja", ".safetensors")


@dataclasses.dataclass(frozen=True)
class Identity:
    """What a run is made of.

    Attributes:
      places: the folder of each part, such as "base model" or "corpus".
      digests: SHA-256 of each part: by file of the base model, and of the records of a data set.
    """

    places: Mapping[str, AnyPath]
    digests: Mapping[str, Mapping[str, str]]

    def check(self, begun: Mapping[str, Mapping[str, str]], workdir: AnyPath) -> None:
        """Compares it with that of the run's checkpoint.

        Raises:
          UserError: they differ; the message names all that has changed.
        """
        changed = []
        for part, digests in self.digests.items():
            before = begun.get(part, {})
            names = [
                name
                for name in sorted(digests.keys() | before.keys())
                if digests.get(name) != before.get(name)
            ]
            if names:
                changed.append(f"{part} at {self.places[part]} ({', '.join(names)})")
        if changed:
            raise UserError(
                f"{workdir}: what this run is made of has changed since it began: {'; '.join(changed)}: put "
                "it back, or use another --workdir"
            )


def identify(model: Path, datasets: Mapping[str, AnyPath]) -> Identity:
    """Hashes a base model and data sets; all processes must call this.

    It reads the weights whole, so that loading them afterwards reads the system's cache.

    Args:
      model: folder of the base model and its tokenizer.
      datasets: folders, by the name of the part.

    Raises:
      UserError: a data set cannot be read; or the processes have different ones, which the message names.
    """
    paths = [path for path in sorted(model.iterdir()) if path.suffix in _SUFFIXES and path.is_file()]
    with ThreadPoolExecutor(_THREADS) as pool:
        files = dict(zip((path.name for path in paths), pool.map(_file_digest, paths), strict=True))
    digests = {"base model": files}
    digests |= {part: {"records": records_digest(read_manifest(folder))} for part, folder in datasets.items()}
    mine = {f"{part} ({name})": digest[:12] for part, one in digests.items() for name, digest in one.items()}
    host = f"{socket.gethostname()} (process {jax.process_index()})"
    every = [json.loads(part) for part in from_all_processes(json.dumps([host, mine]).encode())]
    if found := differences([name for name, _ in every], [facts for _, facts in every]):
        raise UserError(found)
    return Identity({"base model": model, **datasets}, digests)


def _file_digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
