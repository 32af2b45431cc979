"""The hostile site as a whole: its table, and its servers."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator

from tests.hostile.behaviours import Behaviour
from tests.hostile.leaks import LEAKS
from tests.hostile.network import NETWORK
from tests.hostile.secrets import SECRETS
from tests.hostile.server import ForbiddenServer, HostileSite, closed_port
from tests.hostile.storms import STORMS
from tests.hostile.tricks import TRICKS

BEHAVIOURS: tuple[Behaviour, ...] = (*NETWORK, *LEAKS, *STORMS, *TRICKS, *SECRETS)
SERVING = {one.name: one.serve for one in BEHAVIOURS if one.serve}
# Only in `make slow`: each takes long, or goes another way to what an endpoint of the suite shows.
_LEFT = """
    double-gzip endless-picture slow-headers short-body two-lengths type-unknown rate-limit proxy-auth
    redirect-address redirect-hops csp-report late-location form-action fetch-address beacon-unload
    websocket-address style scripts media svg-image favicon iframe-nested iframe-top prerender link-blank
    link-ping link-download link-address data-frame
    alert-timer prompts popups-self hang-load hang-parse hang-unload hang-frame deep-shadow frames
    frames-within mutations layout scroll-jumps history reloads hash svg-bomb fullscreen pointer-lock
    orders-labels orders-dialog utf16 directions overlay clobbers clipboard file-link devtools
    echo-base64-middle echo-html echo-hex echo-cut echo-options echo-console get-redirect password-shown
    reset empty-answer not-http endless-headers deflate-bomb not-gzip status-204 type-lies split-header
    js-location xhr beacon event-source iframe-escape worker link-userinfo link-backslash web-transport
    alert-click nodes deep moves title attributes pdf-broken tags lines chat-marks surrogates controls
    permissions script-agent echo-url echo-places card-field
"""
SLOW = frozenset(_LEFT.split())
SUITE = tuple(one for one in BEHAVIOURS if one.name not in SLOW)
FORBIDDEN = "forbidden.test"


@dataclasses.dataclass(frozen=True)
class Running:
    """The servers while they run.

    Attributes:
      hosts: every name with its address, the forbidden one among them: what holds a
        browser back is the guard, not a name that leads nowhere.
    """

    site: HostileSite
    forbidden: ForbiddenServer
    hosts: dict[str, str]

    def steps(self, behaviour: Behaviour) -> tuple[str, ...]:
        """Returns a plan's steps with its addresses filled in."""
        names = {
            "FORBIDDEN": FORBIDDEN,
            "DIRECT": f"127.0.0.1:{self.forbidden.port}",
            "HERE": f"http://{behaviour.host}",
        }
        pattern = re.compile("|".join(names))
        return tuple(pattern.sub(lambda found: names[found[0]], step) for step in behaviour.plan)


@contextlib.contextmanager
def serve_hostile() -> Iterator[Running]:
    """Runs both servers until the end of the block."""
    with (
        closed_port() as dead,
        ForbiddenServer() as forbidden,
        HostileSite(SERVING, FORBIDDEN, f"127.0.0.1:{forbidden.port}") as site,
    ):
        hosts = {one.host: f"127.0.0.1:{site.port}" for one in BEHAVIOURS}
        hosts |= {"dead.hostile.test": f"127.0.0.1:{dead}", FORBIDDEN: f"127.0.0.1:{forbidden.port}"}
        yield Running(site, forbidden, hosts)
