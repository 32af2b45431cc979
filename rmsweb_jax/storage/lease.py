"""The right of one process to write below a prefix of a store."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable

from rmsweb_jax.errors import UserError
from rmsweb_jax.storage.objects import ObjectStore

LEASE_SECONDS = 30.0


class Lease(contextlib.AbstractContextManager["Lease"]):
    """One writer a prefix: held while active, renewed by a thread, and free after the holder has died.

    No clocks are compared, so skew does not matter. A holder may not write when `seconds` have passed on its
    own clock since it sent its last renewal; another process takes the lease when it has seen the same
    version for `seconds` on its own clock, which began later. A holder that could not reach the store goes on
    as soon as it can, unless another process has taken the lease by then.

    Args:
      key: of the lease object, such as `runs/a/.lease`.
      where: the prefix, for messages.
      seconds: after a holder has died, others wait so long; None: LEASE_SECONDS.
      on_lost: called by the thread when another process has taken the lease.

    Raises:
      UserError: another process holds it and renews it.
    """

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        where: str,
        seconds: float | None = None,
        on_lost: Callable[[], None] = lambda: None,
    ):
        self._store, self._key, self._where = store, key, where
        self._seconds = LEASE_SECONDS if seconds is None else seconds
        self._on_lost = on_lost
        self._owner = f"{socket.gethostname()} process {os.getpid()}"
        self._token = secrets.token_hex(16)
        self._renewals = 0
        self._version = ""
        self._valid_until = 0.0
        self._renewing = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def __enter__(self) -> Lease:
        self._take()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        # Overwritten, not deleted: a delete cannot be made conditional everywhere.
        if self.is_held():
            self._write(free=True)

    def is_held(self) -> bool:
        return time.monotonic() < self._valid_until

    def check(self) -> None:
        """Raises UserError if the lease is lost, or the store cannot be reached.

        It asks the store, since this process's clock may have stood still with its machine.
        """
        if not self._renew():
            raise UserError(
                f"{self._where}: another process writes there since this one did not renew its lease for "
                f"{self._seconds:.0f} s: wait for it, or give another folder"
            )

    def _take(self) -> None:
        seen, since = "", time.monotonic()
        while True:
            try:
                data, version = self._store.read_version(self._key)
            except FileNotFoundError:
                if self._write():
                    return
                continue
            holder = _parse(data)
            is_over = version == seen and time.monotonic() >= since + self._seconds
            if holder.get("free") or is_over:
                self._version = version
                if self._write():
                    return
            elif seen and version != seen:
                # It was renewed or taken in the meantime: its holder lives.
                raise UserError(
                    f"{self._where}: in use by {holder.get('owner', 'another process')}; wait for it or give "
                    "another folder"
                )
            if version != seen:
                if not seen:
                    owner = holder.get("owner", "another process")
                    logging.info(
                        "%s: waiting %.0f s to see whether %s lives", self._where, self._seconds, owner
                    )
                seen, since = version, time.monotonic()
            time.sleep(self._seconds / 20)

    def _keep(self) -> None:
        while not self._ended.wait(self._seconds / 4):
            # Where the store does not answer, the next turn tries again.
            with contextlib.suppress(UserError):
                if not self._renew():
                    self._on_lost()
                    return

    def _renew(self) -> bool:
        with self._renewing:
            kept = self._write()
            if not kept:
                self._valid_until = 0.0
            return kept

    def _write(self, free: bool = False) -> bool:
        """Writes the lease object over the version seen last, or creates it; returns False if refused."""
        self._renewals += 1
        sent = time.monotonic()
        content = {"owner": self._owner, "token": self._token, "renewals": self._renewals, "free": free}
        data = json.dumps(content).encode()
        if not self._replace(data):
            # An earlier write of this process, whose reply was lost, may be there.
            with contextlib.suppress(FileNotFoundError):
                there, version = self._store.read_version(self._key)
                if _parse(there).get("token") != self._token:
                    return False
                self._version = version
            if not self._replace(data):
                return False
        try:
            now, self._version = self._store.read_version(self._key)
        except FileNotFoundError:
            return False
        if now != data:
            return False
        self._valid_until = 0.0 if free else sent + self._seconds
        return True

    def _replace(self, data: bytes) -> bool:
        if self._version:
            return self._store.replace(self._key, data, self._version)
        return self._store.create(self._key, data)


def _parse(data: bytes) -> dict:
    with contextlib.suppress(ValueError):
        if isinstance(content := json.loads(data), dict):
            return content
    return {}
