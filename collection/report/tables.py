"""Tables as data frames of text cells, written as Markdown, LaTeX and HTML."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jinja2
from markupsafe import Markup

if TYPE_CHECKING:
    import pandas

PAPER, MEASURED = "paper", "measured"
# Text of a cell without a measurement: a missing figure must never look like a number.
NOT_RUN = "not run"
# Kinds of rows in a table's data frame.
ROW, SECTION = "row", "section"


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
    def frame(self) -> pandas.DataFrame:
        """The table as a data frame of texts, from which all formats are made.

        Its columns are (group, title). Its index is the kind of a row, `ROW` or `SECTION`: a section's row
        has its heading in the first cell.
        """
        # Imported here: it takes half a second to load, and most commands make no table.
        import pandas

        kinds, rows, section = [], [], ""
        for row in self.rows:
            if row.section != section and row.section:
                kinds.append(SECTION)
                rows.append((row.section, *[""] * (len(self.columns) - 1)))
            kinds.append(ROW)
            rows.append(row.cells)
            section = row.section
        columns = pandas.MultiIndex.from_tuples([(one.group, one.title) for one in self.columns])
        return pandas.DataFrame(rows, index=kinds, columns=columns, dtype=object)


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
    md = escape_markdown
    parts = [f"# {md(document.title)}", f"    {document.command}"]
    for table in document.tables:
        parts += [f"## {md(table.title)}", md(table.caption), table_markdown(table)]
    for plot in document.plots:
        parts += [f"## {md(plot.title)}", md(plot.caption), f"![{md(plot.title)}]({plot.file})"]
    notes = "\n".join(f"- {md(note)}" for note in document.notes)
    parts += ["## How to read this", notes] if notes else []
    return "\n\n".join(part for part in parts if part) + "\n"


def table_markdown(table: Table) -> str:
    """Renders a table, and its notes as a list; headings are one row, with the group before the title."""
    frame = table.frame
    lines = [[f"{group}: {title}" if group else title for group, title in frame.columns]]
    lines += frame.to_numpy().tolist()
    rows = [[escape_markdown(cell) for cell in line] for line in lines]
    for kind, row in zip(frame.index, rows[1:], strict=True):
        row[0] = f"**{row[0]}**" if kind == SECTION else row[0]
    rows.insert(1, ["---"] * len(table.columns))
    text = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    notes = "\n".join(f"- {escape_markdown(note)}" for note in table.notes)
    return f"{text}\n\n{notes}".strip()


def to_latex(document: Document) -> str:
    """Renders table environments for `\\input`; they need the packages booktabs and adjustbox."""
    parts = [f"% {document.command}\n% Needs \\usepackage{{booktabs,adjustbox}}."]
    parts += [_table_latex(table) for table in document.tables]
    parts += ["\n".join(f"% {' '.join(note.split())}" for note in document.notes)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _table_latex(table: Table) -> str:
    frame = table.frame.map(escape_latex)
    frame.columns = frame.columns.map(lambda names: tuple(map(escape_latex, names)))
    if not any(column.group for column in table.columns):
        frame.columns = frame.columns.droplevel(0)
    first = frame.columns[0]
    frame[first] = [
        f"\\textit{{{cell}}}" if kind == SECTION else cell
        for kind, cell in zip(frame.index, frame[first], strict=True)
    ]
    # Indices are unique for the Styler.
    style = frame.reset_index(drop=True).style.hide(axis="index")
    alignment = "l" + "c" * (len(table.columns) - 1)
    tabular = style.to_latex(column_format=alignment, hrules=True, multicol_align="c")
    notes = "".join(f"\\par\\footnotesize {escape_latex(note)}\n" for note in table.notes)
    return (
        "\\begin{table*}[t]\n\\centering\n\\begin{adjustbox}{max width=\\textwidth}\n"
        f"{tabular}\\end{{adjustbox}}\n{notes}"
        f"\\caption{{{escape_latex(table.title)}. {escape_latex(table.caption)}}}\n\\end{{table*}}"
    )


def to_html(document: Document) -> str:
    """Renders a self-contained HTML page."""
    environment = _environment("html")
    assert environment.loader is not None
    style = environment.loader.get_source(environment, "report.css")[0]
    tables = [(table, Markup(_table_html(table, n))) for n, table in enumerate(document.tables, start=1)]
    return environment.get_template("tables.html.j2").render(
        document=document, tables=tables, style=Markup(style)
    )


def _table_html(table: Table, number: int) -> str:
    """Renders a `<table>` whose cells have the classes of their row and column: source, section, absent."""
    frame = table.frame
    sources = [column.source for column in table.columns]
    classes = frame.copy()
    for place, (kind, row) in enumerate(zip(frame.index, frame.to_numpy().tolist(), strict=True)):
        classes.iloc[place] = [
            kind if kind == SECTION else f"{source} absent" if cell == NOT_RUN else source
            for source, cell in zip(sources, row, strict=True)
        ]
    frame, classes = (one.reset_index(drop=True) for one in (frame, classes))
    style = frame.style.hide(axis="index").set_td_classes(classes)
    if not any(column.group for column in table.columns):
        style = style.hide(axis="columns", level=0)
    style.format(escape="html").format_index(escape="html", axis=1)
    style.cell_ids = False
    return style.to_html(table_uuid=f"table-{number}", sparse_columns=True)


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
    "¶": r"\P{}",
    "≠": r"$\neq$",
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
    )
    environment.filters["md"] = escape_markdown
    return environment
