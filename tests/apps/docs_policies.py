"""Policies for the tasks at the documentation; each knows its pages, and reads everything else."""

from __future__ import annotations

import re
from collections.abc import Generator

from tests.apps.actor import Move, Moves, NotShownError, Page, Policy, done, type_in
from tests.apps.moves import Playing, press, quoted, scroll_until, wait_until

_HOME = "http://docs.test"
_TAG = re.compile(r"\*?\[\d+\]<|\*?\|")
_RELEASE = r'(\d\.\d)"\?'
_NEW = r"Added in version ([\d.]+\d)"


def asked(page: Page, pattern: str) -> str:
    found = re.search(pattern, page.request)
    assert found, page.request
    return found[1]


def open_page(path: str) -> Moves:
    return (yield f"Open {path}", [{"go_to_url": {"url": f"{_HOME}/{path}"}}])


def flat(page: Page) -> str:
    """The text of the page without its elements' tags."""
    return " ".join(line for line in page.lines if not _TAG.match(line))


def found_text(page: Page, pattern: str) -> Generator[Move, Page, tuple[Page, re.Match[str]]]:
    """Scrolls down to the first match."""
    page = yield from scroll_until(page, lambda now: bool(re.search(pattern, flat(now))))
    found = re.search(pattern, flat(page))
    assert found
    return page, found


def read(page: Page, pattern: str) -> Playing:
    _, found = yield from found_text(page, pattern)
    yield done(", ".join(found.groups()).strip("'"))


def described(page: Page, name: str) -> Moves:
    """Searches for a function, and opens its description."""
    if field := page.all(tag="input", name="q"):
        actions = [type_in(field[0].index, name), {"send_keys": {"keys": "Enter"}}]
        page = yield f"Search for {name}", actions
    else:  # It is at the top of the page.
        page = yield from open_page(f"search.html?q={name}")
    page = yield from wait_until(page, lambda now: bool(now.all(name, "a")))
    return (yield from press(page, name, "a"))


def signature(name: str, rest: str) -> str:
    # Another description may refer to it, as `name()`.
    return rf"\b{name.rpartition('.')[2]} ?\((?!\)){rest}"


def fact(page: Page, name: str, rest: str) -> Generator[Move, Page, tuple[Page, str]]:
    """What the description of a function says."""
    page = yield from described(page, name)
    page, found = yield from found_text(page, signature(name, rest))
    return page, found[1].strip("'")


def function(page: Page) -> str:
    return asked(page, r"(?:description of|[Ff]unction) (\w+\.[\w.]*\w)")


def at_description(rest: str) -> Policy:
    """`rest` may have a `{}` for what the request quotes."""

    def policy(page: Page) -> Playing:
        pattern = rest.format(*quoted(page)) if "{}" in rest else rest
        _, value = yield from fact(page, function(page), pattern)
        yield done(value)

    return policy


def keyword_only(page: Page) -> Playing:
    _, text = yield from fact(page, function(page), r"[^)]*?\*, ([^)]*)\)")
    yield done(", ".join(one.partition("=")[0] for one in text.split(", ")))


_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")


def parameter(page: Page) -> Playing:
    place = _ORDINALS.index(asked(page, r"its (\w+) parameter"))
    _, text = yield from fact(page, function(page), r"(\w[^)]*)")
    yield done([one.partition("=")[0] for one in text.split(", ") if one != "*"][place])


def example(page: Page) -> Playing:
    name = function(page)
    page = yield from described(page, name)
    yield from read(page, rf">>>\s*{name.rpartition('.')[2]}\s*\(.*?\)\s*(\[.*?\])")


def linked(page: Page, ending: str) -> Moves:
    """Follows the link of the front page whose address ends so."""

    def links(now: Page) -> list[str]:
        texts = [one for one in now.all(tag="a") if one.attributes.get("href", "").endswith(ending)]
        return [str(one.index) for one in texts]

    page = yield from scroll_until(page, lambda now: bool(links(now)))
    return (yield f"Open {ending}", [{"click_element_by_index": {"index": int(links(page)[0])}}])


def module_page(page: Page) -> Moves:
    return (yield from linked(page, f"api/{quoted(page)[0]}.html"))


def at_module(pattern: str) -> Policy:
    def policy(page: Page) -> Playing:
        page = yield from module_page(page)
        yield from read(page, pattern)

    return policy


def stop(page: Page) -> Playing:
    page = yield from module_page(page)
    yield done("It is open.")


def next_page(page: Page) -> Playing:
    page = yield from module_page(page)
    page = yield from press(page, "next", "a")
    yield done("It is open.")


def contents(page: Page, title: str) -> Generator[Move, Page, tuple[Page, str]]:
    """The front page where it shows the link to a chapter or section, and the text of that."""

    def texts(now: Page) -> list[str]:
        found = [one.text for one in now.all(tag="a")]
        return [text for text in found if re.fullmatch(rf"[\d.]+ {re.escape(title)}", text)]

    page = yield from scroll_until(page, lambda now: bool(texts(now)))
    return page, texts(page)[0]


def number(page: Page) -> Playing:
    page, text = yield from contents(page, quoted(page)[0])
    yield done(text.partition(" ")[0].rstrip("."))


def section(page: Page) -> Playing:
    page, text = yield from contents(page, quoted(page)[1])
    page = yield from press(page, text, "a")
    yield done("It is open.")


def row(page: Page, path: str, name: str, after: int) -> Generator[Move, Page, tuple[Page, str]]:
    """The cell some places after that with a name."""
    page = yield from open_page(path)
    page = yield from scroll_until(page, lambda now: name in now.lines)
    lines = [line for line in page.lines if not _TAG.match(line)]
    return page, lines[lines.index(name) + after]


def setting(after: int, pattern: str) -> Policy:
    def policy(page: Page) -> Playing:
        _, text = yield from row(page, "settings.html", asked(page, pattern), after)
        yield done(text)

    return policy


def code(page: Page) -> Playing:
    _, text = yield from row(page, "errors.html", asked(page, r"the code (\d+)\?"), 1)
    yield done(text)


def above(page: Page, name: str) -> Generator[Move, Page, str]:
    """The class above another in the tree of exceptions."""
    page = yield from open_page("errors.html")
    tree = next(line for line in page.lines if "+-- " in line)
    classes = re.findall(r"((?:\| *)*)\+-- (\w+)", tree)
    at = next(at for at, (_, found) in enumerate(classes) if found == name)
    depth = classes[at][0].count("|")
    return next((found for bars, found in classes[:at][::-1] if bars.count("|") < depth), "Exception")


def error_base(page: Page) -> Playing:
    name = yield from above(page, asked(page, r"above (\w+) in"))
    yield done(name)


def at_page(path: str, name: str, pattern: str) -> Policy:
    """Reads what a pattern finds, which has a `{}` for a part of the request."""

    def policy(page: Page) -> Playing:
        text = pattern.format(re.escape(asked(page, name)))
        page = yield from open_page(path)
        yield from read(page, text)

    return policy


def question(page: Page) -> Playing:
    (text,) = quoted(page)
    for place in (1, 2, 3):
        page = yield from open_page(f"faq/questions{place}.html")
        if any(text in line for line in page.lines):
            yield done(page.match(r"^(\w+ questions)$")[1])
    raise NotShownError(f"no page answers {text}")


def editor_of(page: Page) -> str:
    lines = list(page.lines)
    return lines[lines.index("Editor:") + 1]


def release_editor(page: Page) -> Playing:
    page = yield from open_page(f"releases/{asked(page, _RELEASE)}.html")
    yield done(editor_of(page))


def proposal(page: Page) -> Playing:
    feature = quoted(page)[0]
    page = yield from open_page(f"releases/{asked(page, _RELEASE)}.html")
    yield from read(page, rf"Proposal (\d+): {feature}")


def synopsis(page: Page) -> Playing:
    (module,) = quoted(page)
    page = yield from open_page("py-modindex.html")
    page = yield from scroll_until(page, lambda now: bool(now.all(module, "a")))
    lines = [line for line in page.lines if not _TAG.match(line) and line != "Deprecated:"]
    yield done(lines[lines.index(module) + 1])


# Answers that are on several pages.

_ERROR = r".*?\.errors\.(\w+)"


def error_code(page: Page) -> Playing:
    page, name = yield from fact(page, function(page), _ERROR)
    _, text = yield from row(page, "errors.html", name, -1)
    yield done(text)


def error_above(page: Page) -> Playing:
    page, name = yield from fact(page, function(page), _ERROR)
    text = yield from above(page, name)
    yield done(text)


def workers(page: Page) -> Playing:
    page, name = yield from fact(page, function(page), r".*?the setting ([\w.]*\w)")
    _, text = yield from row(page, "settings.html", name, 2)
    yield done(text)


def replacement(page: Page) -> Playing:
    page, name = yield from fact(page, function(page), r".*?Use ([\w.]+)\(\) instead")
    _, text = yield from fact(page, name, rf".*?{_NEW}")
    yield done(text)


def see_also(page: Page) -> Playing:
    name = function(page)
    page = yield from described(page, name)
    for _ in range(int(asked(page, r"(\d+) links"))):
        page, found = yield from found_text(page, signature(name, r".*?The function ([\w.]+)\(\)"))
        name = found[1]
        page = yield from press(page, f"{name}()", "a")
    yield done(name)


def total(page: Page) -> Playing:
    numbers = []
    for name, full in re.findall(r'"(\w+)" of ([\w.]*\w)', page.request):
        page, text = yield from fact(page, full, rf"[^)]*?\b{name}=([^,)]+)")
        numbers.append(int(text))
    yield done(str(sum(numbers)))


def oldest(page: Page) -> Playing:
    since = {}
    for name in asked(page, r"version: (.*)\? Answer").split(", "):
        page, since[name] = yield from fact(page, name, rf".*?{_NEW}")
    yield done(min(since, key=lambda name: since[name]))


def views(page: Page) -> Generator[Move, Page, list[str]]:
    """The text of the page, view by view down to its end; they overlap."""
    texts = [flat(page)]
    while page.view.pages_below >= 0.05:
        page = yield "Scroll down", [{"scroll": {"down": True, "num_pages": 0.5}}]
        texts.append(flat(page))
    return texts


def deprecated_in(page: Page) -> Playing:
    names: dict[str, None] = {}
    for module in asked(page, r"modules (.*) are deprecated").split(", "):
        page = yield from open_page(f"api/{module}.html")
        start = rf"{re.escape(module)}\. ?"
        for text in (yield from views(page)):
            for part in re.split(rf"(?={start}\w+ ?\((?!\)))|(?= class )|(?= Classes)", text):
                if found := re.match(rf"{start}(\w+) ?\((?!\)).*?Deprecated since version", part):
                    names[found[1]] = None
    yield done(", ".join(names))


def editors(page: Page) -> Playing:
    features, found = quoted(page), {}
    for version in ("1.0", "1.1", "1.2", "2.0", "2.1", "2.2", "3.0", "3.1"):
        page = yield from open_page(f"releases/{version}.html")
        for feature in features:
            if re.search(rf"Proposal \d+: {feature}", flat(page)):
                found[feature] = editor_of(page)
        if len(found) == len(features):
            break
    yield done(", ".join(found[feature] for feature in features))


POLICIES: dict[str, Policy] = {
    "module-page": stop,
    "default-value": at_description(r"[^)]*?\b{}=([^,)]+)"),
    "new-in": at_description(rf".*?{_NEW}"),
    "chapter": number,
    "changed-in": at_description(r".*?Changed in version ([\d.]+\d)"),
    "keyword-only": keyword_only,
    "parameter": parameter,
    "parameter-type": at_description(r".*?\b{} ?\( ?(\w+) ?\)"),
    "raises": at_description(_ERROR),
    "returns": at_description(r".*?Return type: ?(\w+)"),
    "deprecated": at_description(r".*?Deprecated since version ([\d.]+\d)"),
    "event": at_description(r".*?the event ([\w.]*\w)"),
    "example": example,
    "stable": at_description(r".*?stable interface since version ([\d.]+\d)"),
    "removal": at_module(r"Deprecated since version ([\d.]+\d): .*?removed in version ([\d.]+\d)"),
    "module-new-in": at_module(_NEW),
    "source": at_module(r"Source code: ?(src\S+)"),
    "next-page": next_page,
    "section": section,
    "section-number": number,
    "setting": setting(2, r"default of ([\w.]*\w)\?"),
    "setting-new-in": setting(3, r"was ([\w.]*\w) new"),
    "code": code,
    "error-base": error_base,
    "environment-variable": at_page("command.html", r"option (\S+) of", r"{}\b.*?environment variable (\w+)"),
    "short-option": at_page("command.html", r"same as (\S+)\?", r"(-\w)\b[^-]*, ?{}\b"),
    "question": question,
    "release-editor": release_editor,
    "proposal": proposal,
    "term": at_page("glossary.html", r'term "(.*)"', r"\b{}\b.*?proposal (\d+)"),
    "synopsis": synopsis,
    "index": at_page("genindex.html", r"function (\w+)\(\)", r"\b{}\(\) \(in module ([\w.]*\w)\)"),
    "error-code": error_code,
    "error-above": error_above,
    "workers": workers,
    "replacement": replacement,
    "see-also": see_also,
    "sum": total,
    "oldest": oldest,
    "deprecated-in": deprecated_in,
    "editors": editors,
}


def default_in_a_sentence(page: Page) -> Playing:
    name = quoted(page)[0]
    page, value = yield from fact(page, function(page), rf"[^)]*?\b{name}=([^,)]+)")
    yield done(f"The default of {name} is {value}.")


def keyword_only_the_other_way_round(page: Page) -> Playing:
    _, text = yield from fact(page, function(page), r"[^)]*?\*, ([^)]*)\)")
    yield done(" and ".join(one.partition("=")[0] for one in text.split(", ")[::-1]))


def page_by_the_module_index(page: Page) -> Playing:
    page = yield from open_page("py-modindex.html")
    page = yield from linked(page, f"api/{quoted(page)[0]}.html#module-{quoted(page)[0]}")
    yield done("Here it is.")


def all_of_them(page: Page) -> Playing:
    yield done(asked(page, r"version: (.*)\? Answer"))


def too_early(page: Page) -> Playing:
    """Stops at the page that only leads to the other."""
    yield from stop(page)


OTHER_WAYS: list[tuple[str, Policy, bool]] = [
    ("default-value", default_in_a_sentence, True),
    ("keyword-only", keyword_only_the_other_way_round, True),
    ("module-page", page_by_the_module_index, True),
    ("oldest", all_of_them, False),
    ("next-page", too_early, False),
]
