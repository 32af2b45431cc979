"""Detection of prompt injection: page text that gives the agent orders.

The detector uses rules, not a model: rules are cheap, deterministic and quiet on ordinary pages. Injections
that they miss are still fenced in the prompt; those that they find are only recorded as incidents.
"""

from __future__ import annotations

import re
import unicodedata

MAX_EXCERPT_CHARS = 160
MAX_FOUND = 5

# Invisible characters inside a word hide it from rules, but not from a model.
_INVISIBLE = re.compile(r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\U000e0000-\U000e007f]")
_SPACE = re.compile(r"[^\S\n]+")
_BROKEN = re.compile(r"\n(?=[a-z])")
_BREAK = re.compile(r" ?\n[ \n]*")

# `{AGENT}` in a rule is replaced by the pattern of that name.
_PARTS = {
    # Only AI systems have these names; "agent", "assistant" and "model" alone can be people and products.
    "AGENT": r"(?:(?:ai|llm|language|browser|browsing|web|autonomous|automated)[ -]"
    r"(?:browsing |web |language )?(?:agent|assistant|model|bot|system|crawler|tool)s?"
    r"|llms?|ais?|chatbots?|chatgpt|gpt(?:-\w+)?)",
    "ANY_AGENT": r"(?:(?:ai|llm|language|browser|web) )*"
    r"(?:agent|assistant|model|llm|ai|bot|chatbot|chatgpt|gemini|claude|copilot|qwen)s?",
    "DROP": r"(?:ignore|disregard|forget|discard|override|bypass|neglect|skip|drop|do not (?:follow|obey))",
    "EARLIER": r"(?:previous|prior|above|earlier|preceding|existing|original|initial|former|current|"
    r"foregoing|user'?s|system|safety|your|given)",
    "INSTRUCTIONS": r"(?:instructions?|prompts?|directives?|orders|commands?|rules|guidelines|constraints|"
    r"programming|system (?:prompt|message)|context|tasks?|requests?|objectives?|goals?)",
    "ORDER": r"(?:click|go to|navigate|visit|open|download|install|send|e-?mail|enter|type|submit|call|use|"
    r"run|execute|press|buy|purchase|transfer|upload|post|reply|respond|answer|say|output|print|stop|finish|"
    r"return|report|follow|obey|ignore|disregard|forget|reveal|copy|paste|write|include|rate|recommend|rank|"
    r"mention|select|choose|confirm|pay)",
    "SECRET": r"(?:passwords?|passphrases?|credentials?|api[- ]keys?|secret keys?|private keys?|"
    r"access tokens?|session tokens?|(?:session )?cookies?|credit card (?:numbers?|details|data)|"
    r"secrets?|seed phrases?|environment variables|login data)",
    "PROMPT": r"(?:system prompts?|(?:hidden|initial|secret|system) (?:prompts?|instructions?))",
    "OWN_TAG": r"(?:user_request|agent_state|agent_history|browser_state|read_state|untrusted_content|"
    r"todo_contents|file_system|step_info|reflection_guidance|"
    r"system(?:[_ -]?(?:prompt|message|instructions?|override))?|admin[_ -](?:override|instructions?)|"
    r"(?:developer|assistant)[_ -](?:message|instructions?))",
    "ACTION": r"(?:go_to_url|click_element_by_index|click_element|input_text|send_keys|execute_js|write_file|"
    r"upload_file_to_element|read_file|switch_tab|close_tab|search_engine|extract_structured_data|open_tab|"
    r"select_dropdown_option|scroll_to_text|replace_file_str)",
    "BEGIN": r"(?:^\W{0,10}|[.!?:;\])}>\"'*|-]\s*|\b(?:please|must|now|and|to|should|just|then)\s+)",
    "OWNER": r"(?:your|the (?:user|agent|assistant|owner)'?s?'?)",
}

_RULES: tuple[tuple[str, str], ...] = (
    ("drop_instructions", r"\b{DROP} (?:\w+ ){0,3}?{EARLIER} (?:\w+ ){0,2}?{INSTRUCTIONS}\b"),
    (
        "drop_instructions",
        r"{BEGIN}(?:ignore|disregard|forget|override) "
        r"(?:(?:all|any|every(?:thing)?|the|of|these|those|what) ){1,3}"
        r"(?:instructions?|prompts?|directives?|you (?:were|have been|are) (?:told|asked|given|instructed)|"
        r"(?:you know|said|written|mentioned)?\s?(?:above|before|earlier|previously))\b",
    ),
    (
        "new_instructions",
        r"\b(?:your|the (?:agent|assistant)'?s?) (?:new|real|true|actual|updated|only|revised) "
        r"(?:{INSTRUCTIONS}|mission|job|purpose|role)\b.{0,20}(?:\bis\b|\bare\b|:)",
    ),
    (
        "new_instructions",
        r"^\W{0,10}(?:new|updated|important|urgent|critical|override|additional) (?:system )?"
        r"(?:instructions?|prompts?|directives?|orders) (?:for|to) (?:the |all |any |your )?{ANY_AGENT}\b",
    ),
    ("new_instructions", r"\b(?:from now on|henceforth),? you (?:are|will|must|shall|should|act|only)\b"),
    (
        "new_instructions",
        r"\b(?:the|your) (?:user|original|previous)(?:'s)? (?:task|request|goal|objective) "
        r"(?:has (?:been )?|is )(?:changed|cancell?ed|revoked|superseded|replaced|updated|invalid|now)\b",
    ),
    (
        "addresses_agent",
        r"\b(?:if|since|because|when|as) you(?:'re| are) (?:an? |the )?(?:\w+ )?{AGENT}\b"
        r"(?! (?:developer|engineer|researcher|company|vendor|startup|user|owner|enthusiast|builder|provider|"
        r"student|expert|professional))",
    ),
    (
        "addresses_agent",
        r"\b(?:attention|note|notice|message|instructions?|reminder|warning|hello|hey|dear|hi),?"
        r"(?: (?:to|for))?(?: (?:all|any|the|every|our))?[,: ]+{AGENT}\b"
        r"(?=\s*[:,!.\u2014-]|\s+(?:you|reading|that|who|visiting|browsing|must|should|please|only)\b|\s*$)",
    ),
    (
        "addresses_agent",
        r"\b{AGENT} "
        r"(?:(?:reading|visiting|viewing|processing|browsing|parsing|that|who|on|using)(?: \w+){0,5} )?"
        r"(?:must|should|shall|are (?:required|instructed|ordered|asked) to|have to|has to|need to) "
        r"(?:now |immediately |always |also |instead |first |then )?{ORDER}\b"
        r".{0,80}\b(?:this|here|your|below|following|https?:|instead|immediately|now|password|link|page)\b",
    ),
    (
        "addresses_agent",
        r"\byou are (?:now )?(?:an? |the )?(?:{AGENT}|(?:helpful|unrestricted|jailbroken|obedient) \w+|dan|"
        r"in (?:developer|debug|god|admin) mode)\b"
        r".{0,120}\b(?:must|should|will|always|never|ignore|obey|follow|instructions?|restrictions?|rules)\b",
    ),
    (
        "addresses_agent",
        r"{BEGIN}(?:act|behave|respond|operate) as (?:if you (?:are|were) )?(?:an? |the )?"
        r"(?:unrestricted|unfiltered|jailbroken|uncensored|dan\b|different (?:ai|assistant|agent)|root|"
        r"system administrator)",
    ),
    (
        "forged_message",
        r"[<‹]\|(?:im_start|im_end|system|user|assistant|endoftext|start_header_id|end_header_id|eot_id)\|>"
        r"|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>",
    ),
    ("forged_message", r"[<‹\[{]\s*/?\s*{OWN_TAG}\s*[>\]}]"),
    (
        "forged_message",
        r"^\W{0,10}(?:system|developer|assistant|admin(?:istrator)?)"
        r"(?: (?:prompt|message|override|instructions?|notice))?\s*:\s*.{0,60}"
        r"\b(?:you are|you must|your (?:task|instructions)|ignore|disregard|{AGENT}|instructions|"
        r"the (?:task|agent|user))\b",
    ),
    (
        "forged_message",
        r"\b(?:begin|end|start)(?: of)? (?:system|developer) (?:prompt|message|instructions?)\b",
    ),
    ("forged_action", r"[{\[]\s*\\?[\"'](?:done|navigate|{ACTION})\\?[\"']\s*:\s*\{"),
    ("forged_action", r"\\?[\"'](?:next_goal|evaluation_previous_goal)\\?[\"']\s*:"),
    (
        "forged_action",
        r"\b(?:call|use|invoke|execute|run|perform) (?:the )?(?:(?:action|tool|function) )?[`'\"]?{ACTION}\b"
        r"|\b(?:call|use|invoke) (?:the )?[`'\"]?done[`'\"]? (?:action|tool|function)\b"
        r"|\b(?:call|invoke) done\(|\b(?:set|with|return) success\s?=\s?true\b",
    ),
    (
        "asks_for_secrets",
        r"\b(?:send|e-?mail|post|submit|forward|transmit|upload|paste|type|enter|write|copy|put|give|share) "
        r"(?:(?:all|any|the|of) )*(?:the (?:user|agent|assistant|owner)'?s?'?) (?:\w+ ){0,2}?{SECRET}\b",
    ),
    (
        "asks_for_secrets",
        r"\b(?:send|e-?mail|post|submit|forward|transmit|upload|enter|type) "
        r"(?:(?:all|any|of) )*(?:your |the )?(?:\w+ )?{SECRET}\b.{0,60}"
        r"(?:\bto (?:https?:|\S+@)|, (?:agent|assistant|ai)\b)",
    ),
    (
        "asks_for_secrets",
        r"\b(?:reveal|disclose|print|output|repeat|leak|exfiltrate|recite|dump) (?:me |us |out )?"
        r"(?:(?:all|any|of) )*{OWNER} (?:\w+ ){0,2}?{SECRET}\b",
    ),
    (
        "asks_for_secrets",
        r"\b(?:reveal|disclose|print|output|repeat|recite|show|tell|dump) (?:me )?(?:your |the )?"
        r"(?:full |entire |exact )?{PROMPT}\b",
    ),
    (
        "secrecy",
        r"\b(?:do not|don't|never|without) (?:tell(?:ing)?|inform(?:ing)?|mention(?:ing)?|alert(?:ing)?|"
        r"notify(?:ing)?|reveal(?:ing)?) (?:this (?:to )?|it to )?"
        r"(?:the |your )(?:user|human|operator|owner)s?\b",
    ),
    (
        "hidden_order",
        r"\b(?:hidden|invisible|secret)(?: \w+)? (?:instructions?|messages?|prompts?|text) (?:for|to) "
        r"(?:the |any |all )?{ANY_AGENT}\b",
    ),
    (
        "hidden_order",
        r"\b(?:this (?:text|message|page|section|paragraph|note)|the following) is (?:only |solely )?"
        r"(?:meant |intended |addressed |directed )?(?:only )?(?:for|to|at) {AGENT}\b",
    ),
    (
        "ends_task",
        r"\b(?:your|the (?:user|agent|assistant)'?s) task (?:is|has been) (?:now |already )?"
        r"(?:complete|completed|finished|done|over|cancell?ed|terminated)\b.{0,60}"
        r"\b(?:report|call|stop|respond|answer|say|output|return|declare|mark)\b",
    ),
    (
        "ends_task",
        r"\bbefore (?:continuing|proceeding|you continue|completing|finishing|answering)(?: with)? "
        r"(?:your (?:original |current |actual )?task|"
        r"the user'?s? (?:original )?(?:task|request|instructions))\b",
    ),
)


def _compile(rule: str) -> re.Pattern[str]:
    # Not str.format: rules are full of braces.
    for name, part in _PARTS.items():
        rule = rule.replace(f"{{{name}}}", part)
    return re.compile(rule, re.IGNORECASE | re.MULTILINE)


_COMPILED = tuple((name, _compile(rule)) for name, rule in _RULES)


def find_injections(text: str) -> tuple[str, ...]:
    """Returns `rule: excerpt` for each rule that matches, at most `MAX_FOUND`.

    Args:
      text: page text, line by line. Invisible and look-alike characters are normalised first.
    """
    plain = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).replace("’", "'").replace("‘", "'")
    plain = _BREAK.sub("\n", _SPACE.sub(" ", plain))
    # Page text breaks lines at element borders; a line that starts in lower case continues a sentence.
    plain = _BROKEN.sub(" ", plain)
    found: dict[str, str] = {}
    for name, rule in _COMPILED:
        match = rule.search(plain)
        if match is not None:
            found.setdefault(name, f"{name}: {_excerpt(match)}")
    return tuple(found.values())[:MAX_FOUND]


def _excerpt(match: re.Match[str]) -> str:
    """Returns the match with some context, on one line."""
    room = max(MAX_EXCERPT_CHARS - (match.end() - match.start()), 0) // 2
    around = match.string[max(match.start() - room, 0) : match.end() + room]
    return " ".join(around.split())[:MAX_EXCERPT_CHARS]
