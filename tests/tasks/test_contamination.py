"""Tasks that repeat a benchmark's questions are found, by the test that says so, and no others."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collection.tasks.contamination import (
    CONTAINMENT,
    JACCARD,
    SAME_SITE,
    SIZE,
    BenchmarkIndex,
    BenchmarkQuestion,
    Overlap,
    words,
)

LASAGNA = BenchmarkQuestion(
    "webvoyager",
    "recipes-1",
    "Find a recipe for a vegetarian lasagna that has at least a four-star rating and uses zucchini.",
    "https://www.recipes.example.com/",
)
SHOES = BenchmarkQuestion(
    "mind2web", "shoes-1", "Show me the cheapest running shoes in size 10.", "https://shoes.test"
)
SHORT = BenchmarkQuestion("tailbench", "short-1", "Check weather")
INDEX = BenchmarkIndex([LASAGNA, SHOES, SHORT])
ELSEWHERE, SAME = "https://elsewhere.test/", "http://cook.example.com/a"


@pytest.mark.parametrize(
    ("text", "website", "test", "question"),
    [
        (LASAGNA.text, ELSEWHERE, "exact", LASAGNA),
        (LASAGNA.text.upper().replace(" ", "\u00a0").rstrip("."), SAME, "exact", LASAGNA),
        ("check, WEATHER!", "", "exact", SHORT),
        (f"On recipes.example.com: {LASAGNA.text} Save it.", ELSEWHERE, "substring", LASAGNA),
        ("the cheapest running shoes", ELSEWHERE, "substring", SHOES),
        (
            "Find a recipe for a vegetarian lasagna that has at least a four-star rating and uses spinach.",
            ELSEWHERE,
            "jaccard",
            LASAGNA,
        ),
        (
            "Find a recipe for a vegetarian lasagna that has at least a four-star rating, then go to "
            "another page, look for the author of it and tell me how many more recipes there are by the same "
            "author and when the last of them was published",
            ELSEWHERE,
            "containment",
            LASAGNA,
        ),
        # On the same site six tenths of the thresholds are enough.
        ("Find a recipe for a vegetarian lasagna, rated five", SAME, "jaccard", LASAGNA),
        ("Find a recipe for a vegetarian lasagna, rated five", ELSEWHERE, None, None),
        ("Find a recipe for a vegetarian lasagna, rated five", "", None, None),
        ("Find a recipe for bread", SAME, None, None),
        ("weather", "", None, None),
        ("Check weather in Paris for tomorrow", "", None, None),
        ("", "", None, None),
    ],
)
def test_worked_cases(text, website, test, question):
    found = INDEX.find(text, website)
    assert (found and (found.test, found.question)) == (test and (test, question))


def test_figures_are_reported():
    # The other tests take them from the product; published figures are of these.
    assert (JACCARD, CONTAINMENT, SAME_SITE) == (0.4, 0.6, 0.6)
    found = INDEX.find("Find a recipe for a vegetarian lasagna, rated five", SAME)
    # Five 3-grams are shared, of seven and sixteen.
    assert found == Overlap("jaccard", LASAGNA, 5 / 18, 0.6 * 0.4, True)


def matching_tests(questions: list[BenchmarkQuestion], text: str, same_site: bool) -> set[str]:
    """Every test that any question trips, question by question and without an index."""
    factor = SAME_SITE if same_site else 1.0
    task, tripped = words(text), set()
    own = {task[start : start + SIZE] for start in range(len(task) - SIZE + 1)}
    for question in questions:
        other = words(question.text)
        theirs = {other[start : start + SIZE] for start in range(len(other) - SIZE + 1)}
        short, long = sorted((task, other), key=len)
        runs = [long[start : start + len(short)] for start in range(len(long) - len(short) + 1)]
        if task and task == other:
            tripped.add("exact")
        elif len(short) >= SIZE and short in runs:
            tripped.add("substring")
        elif own & theirs and len(own & theirs) / len(own | theirs) >= factor * JACCARD:
            tripped.add("jaccard")
        elif own & theirs and len(own & theirs) / len(theirs) >= factor * CONTAINMENT:
            tripped.add("containment")
    return tripped


TEXTS = st.lists(st.sampled_from("abcd"), max_size=12).map(" ".join)


@settings(max_examples=200)
@given(st.lists(TEXTS, max_size=6), TEXTS, st.booleans())
@example(["a b c e f b c d g h i j k"], "a b c d", False)  # Its 3-grams, but not in a row.
def test_the_index_finds_the_same_matches_as_all_comparisons(texts, text, same_site):
    questions = [
        BenchmarkQuestion("b", str(number), other, "https://a.test") for number, other in enumerate(texts)
    ]
    found = BenchmarkIndex(questions).find(text, "https://a.test/x" if same_site else "https://b.test")
    tripped = matching_tests(questions, text, same_site)
    assert (found is not None) == bool(tripped)
    if found is not None:
        assert found.test in tripped and found.same_site == same_site
        # The strongest match is reported.
        assert found.test == "exact" or "exact" not in tripped
        assert found.test in ("exact", "substring") or "substring" not in tripped
