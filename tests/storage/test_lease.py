"""Leases let one writer use a prefix, also where clocks differ."""

import subprocess
import sys
import threading
import time

import pytest

from rmsweb_jax.errors import UserError
from rmsweb_jax.storage import Lease

# Long enough for a renewal on a busy machine.
SECONDS = 8.0


def lease(place, **options):
    store, root = place
    return Lease(store, f"{root}/.lease", "gs://b/x", **{"seconds": SECONDS, **options})


def test_a_second_writer_is_refused_while_the_first_renews(place):
    with lease(place) as held:
        with pytest.raises(UserError, match=r"gs://b/x: in use by .* process \d+; wait for it"), lease(place):
            pass
        held.check()
    begin = time.monotonic()
    with lease(place):
        pass
    assert time.monotonic() < begin + SECONDS  # A free one is taken at once.


def test_a_dead_holder_is_waited_for(place):
    with lease(place, seconds=1e6) as dead:
        dead._ended.set()  # It renews no more, as if it were killed.
        begin = time.monotonic()
        with lease(place, seconds=2.0):
            assert time.monotonic() >= begin + 2
        # What the dead one does later changes nothing.
        assert not dead._write()


def test_a_holder_whose_lease_was_taken_stops(place):
    (store, root), lost = place, threading.Event()
    with lease(place, seconds=4.0, on_lost=lost.set) as held:
        store.write(f"{root}/.lease", b"another's")
        assert lost.wait(60)
        with pytest.raises(UserError, match="another process writes there"):
            held.check()
    assert store.read(f"{root}/.lease") == b"another's"


class Unreachable:
    """A store that cannot be reached while `cut`; `loses` replies to writes that it has made."""

    def __init__(self, store):
        self._store, self.cut, self.loses = store, False, False

    def __getattr__(self, name):
        if self.cut:
            raise UserError("the store did not answer")
        if self.loses and name == "replace":
            return self._lose
        return getattr(self._store, name)

    def _lose(self, *arguments):
        self._store.replace(*arguments)
        raise UserError("the store did not answer")


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("fault", ["cut", "loses"])
def test_a_holder_that_cannot_renew_does_not_write_and_goes_on_later(place, fault):
    store, lost = Unreachable(place[0]), threading.Event()
    with lease((store, place[1]), seconds=2.0, on_lost=lost.set) as held:
        held.check()
        setattr(store, fault, True)
        wait_until(lambda: not held.is_held())
        with pytest.raises(UserError, match="did not answer"):
            held.check()
        setattr(store, fault, False)
        held.check()
        assert held.is_held() and not lost.is_set()


def test_processes_count_without_loss(bucket):
    """The holder adds one to a number that has no other protection."""
    script = (
        "import sys, time\n"
        "from rmsweb_jax.errors import UserError\n"
        "from rmsweb_jax.storage import Lease, parse_path\n"
        "folder = parse_path(sys.argv[1], '')\n"
        "for _ in range(3):\n"
        "    while True:\n"
        "        try:\n"
        "            with Lease(folder.store, (folder / '.lease').key, 'x', seconds=30.0):\n"
        "                (folder / 'n').write_bytes(b'%d' % (int((folder / 'n').read_text()) + 1))\n"
        "            break\n"
        "        except UserError:\n"
        "            time.sleep(0.05)\n"
    )
    (bucket / "n").write_bytes(b"0")
    children = [subprocess.Popen([sys.executable, "-c", script, str(bucket)]) for _ in range(4)]
    assert [child.wait() for child in children] == [0] * 4
    assert (bucket / "n").read_bytes() == b"12"
