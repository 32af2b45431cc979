"""Sources of a task's own site."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.browser.guard.config import GuardConfig
from collection.browser.guard.guard import Guard
from collection.browser.guard.policy import HostSource, Reason, UrlPolicy, site_sources


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
