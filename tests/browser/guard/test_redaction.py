"""Redaction of secrets in every encoding, and of nothing else."""

import base64
import html
import json
import urllib.parse

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from collection.browser.guard.redaction import MIN_LENGTH, Redactor
from rmsweb_jax.errors import UserError

SECRETS = st.text(min_size=MIN_LENGTH, max_size=20).filter(lambda text: len(text.strip()) >= MIN_LENGTH)

ENCODINGS = {
    "plain": lambda text: text,
    "quote": urllib.parse.quote,
    "quote all": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "quote lower": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "quote_plus": urllib.parse.quote_plus,
    "quoted twice": lambda text: urllib.parse.quote(urllib.parse.quote(text)),
    "json": lambda text: json.dumps(text)[1:-1],
    "json unicode": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "json in json": lambda text: json.dumps(json.dumps(text))[3:-3],
    "html": html.escape,
    "html numbers": lambda text: "".join(f"&#{ord(character)};" for character in text),
    "html hex": lambda text: "".join(f"&#x{ord(character):X};" for character in text),
    "javascript": lambda text: "".join(f"\\u{{{ord(character):x}}}" for character in text),
    "hex": lambda text: text.encode().hex(),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 of utf-16": lambda text: base64.b64encode(text.encode("utf-16-le")).decode(),
    "base64 for urls": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(secret=SECRETS)
def test_every_form_is_hidden(encoding, secret):
    assume("secret" not in secret)
    found = Redactor({"key": secret}).text(f"[{ENCODINGS[encoding](secret)}]")
    assert found == "[<secret>key</secret>]"


@given(before=st.binary(max_size=9), secret=SECRETS, after=st.binary(max_size=9), urls=st.booleans())
def test_a_secret_within_other_data_in_base64_is_hidden(before, secret, after, urls):
    encode = base64.urlsafe_b64encode if urls else base64.b64encode
    text = encode(before + secret.encode() + after).decode()
    hidden = Redactor({"key": secret}).text(text)
    assert "<secret>key</secret>" in hidden
    # What stays decodes to nothing of the secret but bits of its ends.
    left = hidden.replace("<secret>key</secret>", "")
    assert len(left) <= len(text) - 8 * len(secret.encode()) // 6


@given(st.text(), SECRETS)
def test_other_text_stays(text, secret):
    redactor = Redactor({"key": secret})
    hidden = redactor.text(text)
    if "<secret>" not in hidden:
        assert hidden == text
    assert secret not in hidden or secret in "<secret>key</secret>"


def test_a_secret_within_another_does_not_tear_it_apart():
    redactor = Redactor({"short": "1234", "long": "a1234b"})
    assert redactor.text("1234 a1234b") == "<secret>short</secret> <secret>long</secret>"


@given(SECRETS)
def test_placeholders_are_filled_in(secret):
    redactor = Redactor({"key": secret})
    assert (
        redactor.fill("a <secret>key</secret> <secret>other</secret>") == f"a {secret} <secret>other</secret>"
    )


@pytest.mark.parametrize(
    ("secrets", "message"),
    [
        ({"a b": "12345"}, "name 'a b' has spaces"),
        ({"": "12345"}, "name ''"),
        ({"pin": "123"}, "'pin' is shorter than 4"),
    ],
)
def test_secrets_that_cannot_be_hidden_are_refused(secrets, message):
    with pytest.raises(UserError, match=message):
        Redactor(secrets)


@pytest.mark.parametrize("length", range(6, 12))
def test_a_secret_that_was_cut_is_hidden_at_the_end_of_a_line(length):
    redactor = Redactor({"password": "hunter2&more"})
    start = "hunter2&more"[:length]
    assert redactor.text(f"xx {start}\nnext") == "xx <secret>password</secret>\nnext"
    assert redactor.text(f"xx {start} ") == "xx <secret>password</secret> "
    assert redactor.text(f"[1]<a title=xx{start}... />") == "[1]<a title=xx<secret>password</secret>... />"
    assert redactor.text(f"{start} is a word") == f"{start} is a word"
