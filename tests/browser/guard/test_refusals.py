"""A refusal reported by the window check and by the proxy becomes one incident."""

from __future__ import annotations

from collection.browser.guard.refusals import merge_refusals
from rmsweb_jax.records.schema import Incident, IncidentKind


def _merged(*details: str, kind: IncidentKind = "refused") -> list[str]:
    return [incident.detail for incident in merge_refusals(Incident(kind=kind, detail=d) for d in details)]


def test_one_place_and_reason_are_one_refusal_with_the_proxys_count() -> None:
    assert _merged(
        "http://evil.test/a: evil.test is not listed",
        "http://other.test/: other.test is not listed",
        "http://evil.test/b?c=1: evil.test is not listed [not_listed] (2 times)",
    ) == [
        "http://evil.test/a: evil.test is not listed [not_listed] (2 times)",
        "http://other.test/: other.test is not listed",
    ]


def test_a_tunnel_is_the_place_that_it_leads_to() -> None:
    merged = _merged(
        "https://Evil.test/x: evil.test is not listed", "evil.test:443: evil.test is not listed [not_listed]"
    )
    assert merged == ["https://Evil.test/x: evil.test is not listed [not_listed]"]


def test_other_ports_reasons_and_kinds_are_others() -> None:
    ports = ["http://a.test/: a.test is not listed", "http://a.test:81/: a.test is not listed [not_listed]"]
    assert _merged(*ports) == ports
    reasons = ["http://a.test/: more than 5 MB [response_size]", "http://a.test/: 9.0 MB [response_size]"]
    assert _merged(*reasons) == reasons
    placeless = ["3 more requests", "3 more requests"]
    assert _merged(*placeless) == placeless
    dialogs = ["http://a.test/: same", "http://a.test/: same"]
    assert _merged(*dialogs, kind="dialog") == dialogs
