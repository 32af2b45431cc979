"""Sites: a registrable domain with all hosts below it."""

from __future__ import annotations

import ada_url
import tldextract

from collection.browser.guard.policy import RequestTarget, read_url

# Private suffixes such as github.io count: sites below them have different owners. The packaged list is used,
# so that no network access is needed and runs repeat.
_DOMAINS = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None, include_psl_private_domains=True)


def site_sources(website: str) -> tuple[str, ...]:
    """Returns sources for a website's registrable domain and all hosts below it; none without a host."""
    target = read_url(website if "://" in website else f"https://{website}")
    if not isinstance(target, RequestTarget):
        return ()
    port = ada_url.URL(f"{target.scheme}://{target.host}:{target.port}").port
    end = f":{port}" if port else ""
    domain = _DOMAINS(target.host).top_domain_under_public_suffix
    # The hosts next to an IP address, a local name or a public suffix belong to other owners.
    return (domain + end, f"*.{domain}{end}") if domain else (target.host + end,)


def secure_sources(website: str) -> tuple[str, ...]:
    """Returns `site_sources` for https only."""
    return tuple(f"https://{source}" for source in site_sources(website))
