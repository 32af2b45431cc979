"""Chromium's own restrictions: flags, preferences and the managed policy.

No page and no agent can change the managed policy. Chromium on Linux reads it from a folder that is
fixed at build time, for all browsers of the machine. A process that may create a mount namespace sees our
folder there (`expose_policy`), and no other process does. Where that is not permitted, an administrator can
copy the policy for the whole machine: `make browser-policy`.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
from typing import Any

NAME = "rmsweb-jax.json"
# Folders in which Debian's Chromium and Google's Chrome look for `policies/managed`.
FOLDERS = tuple(map(pathlib.Path, ("/etc/chromium", "/etc/opt/chrome")))
_OURS = pathlib.Path(__file__).with_name("etc_chromium")

# From linux/sched.h and linux/mount.h.
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
# Loaded before any fork: a child between fork and exec must not import or open a library.
_LIBC = ctypes.CDLL(None, use_errno=True)

# The managed policy has the same settings; these are for browsers that cannot be given it.
PREFERENCES: dict[str, Any] = {
    "webrtc.ip_handling_policy": "disable_non_proxied_udp",
    "webrtc.multiple_routes_enabled": False,
    "webrtc.nonproxied_udp_enabled": False,
    "net.network_prediction_options": 2,
    "credentials_enable_service": False,
    "profile.password_manager_enabled": False,
    "profile.password_manager_leak_detection": False,
    "autofill.profile_enabled": False,
    "autofill.credit_card_enabled": False,
    "translate.enabled": False,
    "signin.allowed": False,
    "safebrowsing.enabled": False,
    "search.suggest_enabled": False,
    "enable_a_ping": False,
    "profile.default_content_setting_values.notifications": 2,
    "profile.default_content_setting_values.geolocation": 2,
    "profile.default_content_setting_values.media_stream_mic": 2,
    "profile.default_content_setting_values.media_stream_camera": 2,
}
LOCAL_STATE: dict[str, Any] = {"dns_over_https.mode": "off"}
# Hosts that Chromium 156 and Debian's start page contact by themselves. The requests are refused like all
# others, but not reported, because the page did not make them.
BACKGROUND_HOSTS = frozenset(
    {
        "accounts.google.com",
        "clients2.google.com",
        "content-autofill.googleapis.com",
        "optimizationguide-pa.googleapis.com",
        "redirector.gvt1.com",
        "start.duckduckgo.com",
        "support.google.com",
        "update.googleapis.com",
    }
)


def proxy_flags(address: str) -> tuple[str, ...]:
    """Returns the flags with which all traffic goes through the proxy at `ADDRESS:PORT`."""
    return (
        f"--proxy-server=socks5://{address}",
        # By default Chromium connects to loopback without the proxy.
        "--proxy-bypass-list=<-loopback>",
        # The proxy resolves names; a lookup by the browser would reveal the site to a name server.
        f"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE {address.rpartition(':')[0]}",
        "--dns-prefetch-disable",
        "--disable-quic",
        # WebRTC uses UDP, which the egress does not carry.
        "--webrtc-ip-handling-policy=disable_non_proxied_udp",
        "--no-pings",
        "--disable-features=NetworkTimeServiceQuerying",
    )


def expose_policy() -> bool:
    """Mounts the policy for this process and its children, such as a driver and its browser.

    To be called first in a `preexec_fn`: the calling process itself gets another view of the file system.

    Returns:
      False if that is not permitted; then nothing has changed.
    """
    folders = [folder for folder in FOLDERS if folder.is_dir()]
    # A process that has changed its user cannot write its user map, and would lose its identity.
    if not folders or not os.access("/proc/self/uid_map", os.W_OK):
        return False
    user, group = os.getuid(), os.getgid()
    # A process that is not root may mount only in a user namespace of its own.
    if _LIBC.unshare(_CLONE_NEWNS | (0 if user == 0 else _CLONE_NEWUSER)):
        return False
    if user != 0:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            pathlib.Path("/proc/self", name).write_text(text)
    private = _LIBC.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None)
    source = os.fsencode(_OURS)
    return not private and not any(
        _LIBC.mount(source, os.fsencode(folder), None, _MS_BIND, None) for folder in folders
    )
