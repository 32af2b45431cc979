"""Policies for the tasks at Python's documentation; each knows its pages, and reads everything else."""

from __future__ import annotations

import re

from tests.apps.actor import Moves, NotShownError, Page, Policy, click, done, type_in
from tests.apps.moves import Playing, press, quoted, scroll_until, wait_until

_HOME = "http://docs.test"
_TAG = re.compile(r"\*?\[\d+\]<|\*?\|")
_VARIABLE = r"\bPYTHON[A-Z]+"


def asked(page: Page, pattern: str) -> str:
    found = re.search(pattern, page.request)
    assert found, page.request
    return found[1]


def search(page: Page, words: str) -> Moves:
    field = page.one(tag="input", name="q")
    return (yield f"Search for {words}", [type_in(field, words), {"send_keys": {"keys": "Enter"}}])


def open_page(path: str) -> Moves:
    return (yield f"Open {path}", [{"go_to_url": {"url": f"{_HOME}/{path}"}}])


def flat(page: Page) -> str:
    """The text of the page without its elements' tags."""
    return " ".join(line for line in page.lines if not _TAG.match(line))


def read(page: Page, pattern: str) -> Playing:
    """Scrolls down to the first match and answers with it."""
    page = yield from scroll_until(page, lambda now: bool(re.search(pattern, flat(now))))
    found = re.search(pattern, flat(page))
    assert found
    yield done(", ".join(found.groups()))


def described(page: Page) -> Moves:
    """Opens the description that the request names."""
    name = asked(page, r"description of (\S+)\. ")
    page = yield from search(page, name)
    page = yield from wait_until(page, lambda now: bool(now.all(name, "a")))
    return (yield from press(page, name, "a"))


def signature(page: Page, rest: str) -> str:
    """A pattern of the signature of what the request names, and what comes after."""
    name = asked(page, r"description of (\S+)\. ").rpartition(".")[2]
    return rf"\b{name} ?\({rest}"


def at_description(rest: str) -> Policy:
    """`rest` may have a `{}` for what the request quotes."""

    def policy(page: Page) -> Playing:
        pattern = signature(page, rest.format(*quoted(page)) if "{}" in rest else rest)
        page = yield from described(page)
        yield from read(page, pattern)

    return policy


def changed_in(page: Page) -> Playing:
    (parameter,) = quoted(page)
    page = yield from described(page)
    yield from read(page, rf"Changed in version ([\d.]+\d): [^:]*?\b{parameter}\b")


def keyword_only(page: Page) -> Playing:
    pattern = signature(page, r"[^)]*?\*, ([^)]*)\)")
    page = yield from described(page)
    found = re.search(pattern, flat(page))
    assert found
    yield done(", ".join(one.partition("=")[0] for one in found[1].split(", ")))


_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")


def parameter(page: Page) -> Playing:
    place, pattern = _ORDINALS.index(asked(page, r"its (\w+) parameter")), signature(page, r" ?(\w[^)]*)")
    page = yield from described(page)
    found = re.search(pattern, flat(page))
    assert found
    names = [one.partition("=")[0] for one in found[1].split(", ") if one not in ("*", "/")]
    yield done(names[place])


def raises(page: Page) -> Playing:
    pattern = signature(page, "")
    page = yield from described(page)
    lines = list(page.lines)
    start = next(at for at, line in enumerate(lines) if re.search(pattern, line))
    links = (re.search(r"exceptions\.html#(\w+)", line) for line in lines[start:])
    yield done(next(filter(None, links))[1])


def c_parameter(page: Page) -> Playing:
    name, pattern = asked(page, r"parameter (\w+)\?"), signature(page, r" ?(\w[^)]*)")
    page = yield from described(page)
    found = re.search(pattern, flat(page))
    assert found
    parameters = (re.sub(r"\s+", " ", one).strip() for one in found[1].split(","))
    yield done(next(one for one in parameters if one.endswith(f" {name}")).removesuffix(f" {name}"))


def module_page(page: Page) -> Moves:
    (module, *_) = quoted(page)
    page = yield from search(page, module)
    href = f"/library/{module}.html#module-{module}"
    page = yield from wait_until(page, lambda now: bool(now.all(module, "a", href=href)))
    return (yield from press(page, module, "a", href=href))


def address(page: Page) -> Playing:
    page = yield from module_page(page)
    yield done(page.url)


def at_module(pattern: str) -> Policy:
    def policy(page: Page) -> Playing:
        page = yield from module_page(page)
        yield from read(page, pattern)

    return policy


def next_page(page: Page) -> Playing:
    page = yield from open_page(f"library/{quoted(page)[0]}.html")
    page = yield from press(page, "next", "a")
    yield done(page.url)


def chapter(page: Page) -> Playing:
    (title,) = quoted(page)
    page = yield from press(page, "Tutorial", "a")

    def linked(now: Page) -> list[str]:
        texts = [element.text for element in now.all(tag="a")]
        return [text for text in texts if re.fullmatch(rf"\d+\. {re.escape(title)}", text)]

    page = yield from scroll_until(page, lambda now: bool(linked(now)))
    text = linked(page)[0]
    page = yield from press(page, text, "a")
    yield done(text.partition(".")[0])


def section(page: Page) -> Playing:
    guide, title = quoted(page)
    page = yield from open_page("howto/index.html")
    page = yield from press(page, guide, "a")
    page = yield from scroll_until(page, lambda now: bool(now.all(title, "a")))
    page = yield from press(page, title, "a")
    yield done(page.url)


_REFERENCE = {
    "Identifiers and keywords": "lexical_analysis",
    "The match statement": "compound_stmts",
    "Conditional expressions": "expressions",
    "The global statement": "simple_stmts",
    "Finders and loaders": "import",
}


def reference_number(page: Page) -> Playing:
    (title,) = quoted(page)
    page = yield from open_page(f"reference/{_REFERENCE[title]}.html")
    yield from read(page, rf"(\d[\d.]+)\. {title}")


def row(path: str, after: int) -> Policy:
    """The cell some places after that of the row that the request quotes."""

    def policy(page: Page) -> Playing:
        name = quoted(page)[0]
        page = yield from open_page(path)
        page = yield from scroll_until(page, lambda now: name in now.lines)
        lines = list(page.lines)
        yield done(lines[lines.index(name) + after])

    return policy


def encoding(page: Page) -> Playing:
    name = quoted(page)[0]
    page = yield from open_page("library/codecs.html#standard-encodings")
    page = yield from scroll_until(page, lambda now: name in now.lines)
    lines = list(page.lines)
    yield done(lines[lines.index(name) + 2])


def example(page: Page) -> Playing:
    expression = asked(page, r">>> (.*) in an example")
    name = expression.partition("(")[0].rpartition(".")[2]
    page = yield from search(page, name)

    def linked(now: Page) -> list[int]:
        return [one.index for one in now.all(tag="a") if one.text.endswith(f".{name}")]

    page = yield from wait_until(page, lambda now: bool(linked(now)))
    page = yield "Open the description", [click(linked(page)[0])]
    # The word that was searched for is marked, and may stand apart.
    shown = r"\s*".join(map(re.escape, re.findall(r"\w+|[^\w\s]", expression)))
    yield from read(page, rf">>>\s*{shown}\s*(.+?)(?= >>>| [A-Z][a-z]+ )")


def variable(page: Page) -> Playing:
    option = asked(page, r"option (-\w)")
    page = yield from open_page(f"using/cmdline.html#cmdoption{option}")

    def rest(now: Page) -> list[str]:
        """Lines from the option on, which may have an argument; none where it is further down."""
        lines = ["", *now.lines]
        named = (at for at, line in enumerate(lines) if re.fullmatch(rf"{option}( \w+)?", line))
        starts = (at for at in named if not _TAG.match(lines[at - 1]))
        return lines[next(starts, len(lines)) :]

    page = yield from scroll_until(page, lambda now: bool(re.search(_VARIABLE, " ".join(rest(now)))))
    found = re.search(_VARIABLE, " ".join(rest(page)))
    assert found
    yield done(found[0])


def short_option(page: Page) -> Playing:
    option, module = asked(page, r"same as (--\S+)"), asked(page, r"module (\w+)\?")
    page = yield from open_page(f"library/{module}.html")
    yield from read(page, rf"(-\w)[^-,]*, {option}\b")


def faq(page: Page) -> Playing:
    (question,) = quoted(page)
    for name in ("general", "programming", "design", "library", "extending", "gui"):
        page = yield from open_page(f"faq/{name}.html")
        if any(question in line for line in page.lines):
            yield done(page.match(r"^(.* FAQ)$")[1])
    raise NotShownError(f"no page answers {question}")


def editor(page: Page) -> Playing:
    page = yield from open_page(f"whatsnew/{asked(page, r'Python ([0-9.]+)')}.html")
    lines = list(page.lines)
    yield done(lines[lines.index("Editor:") + 1])


def pep(page: Page) -> Playing:
    title = quoted(page)[0]
    page = yield from open_page(f"whatsnew/{asked(page, r'Python ([0-9.]+)')}.html")
    yield from read(page, rf"PEP (\d+): {re.escape(title)}")


def glossary(page: Page) -> Playing:
    (term,) = quoted(page)
    page = yield from open_page(f"glossary.html#term-{term.replace(' ', '-')}")
    lines = list(page.lines)
    yield done(
        next(found[1] for line in lines[lines.index(term) :] if (found := re.match(r"PEP (\d+)", line)))
    )


def exception_base(page: Page) -> Playing:
    name = asked(page, r"above (\w+) in")
    page = yield from open_page("library/exceptions.html#exception-hierarchy")
    tree = next(line for line in page.lines if "├── " in line)
    classes = re.findall(r"((?:│ )*)[├└]── (\w+)", tree)
    at = next(at for at, (_, found) in enumerate(classes) if found == name)
    depth = len(classes[at][0])
    yield done(next(found for bars, found in reversed(classes[:at]) if len(bars) < depth))


def synopsis(page: Page) -> Playing:
    (module,) = quoted(page)
    page = yield from open_page("py-modindex.html")
    page = yield from scroll_until(page, lambda now: bool(now.all(module, "a")))
    lines = list(page.lines)
    yield done(lines[lines.index(module) + 1])


def index(page: Page) -> Playing:
    name = asked(page, r"function (\w+)\(\)")
    page = yield from open_page(f"genindex-{name[0].upper()}.html")
    yield from read(page, rf"\b{name}\(\) \(in module (\S+)\)")


_NEW = r"New in version ([\d.]+\d)"
POLICIES: dict[str, Policy] = {
    "module-page": address,
    "default-value": at_description(r"[^)]*?\b{}=([^,)]+)"),
    "new-in": at_description(rf" ?[\w*].*?{_NEW}"),
    "chapter": chapter,
    "changed-in": changed_in,
    "keyword-only": keyword_only,
    "parameter": parameter,
    "raises": raises,
    "deprecated": at_description(r".*?Deprecated since version ([\d.]+\d)"),
    "removal": at_module(r"Deprecated since version ([\d.]+\d), will be removed in version ([\d.]+\d)"),
    "module-new-in": at_module(_NEW),
    "source": at_module(r"Source code: (Lib\S+)"),
    "audit-event": at_description(r" ?\w.*?auditing event (\S+) with"),
    "next-page": next_page,
    "section": section,
    "reference-number": reference_number,
    "format-character": row("library/struct.html#format-characters", 1),
    "operator": row("library/operator.html#mapping-operators-to-functions", 2),
    "encoding": encoding,
    "example": example,
    "environment-variable": variable,
    "short-option": short_option,
    "c-parameter": c_parameter,
    "stable-abi": at_description(r" ?\w.*?Stable ABI since version ([\d.]+\d)"),
    "faq": faq,
    "editor": editor,
    "pep": pep,
    "glossary": glossary,
    "exception-base": exception_base,
    "synopsis": synopsis,
    "index": index,
}
