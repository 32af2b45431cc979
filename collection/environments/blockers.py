"""Detection of pages that keep the agent from a site: captchas, access refusals and login walls."""

from __future__ import annotations

import dataclasses
import re
from typing import Literal

BlockerKind = Literal["captcha", "blocked", "login"]

# Blocking pages contain little else; a long page that mentions captchas is an article about them. Characters.
_SHORT_PAGE = 3_000
_BARE_PAGE = 400
# 999 is what LinkedIn sends to clients that it takes for bots.
_REFUSED = frozenset((401, 403, 407, 429, 451, 999))
# A page with this many fields is a form that happens to contain a captcha widget; the agent can use it.
_FORM_FIELDS = 2


@dataclasses.dataclass(frozen=True)
class Blocker:
    """An obstacle between the agent and a page's content.

    Attributes:
      kind: `captcha` and `blocked` end episodes; `login` does not, because a task may require a login.
      reason: one line.
    """

    kind: BlockerKind
    reason: str

    @property
    def outcome(self) -> Literal["captcha", "blocked"] | None:
        """Outcome of an episode that fails here; None if it counts as an ordinary failure."""
        return None if self.kind == "login" else self.kind


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


_CAPTCHA_URL = _any(
    r"/sorry/index",
    r"[/.]captcha[-/.?]",
    r"/(?:g|h|re)?captcha/?(?:$|[?#])",
    r"validatecaptcha",
    r"/cdn-cgi/challenge-platform",
    r"[?&]__cf_chl_",
    r"//geo\.captcha-delivery\.com",
    r"/splashui/challenge",
    r"/px/captcha",
    r"/checkpoint/challenge",
    r"/showcaptcha",
)
_CAPTCHA_TITLE = _any(
    r"^just a moment(?:\.\.\.|…)?$",
    r"^attention required!? \| cloudflare",
    r"^(?:are you (?:a )?(?:human|robot)|robot check|human verification|bot check)\??",
    r"^(?:security|captcha) (?:check|challenge|verification)$",
    r"^captcha\b",
    r"^(?:please )?verify (?:you are|you're|that you are) (?:a )?human",
    r"^verifying (?:you are|that you are) human",
    r"^access to this page has been denied",
    r"^pardon our interruption",
    r"^ddos-guard$",
    r"^robot or human\b",
    r"^(?:nur )?einen moment\b",
    r"^un (?:instant|momento)\b",
)
_CAPTCHA_TEXT = _any(
    r"\b(?:verify|confirm|prove|check|make sure|ensure)(?: that)? (?:you(?:'re| are)(?: a)?|if you are) "
    r"(?:human|not (?:a )?(?:ro)?bot)",
    r"\bverifying (?:that )?you are (?:a )?human",
    r"\bpress (?:and|&) hold\b.{0,60}\b(?:human|bot|confirm|verify)",
    r"\b(?:complete|solve|finish|pass) (?:the|this|a) (?:captcha|security check|challenge|puzzle)\b",
    r"\benter the (?:characters|letters|text|numbers|code) "
    r"(?:you see|shown|displayed|in the (?:image|picture))",
    r"\btype the characters you see\b",
    r"\bi(?:'m| am) not a robot\b",
    r"\bunusual traffic from your (?:computer )?network",
    r"\bchecking (?:if the site connection is secure|your browser before)",
    r"\bare you a (?:human|robot)\?",
    r"\bpardon our interruption\b",
    r"\bto continue, please (?:confirm|verify) you are\b",
    r"\bhuman verification required\b",
    r"\bselect all (?:images|squares) (?:with|containing)\b",
    r"\bslide (?:right|to) (?:to )?(?:complete|verify|the puzzle)",
    r"\brobot or human\?",
    r"\bbestätigen sie,? dass sie (?:ein mensch|kein (?:ro)?bot)",
    r"\bich bin kein roboter\b",
    r"\b(?:vérifi(?:ez|ons)|confirmez) que vous (?:êtes|n'êtes pas)(?: bien)? (?:un )?(?:humain|robot)",
    r"\bje ne suis pas un robot\b",
    r"\bverifi(?:que|car) que (?:usted )?(?:es|eres) (?:un )?(?:humano|ser humano)",
    r"\bno soy un robot\b",
)
_CAPTCHA_FRAME = _any(
    r"title=[^\n]*(?:reCAPTCHA|hCaptcha|security challenge|captcha challenge|FunCaptcha|arkose)",
    r"(?:id|name|class|src)=[^\n ]*(?:captcha-delivery|px-captcha|cf-chl|challenge-form|datadome)",
)
_REFUSAL_TITLE = _any(
    r"^(?:error )?403\b",
    r"^(?:access|permission) (?:is )?(?:denied|forbidden)",
    r"^forbidden$",
    r"^(?:you have been|you've been|request|access) blocked",
    r"^request rejected$",
    r"^too many requests",
    r"^(?:error )?(?:401|429|451)\b",
    r"^unauthorized$",
    r"^unavailable for legal reasons",
    r"^(?:zugriff|zugang) verweigert",
    r"^accès (?:refusé|interdit)",
    r"^acceso (?:denegado|prohibido)",
)
_REFUSAL_TEXT = _any(
    r"\baccess (?:to (?:this|the) (?:page|site|website|resource|server) )?(?:is|was|has been) "
    r"(?:denied|blocked|forbidden|restricted)",
    r"\byou (?:don't|do not) have (?:permission|authorization) to (?:access|view)\b",
    r"\byou(?:'ve| have) been blocked\b",
    r"\bsorry, you have been blocked\b",
    r"\byour (?:ip(?: address)?|access|request|connection) (?:has been|was|is) "
    r"(?:temporarily )?(?:blocked|banned|denied|restricted|rejected)",
    r"\b(?:automated|bot) (?:access|activity|traffic|requests?|queries|behaviou?r)\b.{0,60}"
    r"\b(?:detected|prohibited|blocked|not (?:allowed|permitted))",
    r"\b(?:detected|suspect(?:ed)?|noticed)\b.{0,40}\b(?:automated|bot|suspicious|unusual) "
    r"(?:access|activity|traffic|requests?|behaviou?r)",
    r"\b(?:http )?error 403\b",
    r"\b403 forbidden\b",
    r"\btoo many requests\b",
    r"\brate limit exceeded\b",
    r"\bthe requested url was rejected\b",
    r"\bnot available in your (?:country|region|location)\b",
    r"\bunavailable (?:for|due to) legal reasons\b",
    r"\bblocked by (?:network|our) security\b",
    r"\breference ?#\d+\.[0-9a-f]+\.\d+",
    r"\b(?:cloudflare )?ray id:",
    r"\bincapsula incident id\b",
)
_LOGIN_URL = _any(r"/(?:log-?in|sign-?in|signon|auth|authwall|account/login)(?:[/?.#]|$)")
_LOGIN_TITLE = _any(
    r"^(?:log|sign)[ -]?(?:in|on)\b", r"\|\s*(?:log|sign) ?in$", r"^(?:authentication|login) required"
)
_LOGIN_TEXT = _any(
    r"\b(?:please |you (?:must|need to|have to) (?:be )?)(?:log(?:ged)?|sign(?:ed)?)[ -]?in(?:to)?\b",
    r"\b(?:log|sign) in (?:to|or (?:register|sign up|join|create)[^.]{0,30} to) "
    r"(?:continue|view|see|access|proceed|read)",
    r"\bjoin now to (?:see|view)\b",
    r"\b(?:subscribers?|members?)[ -]only\b",
    r"\blogin required\b",
)
_FIELD = re.compile(r"<textarea|<input(?![^\n]* type=(?:hidden|submit|button|checkbox|radio|image))")
_PASSWORD = re.compile(r"<input[^\n]* type=password")
_MARKUP = re.compile(r"^\t*\*?(?:\|[^\n]*|\[\d+\])?<[^\n]*/>[^\n]*$", re.MULTILINE)


def find_blocker(url: str, title: str, text: str, status: int | None = None) -> Blocker | None:
    """Returns the obstacle that keeps the agent from the page's content; None for a usable page.

    Signatures in the address, title, text and frames decide. A consent dialog is no obstacle: the agent
    can answer it.

    Args:
      text: the page's lines, as shown to the agent.
      status: HTTP status of the page; None if unknown.
    """
    # On a long page only the address can show a captcha; its text may be about anything.
    if len(text) > _SHORT_PAGE:
        return _found("captcha", "address", _CAPTCHA_URL.search(url))
    words, refused = " ".join(_MARKUP.sub(" ", text).split()), status in _REFUSED
    login = _login_wall(url, title.strip(), text, words)
    # 401 with a login form is a login wall; without one it is a refusal.
    if status == 401 and login:
        return login
    form = len(_FIELD.findall(text)) >= _FORM_FIELDS
    bare = refused or len(words) < _BARE_PAGE
    return (
        _found("captcha", "address", _CAPTCHA_URL.search(url))
        or _found("captcha", "title", _CAPTCHA_TITLE.search(title.strip()))
        or (None if form else _found("captcha", "text", _CAPTCHA_TEXT.search(words)))
        or (_found("captcha", "frame", _CAPTCHA_FRAME.search(text)) if bare and not form else None)
        or _found("blocked", "title", _REFUSAL_TITLE.search(title.strip()))
        or _found("blocked", "text", _REFUSAL_TEXT.search(words))
        or (Blocker("blocked", f"status {status}") if refused else None)
        or login
    )


def _login_wall(url: str, title: str, text: str, words: str) -> Blocker | None:
    by_text = _found("login", "text", _LOGIN_TEXT.search(words))
    if _PASSWORD.search(text):
        return (
            _found("login", "address", _LOGIN_URL.search(url))
            or _found("login", "title", _LOGIN_TITLE.search(title))
            or by_text
        )
    # Without a password field only a nearly empty page is a wall; others merely offer a login.
    return by_text if len(words) < _BARE_PAGE else None


def _found(kind: BlockerKind, where: str, found: re.Match[str] | None) -> Blocker | None:
    return Blocker(kind, f"its {where} says {' '.join(found[0].split())[:80]!r}") if found else None
