"""Base of the real applications: installed once in a folder, served on loopback, set back between episodes.

build/apps/NAME/          what `prepare` unpacked and installed
build/apps/NAME/kept/     its data before a world is filled in
build/apps/NAME/worlds/*/ the data at the start of every episode of a seed, made when the seed is first played
build/apps/NAME/live/*/   one running instance's data and log: several do not disturb each other
"""

from __future__ import annotations

import abc
import contextlib
import fcntl
import functools
import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import psutil

from collection.environments.apps import sqlite
from collection.environments.apps.files import files_of, read_files, replace_files, restore_files
from collection.environments.apps.templates import Draw, Goal, Template
from collection.environments.apps.world import World
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.files import make_folder, write_atomic

_STAMP = "prepared"


class Application(abc.ABC):
    """An application at `http://HOST/`, for a browser whose guard knows HOST's address.

    Used with `with`, after `prepare`:

        trac = Trac(Path("build/apps"))
        trac.prepare()
        config = GuardConfig(private=(trac.url,))
        with trac, Guard(config, hosts([trac])) as guard, Browser(BrowserConfig(), guard) as browser: ...

    Args:
      root: where applications are unpacked; each has a folder of its own there.

    Attributes:
      name: of the application in task ids.
      host: the name under which it is asked for, so that no port gets into records.
      version: of what `prepare` makes and of how worlds are filled in; another one is made anew.
      templates: of its tasks, by name.
      secrets: passwords that the agent types as `<secret>NAME</secret>`, by name.
      carried: templates in which a fact of one page is needed on another.
      by_views: tables that looking at pages writes, left out of `content`.
      address: `127.0.0.1:PORT` while it runs.
      live: this instance's own folder while it runs.
      seed: of the world that it was set to last.
    """

    name: ClassVar[str]
    host: ClassVar[str]
    version: ClassVar[str]
    templates: ClassVar[Mapping[str, Template]]
    secrets: ClassVar[Mapping[str, str]] = {}
    carried: ClassVar[Collection[str]] = ()
    by_views: ClassVar[Collection[str]] = ()

    def __init__(self, root: pathlib.Path) -> None:
        self.folder = root.resolve() / self.name
        self.address = ""
        self.live = self.folder / "live"
        self.seed = 0
        self.world = functools.lru_cache(maxsize=128)(self._world)

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
        with _locked(self.folder):
            if self.is_prepared:
                return
            if self.folder.exists():
                make_folder(self.folder / "live")
                _remove_orphans(self.folder / "live")
                if running := [path.name for path in (self.folder / "live").iterdir()]:
                    raise UserError(
                        f"{self.folder}: another version of {self.name} is there, and runs in process "
                        f"{running[0].partition('-')[0]}: end it, or use another folder"
                    )
                (self.folder / _STAMP).unlink(missing_ok=True)  # First, should this process be killed.
                shutil.rmtree(self.folder)
            self.kept.mkdir(parents=True)
            self._make()
            write_atomic(self.folder / _STAMP, self.version.encode())

    def goal(self, template: str, seed: int) -> Goal:
        """What the task of a template asks for in a seed's world; the same in every process.

        Raises:
          KeyError: there is no such template.
        """
        return self.templates[template](self.world(seed), Draw(self.name, template, seed))

    def start(self, seed: int = 0) -> str:
        """Serves the application with a seed's world; returns `http://127.0.0.1:PORT`."""
        if not self.is_prepared:
            raise UserError(
                f"{self.folder}: this version of the application is not there: call prepare() first, or run "
                f"python -m collection.environments.apps.check {self.name}"
            )
        make_folder(self.folder / "live")
        _remove_orphans(self.folder / "live")
        self.live = pathlib.Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=self.folder / "live"))
        self.reset(seed)
        self.address = self._serve()
        return f"http://{self.address}"

    def reset(self, seed: int) -> None:
        """Sets everything that visitors can change to a seed's world; no page may be loading."""
        restore_files(self._start_of(seed), self.data)
        self.seed = seed

    def snapshot(self) -> dict[str, bytes]:
        """What it holds now, for `restore` here or in another instance."""
        return read_files(self.data)

    def restore(self, snapshot: Mapping[str, bytes]) -> None:
        """Sets everything that visitors can change to a snapshot; no page may be loading."""
        replace_files(snapshot, self.data)

    def content(self) -> dict[str, Any]:
        """All its data, as plain values that are equal after each reset: rows, and hashes of files."""
        found = {}
        for name in files_of(self.data):
            path = self.data / name
            if sqlite.is_database(path):
                found[name] = sqlite.content(path, without=self.by_views)
            else:
                found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        return found

    def close(self) -> None:
        """Ends all its processes."""
        self._stop()
        self.address = ""
        shutil.rmtree(self.live)

    @property
    def kept(self) -> pathlib.Path:
        """Folder with the data that an installation makes, without a world."""
        return self.folder / "kept"

    @property
    def data(self) -> pathlib.Path:
        """Folder with the data in use."""
        return self.live / "data"

    def _start_of(self, seed: int) -> pathlib.Path:
        """Folder with the data of a seed's world, which is made once."""
        world = self.world(seed)
        made = self.folder / "worlds" / f"{seed}-{digest(self.version, world)[:16]}"
        if not made.exists():
            with _locked(made):
                if not made.exists():  # Another process was faster.
                    make_folder(self.folder / "live")
                    # There, so that what a killed process has begun is removed by the next one.
                    part = tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=self.folder / "live")
                    try:
                        shutil.copytree(self.kept, part, dirs_exist_ok=True)
                        self._fill(world, pathlib.Path(part))
                        os.replace(part, made)
                    except BaseException:
                        shutil.rmtree(part)
                        raise
        return made

    @abc.abstractmethod
    def make_world(self, draw: Draw) -> World:
        """Makes the rows of a world, from the choices of its seed alone."""

    @abc.abstractmethod
    def read(self) -> World:
        """Reads what the application holds, in the form of `make_world`."""

    @abc.abstractmethod
    def _make(self) -> None:
        """Fills `folder`, and `kept` in it with data in which there is no world yet."""

    @abc.abstractmethod
    def _fill(self, world: World, data: pathlib.Path) -> None:
        """Writes a world into a copy of `kept`."""

    @abc.abstractmethod
    def _serve(self) -> str:
        """Serves `data`; returns the address."""

    @abc.abstractmethod
    def _stop(self) -> None: ...

    def _world(self, seed: int) -> World:
        return self.make_world(Draw(self.name, seed))


@contextlib.contextmanager
def _locked(made: pathlib.Path) -> Iterator[None]:
    """One process makes a folder, others wait."""
    make_folder(made.parent)
    with (made.parent / f"{made.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def hosts(applications: Iterable[Application]) -> dict[str, str]:
    """Returns name -> `127.0.0.1:PORT` of running applications, for `Guard`."""
    return {application.host: application.address for application in applications}


def digest(*parts: object) -> str:
    """Returns a hash of plain values (no sets: theirs have no order), the same in every process."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


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
