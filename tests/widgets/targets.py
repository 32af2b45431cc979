"""Forty goals in real widgets, and the moves of an agent that sees only the list of elements.

Both players import this module, also the one in browser-use's environment: it needs only the standard
library.
"""

from __future__ import annotations

import dataclasses
import re

DATE = "2026-12-24"
FILE = "notes.txt"
# Indices of both formats: `[3]<a`, `*[3]<a`, `|SCROLL+3]<a`, `|scroll element[3]<a`, `|SHADOW(open)|[3]<a`.
_INDEXED = re.compile(r"^\t*(?:\*?\|[\w ()]+\|?)*\*?[\[+](\d+)\]<")


@dataclasses.dataclass(frozen=True)
class Find:
    """An element that is found by the text of its line, or of the lines below it.

    Attributes:
      words: all of them are in the element's line or text, in any order; a `/` separates alternatives.
      after: text of a line that comes before the element, for example the label of a field.
      number: which of the elements that fit, from 1.
    """

    words: str
    after: str = ""
    number: int = 1


@dataclasses.dataclass(frozen=True)
class Move:
    """One action.

    Attributes:
      name: click, type, select, upload, keys, drag, double_click, wait or script.
      find: the element; None where the action needs none.
      text: what is typed, chosen, pressed or run.
      onto: for `drag`, the element where it ends.
    """

    name: str
    find: Find | None = None
    text: str = ""
    onto: Find | None = None


@dataclasses.dataclass(frozen=True)
class Target:
    """One goal.

    Attributes:
      name: `LIBRARY: goal`.
      page: name of its page, and of its library.
      key: name of the value in the page's `state`.
      wanted: the text of that value once the goal is reached.
      ours, theirs: moves of each side.
    """

    name: str
    page: str
    key: str
    wanted: str
    ours: tuple[Move, ...]
    theirs: tuple[Move, ...]


# For each line, its index or None.
_Indices = list[re.Match[str] | None]


class NotListedError(Exception):
    """No line of the element list fits."""


def locate(lines: list[str], find: Find) -> int:
    """Returns the index of the element that fits best: the one with the least text of its own.

    Raises:
      NotListedError: none fits.
    """
    indices = [_INDEXED.match(line) for line in lines]
    # An index is no word of an element.
    lines = [re.sub(r"(?<=[\[+])\d+(?=\]<)", "", line) for line in lines]
    start = 0
    if find.after:
        start = next((at + 1 for at, line in enumerate(lines) if _has(line, find.after)), -1)
        if start < 0:
            raise NotListedError(f"no line says {find.after!r}")
    for words in find.words.split("/"):
        for reach in (_own_text, _whole_text):
            fits = [
                (len(text), at)
                for at in range(start, len(lines))
                if indices[at]
                and all(_has(text := reach(lines, indices, at), word) for word in words.split("+"))
            ]
            if len(fits) >= find.number:
                # With a label before it, the next one is meant.
                fits.sort(key=(lambda fit: fit[1]) if find.after or find.number > 1 else None)
                found = indices[fits[find.number - 1][1]]
                assert found is not None
                return int(found[1])
    raise NotListedError(f"no element says {find.words!r}" + (f" after {find.after!r}" if find.after else ""))


def _has(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) is not None


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip("\t"))


def _whole_text(lines: list[str], _: _Indices, at: int) -> str:
    end = at + 1
    while end < len(lines) and _depth(lines[end]) > _depth(lines[at]):
        end += 1
    return "\n".join(lines[at:end])


def _own_text(lines: list[str], indices: _Indices, at: int) -> str:
    """The element's line and the text below it that no other element has."""
    parts, cover = [lines[at]], None
    for line, index in zip(lines[at + 1 :], indices[at + 1 :], strict=True):
        if _depth(line) <= _depth(lines[at]):
            break
        if cover is not None and _depth(line) > cover:
            continue
        cover = _depth(line) if index else None
        if cover is None:
            parts.append(line)
    return "\n".join(parts)


def _find(words: str | Find) -> Find:
    return Find(words) if isinstance(words, str) else words


def click(words: str | Find) -> Move:
    return Move("click", _find(words))


def type_(words: str | Find, text: str) -> Move:
    return Move("type", _find(words), text)


def select(words: str | Find, text: str) -> Move:
    return Move("select", _find(words), text)


def upload(words: str | Find) -> Move:
    return Move("upload", _find(words), FILE)


def keys(text: str) -> Move:
    return Move("keys", None, text)


def presses(key: str, times: int) -> tuple[Move, ...]:
    return (keys(key),) * times


def slide(key: str, times: int) -> tuple[Move, ...]:
    """For browser-use, which cannot type into such sliders: a click for the focus, then keys."""
    return (click("slider"), *presses(key, times))


def drag(words: str | Find, onto: str | Find) -> Move:
    return Move("drag", _find(words), onto=_find(onto))


def double_click(words: str | Find) -> Move:
    return Move("double_click", _find(words))


def script(code: str) -> Move:
    """For browser-use only: its agent writes scripts where it has no action."""
    return Move("script", None, code)


def target(
    page: str, key: str, goal: str, wanted: str, *ours: Move, theirs: tuple[Move, ...] | None = None
) -> Target:
    return Target(f"{page}: {goal}", page, key, wanted, ours, ours if theirs is None else theirs)


# browser-use has no action that drags.
_DRAG = """\
(async () => {
  const find = (text) => [...document.querySelectorAll('li')].find((one) => one.textContent === text);
  const from = find('Write'), to = find('Sleep').parentElement;
  const fire = (el, Kind, type, where, more) => {
    const { left, top, width, height } = where.getBoundingClientRect();
    const point = { clientX: left + width / 2, clientY: top + height / 2 };
    const settings = { bubbles: true, cancelable: true, view: window, buttons: 1, ...point, ...more };
    el.dispatchEvent(new Kind(type, settings));
  };
  const rest = () => new Promise((done) => setTimeout(done, 100));
  %s
})()"""
DRAG_BY_MOUSE = (
    _DRAG
    % """
  fire(from, MouseEvent, 'mousedown', from);
  for (const where of [from, to, to]) {
    fire(document, MouseEvent, 'mousemove', where);
    await rest();
  }
  fire(document, MouseEvent, 'mouseup', to);"""
)
DRAG_AND_DROP = (
    _DRAG
    % """
  const dataTransfer = new DataTransfer();
  fire(from, PointerEvent, 'pointerdown', from, { pointerType: 'mouse' });
  await rest();
  fire(from, DragEvent, 'dragstart', from, { dataTransfer });
  await rest();
  for (const type of ['dragenter', 'dragover', 'dragover', 'drop']) {
    fire(to, DragEvent, type, to, { dataTransfer });
    await rest();
  }
  fire(from, DragEvent, 'dragend', to, { dataTransfer });"""
)


def combobox(label: str) -> Find:
    return Find("combobox/listbox/aria-expanded", after=label)


def choice(page: str, key: str, label: str, option: str, wanted: str = "") -> Target:
    """One option of a list that a click opens."""
    return target(
        page,
        key,
        f"{label} is {option}",
        wanted or option,
        select(combobox(label), option),
        theirs=(click(combobox(label)), click(option)),
    )


TARGETS = (
    choice("antd", "country", "Country", "Country 3", "c2"),
    target(
        "antd",
        "birthplace",
        "Birthplace is Country 45",
        "c44",
        select(combobox("Birthplace"), "Country 45"),
        theirs=(type_(combobox("Birthplace"), "Country 45"), click("Country 45")),
    ),
    target("antd", "day", "the day is 24 December", DATE, type_(Find("input", "Day"), DATE), keys("Enter")),
    target("antd", "size", "radio button Medium", "Medium", click("Medium")),
    target(
        "antd", "volume", "the slider is at 70", "70", type_("slider", "70"), theirs=slide("ArrowRight", 70)
    ),
    target("antd", "file", "a file goes to the hidden input", FILE, upload("type=file/Choose a file")),
    target(
        "antd",
        "region",
        "Region is Zhejiang, Hangzhou",
        "zhejiang/hangzhou",
        click(combobox("Region")),
        click("Zhejiang"),
        click("Hangzhou"),
    ),
    target("antd", "rows", "row Carol is checked", "Carol", click(Find("checkbox/label", "Bob"))),
    choice("mui", "age", "Age", "Thirty", "30"),
    target(
        "mui",
        "film",
        "Film is The Godfather",
        "The Godfather",
        select(combobox("Film"), "The Godfather"),
        theirs=(type_(combobox("Film"), "The Godfather"), click("option+The Godfather")),
    ),
    target("mui", "volume", "the slider is at 70", "70", type_("range/slider", "70")),
    target("mui", "rating", "four stars", "4", click("4 Stars"), theirs=(click("value=4"),)),
    target("mui", "day", "the day is 24 December", DATE, type_(Find("spinbutton/input", "Day"), "12242026")),
    choice("select2", "country", "Country", "Country 7"),
    target(
        "select2",
        "colours",
        "Colours has Blue",
        "Blue",
        select(Find("combobox/listbox/searchbox/textarea", "Colours"), "Blue"),
        theirs=(click(Find("combobox/listbox/searchbox/textarea", "Colours")), click("option+Blue/Blue")),
    ),
    choice("choices", "country", "Country", "Country 3"),
    target(
        "jquery-ui",
        "volume",
        "the slider is at 70",
        "70",
        click(Find("slider/span", "Volume")),
        keys("Home"),
        *presses("PageUp", 3),
        *presses("ArrowRight", 10),
    ),
    choice("jquery-ui", "speed", "Speed", "Fast"),
    target("jquery-ui", "size", "radio button Large", "Large", click("Large")),
    target(
        "jquery-ui",
        "done",
        "Write is dragged to Done",
        "Sleep,Write",
        drag("Write", "Sleep"),
        theirs=(script(DRAG_BY_MOUSE),),
    ),
    target(
        "tom-select",
        "tags",
        "Tags are Red and Blue",
        "Red,Blue",
        select(combobox("Tags"), "Red"),
        select(combobox("Tags"), "Blue"),
        theirs=(click(combobox("Tags")), click("option+Red/Red"), click("option+Blue/Blue")),
    ),
    target(
        "flatpickr",
        "day",
        "the day is 24 December",
        DATE,
        click(Find("input", "Day")),
        click("flatpickr-next-month/next-month"),
        click("December 24, 2026/24"),
        theirs=(
            click(Find("input", "Day")),
            click(Find("span", "aria-label=Year")),
            click("December 24, 2026"),
        ),
    ),
    target("bootstrap", "kind", "radio button B", "B", click("Radio B"), theirs=(click("value=B"),)),
    target("bootstrap", "item", "Archive in the menu", "Archive", click("More"), click("Archive")),
    target(
        "headlessui",
        "assignee",
        "Assignee is Therese Wunsch",
        "Therese Wunsch",
        select(Find("button", "Assignee"), "Therese Wunsch"),
        theirs=(click(Find("button", "Assignee")), click("Therese Wunsch")),
    ),
    target(
        "headlessui",
        "reviewer",
        "Reviewer is Kenton Towne",
        "Kenton Towne",
        select(combobox("Reviewer"), "Kenton Towne"),
        theirs=(type_(combobox("Reviewer"), "Kenton"), click("option+Kenton Towne")),
    ),
    target(
        "radix",
        "fruit",
        "Fruit is Cherry",
        "Cherry",
        select("combobox", "Cherry"),
        theirs=(click("combobox"), click("option+Cherry")),
    ),
    target(
        "radix", "volume", "the slider is at 70", "70", type_("slider", "70"), theirs=slide("ArrowRight", 20)
    ),
    choice("react-select", "country", "Country", "Country 5"),
    target(
        "vuetify",
        "state",
        "State is Florida",
        "Florida",
        select("combobox+State", "Florida"),
        theirs=(click(combobox("State")), click("Florida")),
    ),
    choice("element-plus", "zone", "Zone", "South"),
    target(
        "element-plus",
        "day",
        "the day is 24 December",
        DATE,
        type_(Find("Pick a day/combobox", "Day"), DATE),
        keys("Enter"),
    ),
    target(
        "shoelace",
        "meal",
        "Meal is Lunch",
        "Lunch",
        select(combobox("Meal"), "Lunch"),
        # Its list shows no options, but the screenshot does.
        theirs=(click("Meal"), *presses("ArrowDown", 2), keys("Enter")),
    ),
    target("shoelace", "volume", "the slider is at 70", "70", type_("range", "70")),
    target(
        "air-datepicker",
        "day",
        "the day is 24 December",
        DATE,
        click(Find("input", "Day")),
        click(Find("button/air-datepicker-nav--action", "", 2)),
        click("24"),
        theirs=(click(Find("input", "Day")), click(Find("div", "2026")), click("24")),
    ),
    target(
        "nouislider",
        "volume",
        "the slider is at 70",
        "70",
        type_("slider", "70"),
        theirs=slide("ArrowRight", 50),
    ),
    target("filepond", "file", "a file goes to the hidden input", FILE, upload("type=file/Browse")),
    target("dropzone", "file", "a file goes to the hidden input", FILE, upload("type=file/Drop files")),
    target(
        "sortablejs",
        "done",
        "Write is dragged to Done",
        "Sleep,Write",
        drag("Write", "Sleep"),
        theirs=(script(DRAG_AND_DROP),),
    ),
    target(
        "ag-grid",
        "price",
        "the price of Plate is 9",
        "Plate 9",
        double_click("7"),
        type_("input", "9"),
        keys("Enter"),
        # It has no double click, but typing in a chosen cell edits it too.
        theirs=(click(Find("gridcell", "Plate")), keys("Enter"), type_("input", "9"), keys("Enter")),
    ),
)
