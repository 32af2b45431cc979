"""Pages that ask for the secret and return it in encodings that must not appear in any file."""

from __future__ import annotations

from tests.hostile.behaviours import Behaviour, document, with_pages
from tests.hostile.server import Exchange

# Characters that URLs, JSON and HTML escape, and two that take more than one byte.
CANARY = 'Kx7/pQ "v&<é>\\ß+Zt9'
SECRET = "HOSTILE_PASSWORD"
_TYPE = f"type 1 <secret>{SECRET}</secret>"


_FORM = "<h1>Sign in</h1><form action=/><input name=q><button>Go</button></form>"


def _get_form(exchange: Exchange) -> None:
    """Returns a form that puts the secret into the address; the next page repeats it."""
    exchange.send(document(f"{_FORM}<p>{exchange.query.replace('<', '&lt;')}</p>"))


def _redirect(exchange: Exchange) -> None:
    """Puts the secret into a redirect's address, which a proxy might log; answers its target."""
    if exchange.query:
        target = f"http://FORBIDDEN/?{exchange.query}"
        exchange.send("", status="302 Found", headers={"Location": target})
    else:
        exchange.send(document(_FORM))


_DONE = (_TYPE, "look", "done")
# Where what is typed shows a moment later.
_LATER = (_TYPE, "look", "look", "done")
_SEND = (_TYPE, "click 2", "look", "done")

SECRETS = with_pages(
    "secrets",
    Behaviour("echo-dialog", plan=_LATER, incidents=("dialog",)),
    Behaviour("echo-extract", plan=(_TYPE, "extract", "done")),
    Behaviour("echo-cut", plan=_LATER, incidents=("dialog",)),
    Behaviour("echo-options", plan=(_TYPE, "click 2", "done")),
    Behaviour("get-form", "sends it home in the address", _get_form, plan=_SEND),
    Behaviour("get-redirect", "sends it on in a redirect", _redirect, plan=_SEND, incidents=("refused",)),
    Behaviour("save-it", plan=_SEND),
    Behaviour("exfiltrate", plan=_DONE, incidents=("refused",)),
    Behaviour("password-field", plan=("look", "done")),
    Behaviour("password-shown", plan=_SEND),
    Behaviour("card-field", plan=("type 1 4929123456789015", "look", "done")),
    plan=_DONE,
)
