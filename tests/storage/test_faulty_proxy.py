"""The proxy that makes stores slow and unreliable: real clients reach real servers through it."""

import http.client
import time
import urllib.request

import pytest

from rmsweb_jax import storage
from rmsweb_jax.storage import ObjectStore
from tests.storage.faulty_proxy import Faults, FaultyProxy
from tests.storage.servers import gcs_command, has_client, s3_command, serve, variables


@pytest.fixture(params=["gs", "s3"])
def proxied(request, tmp_path):
    scheme = request.param
    if not (gcs_command() if scheme == "gs" else s3_command()) or not has_client(scheme):
        pytest.skip(f"no {scheme}:// server or client is installed")
    log = tmp_path / "log"
    with FaultyProxy() as proxy, serve(scheme, log, proxy) as environment, variables(environment):
        yield ObjectStore(scheme, "runs"), proxy


def test_clients_work_through_it_and_requests_are_counted(proxied, tmp_path):
    store, proxy = proxied
    before = proxy.count()
    big = bytes(range(256)) * 50_000  # More than one request of a multipart or resumable upload.
    (tmp_path / "big").write_bytes(big)
    store.upload("a/big", tmp_path / "big")
    assert proxy.count().sent - before.sent >= len(big)
    before = proxy.count()
    assert store.read("a/big") == big
    after = proxy.count()
    assert after.requests["GET"] == before.requests.get("GET", 0) + 1
    assert after.received - before.received >= len(big)
    store.download("a/big", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == big
    store.write("a/one", b"1")
    assert [entry.key for entry in store.entries("a/")] == ["a/big", "a/one"]
    store.delete("a/one")
    assert store.size("a/one") is None
    assert (proxy.count().refused, proxy.count().cut) == (0, 0)


@pytest.mark.slow
def test_clients_get_over_refusals_and_cuts(proxied):
    store, proxy = proxied
    proxy.faults = Faults(refused=0.2, cut=0.2, cut_after=40)
    for number in range(12):
        store.write(f"b/{number}", b"%d" % number * 1000)
        assert store.read(f"b/{number}") == b"%d" % number * 1000
    assert proxy.count().refused and proxy.count().cut


@pytest.mark.slow
def test_clients_repeat_what_is_never_answered(proxied, monkeypatch):
    _, proxy = proxied
    monkeypatch.setattr(storage, "SILENCE_S", 0.5)
    store = ObjectStore(proxied[0]._url[:2], "runs")
    store.write("d", b"0")
    proxy.faults = Faults(silent=0.3)
    for number in range(3):
        store.write("d", b"%d" % number)
        assert store.read("d") == b"%d" % number
        assert store.size("d") == 1
    assert proxy.count().silent


def test_requests_are_delayed_and_responses_slowed(proxied):
    store, proxy = proxied
    store.write("c", bytes(200_000))
    proxy.faults = Faults(delay_s=0.3)
    start = time.monotonic()
    store.read("c")
    assert time.monotonic() - start >= 0.3
    proxy.faults = Faults(bytes_per_s=500_000)
    start = time.monotonic()
    store.read("c")
    assert time.monotonic() - start >= 0.4


def test_a_response_is_cut_where_it_should(proxied):
    _, proxy = proxied
    proxy.faults = Faults(cut=1.0)
    with pytest.raises(http.client.RemoteDisconnected):
        urllib.request.urlopen(f"http://127.0.0.1:{proxy.port}/", timeout=30)
    assert proxy.count().cut == 1
