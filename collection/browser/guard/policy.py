"""URL policy: decides which URLs and IP addresses a browser may reach.

URLs are parsed by the WHATWG rules that browsers follow (ada-url). Other parsers find another host in
`https://evil.test\\@example.com/`, `https:evil.test` or `http://0x7f.1/`.
"""

from __future__ import annotations

import dataclasses
import enum
import ipaddress
import re
from collections.abc import Collection, Iterable

import ada_url
import tldextract

from rmsweb_jax.errors import UserError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Metadata services give a machine's credentials to every process on it. Some have public addresses, so that
# the check for private ones does not cover them.
_METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254",  # AWS, Azure, Google Cloud, DigitalOcean, OpenStack, Oracle
        "169.254.170.2",  # AWS ECS, credentials of a task
        "169.254.170.23",  # AWS EKS, credentials of a pod
        "169.254.0.23",  # Tencent Cloud
        "100.100.100.200",  # Alibaba Cloud
        "168.63.129.16",  # Azure's host
        "192.0.0.192",  # Oracle Cloud, classic
        "fd00:ec2::254",  # AWS
        "fd00:ec2::23",  # AWS EKS
        "fd20:ce::254",  # Google Cloud
        "fd00:42::42",  # Scaleway
    )
)
# IPv6 prefixes that embed an IPv4 address, with the number of bits after that address. A private IPv4 address
# would pass as a public IPv6 address in these forms.
_EMBEDDINGS = tuple(
    (ipaddress.IPv6Network(network), bits)
    for network, bits in (
        ("::/96", 0),  # IPv4-compatible (RFC 4291), deprecated and still routed by some stacks
        ("::ffff:0:0/96", 0),  # IPv4-mapped (RFC 4291)
        ("::ffff:0:0:0/96", 0),  # IPv4-translated (RFC 2765)
        ("64:ff9b::/96", 0),  # NAT64 (RFC 6052)
        ("64:ff9b:1::/96", 0),  # NAT64 of one's own (RFC 8215) in its usual form
        ("2002::/16", 80),  # 6to4 (RFC 3056)
    )
)


def embedded(address: Address) -> Address:
    """Returns the IPv4 address that is embedded in an IPv6 one; any other address unchanged."""
    if isinstance(address, ipaddress.IPv6Address) and not (address.is_loopback or address.is_unspecified):
        for network, bits in _EMBEDDINGS:
            if address in network:
                return ipaddress.IPv4Address(int(address) >> bits & 0xFFFFFFFF)
    return address


def is_own(address: Address) -> bool:
    """Returns True for this machine: loopback, and the unspecified address, which connects to loopback."""
    found = embedded(address)
    return found.is_loopback or found.is_unspecified


def is_metadata(address: Address) -> bool:
    """Returns True for the address of a cloud's metadata service, in any embedded form."""
    return embedded(address) in _METADATA


def is_public(address: Address) -> bool:
    """Returns True for addresses on the public internet; False for any form of a private or local one."""
    found = embedded(address)
    if isinstance(found, ipaddress.IPv6Address):
        # All public unicast is in 2000::/3. Teredo (2001::/32), which embeds IPv4, is not global for Python.
        return found in ipaddress.IPv6Network("2000::/3") and found.is_global and not found.is_multicast
    return found.is_global and not found.is_multicast and not found.is_reserved


# Private suffixes such as github.io count: sites below them have different owners. The packaged list is used,
# so that no network access is needed and runs repeat.
_DOMAINS = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None, include_psl_private_domains=True)
_DEFAULT_PORTS = {"http": 80, "https": 443}
# A WebSocket is allowed if its page would be.
_SOCKETS = {"ws": "http", "wss": "https"}
# Pages of the browser itself that need no request: an empty window, and the error page.
_INTERNAL = frozenset({"about:blank", "about:srcdoc", "chrome-error://chromewebdata/"})
# Scheme, host and port. The host must not contain a character that would end it in a URL.
_SOURCE = re.compile(
    r"(?:(https?)://)?"
    r"(\*|(?:\*\.)?(?:\[[0-9a-f:.]+\]|[^\s*:/?#@\\\[\]]+))"
    r"(?::(\*|[0-9]{1,5}))?/?"
)


class Reason(enum.StrEnum):
    """Reason of a verdict, as written to records."""

    ALLOWED = "allowed"
    NOT_A_URL = "not_a_url"
    SCHEME = "scheme"
    CREDENTIALS = "credentials"
    METADATA = "metadata"
    OWN_PORT = "own_port"
    NOT_LISTED = "not_listed"
    PRIVATE = "private"


@dataclasses.dataclass(frozen=True)
class PolicyVerdict:
    """Decision on a URL; `detail` is one line for the agent and the record."""

    reason: Reason
    detail: str = ""

    @property
    def allowed(self) -> bool:
        return self.reason is Reason.ALLOWED


@dataclasses.dataclass(frozen=True)
class RequestTarget:
    """Destination of a request: scheme "http" or "https", host and port."""

    scheme: str
    host: str
    port: int


@dataclasses.dataclass(frozen=True)
class HostSource:
    """A host source as in a Content Security Policy: `[scheme://]host[:port]`.

    Attributes:
      scheme: "http" or "https"; empty for both.
      host: in lower case and punycode, as browsers write it; "*.example.com" matches every host below
        example.com but not example.com; "*" matches every host.
      port: 0 for the scheme's default, -1 for any (":*").
    """

    scheme: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> HostSource:
        """Parses a source.

        Raises:
          UserError: the text is not a source.
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

    def matches(self, target: RequestTarget) -> bool:
        if self.scheme and self.scheme != target.scheme:
            return False
        if self.port != -1 and target.port != (self.port or _DEFAULT_PORTS[target.scheme]):
            return False
        if self.host.startswith("*"):
            return target.host.endswith(self.host[1:])
        return target.host == self.host


def _plain_host(text: str) -> str:
    """Returns a host as browsers write it; raises ValueError if they would reject it."""
    return _host_of(ada_url.URL(f"https://{text}/"))


def _host_of(url: ada_url.URL) -> str:
    # A name resolves to the same address with and without the root's dot.
    host = url.hostname.removesuffix(".")
    if not host or "*" in host:
        raise ValueError("not a host")
    return host


def read_url(url: str) -> RequestTarget | PolicyVerdict:
    """Returns the destination of a URL, or the verdict on a URL without a host."""
    try:
        parsed = ada_url.URL(url)
    except ValueError:
        return PolicyVerdict(Reason.NOT_A_URL, "not a URL that a browser opens")
    if parsed.href in _INTERNAL:
        return PolicyVerdict(Reason.ALLOWED)
    if parsed.protocol == "blob:" and parsed.origin != "null":
        # A blob contains data of a page of its origin, so the origin decides.
        return read_url(parsed.origin)
    scheme = parsed.protocol.removesuffix(":")
    scheme = _SOCKETS.get(scheme, scheme)
    if scheme not in _DEFAULT_PORTS:
        return PolicyVerdict(Reason.SCHEME, f"{scheme}: addresses are not opened")
    if parsed.username or parsed.password:
        return PolicyVerdict(Reason.CREDENTIALS, "an address must not hold a user name or password")
    try:
        host = _host_of(parsed)
    except ValueError:
        return PolicyVerdict(Reason.NOT_A_URL, "no host")
    return RequestTarget(scheme, host, int(parsed.port or _DEFAULT_PORTS[scheme]))


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


def literal_address(host: str) -> Address | None:
    """Returns the IP address that a URL's host spells out; None for a name."""
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None


def is_local_name(host: str) -> bool:
    """Returns True for names that browsers map to loopback without a lookup."""
    return host == "localhost" or host.endswith(".localhost")


class UrlPolicy:
    """Allow list of URLs with default deny.

    Args:
      allowed: sources on the public internet.
      private: sources that may also lead to private and loopback addresses, such as a test server. Metadata
        services stay out of reach for these as well.
      own_ports: the loopback ports of the driver, the debugger and the proxy. A page that reached the driver
        could control the browser.

    Raises:
      UserError: a source is malformed.
    """

    def __init__(
        self,
        allowed: Iterable[str],
        private: Iterable[str] = (),
        own_ports: Collection[int] = (),
    ) -> None:
        self._private = tuple(map(HostSource.parse, private))
        self._allowed = (*map(HostSource.parse, allowed), *self._private)
        self._own_ports = own_ports

    def judge(self, url: str) -> PolicyVerdict:
        """Judges a URL that a browser shows or requests."""
        found = read_url(url)
        return self.judge_target(found) if isinstance(found, RequestTarget) else found

    def is_own_port(self, port: int) -> bool:
        """Returns True if the driver, the debugger or the proxy listens on this loopback port."""
        return port in self._own_ports

    def judge_target(self, target: RequestTarget) -> PolicyVerdict:
        """Judges a parsed URL; does not resolve names."""
        address = literal_address(target.host)
        if address is not None and is_metadata(address):
            return _refused_metadata(target)
        local = is_own(address) if address is not None else is_local_name(target.host)
        if local and self.is_own_port(target.port):
            return PolicyVerdict(Reason.OWN_PORT, f"port {target.port} is the browser's own")
        if not _names(self._allowed, target):
            return PolicyVerdict(Reason.NOT_LISTED, f"{target.host} is not one of the sites of this task")
        if _names(self._private, target) or not (local or (address is not None and not is_public(address))):
            return PolicyVerdict(Reason.ALLOWED)
        return _refused_private(target)

    def judge_address(self, target: RequestTarget, address: Address) -> PolicyVerdict:
        """Judges a target together with the address that its name resolved to."""
        verdict = self.judge_target(target)
        if not verdict.allowed:
            return verdict
        if is_metadata(address):
            return _refused_metadata(target)
        if is_own(address) and self.is_own_port(target.port):
            return PolicyVerdict(Reason.OWN_PORT, f"port {target.port} is the browser's own")
        if is_public(address) or _names(self._private, target):
            return verdict
        return _refused_private(target)


def _names(sources: Iterable[HostSource], target: RequestTarget) -> bool:
    return any(source.matches(target) for source in sources)


def _refused_metadata(target: RequestTarget) -> PolicyVerdict:
    return PolicyVerdict(Reason.METADATA, f"{target.host} leads to a metadata service")


def _refused_private(target: RequestTarget) -> PolicyVerdict:
    return PolicyVerdict(Reason.PRIVATE, f"{target.host} leads to a private network")
