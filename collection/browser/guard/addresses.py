"""Which IP addresses are nobody's business of an agent: private ones, and a cloud's metadata services."""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Services that hand a machine's credentials to whoever asks from it. Some have public addresses.
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
# Prefixes under which an IPv6 address stands for an IPv4 one, with the bits that follow that address.
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
    """The IPv4 address that an IPv6 one leads to; any other address as it is."""
    if isinstance(address, ipaddress.IPv6Address) and not (address.is_loopback or address.is_unspecified):
        for network, bits in _EMBEDDINGS:
            if address in network:
                return ipaddress.IPv4Address(int(address) >> bits & 0xFFFFFFFF)
    return address


def is_own(address: Address) -> bool:
    """Whether it is this machine itself: loopback, or "any address", which connects to loopback."""
    found = embedded(address)
    return found.is_loopback or found.is_unspecified


def is_metadata(address: Address) -> bool:
    """Whether a cloud's metadata service answers there, under any of the forms that lead to it."""
    return embedded(address) in _METADATA


def is_public(address: Address) -> bool:
    """Whether anybody on the internet can reach it; not so for any form of a private or local address."""
    found = embedded(address)
    if isinstance(found, ipaddress.IPv6Address):
        # All public unicast is in 2000::/3; Teredo (2001::/32) is not global for Python either.
        return found in ipaddress.IPv6Network("2000::/3") and found.is_global and not found.is_multicast
    return found.is_global and not found.is_multicast and not found.is_reserved
