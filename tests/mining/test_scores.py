import pytest

from collection.mining.flags import FLAGS, flags_of
from collection.mining.runs import parse_run
from collection.mining.score import action_scores, category_scores, eligible
from collection.mining.states import StateAlignment, progress_closeness, url_similarity
from collection.mining.taxonomy import FailureLabel, rule_label
from rmsweb_jax.records.schema import Element
from tests.trajectories import (
    CLICK,
    DONE,
    FORM,
    SCROLL,
    TYPE,
    TYPE_PASSWORD,
    numbered,
    step,
    trajectory,
)

SEARCH = {"search_engine": {"query": "cats"}}
BACK = {"go_back": {}}
SUCCESS = parse_run(trajectory(*numbered(TYPE, TYPE_PASSWORD, CLICK, DONE)))


def failed(*steps, **changes):
    return parse_run(trajectory(*steps, success=False, attempt=2, **{"declared_success": True} | changes))


def state_scores(success, localization):
    return StateAlignment((success, localization)).scores(success, localization)


def same_page(*actions, **options):
    return tuple(step(number, action, **options) for number, action in enumerate(actions, start=1))


# State.


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("https://a.org/x?q=1", "https://a.org/x?q=1", 1.0),
        ("https://A.org:443/x", "https://a.org/x", 1.0),
        ("https://a.org/x?q=1", "https://a.org/x?q=2", 0.8),
        ("https://a.org/x/", "https://a.org/x", 0.8),
        ("https://a.org/x/y", "https://a.org/x/z", 0.4),
        ("https://a.org/x", "https://a.org/y", 0.0),
        ("https://a.org/x", "https://b.org/x", 0.0),
        ("about:blank", "about:blank", 1.0),
        ("about:blank", "https://a.org/", 0.0),
    ],
)
def test_url_similarity(first, second, expected):
    assert url_similarity([first], [second])[0, 0] == pytest.approx(expected)


def test_dom_overlap_counts_elements_as_often_as_they_occur():
    ours = parse_run(trajectory(step(1, CLICK, elements=(("b", "x"), ("b", "x"), ("b", "y")))))
    theirs = failed(step(1, CLICK, elements=(("b", "x"), ("b", "z"))), step(2, CLICK, elements=()))
    assert state_scores(ours, theirs)["dom"].tolist() == [[0.25, 0.0]]


def test_a_covered_page_is_another_state():
    covered = step(2, DONE)
    elements = tuple(item.model_copy(update={"index": None}) for item in covered.observation.elements)
    observation = covered.observation.model_copy(update={"elements": elements})
    theirs = failed(step(1, CLICK), covered.model_copy(update={"observation": observation}))
    assert state_scores(SUCCESS, theirs)["dom"][0].tolist() == [1.0, 0.0]


def test_progress_of_short_runs_is_not_all_or_nothing():
    closeness = progress_closeness(4, 2)
    assert closeness[1, 1] == pytest.approx(0.625)
    assert closeness[0, 0] == pytest.approx(0.875)
    assert progress_closeness(1, 1)[0, 0] == 1.0


def test_an_unusable_reply_has_a_state_too():
    theirs = failed(step(1, error="no JSON", response="{"))
    assert state_scores(SUCCESS, theirs)["state"][0, 0] > 0.8


# Action.


def test_eligible_pairs():
    ours = parse_run(trajectory(*same_page(SCROLL, SEARCH, CLICK, DONE)))
    theirs = failed(*same_page(BACK, SEARCH | {}, CLICK, DONE))
    assert eligible(ours, theirs).astype(int).tolist() == [
        [0, 1, 1, 1],  # scroll: only against go_back is it nothing but moving about
        [1, 0, 1, 1],
        [1, 1, 0, 1],
        [0, 0, 0, 0],  # the success's closing done
    ]
    other_search = failed(step(1, {"search_engine": {"query": "dogs"}}))
    assert not eligible(ours, other_search)[1, 0]


def test_a_longer_success_keeps_its_closing_done_out():
    longer = parse_run(trajectory(*same_page(SCROLL, CLICK, DONE), attempt=2))
    assert not eligible(SUCCESS, longer)[:, 2].any()
    assert eligible(SUCCESS, failed(*same_page(DONE)))[:3, 0].all()


def test_the_same_element_under_another_index_is_the_same_action():
    renumbered = step(1, {"click_element_by_index": {"index": 1}}, page="other", elements=(FORM[2],))
    ours = parse_run(trajectory(step(1, CLICK), step(2, DONE)))
    assert not eligible(ours, failed(renumbered))[0, 0]
    twins = (("button", "Go"), ("button", "Go"), ("button", "Go"))
    ours = parse_run(trajectory(step(1, CLICK, elements=twins), step(2, DONE)))
    other = failed(step(1, {"click_element_by_index": {"index": 2}}, elements=twins))
    assert eligible(ours, other)[0, 0]


def fields(*names: str, first: int = 1) -> tuple[Element, ...]:
    """Text fields with an accessible name and no text, as pages have them."""
    return tuple(
        Element(index=number, tag="input", text="", attributes={"aria-label": name} if name else {})
        for number, name in enumerate(names, start=first)
    )


def on_fields(number, *actions, elements):
    made = step(number, *actions, page=str(elements))
    return made.model_copy(update={"observation": made.observation.model_copy(update={"elements": elements})})


def fill(index, text):
    return {"input_text": {"index": index, "text": text}}


def press(index):
    return {"click_element_by_index": {"index": index}}


def filled(elements, *actions, then=()):
    """A step for each action on a form, and the steps after them."""
    acts = (on_fields(number, action, elements=elements) for number, action in enumerate(actions, start=1))
    return (*acts, *(step(number, action) for number, action in enumerate(then, start=len(actions) + 1)))


def test_elements_without_text_compare_by_role_and_name():
    desktop, phone = fields("Name", "City"), fields("Menu", "Name", "City", first=4)
    ours = parse_run(trajectory(on_fields(1, fill(2, "Oslo"), elements=desktop), step(2, DONE)))
    same, other, nameless = (
        failed(on_fields(1, fill(index, "Oslo"), elements=elements))
        for index, elements in ((6, phone), (5, phone), (2, fields("", "")))
    )
    assert ours.acts[0] == same.acts[0] and not ours.acts[0] & other.acts[0]
    assert not eligible(ours, same)[0, 0] and eligible(ours, other)[0, 0]
    # Without a name it is the second of its kind.
    assert nameless.acts[0] == frozenset(("input_text {'index': 'input  1', 'text': 'oslo'}",))


def test_a_form_filled_in_one_step_or_in_several_is_the_same():
    form = fields("Name", "City", "Street")
    acts = fill(1, "Ann"), fill(2, "Oslo"), fill(3, "Main")
    ours = parse_run(trajectory(*filled(form, *acts, then=(CLICK, DONE))))
    at_once = failed(on_fields(1, *acts[::-1], elements=form), step(2, press(1)))
    assert ours.all_acts - at_once.all_acts == ours.acts[3] | ours.acts[4]
    label = rule_label(ours, at_once)
    scores = compare(ours, at_once, label)
    # What the other run did, too, in one step, is no mistake of it; what it did not do is.
    assert scores["taken"][:3, 0].all() and not scores["taken"][3].any()
    wrong = failed(on_fields(1, acts[0], acts[1], fill(3, "Side"), elements=form), step(2, CLICK))
    taken = compare(ours, wrong, rule_label(ours, wrong))["taken"]
    assert taken[:2, 0].all() and not taken[2].any()


def test_action_contrast_grows_with_the_difference():
    ours = parse_run(trajectory(*same_page(TYPE, DONE)))

    def against(action):
        return action_scores(ours, failed(step(1, action)))[0, 0]

    formatting = against({"input_text": {"index": 1, "text": "Ann"}})
    other_text = against({"input_text": {"index": 1, "text": "bob"}})
    other_type = against(CLICK)
    assert formatting == pytest.approx(0.5 * 0.3 + 0.5)
    assert other_text == pytest.approx(0.5 * 0.7 + 0.5)
    assert other_type == pytest.approx(1.0)
    assert action_scores(ours, failed(step(1, error="bad")))[0, 0] == pytest.approx(0.5 + 0.3)


def test_passive_and_search_differences_say_little():
    ours = parse_run(trajectory(*same_page(SCROLL, SEARCH, DONE)))
    theirs = failed(*same_page({"wait": {}}, {"search_engine": {"query": "dogs"}}))
    scores = action_scores(ours, theirs)
    assert scores[0, 0] == pytest.approx(0.25)
    assert max(scores[1, 1], scores[1, 0]) < 0.3


# Signals, labels, category.


@pytest.mark.parametrize(
    ("name", "shown", "not_shown"),
    [
        ("invalid", step(1, error="x"), step(1, CLICK)),
        ("fails", step(1, CLICK, failed=True), step(1, CLICK)),
        ("no_effect", step(1, CLICK, changed=False), step(1, SCROLL, changed=False)),
        ("acts", step(1, CLICK), step(1, CLICK, changed=False)),
        ("passive", step(1, SCROLL), step(1, SCROLL, CLICK)),
        ("searches", step(1, SEARCH), step(1, SEARCH, CLICK)),
        ("submits", step(1, CLICK), step(1, {"click_element_by_index": {"index": 1}})),
        ("submits", step(1, {"send_keys": {"keys": "Enter"}}), step(1, {"send_keys": {"keys": "Tab"}})),
        ("filters", step(1, {"input_text": {"index": 1, "text": "sort by price"}}), step(1, CLICK)),
        ("dates", step(1, {"input_text": {"index": 1, "text": "2026-05-01"}}), step(1, TYPE)),
        ("extracts", step(1, DONE), step(1, CLICK)),
        ("finishes", step(1, DONE), step(1, CLICK)),
        ("blocked", step(1, CLICK, page="Verify you are human"), step(1, CLICK)),
        ("boundary", step(1, {"input_text": {"index": 1, "text": "my account"}}), step(1, TYPE)),
        ("on_target", step(1, {"input_text": {"index": 9, "text": "Log"}}), step(1, TYPE)),
        ("off_target", step(1, TYPE), step(1, {"input_text": {"index": 9, "text": "Log"}})),
        ("navigates", step(1, {"go_to_url": {"url": "a.org"}}), step(1, CLICK)),
    ],
)
def test_flags(name, shown, not_shown):
    assert FLAGS[name](parse_run(trajectory(shown)), 0)
    assert not FLAGS[name](parse_run(trajectory(not_shown)), 0)


def test_a_password_field_is_a_login_wall():
    elements = (Element(index=1, tag="input", text="", attributes={"type": "password"}),)
    flags = flags_of(failed(on_fields(1, CLICK, elements=elements), step(2, DONE)))
    assert flags["login_wall"].tolist() == [True, False]


def compare(success, localization, label):
    same = StateAlignment([success, localization]).same_states(success, localization)
    return category_scores(success, localization, label, same)


def test_evidence_reaches_two_steps():
    searches = ({"search_engine": {"query": "dogs"}}, *[SCROLL] * 3)
    scores = compare(
        SUCCESS, failed(*same_page(*searches)), FailureLabel("unverifiable_evidence", 1.0, "rule")
    )
    assert scores["violation"][0].tolist() == [1.0, 0.7, 0.5, 0.0]


def test_category_needs_evidence_on_both_sides():
    theirs = failed(*same_page(TYPE, DONE))
    assert compare(SUCCESS, theirs, rule_label(SUCCESS, theirs))["category"][1, 1] >= 0.45
    # A confident label without local evidence stays below the gate.
    idle = failed(*same_page(*[SCROLL] * 3), outcome="max_steps")
    assert compare(SUCCESS, idle, FailureLabel("runtime_evaluation", 1.0, "rule"))["category"].max() < 0.45


def test_positive_evidence_on_the_other_side_counts_against():
    choice = {"select_dropdown_option": {"index": 1, "text": "cheap"}}
    ours = parse_run(trajectory(*same_page(choice, CLICK, DONE)))
    label = FailureLabel("filter_context", 1.0, "rule")
    without = compare(ours, failed(*same_page(SCROLL, DONE)), label)["category"][0, 0]
    with_it = compare(ours, failed(*same_page(SCROLL, choice, DONE)), label)["category"][0, 0]
    assert with_it < without


BOXES = tuple(
    Element(index=number, tag="input", text="", attributes={"type": "checkbox", "aria-label": name})
    for number, name in enumerate(("Red", "Blue"), start=1)
)


@pytest.mark.parametrize(
    ("actions", "taken"),
    [
        ([press(2), press(1)], [1, 1]),  # In another order.
        ([press(1), press(1)], [0, 0]),  # Switched off again.
        ([press(1), press(2), press(2)], [1, 0]),
        ([press(1), press(1), press(1)], [1, 0]),  # And on again.
        ([fill(1, "x")], [0, 0]),
    ],
)
def test_what_a_control_is_left_at_decides_whether_a_step_was_taken(actions, taken):
    ours = parse_run(trajectory(*filled(BOXES, press(1), press(2), then=(CLICK, DONE))))
    theirs = failed(*filled(BOXES, *actions))
    assert compare(ours, theirs, rule_label(ours, theirs))["taken"][:2, 0].tolist() == taken


CHOICES = (
    Element(index=1, tag="input", text="", attributes={"type": "radio", "aria-label": "Red"}),
    Element(index=2, tag="select", text="", attributes={"aria-label": "Mails"}),
)


@pytest.mark.parametrize("act", [press(1), {"select_dropdown_option": {"index": 2, "text": "On"}}])
def test_what_is_chosen_twice_stays_chosen(act):
    ours = parse_run(trajectory(*filled(CHOICES, act, then=(CLICK, DONE))))
    theirs = failed(*filled(CHOICES, act, act))
    assert compare(ours, theirs, rule_label(ours, theirs))["taken"][0, 0] == 1


def test_a_value_that_the_other_run_types_over_was_not_taken():
    form = fields("Name", "City")
    ours = parse_run(trajectory(*filled(form, fill(1, "Ann"), fill(2, "Oslo"), then=(DONE,))))
    theirs = failed(*filled(form, fill(1, "Ann"), fill(2, "Bergen"), fill(2, "Oslo"), fill(1, "Eve")))
    assert compare(ours, theirs, rule_label(ours, theirs))["taken"][:2, 0].tolist() == [0, 1]
