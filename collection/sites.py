"""What counts as one site."""

from __future__ import annotations

import tldextract

# The packaged list of suffixes: nothing here goes to the network.
_DOMAINS = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)


def site_of(url: str) -> str:
    """The registrable domain, or the host where there is none (an address, a local name)."""
    found = _DOMAINS(url)
    return found.top_domain_under_public_suffix or ".".join(filter(None, (found.subdomain, found.domain)))


def is_public_site(url: str) -> bool:
    """Whether the host is a name under a public suffix: no address, no local name."""
    return bool(_DOMAINS(url).top_domain_under_public_suffix)
