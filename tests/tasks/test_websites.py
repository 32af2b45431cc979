"""Grouping of results, and the definition of a site."""

from collection.tasks.websites import site_of


def test_sites_are_registrable_domains():
    assert [
        site_of(url) for url in ("https://a.b.co.uk/x", "http://127.0.0.1:80/", "http://wiki.lan/", "")
    ] == [
        "b.co.uk",
        "127.0.0.1",
        "wiki.lan",
        "",
    ]
