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
# Text of a cell without a measurement: a missing figure must never look like a number.
NOT_RUN = "not run"


@dataclasses.dataclass(frozen=True)
class Column:
    """A column's heading.

    Attributes:
      group: heading above this column and its neighbours of the same group.
      source: `PAPER`, `MEASURED`, or "" for other columns.
    """

    title: str
    group: str = ""
    source: str = ""

    @property
    def heading(self) -> str:
        """Title with its group, for formats with a single row of headings."""
        return f"{self.group}: {self.title}" if self.group else self.title


@dataclasses.dataclass(frozen=True)
class TableRow:
    """One text per column; a section heading precedes a row whose section differs from the row above."""

    cells: tuple[str, ...]
    section: str = ""


@dataclasses.dataclass(frozen=True)
class Table:
    """A table, independent of the output format.

    Attributes:
      notes: lines under the table.

    Raises:
      ValueError: a row does not have one cell per column.
    """

    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(f"{self.title}: {len(row.cells)} cells in {len(self.columns)} columns")

    @property
    def alignment(self) -> str:
        """LaTeX column specification: the first column left-aligned, the others centred."""
        return "l" + "c" * (len(self.columns) - 1)

    @property
    def column_groups(self) -> list[tuple[str, int]]:
        """Group headings in order, with the number of columns that each spans; "" for none."""
        return [
            (group, len(list(run))) for group, run in itertools.groupby(self.columns, lambda one: one.group)
        ]

    @property
    def sections(self) -> list[tuple[str, list[TableRow]]]:
        """Rows by section, in order."""
        return [(name, list(rows)) for name, rows in itertools.groupby(self.rows, lambda row: row.section)]


@dataclasses.dataclass(frozen=True)
class PlotFile:
    """A plot that accompanies the tables.

    Attributes:
      file: name of the SVG file.
      svg: inline SVG for a page that defines the colours (`plots.render`).
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
    """Returns a Markdown template of this package; texts must pass its filter `md`."""
    return _environment("md").get_template(name)


def to_markdown(document: Document) -> str:
    return template("tables.md.j2").render(document=document)


def to_latex(document: Document) -> str:
    """Renders table environments for `\\input`; they need the packages booktabs and adjustbox."""
    return _environment("tex").get_template("tables.tex.j2").render(document=document)


def to_html(document: Document) -> str:
    """Renders a self-contained HTML page."""
    environment = _environment("html")
    assert environment.loader is not None
    style = environment.loader.get_source(environment, "report.css")[0]
    return environment.get_template("tables.html.j2").render(
        document=document, style=Markup(style), not_run=NOT_RUN
    )


def escape_markdown(text: str) -> str:
    """Escapes text for a table cell: no markup in it takes effect, and it stays on one line."""
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
    # Older engines need commands for these characters.
    "−": "$-$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "§": r"\S{}",
    "†": r"$^{\dagger}$",
    "‡": r"$^{\ddagger}$",
    "–": "--",
    "—": "---",
    "…": r"\dots{}",
    "\N{NO-BREAK SPACE}": "~",
}


def escape_latex(text: str) -> str:
    """Escapes text for LaTeX: no command in it takes effect, and special characters become commands.

    A bracket at the start of a row would be read as an argument of the preceding line break.
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
        # LaTeX uses braces itself.
        variable_start_string="<<" if format_ == "tex" else "{{",
        variable_end_string=">>" if format_ == "tex" else "}}",
    )
    environment.filters |= {"md": escape_markdown, "tex": escape_latex}
    return environment
