"""Python 3.11's documentation from Debian's package: static pages with a search that runs in the page."""

from __future__ import annotations

import re
import urllib.parse

from collection.environments.apps.application import Application, unpack
from collection.environments.apps.tasks import AppTask, Ending, choose, make_task
from collection.environments.miniwob import PageServer

# The pages' own scripts are links to files of the other packages.
PACKAGES = ("python3.11-doc", "libjs-jquery", "libjs-underscore", "libjs-sphinxdoc")


class PythonDocs(Application):
    """http://docs.test/; visitors cannot change it."""

    name = "docs"
    host = "docs.test"
    version = " ".join(PACKAGES)

    def _stop(self) -> None:
        self._server.close()

    def _make(self) -> None:
        unpack(PACKAGES, self.folder)

    def _serve(self) -> str:
        self._server = PageServer(self.folder / "usr/share/doc/python3.11/html", self.host)
        return f"127.0.0.1:{self._server.port}"


MODULES = ("graphlib", "zoneinfo", "tomllib", "sched", "difflib", "secrets")
# Function, parameter, default.
DEFAULTS = (
    ("textwrap.wrap", "width", "70"),
    ("difflib.get_close_matches", "cutoff", "0.6"),
    ("statistics.quantiles", "n", "4"),
    ("random.gauss", "sigma", "1.0"),
)
# Function, the version that brought it.
VERSIONS = (
    ("math.lcm", "3.9"),
    ("itertools.pairwise", "3.10"),
    ("statistics.fmean", "3.8"),
    ("shlex.join", "3.8"),
    ("functools.cache", "3.9"),
)
# Title, page of the tutorial.
CHAPTERS = (
    ("Floating Point Arithmetic: Issues and Limitations", "floatingpoint"),
    ("Errors and Exceptions", "errors"),
    ("Virtual Environments and Packages", "venv"),
    ("Data Structures", "datastructures"),
)


def docs_tasks(docs: PythonDocs, seed: int) -> list[AppTask]:
    """Returns one task of each kind."""
    module = choose(MODULES, seed)
    function, parameter, default = choose(DEFAULTS, seed)
    recent, version = choose(VERSIONS, seed)
    title, chapter = choose(CHAPTERS, seed)
    home = f"{docs.url}/"
    return [
        make_task(
            docs,
            "module-page",
            seed,
            f'Search the documentation at {home} for the module "{module}", open the page about it and '
            "answer with the page's address.",
            lambda end: _is_at(end, f"/library/{module}.html") and f"/library/{module}.html" in end.answer,
        ),
        make_task(
            docs,
            "default-value",
            seed,
            f'Find "{function}" by the search of {home} and open its description. What is the default of '
            f'its parameter "{parameter}"? Answer with the value alone.',
            lambda end: _is_at(end, _page_of(function)) and end.answer.strip() == default,
        ),
        make_task(
            docs,
            "new-in",
            seed,
            f'Find "{recent}" by the search of {home} and open its description. In which version of Python '
            "was it new? Answer with the version's number alone.",
            lambda end: _is_at(end, _page_of(recent)) and end.answer.strip() == version,
        ),
        make_task(
            docs,
            "chapter",
            seed,
            f'Go from {home} to the tutorial and there to its chapter "{title}". Answer with the number that '
            "the chapter has.",
            lambda end: (
                _is_at(end, f"/tutorial/{chapter}.html")
                and bool(_CHAPTER.fullmatch(end.answer.strip()))
                and _NUMBERS[chapter] == end.answer.strip().rstrip(".")
            ),
        ),
    ]


_CHAPTER = re.compile(r"\d+\.?")
_NUMBERS = {"floatingpoint": "15", "errors": "8", "venv": "12", "datastructures": "5"}


def _page_of(function: str) -> str:
    return f"/library/{function.partition('.')[0]}.html"


def _is_at(end: Ending, path: str) -> bool:
    return urllib.parse.urlsplit(end.url).path == path
