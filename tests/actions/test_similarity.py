import pytest

from rmsweb_jax.actions.formatting import plain
from rmsweb_jax.actions.similarity import parse_url, same_page, values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  Two\tWORDS ", "two words"),
        ("$1,250.00 a night", "$1250 a night"),
        ("“5th of June, 2026”", '"2026-06-05"'),
        ("June 5th", "0000-06-05"),
        ("2026/6/5T09:30", "2026-06-05 09:30"),
        ("5/6/2026", "05/06/2026"),
        ("13/13/2026", "13/13/2026"),
        ("Sept 2026", "2026-09"),
        ("Friday, 5 June 2026", "fri 2026-06-05"),
        ("p.m. in the U.S.", "pm in the us"),
        ("version 1.2.3", "version 1.2.3"),
        ("/2026/06/05/news", "/2026/06/05/news"),
        ("maybe 5", "maybe 5"),
        ("٢٠٢٦年６月５日", "2026-06-05"),
    ],
)
def test_plain_form(text, expected):
    assert plain(text) == expected
    assert plain(expected) == expected


def test_values_keep_their_order_and_the_words_next_to_numbers():
    text = "the rtx 4070 ti costs $500 or not until monday at example.com, says anna@b.org of it"
    expected = ["rtx", "4070", "ti", "$", "500", "or", "not", "until", "monday", "example.com", "@anna@b.org"]
    assert values(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "two words",
        "/path",
        "?query",
        "#part",
        "./here",
        "javascript:alert(1)",
        "data:text/html,x",
        "mailto:me@a.org",
        "tel:911",
        "file:///x",
        "about:blank",
        "chrome://settings",
        "https://",
        "https://a b.org/",
        "https://a.org:99999/",
        "https://[::1",
    ],
)
def test_urls_that_are_no_remote_pages(text):
    assert parse_url(text) is None
    assert same_page(text, f" {text}")
    assert not same_page(text, "https://a.org/")


@pytest.mark.parametrize(
    "text", ["a.org", "//a.org", "a.org:443", "HTTPS://a.org", "https:a.org", "\\\\a.org"]
)
def test_addresses_as_people_write_them(text):
    assert same_page(text, "https://a.org/")
