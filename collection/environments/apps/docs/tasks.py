"""Tasks at the documentation: templates over the rows of its world, which no task changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from collection.environments.apps.answers import Answer, Value
from collection.environments.apps.docs.world import RELEASES, slug
from collection.environments.apps.templates import Draw, Goal, Template, Where
from collection.environments.apps.world import Row, World

_TYPES = ("int", "float", "str", "bool", "object", "list", "dict", "tuple", "set")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")


def _asked(world: World, words: str, value: Value | tuple | frozenset, others: Iterable[str] = ()) -> Goal:
    chosen = set(map(str, value)) if isinstance(value, tuple | frozenset) else {str(value)}
    return Goal(words, world, Answer(value, tuple(one for one in dict.fromkeys(others) if one not in chosen)))


def _title(world: World) -> str:
    return next(iter(world["library"].values()))["title"]


def _alone(what: str) -> str:
    return f"Answer with the {what} alone."


_VERSION = _alone("version's number")


def _value(text: str) -> Value:
    """A default as it is written, or its number."""
    try:
        return float(text)
    except ValueError:
        return text.strip("'")


def _function(
    words: str, of: Callable[[World, Row, Draw], tuple[str, Any, Iterable[str]]], where: Where | None = None
) -> Template:
    """A question about a function: more words, the value, and other values."""

    def template(world: World, draw: Draw) -> Goal:
        name, row = draw.row(world, "functions", where)
        more, value, others = of(world, row, draw)
        return _asked(world, f"Find the description of {name}. {words.format(more)}", value, others)

    return template


def _default(world: World, row: Row, draw: Draw) -> tuple[str, Any, Iterable[str]]:
    name, kind, default, _ = draw.choice([one for one in row["parameters"] if one[2]])
    values = [
        _value(one[2])
        for function in world["functions"].values()
        for one in function["parameters"]
        if one[1] == kind and one[2]
    ]
    return name, _value(default), [one for one in values if isinstance(one, str)]


def _keyword_only(world: World, row: Row, draw: Draw) -> tuple[str, Any, Iterable[str]]:
    names = [one[0] for one in row["parameters"]]
    alone = frozenset(one[0] for one in row["parameters"] if one[3])
    return "", alone, names


def _parameter(world: World, row: Row, draw: Draw) -> tuple[str, Any, Iterable[str]]:
    names = [one[0] for one in row["parameters"]]
    at = draw.randint(1, len(names) - 1)
    others = [one[0] for function in world["functions"].values() for one in function["parameters"]]
    return _ORDINALS[at], names[at], others


def _type(world: World, row: Row, draw: Draw) -> tuple[str, Any, Iterable[str]]:
    name, kind, *_ = draw.choice(row["parameters"])
    return name, kind, _TYPES


def _of(
    column: str, others: Iterable[str] = ()
) -> Callable[[World, Row, Draw], tuple[str, Any, Iterable[str]]]:
    """What a column has; without `others` those of the other functions are wrong."""

    def of(world: World, row: Row, draw: Draw) -> tuple[str, Any, Iterable[str]]:
        found = others or [one[column] for one in world["functions"].values()]
        return row["changed_parameter"], row[column], found

    return of


def _raises(world: World, draw: Draw) -> Goal:
    name, row = draw.row(world, "functions")
    words = f"Find the description of {name}. Which exception does it raise? {_alone('name of its class')}"
    return _asked(world, words, row["error"], world["errors"])


def _module(
    words: str, value: Callable[[Row], Any], others: str = "", where: Where | None = None
) -> Template:
    """A question about a module; `others` is a column with other values."""

    def template(world: World, draw: Draw) -> Goal:
        name, row = draw.row(world, "modules", where)
        wrong = [one[others] for one in world["modules"].values()] if others else RELEASES
        return _asked(world, words.format(name, _title(world), row["summary"]), value(row), wrong)

    return template


def _module_page(world: World, draw: Draw) -> Goal:
    name, row = draw.row(world, "modules")
    words = (
        f'Find the module "{name}", which is for "{row["summary"]}" Open the page about it and stop there.'
    )
    return Goal(words, world, page=f"/api/{name}.html")


def _next_page(world: World, draw: Draw) -> Goal:
    names = list(world["modules"])
    at = draw.randint(0, len(names) - 2)
    words = (
        f'Open the page about the module "{names[at]}", which is for '
        f'"{world["modules"][names[at]]["summary"]}" Then go to the page that is next in the order of the '
        "documentation, and stop there."
    )
    return Goal(words, world, page=f"/api/{names[at + 1]}.html")


def _chapter(world: World, draw: Draw) -> Goal:
    names = list(world["chapters"])
    title = draw.choice(names)
    words = f'Which number has the chapter "{title}" of the tutorial of {_title(world)}? {_alone("number")}'
    return _asked(world, words, names.index(title) + 1)


def _sections(world: World, draw: Draw) -> tuple[int, str, Row, int]:
    """Number of a chapter, its title and row, and a section's place in it."""
    number = draw.randint(1, len(world["chapters"]))
    title, row = list(world["chapters"].items())[number - 1]
    return number, title, row, draw.randint(1, len(row["sections"]))


def _section(world: World, draw: Draw) -> Goal:
    _, title, row, at = _sections(world, draw)
    section = row["sections"][at - 1]
    words = (
        f'Open the chapter "{title}" of the tutorial of {_title(world)}, and go to its section "{section}" '
        "by the table of contents, so that the address of the page ends with that of the section."
    )
    return Goal(words, world, page=f"/tutorial/{row['file']}.html#{slug(section)}")


def _section_number(world: World, draw: Draw) -> Goal:
    number, _, row, at = _sections(world, draw)
    words = (
        f'Which number has the section "{row["sections"][at - 1]}" of the tutorial of {_title(world)}? '
        f"{_alone('number, as in 7.8')}"
    )
    others = [
        f"{chapter}.{place}"
        for chapter, one in enumerate(world["chapters"].values(), start=1)
        for place in range(1, len(one["sections"]) + 1)
    ]
    return _asked(world, words, f"{number}.{at}", others)


def _setting(column: str, words: str) -> Template:
    def template(world: World, draw: Draw) -> Goal:
        name, row = draw.row(world, "settings")
        value = row[column]
        text = f"By the table of settings of {_title(world)}, {words.format(name)}"
        return _asked(world, text, value, RELEASES if isinstance(value, str) else ())

    return template


def _code(world: World, draw: Draw) -> Goal:
    name, row = draw.row(world, "errors")
    words = f"Which exception of {_title(world)} has the code {row['code']}? {_alone('name of its class')}"
    return _asked(world, words, name, world["errors"])


def _error_base(world: World, draw: Draw) -> Goal:
    name, row = draw.row(world, "errors", lambda one: one["base"] != "Exception")
    words = (
        f"Which class is directly above {name} in the tree of exceptions of {_title(world)}? "
        f"{_alone('name of the class')}"
    )
    return _asked(world, words, row["base"], world["errors"])


def _option(words: str, column: str) -> Template:
    def template(world: World, draw: Draw) -> Goal:
        name, row = draw.row(world, "options")
        others = (one[column] for one in world["options"].values())
        return _asked(world, words.format(name, _title(world), row["short"]), row[column], others)

    return template


def _question(world: World, draw: Draw) -> Goal:
    question, row = draw.row(world, "questions")
    words = (
        f'Which page of the frequently asked questions about {_title(world)} answers "{question}"? '
        f"{_alone('title of that page')}"
    )
    return _asked(world, words, row["page"], (one["page"] for one in world["questions"].values()))


def _release_editor(world: World, draw: Draw) -> Goal:
    version, row = draw.row(world, "releases")
    words = f'Who is the editor of "What\'s new in {_title(world)} {version}"? {_alone("name")}'
    return _asked(world, words, row["editor"], (one["editor"] for one in world["releases"].values()))


def _proposal(world: World, draw: Draw) -> Goal:
    version, row = draw.row(world, "releases")
    number, feature = draw.choice(row["features"])
    words = (
        f'Which proposal is in the heading "{feature}" of "What\'s new in {_title(world)} {version}"? '
        f"{_alone('number of the proposal')}"
    )
    return _asked(world, words, number)


def _term(world: World, draw: Draw) -> Goal:
    term, row = draw.row(world, "terms")
    words = (
        f'Which proposal does the glossary of {_title(world)} name for the term "{term}"? '
        f"{_alone('number of the proposal')}"
    )
    return _asked(world, words, row["proposal"])


def _synopsis(world: World, draw: Draw) -> Goal:
    name, row = draw.row(world, "modules")
    library = next(iter(world["library"]))
    words = f'What does the module index of {library} say about the module "{name}"? {_alone("words")}'
    full = f"{words} The module is in {row['source'].rpartition('/')[0]}."
    return _asked(world, full, row["summary"], (one["summary"] for one in world["modules"].values()))


def _index(world: World, draw: Draw) -> Goal:
    name, row = draw.row(world, "functions", lambda one: not one["class"])
    short = name.rpartition(".")[2]
    words = (
        f"In which module of {_title(world)} is the function {short}() by the general index? "
        f"{_alone('full name of the module')}"
    )
    return _asked(world, words, row["module"], world["modules"])


# Answers that are on several pages.


def _error_code(world: World, draw: Draw) -> Goal:
    name, row = draw.row(world, "functions")
    words = f"Find the description of {name}. Which code has the exception that it raises? {_alone('number')}"
    return _asked(world, words, world["errors"][row["error"]]["code"])


def _error_above(world: World, draw: Draw) -> Goal:
    name, row = draw.row(world, "functions")
    words = (
        f"Find the description of {name}. Which class is directly above the exception that it raises, in the "
        f"tree of exceptions? {_alone('name of the class')}"
    )
    return _asked(world, words, world["errors"][row["error"]]["base"], world["errors"])


def _workers(world: World, draw: Draw) -> Goal:
    name, row = draw.row(world, "functions", lambda one: one["setting"])
    words = (
        f"Find the description of {name}. What is the default of the setting from which it takes its number "
        f"of workers? {_alone('number')}"
    )
    return _asked(world, words, world["settings"][row["setting"]]["default"])


def _replacement(world: World, draw: Draw) -> Goal:
    name, row = draw.row(world, "functions", lambda one: one["deprecated"])
    words = (
        f"The function {name} is deprecated. In which version was the function new that is to be used "
        f"instead? {_VERSION}"
    )
    return _asked(world, words, world["functions"][row["replacement"]]["since"], RELEASES)


def _see_also(world: World, draw: Draw) -> Goal:
    name, _ = draw.row(world, "functions")
    steps, seen = draw.randint(8, 10), [name]
    for _ in range(steps):
        seen.append(world["functions"][seen[-1]]["see"])
    words = (
        f'Begin at the description of {name} and follow its link under "See also"; do the same at the '
        f"description that you come to, and so on, {steps} links in all. "
        f"{_alone('full name of the last one')}"
    )
    return _asked(world, words, seen[-1], (one for one in world["functions"] if one != seen[-1]))


def _sum(world: World, draw: Draw) -> Goal:
    chosen = draw.sample(
        [
            (f'"{parameter}" of {name}', int(default))
            for name, row in world["functions"].items()
            for parameter, kind, default, _ in row["parameters"]
            if kind == "int"
        ],
        5,
    )
    words = (
        f"Add up the defaults of these parameters: {'; '.join(text for text, _ in chosen)}. {_alone('sum')}"
    )
    return _asked(world, words, sum(default for _, default in chosen))


def _oldest(world: World, draw: Draw) -> Goal:
    """Of five functions, that with a version of its own, before or after all others."""
    functions = world["functions"]
    while True:
        names = draw.sample(list(functions), 5)
        first, second, *_ = sorted(functions[name]["since"] for name in names)
        if first != second:
            break
    oldest = min(names, key=lambda name: functions[name]["since"])
    words = (
        f"Which of these functions was new in the earliest version: {', '.join(names)}? "
        f"{_alone('full name of the function')}"
    )
    return _asked(world, words, oldest, functions)


def _deprecated_in(world: World, draw: Draw) -> Goal:
    chosen = draw.sample(list(world["modules"]), 3)
    names = frozenset(
        name.rpartition(".")[2]
        for name, row in world["functions"].items()
        if row["module"] in chosen and row["deprecated"] and not row["class"]
    )
    others = [name.rpartition(".")[2] for name, row in world["functions"].items() if row["module"] in chosen]
    words = (
        f"Which functions of the modules {', '.join(chosen)} are deprecated, apart from methods of classes? "
        "Answer with their names, without those of the modules and with commas between them."
    )
    return _asked(world, words, names, others)


def _editors(world: World, draw: Draw) -> Goal:
    """The release notes with a proposal lead to their editor."""
    chosen = draw.some(list(world["releases"]), 3, 3)
    texts = [draw.choice(world["releases"][version]["features"])[1] for version in chosen]
    sections = ", ".join(f'"{text}"' for text in texts)
    words = (
        f"Three of the pages about what is new in {_title(world)} have a section about {sections}, "
        "one each. Who are the editors of these pages? Answer with their names in the same order, with "
        "commas between them."
    )
    editors = tuple(world["releases"][version]["editor"] for version in chosen)
    return _asked(world, words, editors, (one["editor"] for one in world["releases"].values()))


TEMPLATES: dict[str, Template] = {
    "module-page": _module_page,
    "default-value": _function(f'What is the default of its parameter "{{}}"? {_alone("value")}', _default),
    "new-in": _function(f"In which version was it new? {_VERSION}", _of("since", RELEASES)),
    "chapter": _chapter,
    "changed-in": _function(
        f'In which version was its parameter "{{}}" added? {_VERSION}', _of("changed", RELEASES)
    ),
    "keyword-only": _function(
        "Which parameters can be given by keyword alone, as they come after a * in its signature? Answer "
        "with their names: one, two.",
        _keyword_only,
    ),
    "parameter": _function(f"What is the name of its {{}} parameter? {_alone('name')}", _parameter),
    "parameter-type": _function(f'Of which type is its parameter "{{}}"? {_alone("type")}', _type),
    "raises": _raises,
    "returns": _function(
        f"Of which type is what it returns? {_alone('type')}",
        _of("returns", _TYPES),
    ),
    "deprecated": _function(
        f"Since which version is it deprecated? {_VERSION}",
        _of("deprecated", RELEASES),
        lambda one: one["deprecated"],
    ),
    "event": _function(f"Which event does it emit? {_alone('name of the event')}", _of("event")),
    "example": _function(f"Which line does its example show as the result? {_alone('line')}", _of("output")),
    "stable": _function(
        f"Since which version is it part of the stable interface? {_VERSION}",
        _of("stable", RELEASES),
        lambda one: one["stable"],
    ),
    "removal": _module(
        'The module "{0}" of {1} is for "{2}" Since which version is it deprecated, and in which will it be '
        "removed? Answer with both numbers: 0.1, 0.2.",
        lambda row: (row["deprecated"], row["removal"]),
        where=lambda one: one["deprecated"],
    ),
    "module-new-in": _module(
        f'In which version of {{1}} was the module "{{0}}" new, which is for "{{2}}" {_VERSION}',
        lambda row: row["since"],
    ),
    "source": _module(
        'Which file is the source code of the module "{0}", which is for "{2}" Answer with the path as the '
        "page of the module gives it.",
        lambda row: row["source"],
        "source",
    ),
    "next-page": _next_page,
    "section": _section,
    "section-number": _section_number,
    "setting": _setting("default", f"what is the default of {{}}? {_alone('number')}"),
    "setting-new-in": _setting("since", f"in which version was {{}} new? {_VERSION}"),
    "code": _code,
    "error-base": _error_base,
    "environment-variable": _option(
        "Which environment variable does the same as the option {0} of the command line of {1}? "
        + _alone("variable's name"),
        "variable",
    ),
    "short-option": _option(
        f"Which short option of the command line of {{1}} is the same as {{0}}? {_alone('option')}", "short"
    ),
    "question": _question,
    "release-editor": _release_editor,
    "proposal": _proposal,
    "term": _term,
    "synopsis": _synopsis,
    "index": _index,
    "error-code": _error_code,
    "error-above": _error_above,
    "workers": _workers,
    "replacement": _replacement,
    "see-also": _see_also,
    "sum": _sum,
    "oldest": _oldest,
    "deprecated-in": _deprecated_in,
    "editors": _editors,
}
CARRIED = (
    *("error-code", "error-above", "workers", "replacement", "see-also", "sum", "oldest", "deprecated-in"),
    "editors",
)
