"""The classifier of URLs: may a browser go there?

URLs are read by the WHATWG rules that browsers follow (ada-url): other parsers see another host in
`https://evil.test\\@example.com/`, `https:evil.test` or `http://0x7f.1/`.
"""

from __future__ import annotations

import dataclasses
import enum
import ipaddress
import re
from collections.abc import Callable, Collection, Iterable

import ada_url

from collection.browser.guard.addresses import Address, is_metadata, is_own, is_public
from rmsweb_jax.errors import UserError

_DEFAULT_PORTS = {"http": 80, "https": 443}
# A socket is let through where the page that opens it would be.
_SOCKETS = {"ws": "http", "wss": "https"}
# What a browser shows by itself, without a request: an empty window, and its own page for what failed.
_INTERNAL = frozenset({"about:blank", "about:srcdoc", "chrome-error://chromewebdata/"})
# Scheme, host and port; a host holds nothing that would end it in a URL.
_SOURCE = re.compile(
    r"(?:(https?)://)?"
    r"(\*|(?:\*\.)?(?:\[[0-9a-f:.]+\]|[^\s*:/?#@\\\[\]]+))"
    r"(?::(\*|[0-9]{1,5}))?/?"
)


class Reason(enum.StrEnum):
    """Why a URL is allowed or refused."""

    ALLOWED = "allowed"
    NOT_A_URL = "not_a_url"
    SCHEME = "scheme"
    CREDENTIALS = "credentials"
    METADATA = "metadata"
    OWN_PORT = "own_port"
    NOT_LISTED = "not_listed"
    PRIVATE = "private"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What came of a question; `detail` is for the agent and for records, one line."""

    reason: Reason
    detail: str = ""

    @property
    def allowed(self) -> bool:
        return self.reason is Reason.ALLOWED


@dataclasses.dataclass(frozen=True)
class Target:
    """Where a URL leads: scheme "http" or "https", host and port."""

    scheme: str
    host: str
    port: int


@dataclasses.dataclass(frozen=True)
class Source:
    """A host source as in a Content Security Policy: `[scheme://]host[:port]`.

    Attributes:
      scheme: "http" or "https"; empty for both.
      host: as browsers write it, in lower case and punycode; "*.example.com" for every host below
        example.com but not itself; "*" for every host.
      port: 0 for the scheme's own, -1 for any (":*").
    """

    scheme: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Source:
        """Reads a source.

        Raises:
          UserError: it is none.
        """
        found = _SOURCE.fullmatch(text.strip().lower())
        try:
            if found is None:
                raise ValueError("not a host source")
            scheme, host, port = (part or "" for part in found.groups())
            if host != "*":
                host = "*." * host.startswith("*.") + _plain_host(host.removeprefix("*."))
            number = -1 if port == "*" else int(port or 0)
            if (port and not number) or number > 65535:
                raise ValueError("no such port")
        except ValueError as error:
            raise UserError(
                f"{text!r} names no hosts ({error}): write example.com, *.example.com, *, or with a "
                "scheme and a port as in https://example.com:8443"
            ) from None
        return cls(scheme, host, number)

    def matches(self, target: Target) -> bool:
        if self.scheme and self.scheme != target.scheme:
            return False
        if self.port != -1 and target.port != (self.port or _DEFAULT_PORTS[target.scheme]):
            return False
        if self.host.startswith("*"):
            return target.host.endswith(self.host[1:])
        return target.host == self.host


def _plain_host(text: str) -> str:
    """A host as browsers write it; ValueError if they would not take it."""
    return _host_of(ada_url.URL(f"https://{text}/"))


def _host_of(url: ada_url.URL) -> str:
    # With and without the dot of the root, a name resolves to the same.
    host = url.hostname.removesuffix(".")
    if not host or "*" in host:
        raise ValueError("not a host")
    return host


def read_url(url: str) -> Target | Verdict:
    """Where a URL leads, read as browsers read it; or the verdict on one that leads to no host."""
    try:
        parsed = ada_url.URL(url)
    except ValueError:
        return Verdict(Reason.NOT_A_URL, "not a URL that a browser opens")
    if parsed.href in _INTERNAL:
        return Verdict(Reason.ALLOWED)
    if parsed.protocol == "blob:" and parsed.origin != "null":
        # Made by a page of that origin, which is what counts.
        return read_url(parsed.origin)
    scheme = parsed.protocol.removesuffix(":")
    scheme = _SOCKETS.get(scheme, scheme)
    if scheme not in _DEFAULT_PORTS:
        return Verdict(Reason.SCHEME, f"{scheme}: addresses are not opened")
    if parsed.username or parsed.password:
        return Verdict(Reason.CREDENTIALS, "an address must not hold a user name or password")
    try:
        host = _host_of(parsed)
    except ValueError:
        return Verdict(Reason.NOT_A_URL, "no host")
    return Target(scheme, host, int(parsed.port or _DEFAULT_PORTS[scheme]))


def literal_address(host: str) -> Address | None:
    """The address that a URL's host spells out; None for a name. A zone is no part of a URL's host."""
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None


def is_local_name(host: str) -> bool:
    """Whether browsers take it for loopback without asking anybody."""
    return host == "localhost" or host.endswith(".localhost")


class UrlPolicy:
    """Which URLs a browser may open. Nothing is allowed that no source names.

    Args:
      allowed: sources on the public internet.
      private: sources that may also lead to private and loopback addresses, such as a test server. Metadata
        services are out of reach for these, too.
      own_ports: gives the loopback ports of the machinery itself (driver, debugger, proxy), asked each time.

    Raises:
      UserError: a source cannot be read.
    """

    def __init__(
        self,
        allowed: Iterable[str],
        private: Iterable[str] = (),
        own_ports: Callable[[], Collection[int]] = tuple,
    ) -> None:
        self._private = tuple(map(Source.parse, private))
        self._allowed = (*map(Source.parse, allowed), *self._private)
        self._own_ports = own_ports

    def judge(self, url: str) -> Verdict:
        """Whether a browser may be at, or ask for, this URL."""
        found = read_url(url)
        return self.judge_target(found) if isinstance(found, Target) else found

    def is_own_port(self, port: int) -> bool:
        """Whether the machinery itself listens there on loopback."""
        return port in self._own_ports()

    def judge_target(self, target: Target) -> Verdict:
        """As `judge`, of a target that somebody else has read from a URL; names are not resolved."""
        address = literal_address(target.host)
        if address is not None and is_metadata(address):
            return _refused_metadata(target)
        local = is_own(address) if address is not None else is_local_name(target.host)
        if local and self.is_own_port(target.port):
            return Verdict(Reason.OWN_PORT, f"port {target.port} is the browser's own")
        if not _names(self._allowed, target):
            return Verdict(Reason.NOT_LISTED, f"{target.host} is not one of the sites of this task")
        if _names(self._private, target) or not (local or (address is not None and not is_public(address))):
            return Verdict(Reason.ALLOWED)
        return _refused_private(target)

    def judge_address(self, target: Target, address: Address) -> Verdict:
        """Whether an allowed target may lead to the address that its name resolved to."""
        verdict = self.judge_target(target)
        if not verdict.allowed:
            return verdict
        if is_metadata(address):
            return _refused_metadata(target)
        if is_own(address) and self.is_own_port(target.port):
            return Verdict(Reason.OWN_PORT, f"port {target.port} is the browser's own")
        if is_public(address) or _names(self._private, target):
            return verdict
        return _refused_private(target)


def _names(sources: Iterable[Source], target: Target) -> bool:
    return any(source.matches(target) for source in sources)


def _refused_metadata(target: Target) -> Verdict:
    return Verdict(Reason.METADATA, f"{target.host} leads to a metadata service")


def _refused_private(target: Target) -> Verdict:
    return Verdict(Reason.PRIVATE, f"{target.host} leads to a private network")
