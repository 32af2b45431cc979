"""How Chromium is told to send everything through one proxy, and to leave its own services alone."""

from __future__ import annotations

from typing import Any


def proxy_flags(address: str) -> tuple[str, ...]:
    """Flags under which nothing gets past the proxy at `ADDRESS:PORT`."""
    return (
        f"--proxy-server=http://{address}",
        # Loopback, too, which Chromium would otherwise ask directly.
        "--proxy-bypass-list=<-loopback>",
        # The proxy looks names up; a browser that does so tells a name server what it is about to visit.
        f"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE {address.rpartition(':')[0]}",
        "--dns-prefetch-disable",
        "--disable-quic",
        # WebRTC is UDP, which no HTTP proxy carries.
        "--webrtc-ip-handling-policy=disable_non_proxied_udp",
        "--no-pings",
        "--disable-features=NetworkTimeServiceQuerying",
    )


# The managed policy (managed.py) says the same to browsers that can be given one.
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
# What Chromium 156 still asks of its makers and of Debian's start page by itself. It is refused like all
# else, and is not the page's doing.
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
