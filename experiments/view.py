"""Shows runs, episodes, mined pairs, trainings and evaluations in a web browser, also while they go on.

    python -m experiments.view runs/demo                       # prints the address
    python -m experiments.view --export=pages runs/demo        # a copy to share, without a server

It only reads the folders. An index of the episodes is kept in `--cache`, and labels that are given by a key
press in `--labels`.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import secrets
import threading
import time
from pathlib import Path

import uvicorn
from absl import app, flags

from collection.viewer.app import Viewer, make_app
from collection.viewer.export import export
from collection.viewer.folders import Folders
from collection.viewer.guard import LOOPBACK
from collection.viewer.index import EpisodeIndex
from collection.viewer.labels import LABELS_FOLDER, Labels
from collection.viewer.pages import Pages
from experiments.cli import parse_flags, user_errors
from rmsweb_jax.errors import UserError
from rmsweb_jax.storage import local_path

_HOST = flags.DEFINE_string(
    "host", "127.0.0.1", "Address to listen on; one that is not loopback's needs --token."
)
_PORT = flags.DEFINE_integer("port", 8400, "Port to listen on; 0 takes a free one.", lower_bound=0)
_TOKEN = flags.DEFINE_string("token", "", "Must be in the address of the first page; `random` draws one.")
_EXPORT = flags.DEFINE_string("export", "", "Write the pages to this folder and stop.")
_LIMIT = flags.DEFINE_integer(
    "export_episodes",
    500,
    "Most pages of each kind, such as episodes or mined pairs.",
    lower_bound=1,
)
_CACHE = flags.DEFINE_string("cache", "", "Folder of the index; default: a folder of the user's cache.")
_LABELS = flags.DEFINE_string(
    "labels", "", "Folder of the labels; default: viewer_labels in the first folder."
)


def main(argv: list[str]) -> None:
    """Serves the pages until it is stopped, or exports them.

    Raises:
      UserError: a folder is missing, the address is taken or open to others without a token.
    """
    roots = [local_path(name, "the folder") for name in argv[1:]]
    if not roots:
        raise UserError("no folder: give one or more, such as runs/demo")
    folders = Folders(roots)
    index = EpisodeIndex(_index_file(roots), folders)
    labels = Labels(local_path(_LABELS.value, "--labels") if _LABELS.value else roots[0] / LABELS_FOLDER)
    pages = Pages(folders, index, labels)
    if _EXPORT.value:
        index.refresh()
        start = export(pages, index, local_path(_EXPORT.value, "--export"), _LIMIT.value)
        print(f"{start}: open it in a browser")
        return
    serve(Viewer(pages), index)


def serve(viewer: Viewer, index: EpisodeIndex) -> None:
    """Serves until interrupted; episodes are indexed meanwhile."""
    token = secrets.token_urlsafe(18) if _TOKEN.value == "random" else _TOKEN.value
    if not token and not _is_loopback(_HOST.value):
        raise UserError(f"--host={_HOST.value}: others could read the pages: give --token=random")
    config = uvicorn.Config(
        make_app(viewer, token),
        host=_HOST.value,
        port=_PORT.value,
        log_level="warning",
        access_log=False,
    )
    try:
        socket = config.bind_socket()
        socket.listen()  # Else who opens the printed address at once is refused.
    except SystemExit as error:
        raise UserError(f"--port={_PORT.value}: {_HOST.value} cannot listen there; give another") from error
    port = socket.getsockname()[1]
    name = f"[{_HOST.value}]" if ":" in _HOST.value else _HOST.value
    print(f"http://{name}:{port}/{f'?token={token}' if token else ''}", flush=True)
    threading.Thread(target=_index, args=(viewer, index), daemon=True).start()
    uvicorn.Server(config).run([socket])


def _index(viewer: Viewer, index: EpisodeIndex) -> None:
    viewer.note = "Episodes are being indexed: lists are not complete yet."
    start = time.monotonic()
    index.refresh(seconds=0)
    viewer.note = ""
    print(f"indexed in {time.monotonic() - start:.1f} s", flush=True)
    # In parts, between which the index takes what runs that go on have added.
    while index.refresh(seconds=1):
        time.sleep(0.1)


def _is_loopback(host: str) -> bool:
    try:
        return host in LOOPBACK or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _index_file(roots: list[Path]) -> Path:
    """The index of these folders."""
    base = local_path(_CACHE.value, "--cache") if _CACHE.value else _user_cache()
    name = hashlib.sha256("\n".join(sorted(str(root.resolve()) for root in roots)).encode()).hexdigest()[:16]
    try:
        base.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--cache={base}: cannot be written ({error.strerror})") from error
    return base / f"view-{name}.sqlite"


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rmsweb-jax"


if __name__ == "__main__":
    with user_errors(continues=False):
        app.run(main, flags_parser=parse_flags)
