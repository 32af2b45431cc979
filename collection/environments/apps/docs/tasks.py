"""Tasks at the documentation: templates, and checks of the page and the answer."""

from __future__ import annotations

import dataclasses
import re
import urllib.parse
from collections.abc import Callable, Sequence
from xml.etree.ElementTree import Element

from collection.environments.apps.docs.pages import Pages, heading_of, text_of, with_class
from collection.environments.apps.docs.site import PythonDocs
from collection.environments.apps.tasks import AppTask, Ending, choose, make_task


@dataclasses.dataclass(frozen=True)
class Goal:
    """What a task asks for; the files are read when it is checked.

    Attributes:
      page: where the episode ends, with its `#` if that matters; a beginning is enough.
      answer: None if it is the address of that page.
    """

    words: str
    page: Callable[[Pages], str]
    answer: Callable[[Pages], str] | None = None


Template = Callable[[int], Goal]


def docs_tasks(docs: PythonDocs, seed: int) -> list[AppTask]:
    """Returns one task of each template."""
    return [_task(docs, name, template(seed), seed) for name, template in TEMPLATES.items()]


def _task(docs: PythonDocs, name: str, goal: Goal, seed: int) -> AppTask:
    def check(end: Ending) -> bool:
        given, page = end.answer.strip(), f"{docs.url}/{goal.page(docs.pages)}"
        if not end.url.startswith(page):
            return False
        return given.startswith(page) if goal.answer is None else given == goal.answer(docs.pages)

    words = f"{goal.words} The documentation is at {docs.url}/."
    return make_task(docs, name, seed, words, check)


def _on(page: str) -> Callable[[Pages], str]:
    return lambda _: page


def _described(
    words: str, items: Sequence[tuple[str, ...]], answer: Callable[[Element, Element, str], str]
) -> Template:
    """A question about an object, by its signature, its description, and what else was chosen for it."""

    def goal(seed: int) -> Goal:
        name, *more = choose(items, seed)
        last = more[-1] if more else ""
        return Goal(
            f"Find the description of {name}. {words.format(last)}",
            lambda pages: pages.address(name).partition("#")[0],
            lambda pages: answer(*pages.described(name), last),
        )

    return goal


def _at_page(words: str, items: Sequence[tuple[str, str]], answer: Callable[[Element, str], str]) -> Template:
    """A question about something on a page."""

    def goal(seed: int) -> Goal:
        page, item = choose(items, seed)
        return Goal(words.format(item), _on(page), lambda pages: answer(pages.root(page), item))

    return goal


def _module(words: str, modules: Sequence[str], answer: Callable[[Element, str], str]) -> Template:
    return _at_page(words, [(f"library/{name}.html", name) for name in modules], answer)


def _find(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if found is None:
        raise LookupError(f"nothing like {pattern} in {text[:200]!r}")
    return found[1]


def _noted(description: Element, kind: str, pattern: str, about: str = "") -> str:
    """What the first note on a version says, of those about something."""
    texts = (text_of(one) for one in with_class(description, kind, nested=False))
    return _find(pattern, next(text for text in texts if re.search(rf"\b{about}\b", text) or not about))


def _parameters(signature: Element) -> list[str]:
    return [text_of(one) for one in with_class(signature, "sig-param")]


def _default(signature: Element, _: Element, name: str) -> str:
    return next(one for one in _parameters(signature) if one.startswith(f"{name}=")).partition("=")[2]


def _keyword_only(signature: Element, _: Element, __: str) -> str:
    found = [one.partition("=")[0] for one in _parameters(signature)]
    return ", ".join(found[found.index("*") + 1 :])


_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")


def _parameter(signature: Element, _: Element, ordinal: str) -> str:
    found = [one.partition("=")[0] for one in _parameters(signature) if one not in ("*", "/")]
    return found[_ORDINALS.index(ordinal)]


def _exception(_: Element, description: Element, __: str) -> str:
    links = (one for one in description.iter("a") if one.get("href", "").startswith("exceptions.html#"))
    return text_of(next(links))


def _cell(root: Element, row: str, column: str) -> str:
    """The cell of a table, by a cell of its row and the head of its column."""
    for table in root.iter("table"):
        head = [text_of(one) for one in table.iter("th")]
        for line in table.iter("tr"):
            cells = [text_of(one) for one in line.iter("td")]
            if row in cells and column in head:
                return cells[head.index(column)]
    raise LookupError(f"no table has a row {row!r} and a column {column!r}")


def _output(root: Element, expression: str) -> str:
    """The line after an expression in the examples."""
    for block in root.iter("pre"):
        lines = text_of(block, lines=True).splitlines()
        if f">>> {expression}" in lines:
            return lines[lines.index(f">>> {expression}") + 1].strip()
    raise LookupError(f"no example has {expression}")


def _base(root: Element, name: str) -> str:
    """The class above another in the tree of built-in exceptions."""
    blocks = (text_of(block, lines=True) for block in root.iter("pre"))
    lines = next(text for text in blocks if "├── " in text).splitlines()
    places = [(_name_start(line), line[_name_start(line) :].strip()) for line in lines]
    at = next(at for at, (_, found) in enumerate(places) if found == name)
    return next(found for start, found in reversed(places[:at]) if start < places[at][0])


def _name_start(line: str) -> int:
    return len(line) - len(line.lstrip(" │├└─"))


def _short(root: Element, option: str) -> str:
    option = option.partition(" ")[0]
    signatures = (text_of(one) for one in root.iter("dt"))
    return next(found[1] for one in signatures if (found := re.search(rf"(-\w)[^-]*, {option}\b", one)))


def _type(signature: Element, _: Element, name: str) -> str:
    return _find(rf"[(,] ?([^(,]*?) ?\b{name}[,)]", text_of(signature))


def _field(root: Element, name: str) -> str:
    for fields in root.iter("dl"):
        parts = list(fields)
        for at, one in enumerate(parts):
            if one.tag == "dt" and text_of(one) == f"{name}:":
                return text_of(parts[at + 1])
    raise LookupError(f"no field {name}")


def _term_pep(root: Element, term: str) -> str:
    for terms in root.iter("dl"):
        parts = list(terms)
        for at, one in enumerate(parts):
            if one.tag == "dt" and text_of(one) == term:
                return _find(r"PEP (\d+)", text_of(next(p for p in parts[at:] if p.tag == "dd")))
    raise LookupError(f"no term {term}")


def _synopsis(root: Element, module: str) -> str:
    for row in root.iter("tr"):
        if any(text_of(link) == module for link in row.iter("a")):
            return text_of(next(row.iter("em")))
    raise LookupError(f"no module {module}")


MODULES = ("graphlib", "zoneinfo", "tomllib", "sched", "difflib", "secrets")
_ALONE = "Answer with the {} alone."
_VERSION = _ALONE.format("version's number")


def _module_page(seed: int) -> Goal:
    module = choose(MODULES, seed)
    words = f'Search for the module "{module}", open the page about it and answer with the page\'s address.'
    return Goal(words, _on(f"library/{module}.html"))


def _next_page(seed: int) -> Goal:
    module = choose(("calendar", "heapq", "shelve", "getpass", "cmath", "glob"), seed)
    start = f"library/{module}.html"

    def following(pages: Pages) -> str:
        link = next(one for one in pages.root(start).iter("link") if one.get("rel") == "next")
        return urllib.parse.urljoin(start, link.get("href", ""))

    words = (
        f'Open the page about the module "{module}" and go from there to the page that is next in the order '
        "of the documentation. Answer with the address of that page."
    )
    return Goal(words, following)


def _section(seed: int) -> Goal:
    guide, page, title = choose(
        (
            ("Logging HOWTO", "howto/logging.html", "When to use logging"),
            ("Sorting HOW TO", "howto/sorting.html", "Key Functions"),
            ("Regular Expression HOWTO", "howto/regex.html", "Non-capturing and Named Groups"),
            ("Functional Programming HOWTO", "howto/functional.html", "The functools module"),
            ("Unicode HOWTO", "howto/unicode.html", "The String Type"),
        ),
        seed,
    )
    words = (
        f'Open the "{guide}" and go to its section "{title}" by the table of contents. Answer with the '
        "address of the section, with the part after #."
    )
    return Goal(words, lambda pages: f"{page}#{pages.section(page, title).get('id')}")


def _numbered(words: str, items: Sequence[tuple[str, str]]) -> Template:
    """A question about the number of a section; its last dot is left out."""

    def goal(seed: int) -> Goal:
        page, title = choose(items, seed)
        return Goal(
            words.format(title),
            _on(page),
            lambda pages: _find(r"^([\d.]+)\. ", heading_of(pages.section(page, title))),
        )

    return goal


_FAQ = tuple(
    f"faq/{name}.html" for name in ("general", "programming", "design", "library", "extending", "gui")
)
_ASKED = (
    *("Why are floating-point calculations so inaccurate?", "How do I copy a file?"),
    *("How do I extract C values from a Python object?", "How do I freeze Tkinter applications?"),
    *("How do I convert a string to a number?", "Are there copyright restrictions on the use of Python?"),
)


def _faq(seed: int) -> Goal:
    question = choose(_ASKED, seed)

    def page(pages: Pages) -> str:
        for one in _FAQ:
            if any(heading_of(section) == question for section in pages.root(one).iter("section")):
                return one
        raise LookupError(f"no page answers {question}")

    def title(pages: Pages) -> str:
        return heading_of(next(pages.root(page(pages)).iter("section")))

    words = (
        f'Open the page of the frequently asked questions that answers "{question}". Answer with the title '
        "of that page alone."
    )
    return Goal(words, page, title)


def _index(seed: int) -> Goal:
    name = choose(("b16encode", "nlargest", "mkdtemp", "isqrt", "quantiles", "pairwise"), seed)
    page = f"genindex-{name[0].upper()}.html"

    def module(pages: Pages) -> str:
        links = (text_of(one) for one in pages.root(page).iter("a"))
        return next(found[1] for one in links if (found := re.match(rf"{name}\(\) \(in module (\S+)\)", one)))

    words = f"In which module is the function {name}() by the general index? Open the index at its letter. "
    return Goal(words + _ALONE.format("module's name"), _on(page), module)


def _variable(seed: int) -> Goal:
    option, page = choose("BPuWO", seed), "using/cmdline.html"

    def variable(pages: Pages) -> str:
        _, description = pages.described(f"{page}#cmdoption-{option}")
        links = (one for one in description.iter("a") if "#envvar-" in one.get("href", ""))
        return text_of(next(links))

    words = f"Which environment variable is named with the option -{option} of Python's own command line? "
    return Goal(words + _ALONE.format("variable's name"), _on(page), variable)


_NEWS = (
    ("3.11", "Exception Groups and except*"),
    ("3.11", "Variadic generics"),
    ("3.10", "Structural Pattern Matching"),
    ("3.7", "Postponed Evaluation of Annotations"),
    ("3.6", "Formatted string literals"),
)


def _pep(seed: int) -> Goal:
    version, title = choose(_NEWS, seed)
    page = f"whatsnew/{version}.html"

    def number(pages: Pages) -> str:
        headings = (heading_of(one) for one in pages.root(page).iter("section"))
        return next(one for one in headings if one.endswith(f": {title}"))[4:].partition(":")[0]

    words = (
        f'Which PEP is in the heading of the section "{title}" of "What\'s New In Python {version}"? Answer '
        "with the number of the PEP alone."
    )
    return Goal(words, _on(page), number)


def _top(root: Element) -> Element:
    return next(root.iter("section"))


TEMPLATES: dict[str, Template] = {
    "module-page": _module_page,
    "default-value": _described(
        f'What is the default of its parameter "{{}}"? {_ALONE.format("value")}',
        (
            ("textwrap.wrap", "width"),
            ("difflib.get_close_matches", "cutoff"),
            ("statistics.quantiles", "n"),
            ("random.gauss", "sigma"),
        ),
        _default,
    ),
    "new-in": _described(
        f"In which version of Python was it new? {_VERSION}",
        (
            ("math.lcm",),
            ("itertools.pairwise",),
            ("statistics.fmean",),
            ("shlex.join",),
            ("functools.cache",),
        ),
        lambda _, description, __: _noted(description, "versionadded", r"New in version ([\d.]+\d)"),
    ),
    "chapter": _numbered(
        f'Go to the tutorial and there to its chapter "{{}}". {_ALONE.format("number that the chapter has")}',
        (
            ("tutorial/floatingpoint.html", "Floating Point Arithmetic: Issues and Limitations"),
            ("tutorial/errors.html", "Errors and Exceptions"),
            ("tutorial/venv.html", "Virtual Environments and Packages"),
            ("tutorial/datastructures.html", "Data Structures"),
        ),
    ),
    "changed-in": _described(
        f'In which version was its parameter "{{}}" added? {_VERSION}',
        (
            ("bisect.insort", "key"),
            ("glob.glob", "include_hidden"),
            ("pprint.PrettyPrinter", "sort_dicts"),
            ("random.sample", "counts"),
            ("shlex.shlex", "punctuation_chars"),
            ("gzip.compress", "mtime"),
            ("locale.format_string", "monetary"),
        ),
        lambda _, description, name: _noted(
            description, "versionchanged", r"Changed in version ([\d.]+\d)", name
        ),
    ),
    "keyword-only": _described(
        "Which parameters can be given by keyword alone, as they come after a * in its signature? Answer "
        "with their names in that order: one, two.",
        (
            ("base64.a85encode",),
            ("dis.get_instructions",),
            ("ast.parse",),
            ("asyncio.create_task",),
            ("binascii.b2a_uu",),
        ),
        _keyword_only,
    ),
    "parameter": _described(
        f"What is the name of its {{}} parameter? {_ALONE.format('name')}",
        (
            ("shutil.copytree", "third"),
            ("subprocess.Popen", "fourth"),
            ("urllib.request.urlopen", "second"),
            ("difflib.unified_diff", "sixth"),
            ("zipfile.ZipFile", "third"),
        ),
        _parameter,
    ),
    "raises": _described(
        f"Which built-in exception does the description name? {_ALONE.format('name of its class')}",
        (
            ("heapq.heappop",),
            ("asyncio.get_running_loop",),
            ("ast.unparse",),
            ("array.array.fromfile",),
            ("inspect.getfile",),
            ("ipaddress.ip_address",),
        ),
        _exception,
    ),
    "deprecated": _described(
        f"Since which version is it deprecated? {_VERSION}",
        (
            ("inspect.getcallargs",),
            ("tempfile.mktemp",),
            ("threading.Thread.getName",),
            ("typing.Deque",),
            ("configparser.ConfigParser.readfp",),
        ),
        lambda _, description, __: _noted(description, "deprecated", r"Deprecated since version ([\d.]+\d)"),
    ),
    "removal": _module(
        'Find the page of the module "{}". Since which version is the module deprecated, and in which will '
        "it be removed? Answer with both numbers: 3.1, 3.2.",
        ("asyncore", "cgi", "imp", "telnetlib", "smtpd"),
        lambda root, _: ", ".join(
            _noted(_top(root), "deprecated-removed", pattern)
            for pattern in (r"since version ([\d.]+\d)", r"removed in version ([\d.]+\d)")
        ),
    ),
    "module-new-in": _module(
        f'Find the page of the module "{{}}". In which version of Python was the module new? {_VERSION}',
        ("zoneinfo", "tomllib", "secrets", "statistics", "contextvars", "ipaddress"),
        lambda root, _: _noted(_top(root), "versionadded", r"New in version ([\d.]+\d)"),
    ),
    "source": _module(
        'Find the page of the module "{}". Which file is its source code? Answer with the path as the page '
        "gives it.",
        ("json", "heapq", "logging", "tomllib", "html"),
        lambda root, _: _find(r"Source code: (\S+)", text_of(_top(root))),
    ),
    "audit-event": _described(
        f"Which auditing event does it raise? {_ALONE.format('name of the event')}",
        (
            ("os.renames",),
            ("os.fchdir",),
            ("os.spawnlp",),
            ("os.removedirs",),
            ("os.ftruncate",),
            ("os.execve",),
        ),
        lambda _, description, __: _find(r"auditing event (\S+) with", text_of(description)),
    ),
    "next-page": _next_page,
    "section": _section,
    "reference-number": _numbered(
        'Which number has the section "{}" of the language reference? Open the page that it is on, and '
        "answer with the number, as in 1.2 or 1.2.3.",
        (
            ("reference/lexical_analysis.html", "Identifiers and keywords"),
            ("reference/compound_stmts.html", "The match statement"),
            ("reference/expressions.html", "Conditional expressions"),
            ("reference/simple_stmts.html", "The global statement"),
            ("reference/import.html", "Finders and loaders"),
        ),
    ),
    "format-character": _at_page(
        'Which C type does the format character "{}" stand for, by the table of the module "struct"? '
        + _ALONE.format("type"),
        [("library/struct.html", character) for character in ("h", "q", "L", "d", "Q", "B")],
        lambda root, character: _cell(root, character, "C Type"),
    ),
    "operator": _at_page(
        'Which function is given for the operation "{}" by the table of the module "operator"? '
        "Answer with the function and its arguments, as in add(a, b).",
        [
            ("library/operator.html", operation)
            for operation in ("Left Shift", "Containment Test", "Identity", "Slice Deletion", "Modulo")
        ],
        lambda root, operation: _cell(root, operation, "Function"),
    ),
    "encoding": _at_page(
        'For which language is the codec "{}", by the table of standard encodings of the module "codecs"? '
        + _ALONE.format("language"),
        [("library/codecs.html", name) for name in ("cp864", "cp424", "cp1258", "ptcp154", "cp869")],
        lambda root, name: _cell(root, name, "Languages"),
    ),
    "example": _at_page(
        "Which line comes after >>> {} in an example of the page about the function that it calls? Answer "
        "with that line alone.",
        (
            ("library/statistics.html", "median_grouped([52, 52, 53, 54])"),
            ("library/textwrap.html", 'textwrap.shorten("Hello  world!", width=12)'),
            ("library/difflib.html", "get_close_matches('appel', ['ape', 'apple', 'peach', 'puppy'])"),
            ("library/statistics.html", "median_low([1, 3, 5, 7])"),
        ),
        _output,
    ),
    "environment-variable": _variable,
    "short-option": _at_page(
        "Which short option of the command line is the same as {}? " + _ALONE.format("option"),
        (
            ("library/unittest.html", "--failfast of the module unittest"),
            ("library/timeit.html", "--setup of the module timeit"),
            ("library/trace.html", "--trackcalls of the module trace"),
            ("library/unittest.html", "--buffer of the module unittest"),
            ("library/timeit.html", "--process of the module timeit"),
            ("library/trace.html", "--no-report of the module trace"),
        ),
        _short,
    ),
    "c-parameter": _described(
        f"It is a function of the C API. Of which type is its parameter {{}}? {_ALONE.format('type')}",
        (
            ("PyList_SetItem", "index"),
            ("PyLong_FromString", "base"),
            ("PyLong_FromUnsignedLong", "v"),
            ("PyFloat_FromDouble", "v"),
            ("PyUnicode_FindChar", "ch"),
        ),
        _type,
    ),
    "stable-abi": _described(
        f"It belongs to the C API. Since which version is it part of the stable ABI? {_VERSION}",
        (
            ("PyType_GetName",),
            ("Py_NewRef",),
            ("PyIter_Check",),
            ("PyObject_GetBuffer",),
            ("PyFrame_GetCode",),
        ),
        lambda _, description, __: _noted(description, "stableabi", r"since version ([\d.]+\d)"),
    ),
    "faq": _faq,
    "editor": _at_page(
        'Who is the editor of "What\'s New In Python {}"? Answer with the name as the page gives it.',
        [(f"whatsnew/{version}.html", version) for version in ("3.11", "3.9", "3.8")],
        lambda root, _: _field(root, "Editor"),
    ),
    "pep": _pep,
    "glossary": _at_page(
        'Which PEP does the glossary name for the term "{}"? Answer with the number of the PEP alone.',
        [
            ("glossary.html", term)
            for term in ("f-string", "namespace package", "qualified name", "provisional API", "type hint")
        ],
        _term_pep,
    ),
    "exception-base": _at_page(
        "Which class is directly above {} in the hierarchy of built-in exceptions? "
        + _ALONE.format("name of the class"),
        [
            ("library/exceptions.html", name)
            for name in ("ConnectionResetError", "IndexError", "RecursionError", "ZeroDivisionError")
        ],
        _base,
    ),
    "synopsis": _at_page(
        'What does the module index say about the module "{}"? Answer with its words alone.',
        [("py-modindex.html", module) for module in MODULES],
        _synopsis,
    ),
    "index": _index,
}
