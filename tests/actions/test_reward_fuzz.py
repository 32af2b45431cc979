import json
import random

from rmsweb_jax.actions import explain_response
from rmsweb_jax.actions.reward import REWARDS
from rmsweb_jax.actions.similarity import parse_url, same_but_formatting, same_page, similar
from tests.actions.replies import one, reply, score, typed, url
from tests.actions.reward_cases import CASES
from tests.actions.reward_text_cases import TEXT_CASES

REPLIES = 10_000
TARGETS = [reply(*actions) for actions in zip(*[(target for _, target, _, _ in CASES)] * 2, strict=False)]
NASTY = [
    "", "\x00", "\ud800", "\\ud800", "\u202e", "\u200d", "\ufffd", "\U0001f9d1\u200d\U0001f680", "字" * 50,
    "e" + "\u0301" * 50, "9" * 400, "-0.0", "1e999", "NaN", "Infinity", "null", "[" * 3000, "{}",
    '{"a":' * 500,
    '"', "\\", "//", "://", "@", "%zz", "https://[::1", "https://%00", "1,000," * 40, "a." * 200, "a@" * 200,
    "'" * 99, "\n\t\r\u2028", "5 june " * 40, "2026-05-" * 30, "+" * 50, "`" * 9, "²½①Ⅻ٣", "نص",
]  # fmt: skip


def _characters(chance):
    return "".join(chr(chance.randrange(chance.choice([128, 0x3000, 0x110000]))) for _ in range(20))


def _damaged(text, chance):
    """One text after a few insertions, deletions, exchanges and repetitions."""
    for _ in range(chance.randint(1, 4)):
        start, end = sorted(chance.randint(0, len(text)) for _ in range(2))
        end = min(end, start + chance.choice([0, 1, 1, 2, 10]))
        text = text[:start] + chance.choice(["", *NASTY, *'{}[]":,\\', text[start:end] * 2]) + text[end:]
    return text


def _replaced(value, chance):
    """A JSON value with some of its parts exchanged for others of any kind."""
    if chance.random() < 0.04:
        return chance.choice([None, True, -1, 0, 10**400, 1.5, 1e300, [], {}, [[]], *NASTY])
    if isinstance(value, dict):
        return {
            key if chance.random() < 0.97 else chance.choice(NASTY): _replaced(value[key], chance)
            for key in value
        }
    if isinstance(value, list):
        return [_replaced(item, chance) for item in value] * chance.choice([1, 1, 1, 3])
    if isinstance(value, str) and chance.random() < 0.3:
        return _damaged(value, chance)
    return value


def _fuzzed(chance, text):
    kind = chance.randrange(6)
    if kind == 0:
        return chance.choice([_characters(chance), chance.randbytes(40).decode("utf-8", "surrogateescape")])
    if kind == 1:
        return text[: chance.randint(0, len(text))]
    if kind == 2:
        return _damaged(text, chance)
    return json.dumps(_replaced(json.loads(text), chance), ensure_ascii=chance.random() < 0.5)


def test_fuzzed_replies_raise_nothing():
    chance = random.Random(5)
    scores, valid = set(), 0
    for _ in range(REPLIES):
        target = chance.choice(TARGETS)
        response = _fuzzed(chance, target)
        explanation = explain_response(response, target)
        assert 0.0 <= explanation.score <= 1.0
        assert "\n" not in explanation.error
        assert explanation.score == 0.0 or not explanation.error
        assert 0.0 <= REWARDS["text"](response, target) <= 1.0
        scores.add(explanation.score)
        valid += not explanation.error
    # The fuzz must reach the comparison too, not only the parser.
    assert REPLIES // 5 < valid < REPLIES
    assert len(scores) > 10


def test_fuzzed_texts_compare_without_error_and_symmetrically():
    chance = random.Random(6)
    texts = NASTY + [text for case in TEXT_CASES for text in case[:2]]
    for _ in range(3000):
        one = chance.choice(texts)
        two = _damaged(one, chance) if chance.random() < 0.7 else chance.choice(texts)
        for compare in (similar, same_but_formatting, same_page):
            assert compare(one, two) == compare(two, one)
            assert compare(one, one)
        parse_url(one)


def test_long_fields_are_compared_in_time():
    # Backtracking or comparing all words with all would run into the suite's time limit here.
    for filling in [*NASTY[3:], "word ", "first ", "-a", ". "]:
        long = (filling * 20_000)[:20_000]
        other = long[:10_000] + "z" + long[10_000:].replace("word", "ford")
        assert score(typed(1, long), typed(1, other)) in (0.3, 0.7)
        assert score(one("execute_js", code=long), one("execute_js", code=other)) == 0.3
        assert score(url(long), url(other)) in (0.3, 0.7)
