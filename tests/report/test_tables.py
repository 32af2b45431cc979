"""Tables as files: any content of a cell stays text, in its cell."""

import html.parser
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.report.tables import (
    _LATEX,
    MEASURED,
    PAPER,
    SECTION,
    Column,
    Document,
    PlotFile,
    Table,
    TableRow,
    escape_latex,
    to_html,
    to_latex,
    to_markdown,
)

HOSTILE = "<script>a_b & 50% of | $x$ \\input{f} #1 ~^ `code` *b* [l](u) ![i](j)</script>"
TABLE = Table(
    title="Task_success",
    caption="In %",
    columns=(
        Column("System"),
        Column("paper", "Web & Voyager", PAPER),
        Column("measured", "Web & Voyager", MEASURED),
    ),
    rows=(
        TableRow((HOSTILE, "88.6†", "not run"), section="Open_weights"),
        TableRow(("8B", "—", "−1.0 (−2.0 to 3.0)"), section="Ours"),
    ),
)
DOCUMENT = Document(
    title="T_1",
    tables=(TABLE,),
    plots=(PlotFile("Cost", "caption", "cost.svg", "<svg></svg>"),),
    notes=("5 % & more",),
    command="python -m experiments.report --table=main",
)

_BACK = {escaped: letter for letter, escaped in _LATEX.items()}
_TOKEN = re.compile("|".join(sorted(map(re.escape, _BACK), key=len, reverse=True)))


def plain(latex: str) -> str:
    """Text that LaTeX would print, for text without commands."""
    return _TOKEN.sub(lambda found: _BACK[found[0]], re.sub(r"^\{([\[*])\}", r"\1", latex))


@given(
    st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["C", "Z"]) | st.sampled_from(" −\\{}$"))
)
def test_latex_prints_the_text_that_was_given(text):
    words = " ".join(text.split())
    escaped = escape_latex(words)
    # Ligatures of hyphens are the one thing that is printed of several letters.
    assert plain(escaped).replace("---", "—").replace("--", "–") == words.replace("---", "—").replace(
        "--", "–"
    )
    rest = _TOKEN.sub("", re.sub(r"^\{([\[*])\}", "", escaped))
    assert not set(rest) & set("\\{}$&#%_^~")


def test_latex_escapes_each_special_sign():
    assert escape_latex("50% & a_b #1 {x} \\y ~ ^ $") == (
        r"50\% \& a\_b \#1 \{x\} \textbackslash{}y \textasciitilde{} \textasciicircum{} \$"
    )
    assert escape_latex("−1.0 × 3 ≥ 88.6† 57.3‡ — –") == (
        r"$-$1.0 $\times$ 3 $\geq$ 88.6$^{\dagger}$ 57.3$^{\ddagger}$ --- --"
    )
    assert escape_latex("[1] a\n  b") == "{[}1] a b"


def test_latex_has_as_many_cells_as_columns_in_each_row():
    text = to_latex(DOCUMENT)
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    rows = [line for line in body.replace("&\n", "& ").splitlines() if line.endswith(r" \\")]
    assert len(rows) == 6
    for row in rows:
        spans = sum(int(span) - 1 for span in re.findall(r"\\multicolumn\{(\d+)\}", row))
        assert len(re.findall(r"(?<!\\)&", row)) + 1 + spans == 3, row
    assert [row for row in rows if "textit" in row] == [
        r"\textit{Open\_weights} &  &  \\",
        r"\textit{Ours} &  &  \\",
    ]
    assert r" & \multicolumn{2}{c}{Web \& Voyager} \\" in rows
    assert text.count(r"\begin{") == text.count(r"\end{") == 3
    assert r"\begin{tabular}{lcc}" in text
    assert r"\caption{Task\_success. In \%}" in text


def test_markdown_has_as_many_cells_as_columns_in_each_row():
    lines = to_markdown(DOCUMENT).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 6
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {4}
    assert rows[0] == "| System | Web \\& Voyager: paper | Web \\& Voyager: measured |"
    start = lines.index(rows[0])
    # One block: an empty line would end the table.
    assert lines[start : start + 6] == rows
    assert "\\<script\\>" in rows[3] and "![Cost](cost.svg)" in lines
    assert "not run" in rows[3]


class Page(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.rows: list[list[str]] = []
        self.inside = False

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.inside = True

    def handle_endtag(self, tag) -> None:
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data) -> None:
        if self.inside:
            self.rows[-1][-1] += data


def test_html_escapes_text_and_marks_the_source_of_a_column():
    page = Page()
    page.feed(to_html(DOCUMENT))
    names = [tag for tag, _ in page.tags]
    assert "script" not in names
    assert page.rows[3][0] == HOSTILE
    assert page.rows[1] == ["System", "paper", "measured"]
    classes = [str(attributes.get("class")).split() for tag, attributes in page.tags if tag == "td"]
    assert [SECTION in one for one in classes[:3]] == [True] * 3
    assert [PAPER in classes[4], MEASURED in classes[5], "absent" in classes[5]] == [True] * 3
    assert [PAPER in classes[10], MEASURED in classes[11], "absent" in classes[11]] == [True, True, False]
    assert not [1 for tag, attributes in page.tags if tag in ("link", "img", "script") or "src" in attributes]
    assert "svg" in names


def test_a_row_of_another_length_is_a_mistake():
    with pytest.raises(ValueError, match="2 cells in 3 columns"):
        Table("t", "", TABLE.columns, (TableRow(("a", "b")),))
