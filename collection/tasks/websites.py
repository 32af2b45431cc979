"""Addresses at which a task may start."""

from __future__ import annotations

import ada_url

from collection.sites import is_public_site


def start_address(text: str) -> str:
    """The address in its WHATWG form.

    Raises:
      ValueError: no address of a web page (http or https, without a name or password), in words.
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
    """The same for tasks that a model made up: only names under a public suffix.

    Raises:
      ValueError: as `start_address`; also a bare address or a local name.
    """
    href = start_address(text)
    if not is_public_site(href):
        raise ValueError(f"website {text[:80]!r} is not on the public web")
    return href
