"""Start addresses of tasks, and the sites they belong to."""

from __future__ import annotations

import ada_url
import tldextract

# With the packaged list of public suffixes, so that nothing is downloaded.
_DOMAINS = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)


def site_of(url: str) -> str:
    """Returns the registrable domain, or the host if there is none (an IP address, a local name)."""
    found = _DOMAINS(url)
    return found.top_domain_under_public_suffix or ".".join(filter(None, (found.subdomain, found.domain)))


def is_public_site(url: str) -> bool:
    """Returns True if the host is a name under a public suffix, not an IP address or a local name."""
    return bool(_DOMAINS(url).top_domain_under_public_suffix)


def start_address(text: str) -> str:
    """Normalises an address by the WHATWG rules.

    Raises:
      ValueError: it is not an http or https address without user name and password.
    """
    text = text.strip()
    if not ada_url.check_url(text):
        raise ValueError(f"website {text[:80]!r} is no address")
    url = ada_url.URL(text)
    if url.protocol not in ("http:", "https:"):
        raise ValueError(f"website {text[:80]!r} is not http or https")
    if url.username or url.password:
        raise ValueError("website holds a name or a password")
    return url.href


def public_address(text: str) -> str:
    """Like `start_address`, for tasks that a model wrote: accepts only names under a public suffix.

    Raises:
      ValueError: as `start_address`; also for an IP address or a local name.
    """
    href = start_address(text)
    if not is_public_site(href):
        raise ValueError(f"website {text[:80]!r} is not on the public web")
    return href
