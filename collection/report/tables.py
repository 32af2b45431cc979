"""Tables as data frames of text cells, written as Markdown and LaTeX."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jinja2

if TYPE_CHECKING:
    import pandas

# Texts of cells without a measurement: a missing figure must never look like a number.
NOT_RUN, NOT_REPORTED, NO_PRICE = "not run", "—", "no price"
_EMPTY = {"", NOT_RUN, NOT_REPORTED, NO_PRICE}
# Kinds of rows in a table's data frame.
ROW, SECTION = "row", "section"


@dataclasses.dataclass(frozen=True)
class Column:
    """A column's heading.

    Attributes:
      group: heading above this column and its neighbours of the same group.
      about: sentence in the caption of a table that shows the column.
    """

    title: str
    group: str = ""
    about: str = ""


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
      label: of LaTeX, after `tab:`; empty for one made of the title.
      keys: number of columns, from the left, that say what a row is.

    Raises:
      ValueError: a row does not have one cell per column.
    """

    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()
    label: str = ""
    keys: int = 1

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(f"{self.title}: {len(row.cells)} cells in {len(self.columns)} columns")

    @property
    def name(self) -> str:
        return self.label or re.sub(r"\W+", "-", self.title.lower()).strip("-")

    @property
    def full_caption(self) -> str:
        return " ".join(filter(None, (self.caption, *dict.fromkeys(one.about for one in self.columns))))

    def select(self, titles: Sequence[str]) -> Table:
        """Returns the table with the columns of these titles, in its own order."""
        return self._keep([one.title in titles for one in self.columns])

    def filled(self) -> Table:
        """Returns the table without columns that say nothing."""
        columns = zip(*(row.cells for row in self.rows), strict=True)
        return self._keep([not _EMPTY.issuperset(cells) for cells in columns]) if self.rows else self

    def _keep(self, wanted: Sequence[bool]) -> Table:
        kept = [n for n, one in enumerate(wanted) if one or n < self.keys]
        rows = tuple(TableRow(tuple(row.cells[n] for n in kept), row.section) for row in self.rows)
        return dataclasses.replace(self, columns=tuple(self.columns[n] for n in kept), rows=rows)

    @property
    def frame(self) -> pandas.DataFrame:
        """The table as a data frame of texts.

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
class Document:
    """Tables that belong together, with the files of plots by title, and the command that made them."""

    title: str
    tables: Sequence[Table]
    plots: Sequence[tuple[str, str]]
    notes: Sequence[str]
    command: str


def to_markdown(document: Document) -> str:
    md = escape_markdown
    parts = [f"# {md(document.title)}", f"    {document.command}"]
    for table in (one.filled() for one in document.tables):
        parts += [f"## {md(table.title)}", md(table.full_caption), table_markdown(table)]
    for title, file in document.plots:
        parts += [f"## {md(title)}", f"![{md(title)}]({file})"]
    notes = "\n".join(f"- {md(note)}" for note in document.notes)
    parts += ["## How to read this", notes] if notes else []
    return "\n\n".join(part for part in parts if part) + "\n"


def table_markdown(table: Table) -> str:
    """Renders a table, and its notes as a list; headings are one row, with the group before the title."""
    frame = table.filled().frame
    lines = [[f"{group}: {title}" if group else title for group, title in frame.columns]]
    lines += frame.to_numpy().tolist()
    rows = [[escape_markdown(cell) for cell in line] for line in lines]
    for kind, row in zip(frame.index, rows[1:], strict=True):
        row[0] = f"**{row[0]}**" if kind == SECTION else row[0]
    rows.insert(1, ["---"] * len(frame.columns))
    text = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    notes = "\n".join(f"- {escape_markdown(note)}" for note in table.notes)
    return f"{text}\n\n{notes}".strip()


def to_latex(document: Document) -> str:
    """Renders table environments for `\\input`; they need the packages booktabs and adjustbox."""
    parts = [table_latex(table) for table in document.tables]
    return latex_head(document) + "\n".join(parts)


def latex_head(document: Document) -> str:
    return f"% {document.command}\n% Needs \\usepackage{{booktabs,adjustbox}}.\n\n"


def table_latex(table: Table) -> str:
    """Renders one table environment, as wide as the page at most."""
    table = table.filled()
    frame = table.frame.map(escape_latex)
    frame.columns = frame.columns.map(lambda names: tuple(map(escape_latex, names)))
    groups = [group for group, _ in frame.columns]
    if not any(groups):
        frame.columns = frame.columns.droplevel(0)
    first = frame.columns[0]
    frame[first] = [
        f"\\textit{{{cell}}}" if kind == SECTION else cell
        for kind, cell in zip(frame.index, frame[first], strict=True)
    ]
    # Indices are unique for the Styler.
    style = frame.reset_index(drop=True).style.hide(axis="index")
    alignment = "l" + "c" * (len(groups) - 1)
    tabular = style.to_latex(column_format=alignment, hrules=True, multicol_align="c")
    tabular = tabular.replace(" \\\\\n", f" \\\\\n{_rules(groups)}", 1) if any(groups) else tabular
    notes = ""
    if table.notes:
        lines = "\\par ".join(map(escape_latex, table.notes))
        notes = f"\\par\\smallskip\\parbox{{\\textwidth}}{{\\scriptsize\\raggedright {lines}}}\n"
    caption = escape_latex(f"{table.title}. {table.full_caption}")
    return (
        f"\\begin{{table*}}[t]\n\\centering\n\\caption{{{caption}}}\n\\label{{tab:{table.name}}}\n"
        f"\\footnotesize\n\\begin{{adjustbox}}{{max width=\\textwidth}}\n{tabular}\\end{{adjustbox}}\n"
        f"{notes}\\end{{table*}}\n"
    )


def _rules(groups: Sequence[str]) -> str:
    """Returns a line under each heading of several columns."""
    rules, start = "", 1
    for group, some in itertools.groupby(groups):
        end = start + len(list(some)) - 1
        rules += f"\\cmidrule(lr){{{start}-{end}}}" if group else ""
        start = end + 1
    return f"{rules}\n"


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
    "<": "$<$",
    ">": "$>$",
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
# A symbol with an index, such as C_1.
_SYMBOL = re.compile(r"(?<!\w)([A-Z])_([0-9a-z])(?!\w)")


def escape_latex(text: str) -> str:
    """Escapes text for LaTeX: no command in it takes effect, and special characters become commands.

    A bracket at the start of a row would be read as an argument of the preceding line break.
    """
    text = " ".join(text.split())
    parts = _SYMBOL.split(text)
    escaped = "".join(_LATEX.get(letter, letter) for letter in parts[0])
    for symbol, index, rest in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        escaped += f"${symbol}_{index}$" + "".join(_LATEX.get(letter, letter) for letter in rest)
    return re.sub(r"^([\[*])", r"{\1}", escaped)


@functools.cache
def template(name: str) -> jinja2.Template:
    """Returns a Markdown template of this package; texts must pass its filter `md`."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("collection", "report"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["md"] = escape_markdown
    return environment.get_template(name)
