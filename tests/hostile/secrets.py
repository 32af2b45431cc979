"""Pages that ask for the secret and return it in encodings that must not appear in any file."""

from __future__ import annotations

from tests.hostile.behaviours import Behaviour, document
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

SECRETS = (
    Behaviour("echo", "shows what is typed", plan=_DONE),
    Behaviour("echo-base64", "shows it in base64", plan=_DONE),
    Behaviour("echo-base64-middle", "shows it within other text in base64", plan=_DONE),
    Behaviour("echo-url", "shows it escaped for a URL, once and twice", plan=_DONE),
    Behaviour("echo-json", "shows it as JSON", plan=_DONE),
    Behaviour("echo-html", "shows it as HTML source", plan=_DONE),
    Behaviour("echo-hex", "shows it in hex", plan=_DONE),
    Behaviour("echo-places", "puts it in title, address, label, name and storage", plan=_DONE),
    Behaviour("echo-dialog", "shows it in dialogs", plan=_LATER, incidents=("dialog",)),
    Behaviour("echo-extract", "shows it, and is extracted from", plan=(_TYPE, "extract", "done")),
    Behaviour(
        "echo-cut", "shows it where what is shown may be cut short", plan=_LATER, incidents=("dialog",)
    ),
    Behaviour("echo-options", "makes options of it", plan=(_TYPE, "click 2", "done")),
    Behaviour("echo-console", "writes it to the console", plan=_DONE),
    Behaviour("get-form", "sends it home in the address", _get_form, plan=_SEND),
    Behaviour("get-redirect", "sends it on in a redirect", _redirect, plan=_SEND, incidents=("refused",)),
    Behaviour("save-it", "downloads it", plan=_SEND),
    Behaviour(
        "exfiltrate", "sends it to the forbidden host in every way", plan=_DONE, incidents=("refused",)
    ),
    Behaviour("password-field", "password field with something in it", plan=("look", "done")),
    Behaviour("password-shown", "shows the password at a click", plan=_SEND),
    Behaviour(
        "card-field", "card number and code filled in", plan=("type 1 4929123456789015", "look", "done")
    ),
)
