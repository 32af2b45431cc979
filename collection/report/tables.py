"""Tables as text cells, written as Markdown, LaTeX and HTML."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Sequence

import jinja2
from markupsafe import Markup

PAPER, MEASURED = "paper", "measured"
# Stands where nothing was measured: a missing figure is never a number.
NOT_RUN = "not run"


@dataclasses.dataclass(frozen=True)
class Column:
    """A column's heading.

    Attributes:
      group: heading over it and its neighbours of the same group.
      source: `PAPER`, `MEASURED`, or "" for what is neither.
    """

    title: str
    group: str = ""
    source: str = ""

    @property
    def heading(self) -> str:
        """With its group, for formats that have one row of headings."""
        return f"{self.group}: {self.title}" if self.group else self.title


@dataclasses.dataclass(frozen=True)
class TableRow:
    """One text a column; a row whose section differs from the one above is preceded by its heading."""

    cells: tuple[str, ...]
    section: str = ""


@dataclasses.dataclass(frozen=True)
class Table:
    """What every format is written from.

    Raises:
      ValueError: a row has not one cell for each column.
    """

    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(f"{self.title}: {len(row.cells)} cells in {len(self.columns)} columns")

    @property
    def alignment(self) -> str:
        """LaTeX's: text first, figures in the middle."""
        return "l" + "c" * (len(self.columns) - 1)

    @property
    def column_groups(self) -> list[tuple[str, int]]:
        """Headings over the columns and how many each spans, in order; "" where there is none."""
        return [
            (group, len(list(run))) for group, run in itertools.groupby(self.columns, lambda one: one.group)
        ]

    @property
    def sections(self) -> list[tuple[str, list[TableRow]]]:
        """Rows under their section's heading, in order."""
        return [(name, list(rows)) for name, rows in itertools.groupby(self.rows, lambda row: row.section)]


@dataclasses.dataclass(frozen=True)
class PlotFile:
    """A plot that accompanies the tables.

    Attributes:
      file: name of the SVG file.
      svg: for a page that defines the colours.
    """

    title: str
    caption: str
    file: str
    svg: str


@dataclasses.dataclass(frozen=True)
class Document:
    """Tables and plots that belong together, and the command that made them."""

    title: str
    tables: Sequence[Table]
    plots: Sequence[PlotFile]
    notes: Sequence[str]
    command: str


def template(name: str) -> jinja2.Template:
    """A Markdown template of this package; texts go into it through the filter `md`."""
    return _environment("md").get_template(name)


def to_markdown(document: Document) -> str:
    return template("tables.md.j2").render(document=document)


def to_latex(document: Document) -> str:
    """Table environments for `\\input`; needs the packages booktabs and adjustbox."""
    return _environment("tex").get_template("tables.tex.j2").render(document=document)


def to_html(document: Document) -> str:
    """A page that refers to nothing outside it."""
    environment = _environment("html")
    assert environment.loader is not None
    style = environment.loader.get_source(environment, "report.css")[0]
    return environment.get_template("tables.html.j2").render(
        document=document, style=Markup(style), not_run=NOT_RUN
    )


def escape_markdown(text: str) -> str:
    """Text for a cell of a table: nothing in it is markup, and it stays in its cell."""
    return re.sub(r"([\\`*_{}\[\]<>|#~$&!])", r"\\\1", " ".join(text.split()))


_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    # What older engines know by these names alone.
    "−": "$-$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "†": r"$^{\dagger}$",
    "‡": r"$^{\ddagger}$",
    "–": "--",
    "—": "---",
    "…": r"\dots{}",
    "\N{NO-BREAK SPACE}": "~",
}


def escape_latex(text: str) -> str:
    """Text for LaTeX: nothing in it is a command, and signs that need one get it.

    A bracket at the start of a row would be read as an argument of the line break before it.
    """
    escaped = "".join(_LATEX.get(letter, letter) for letter in " ".join(text.split()))
    return re.sub(r"^([\[*])", r"{\1}", escaped)


@functools.cache
def _environment(format_: str) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("collection", "report"),
        undefined=jinja2.StrictUndefined,
        autoescape=format_ == "html",
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        # Braces are LaTeX's own.
        variable_start_string="<<" if format_ == "tex" else "{{",
        variable_end_string=">>" if format_ == "tex" else "}}",
    )
    environment.filters |= {"md": escape_markdown, "tex": escape_latex}
    return environment
