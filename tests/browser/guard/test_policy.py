"""URL policy: worked cases, and properties of all addresses in all spellings."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.guard.policy import (
    HostSource,
    Reason,
    RequestTarget,
    UrlPolicy,
    is_metadata,
    is_own,
    is_public,
    site_sources,
)
from rmsweb_jax.errors import UserError
from tests.browser.guard.urls import ALLOWED, PRIVATE, URLS

OWN_PORTS = (9222, 9515)
POLICY = UrlPolicy(ALLOWED, PRIVATE, own_ports=OWN_PORTS)
V4 = st.ip_addresses(v=4)


def test_the_cases_are_many_and_unlike():
    assert len({url for url, _ in URLS}) == len(URLS) >= 120
    assert {reason for _, reason in URLS} == set(Reason)


@pytest.mark.parametrize("url", [url for url, _ in URLS if not url.lower().startswith(("about", "chrome-e"))])
def test_an_empty_list_allows_nothing(url):
    assert not UrlPolicy(()).judge(url).allowed


@given(st.text())
def test_any_text_has_a_verdict(text):
    assert POLICY.judge(text).reason in Reason


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("example.com", HostSource("", "example.com", 0)),
        (" Example.COM. ", HostSource("", "example.com", 0)),
        ("https://example.com/", HostSource("https", "example.com", 0)),
        ("*.bücher.example:81", HostSource("", "*.xn--bcher-kva.example", 81)),
        ("*", HostSource("", "*", 0)),
        ("http://*:*", HostSource("http", "*", -1)),
        ("http://0x7f.1:8000", HostSource("http", "127.0.0.1", 8000)),
        ("[0:0::1]:*", HostSource("", "[::1]", -1)),
    ],
)
def test_sources_are_read(text, source):
    assert HostSource.parse(text) == source


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*.",
        "**",
        "*foo.com",
        "a.*.com",
        "a b",
        "a/b",
        "a?b",
        "u@a",
        "a:0",
        "a:65536",
        "a:b",
        "ftp://a",
        "[::1",
    ],
)
def test_a_malformed_source_is_reported_in_one_line(text):
    with pytest.raises(UserError, match=r"names no hosts .*: write example.com") as error:
        UrlPolicy([text])
    assert "\n" not in str(error.value)


@given(st.ip_addresses())
def test_an_address_is_judged_like_a_name_that_resolves_to_it(address):
    host = f"[{address}]" if address.version == 6 else str(address)
    policy = UrlPolicy([host, "name.test"], own_ports=(80,))
    spelt = policy.judge(f"http://{host}/")
    resolved = policy.judge_address(RequestTarget("http", "name.test", 80), address)
    assert spelt.reason is resolved.reason


@given(V4)
def test_numeric_hosts_are_parsed_as_addresses(address):
    policy = UrlPolicy([str(address)])
    packed = address.packed
    spellings = (
        str(int(address)),
        hex(int(address)),
        oct(int(address)).replace("0o", "0"),
        f"{packed[0]}.{int.from_bytes(packed[1:])}",
        ".".join(hex(part) for part in packed),
    )
    assert {policy.judge(f"http://{text}/").reason for text in spellings} == {
        policy.judge(f"http://{address}/").reason
    }


@given(V4)
def test_ipv4_addresses_embedded_in_ipv6_get_the_same_verdict(address):
    number = int(address)
    for prefix, shift in (("::ffff:0:0", 0), ("64:ff9b::", 0), ("64:ff9b:1::", 0), ("2002::", 80)):
        found = ipaddress.IPv6Address(int(ipaddress.IPv6Address(prefix)) | number << shift)
        assert is_public(found) == is_public(address)
        assert is_metadata(found) == is_metadata(address)
        assert is_own(found) == is_own(address)


@pytest.mark.parametrize(
    "network",
    [
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/128",
        "::1/128",
        "100::/64",
        "2001::/32",
        "2001:db8::/32",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    ],
)
def test_special_networks_are_not_public(network):
    network = ipaddress.ip_network(network)
    for offset in (0, 1, network.num_addresses // 2, network.num_addresses - 1):
        assert not is_public(network[min(offset, network.num_addresses - 1)])


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.216.34", "2606:2800:220:1::1", "2a00::1"])
def test_the_internet_is_public(address):
    assert is_public(ipaddress.ip_address(address))


def test_resolved_addresses_are_judged():
    policy = UrlPolicy(["name.test:*"], ["http://app.test"], own_ports=OWN_PORTS)
    name, app, other = (RequestTarget("http", host, 80) for host in ("name.test", "app.test", "other.test"))
    public, private, own, metadata = map(
        ipaddress.ip_address, ("93.184.216.34", "10.0.0.1", "127.0.0.1", "169.254.169.254")
    )
    assert policy.judge_address(name, public).allowed
    assert policy.judge_address(name, private).reason is Reason.PRIVATE
    assert policy.judge_address(name, own).reason is Reason.PRIVATE
    assert policy.judge_address(name, metadata).reason is Reason.METADATA
    assert policy.judge_address(RequestTarget("http", "name.test", 9515), own).reason is Reason.OWN_PORT
    assert all(policy.judge_address(app, address).allowed for address in (public, private, own))
    assert policy.judge_address(app, metadata).reason is Reason.METADATA
    assert policy.judge_address(other, public).reason is Reason.NOT_LISTED


# --- Sources of a task's own site ---


@pytest.mark.parametrize(
    ("website", "sources"),
    [
        ("https://www.example.co.uk/a", ("example.co.uk", "*.example.co.uk")),
        ("example.com", ("example.com", "*.example.com")),
        ("https://shop.example.com:8443/", ("example.com:8443", "*.example.com:8443")),
        ("http://10.1.2.3/", ("10.1.2.3",)),
        ("http://[2001:db8::1]:81/", ("[2001:db8::1]:81",)),
        ("http://localhost:8000/", ("localhost:8000",)),
        ("https://user@example.com/", ()),
        ("javascript:alert(1)", ()),
        ("https://co.uk/", ("co.uk",)),
        ("https://someone.github.io/", ("someone.github.io", "*.someone.github.io")),
        ("", ()),
    ],
)
def test_a_website_allows_its_domain(website, sources):
    assert site_sources(website) == sources


@given(st.from_regex(r"https?://([a-z0-9]{1,8}\.){0,4}[a-z]{2,4}(:[1-9][0-9]{0,3})?/", fullmatch=True))
def test_a_website_is_among_its_own_sources(website):
    sources = site_sources(website)
    assert UrlPolicy(sources).judge(website).reason in (Reason.ALLOWED, Reason.PRIVATE)
    assert not any(HostSource.parse(text).host in ("*", "*.com", "*.co.uk") for text in sources)


def test_an_episode_forgets_the_one_before():
    guard = Guard(GuardConfig(allowed=("always.test",), task_site=True))
    guard.admit(["a.test"], website="https://www.example.com/start")
    urls = ["https://always.test/", "https://a.test/", "https://b.example.com/", "https://evil.test/"]
    assert [guard.check(url).allowed for url in urls] == [True, True, True, False]
    guard.admit()
    assert [guard.check(url).allowed for url in urls] == [True, False, False, False]


def test_a_website_allows_nothing_without_task_site():
    guard = Guard(GuardConfig())
    guard.admit(website="https://www.example.com/")
    assert guard.check("https://www.example.com/").reason is Reason.NOT_LISTED


def test_a_task_cannot_name_private_places():
    guard = Guard(GuardConfig(private=("http://127.0.0.1:8000",), task_site=True))
    guard.admit(["10.0.0.1", "localhost:81"], website="http://192.168.0.1/")
    for url in ("http://10.0.0.1/", "http://localhost:81/", "http://192.168.0.1/"):
        assert guard.check(url).reason is Reason.PRIVATE
    assert guard.check("http://127.0.0.1:8000/").allowed
