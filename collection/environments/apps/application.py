"""Base of the real applications: installed once in a folder, served on loopback, reset between episodes.

build/apps/NAME/          what `prepare` unpacked and installed
build/apps/NAME/kept/     its data at the start of every episode
build/apps/NAME/live/*/   one running instance's data and log: several do not disturb each other
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import psutil

from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import make_folder, write_atomic

_STAMP = "prepared"


class Application(abc.ABC):
    """An application at `http://HOST/`, for a browser whose guard knows HOST's address.

    Used with `with`, after `prepare`:

        shop = OscarShop(Path("build/apps"))
        shop.prepare()
        config = GuardConfig(private=(shop.url,))
        with shop, Guard(config, hosts([shop])) as guard, Browser(BrowserConfig(), guard) as browser: ...

    Args:
      root: where applications are unpacked; each has a folder of its own there.

    Attributes:
      name: of the application in task ids.
      host: the name under which it is asked for, so that no port gets into records.
      secrets: passwords that the agent types as `<secret>NAME</secret>`, by name.
      version: of what `prepare` makes; another one is made anew.
      address: `127.0.0.1:PORT` while it runs.
      live: this instance's own folder while it runs.
    """

    name: ClassVar[str]
    host: ClassVar[str]
    version: ClassVar[str]
    secrets: ClassVar[Mapping[str, str]] = {}

    def __init__(self, root: pathlib.Path) -> None:
        self.folder = root.resolve() / self.name
        self.address = ""
        self.live = self.folder / "live"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    @property
    def is_prepared(self) -> bool:
        """Whether `prepare` has nothing to do."""
        stamp = self.folder / _STAMP
        return stamp.exists() and stamp.read_text(encoding="utf-8") == self.version

    def prepare(self) -> None:
        """Unpacks and installs what is needed, once.

        Raises:
          UserError: a package could not be had or installed.
        """
        make_folder(self.folder.parent)
        with (self.folder.parent / f"{self.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # One process makes it, others wait.
            if self.is_prepared:
                return
            if self.folder.exists():
                shutil.rmtree(self.folder)
            (self.folder / "kept").mkdir(parents=True)
            self._make()
            write_atomic(self.folder / _STAMP, self.version.encode())

    def start(self) -> str:
        """Serves the application as `prepare` left it; returns `http://127.0.0.1:PORT`."""
        if not (self.folder / _STAMP).exists():
            raise UserError(
                f"{self.folder}: the application is not there: call prepare() first, or run "
                f"python -m collection.environments.apps.check {self.name}"
            )
        make_folder(self.folder / "live")
        _remove_orphans(self.folder / "live")
        self.live = pathlib.Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=self.folder / "live"))
        self.reset()
        self.address = self._serve()
        return f"http://{self.address}"

    def reset(self) -> None:
        """Resets everything that visitors can change; no page may be loading."""
        restore_files(self.kept, self.data)

    def content(self) -> dict[str, Any]:
        """What it holds, as plain values that are equal after each reset; here, hashes of its files."""
        return {
            name: hashlib.sha256((self.data / name).read_bytes()).hexdigest() for name in files_of(self.data)
        }

    def close(self) -> None:
        """Ends all its processes."""
        self._stop()
        self.address = ""
        shutil.rmtree(self.live)

    @property
    def kept(self) -> pathlib.Path:
        """Folder with the initial data of every episode."""
        return self.folder / "kept"

    @property
    def data(self) -> pathlib.Path:
        """Folder with the data in use."""
        return self.live / "data"

    @abc.abstractmethod
    def _make(self) -> None:
        """Fills `folder`, and `kept` in it."""

    @abc.abstractmethod
    def _serve(self) -> str:
        """Serves `data`; returns the address."""

    @abc.abstractmethod
    def _stop(self) -> None: ...


def hosts(applications: Iterable[Application]) -> dict[str, str]:
    """Returns name -> `127.0.0.1:PORT` of running applications, for `Guard`."""
    return {application.host: application.address for application in applications}


def digest(*parts: object) -> str:
    """Returns a hash of an application's parts, as its `version`; it is the same in every process."""
    return hashlib.sha256(_fixed(parts).encode()).hexdigest()


def _fixed(part: object) -> str:
    """As `repr`, but sets have an order: theirs depends on the process."""
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        return _fixed({field.name: getattr(part, field.name) for field in dataclasses.fields(part)})
    if isinstance(part, Mapping):
        return f"{{{', '.join(f'{_fixed(name)}: {_fixed(value)}' for name, value in part.items())}}}"
    if isinstance(part, set | frozenset):
        return f"{{{', '.join(sorted(map(_fixed, part)))}}}"
    if isinstance(part, tuple | list):
        return f"({', '.join(map(_fixed, part))})"
    return repr(part)


def restore_files(kept: pathlib.Path, live: pathlib.Path) -> None:
    """Replaces the files of `live` by those of `kept`; processes that have an old file open keep it."""
    make_folder(live)
    names = files_of(kept)
    # SQLite would play a journal of another database back into this one.
    for name in set(files_of(live)) - set(names):
        (live / name).unlink(missing_ok=True)  # A request that ends just now may remove it.
    for name in names:
        (live / name).parent.mkdir(parents=True, exist_ok=True)
        part = live / f"{name}.part"
        shutil.copyfile(kept / name, part)
        os.replace(part, live / name)


def files_of(folder: pathlib.Path) -> list[str]:
    """Returns the paths of all files in a folder and below, relative to it."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _remove_orphans(folder: pathlib.Path) -> None:
    """Removes the folders of instances whose process was killed."""
    for path in folder.iterdir():
        owner = path.name.partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            with contextlib.suppress(FileNotFoundError):  # Another instance was faster.
                shutil.rmtree(path)


def run_quietly(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None, folder: pathlib.Path | None = None
) -> str:
    """Runs a program to its end; returns its output.

    Raises:
      UserError: it is missing or failed; with the last line it printed.
    """
    try:
        done = subprocess.run(
            arguments,
            env={**os.environ, **(environment or {})},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError as error:
        raise UserError(f"{arguments[0]} not found: install it") from error
    if done.returncode:
        line = (done.stdout.strip().splitlines() or ["no output"])[-1]
        program = " ".join(pathlib.Path(word).name for word in arguments[:3])
        raise UserError(f"{program} failed: {line[:300]}")
    return done.stdout


def unpack(packages: Sequence[str], folder: pathlib.Path) -> None:
    """Unpacks packages of Debian 12 into `folder`, as if it were `/`; their scripts are not run.

    Raises:
      UserError: this is no Debian system, or a package could not be downloaded.
    """
    with tempfile.TemporaryDirectory(prefix="rmsweb-debian-") as downloads:
        download = ["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", *packages]
        try:
            run_quietly(download, folder=pathlib.Path(downloads))
        except UserError as error:
            if os.geteuid() != 0:
                raise UserError(
                    f"{error}; Debian 12's apt-get is needed, and `apt-get update` by root"
                ) from error
            # The lists are missing, or older than the archive's last security update.
            run_quietly(["apt-get", "update"])
            run_quietly(download, folder=pathlib.Path(downloads))
        for package in sorted(pathlib.Path(downloads).glob("*.deb")):
            run_quietly(["dpkg", "-x", str(package), str(folder)])
