"""Tests of the applications' machinery without the applications."""

from __future__ import annotations

import contextlib
import pathlib
import pickle
import signal
import sqlite3
import subprocess
import sys
import time

import psutil
import pytest

from collection.browser.chromium import session_members
from collection.environments.apps.application import hosts, run_quietly
from collection.environments.apps.server import ServerCommand, ServerProcess, get
from rmsweb_jax.errors import UserError
from tests.apps.conftest import Notebook

# A server that forks, as PHP's does, and says who it is.
SERVER = """
import http.server, os, sys
if os.fork() == 0:
    import signal
    signal.pause()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.headers["Host"].encode())
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
# Starts the server, prints its process id, and waits to be killed.
OWNER = """
import pathlib, sys
from tests.apps.test_apps import forking_server
server = forking_server(pathlib.Path(sys.argv[1]))
print(server.pid, flush=True)
sys.stdin.read()
"""


def command(folder: pathlib.Path, program: str) -> ServerCommand:
    return ServerCommand(
        lambda port: [sys.executable, "-S", "-c", program, str(port)], "app.test", "/", folder / "log", folder
    )


def forking_server(folder: pathlib.Path) -> ServerProcess:
    return ServerProcess(command(folder, SERVER))


def wait_until_gone(leader: int) -> None:
    deadline = time.monotonic() + 600
    while members := [pid for pid in session_members(leader) if _lives(pid)]:
        assert time.monotonic() < deadline, members
        psutil.wait_procs([psutil.Process(pid) for pid in members if psutil.pid_exists(pid)], timeout=0.02)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_server_answers_by_its_name_and_ends_with_all_it_has_forked(tmp_path: pathlib.Path) -> None:
    server = forking_server(tmp_path)
    assert get(server.address, "app.test", "/") == (200, b"app.test")
    assert len(session_members(server.pid)) >= 3  # Server, fork and watch.
    server.close()
    wait_until_gone(server.pid)


def test_a_killed_owner_leaves_no_process(tmp_path: pathlib.Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None and owner.stdin is not None
    leader = int(owner.stdout.readline())
    assert session_members(leader)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    wait_until_gone(leader)
    owner.stdout.close()
    owner.stdin.close()


def test_a_server_that_ends_at_once_is_reported_in_one_line(tmp_path: pathlib.Path) -> None:
    with pytest.raises(UserError, match=r"app\.test on 127\.0\.0\.1:\d+: no database") as error:
        ServerProcess(command(tmp_path, "raise SystemExit('no database')"))
    assert "\n" not in str(error.value)


def test_a_failing_program_is_reported_with_its_last_line() -> None:
    with pytest.raises(UserError, match="failed: disk is full"):
        run_quietly([sys.executable, "-S", "-c", "print('working'); raise SystemExit('disk is full')"])
    with pytest.raises(UserError, match="no-such-program not found"):
        run_quietly(["no-such-program"])


def test_files_and_databases_of_a_world_are_set_back(
    notebook: type[Notebook], tmp_path: pathlib.Path
) -> None:
    application = notebook(tmp_path)
    application.prepare()
    (application.kept / "pages/old").mkdir(parents=True)
    (application.kept / "pages/old/first").write_text("as made")
    with contextlib.closing(sqlite3.connect(application.kept / "base.db")) as database, database:
        database.execute("CREATE TABLE notes (text TEXT)")
    with application:
        before = application.content()
        assert before.keys() == {"note", "pages/old/first", "base.db"}
        taken = application.snapshot()
        (application.data / "pages/old/first").write_text("edited")
        (application.data / "pages/new").write_text("new")
        with contextlib.closing(sqlite3.connect(application.data / "base.db")) as server:
            server.execute("INSERT INTO notes VALUES ('open')")
            server.commit()
            edited, changed = application.snapshot(), application.content()
            assert changed != before
            application.reset(0)
            assert application.content() == before
            application.restore(edited)
            assert application.content() == changed
            assert server.execute("SELECT * FROM notes").fetchall() == [("open",)]
            application.restore(pickle.loads(pickle.dumps(taken)))
            assert application.content() == before
            assert server.execute("SELECT * FROM notes").fetchall() == []
    assert application.address == ""


def test_a_world_is_filled_in_once_and_is_that_of_its_seed(
    notebook: type[Notebook], tmp_path: pathlib.Path
) -> None:
    one, other = notebook(tmp_path), notebook(tmp_path)
    one.prepare()
    with one, other:
        texts = set()
        for seed in (0, 5, 0, 5, 7):
            one.reset(seed)
            other.reset(seed)
            assert one.read() == other.read() == one.world(seed)
            texts.add(one.world(seed)["notes"][1]["text"])
        assert len(texts) == notebook.filled == 3
        assert one.goal("write", 5) == other.goal("write", 5) != one.goal("write", 7)


def test_an_application_is_made_once_and_again_for_a_new_version(
    notebook: type[Notebook], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"call prepare\(\) first"):
        notebook(tmp_path).start()
    monkeypatch.setattr(notebook, "broken", True)
    with pytest.raises(UserError, match="cannot download"):
        notebook(tmp_path).prepare()
    monkeypatch.setattr(notebook, "broken", False)
    for _ in range(2):
        notebook(tmp_path).prepare()
    assert notebook.made == 2  # The half-made one does not count.
    monkeypatch.setattr(notebook, "version", "2")
    notebook(tmp_path).prepare()
    assert notebook.made == 3


def test_a_running_version_is_not_replaced_and_an_old_one_is_not_started(
    notebook: type[Notebook], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = notebook(tmp_path)
    one.prepare()
    with one:
        monkeypatch.setattr(notebook, "version", "2")
        with pytest.raises(UserError, match="another version of notebook is there, and runs in process"):
            notebook(tmp_path).prepare()
        with pytest.raises(UserError, match="this version of the application is not there"):
            notebook(tmp_path).start()
        assert (one.data / "note").exists()
    notebook(tmp_path).prepare()


def test_a_world_that_cannot_be_filled_in_leaves_nothing(
    notebook: type[Notebook], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("disk full")

    application = notebook(tmp_path)
    application.prepare()
    monkeypatch.setattr(notebook, "_fill", full)
    with pytest.raises(OSError, match="disk full"):
        application.start()
    monkeypatch.undo()
    with notebook(tmp_path) as application:
        assert application.read() == application.world(0)
    assert [path.name for path in (tmp_path / "notebook/worlds").iterdir() if path.is_dir()]
    assert not list((tmp_path / "notebook/live").glob("*/note"))


def test_worlds_and_goals_are_the_same_in_every_process() -> None:
    """Sets have another order in each."""
    program = (
        "import pathlib\n"
        "from collection.environments.apps.application import digest\n"
        "from collection.environments.apps.suite import make_application\n"
        "trac = make_application('trac', pathlib.Path('apps'))\n"
        "print(digest(trac.world(3), [trac.goal(name, 3) for name in trac.templates]))"
    )
    printed = {
        run_quietly([sys.executable, "-c", program], environment={"PYTHONHASHSEED": seed}) for seed in "123"
    }
    assert len(printed) == 1


def test_instances_share_no_visitor_changes(notebook: type[Notebook], tmp_path: pathlib.Path) -> None:
    one, other = notebook(tmp_path), notebook(tmp_path)
    one.prepare()
    dead = subprocess.Popen(["true"])
    dead.wait()
    orphan = tmp_path / "notebook/live" / f"{dead.pid}-x"
    orphan.mkdir(parents=True)
    with one, other:
        assert not orphan.exists()
        text = (other.data / "note").read_text()
        (one.data / "note").write_text("mine")
        assert (other.data / "note").read_text() == text
        one.reset(0)
        assert (one.data / "note").read_text() == text
        assert hosts([one]) == {"notebook.test": "127.0.0.1:1"}
    assert not list((tmp_path / "notebook/live").iterdir())
