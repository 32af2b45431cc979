"""Strict parsing of judges' replies: a reply in another form than required is no verdict, never a pass."""

from __future__ import annotations

import json
import re
from typing import Any

_LABEL = (
    r"(?:(?:the|my)\s+)?(?:(?:final|overall)\s+)?"
    r"(?:verdict|status|result|conclusion|judge?ment|decision|evaluation|assessment)"
)
_BOLD = r"[#*_\s]*"
_END = r"[*_\s.!]*"
_LABELLED = rf"{_LABEL}[\s*_]*(?:(?::|=|-|–|—|is:?)[\s*_]*)?"
# ASCII only, so that no look-alike letter passes.
_LABEL_LINE = re.compile(rf"{_BOLD}{_LABELLED}", re.IGNORECASE | re.ASCII)
_NOT = r"[\s*_`]+SUCCESS(?:FUL)?(?!\w)"
# Also inside a word: "SUCCESSNOT", then SUCCESS, is not clear enough to pass.
_NOT_SUCCESS = re.compile(rf"(?i:NOT){_NOT}")
_ENDS_NOT_SUCCESS = re.compile(rf"(?<![\w-])NOT{_NOT}[\s*_`\"'”’.!)\]]*\Z")
# The word alone on its line or after a label; quoted only after a label, since a page may quote it.
_SUCCESS_LINE = re.compile(
    rf"{_BOLD}SUCCESS{_END}|{_BOLD}(?i:{_LABELLED})[\"'`“‘]?SUCCESS[\"'`”’]?{_END}", re.ASCII
)
_UNKNOWN_LINE = re.compile(rf"{_BOLD}(?:(?i:{_LABELLED}))?UNKNOWN{_END}", re.ASCII)
# Words of any other verdict.
_OTHER_LINE = re.compile(
    rf"{_BOLD}(?:{_LABELLED})?[\"'`“‘]?(?:UNKNOWN|FAIL\w*|UN-?SUCCESS\w*|NO(?:T|N)?\W*SUCCESS\w*)[\"'`”’]?{_END}",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?…。！？][\"'`”’)\]*_]*(?=\s|\Z)")
# "This is in no way a", then SUCCESS on the next line, is not a success.
_DENIAL = re.compile(
    r"\b(?:not|no|never|cannot|neither|nor|without|hardly|far from|unable|fail\w*)\b|n['’]t\b", re.IGNORECASE
)
# The Markdown fence that some models put around JSON.
_FENCED = re.compile(r"\A\s*```(?:json)?\s(.*)```\s*\Z", re.DOTALL)


def read_verdict(text: str) -> bool | None:
    """Parses the verdict at the end of an outcome judge's reply; None for UNKNOWN.

    NOT SUCCESS is checked first. SUCCESS and UNKNOWN count in capitals on the last line, alone or after a
    label ("Verdict:"); SUCCESS only if no earlier text contradicts it or continues into it as one sentence.

    Raises:
      ValueError: anything else.
    """
    if _ENDS_NOT_SUCCESS.search(text):
        return False
    lines = text.strip().splitlines() or [""]
    if _UNKNOWN_LINE.fullmatch(lines[-1]):
        return None
    before = lines[:-1]
    contradicted = _NOT_SUCCESS.search(text) or any(_OTHER_LINE.fullmatch(line) for line in before)
    if not _SUCCESS_LINE.fullmatch(lines[-1]) or contradicted or _leads_on(before):
        raise ValueError("the last line is neither SUCCESS, NOT SUCCESS nor UNKNOWN alone")
    return True


def read_object(text: str) -> dict[str, Any]:
    """Parses a reply that is one JSON object, optionally in a Markdown fence.

    Raises:
      ValueError: anything else, also a duplicate key, of which a plain parser would drop one.
    """
    fenced = _FENCED.match(text)
    try:
        found = json.loads(
            fenced[1] if fenced else text, object_pairs_hook=_each_once, parse_constant=_no_constant
        )
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found


def _leads_on(before: list[str]) -> bool:
    """Returns True if the lines above a verdict continue into it, as a sentence or a quotation."""
    above = [line for line in before if line.strip()]
    if not above or _LABEL_LINE.fullmatch(above[-1]):
        return False
    unfinished = _SENTENCE_END.split("\n".join(above))[-1].strip("*_ \t")
    if not unfinished:
        return False
    apart = not before[-1].strip()
    return not apart or unfinished[-1] in ":,;–—-(" or _DENIAL.search(unfinished) is not None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is repeated")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
