"""Tables as files: any content of a cell stays text, in its cell, and no column is empty."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.report.tables import (
    _LATEX,
    _SYMBOL,
    Column,
    Document,
    Table,
    TableRow,
    escape_latex,
    to_latex,
    to_markdown,
)

HOSTILE = "<script>a_b & 50% of | $x$ \\input{f} #1 ~^ `code` *b* [l](u) ![i](j)</script>"
TABLE = Table(
    title="Task_success",
    caption="In %",
    columns=(
        Column("System"),
        Column("paper", "Web & Voyager"),
        Column("measured", "Web & Voyager"),
        Column("paper", "MiniWoB++"),
        Column("C_1 (US$)"),
    ),
    rows=(
        TableRow((HOSTILE, "88.6†", "not run", "—", "0.1"), section="Open_weights"),
        TableRow(("8B", "—", "−1.0 (−2.0 to 3.0)", "not run", "no price"), section="Ours"),
    ),
)
DOCUMENT = Document("T_b", (TABLE,), [("Cost", "cost.png")], ("5 % & more",), "python -m experiments.report")

_BACK = {escaped: letter for letter, escaped in _LATEX.items()}
_TOKEN = re.compile("|".join(sorted(map(re.escape, _BACK), key=len, reverse=True)))


def plain(latex: str) -> str:
    """Text that LaTeX would print, for text without commands."""
    latex = re.sub(r"\$([A-Z])_([0-9a-z])\$", r"\1\_\2", latex)
    return _TOKEN.sub(lambda found: _BACK[found[0]], re.sub(r"^\{([\[*])\}", r"\1", latex))


SIGNS = st.sampled_from(" −\\{}$C_1")


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["C", "Z"]) | SIGNS))
def test_latex_prints_the_text_that_was_given(text):
    words = " ".join(text.split())
    escaped = escape_latex(words)
    # Ligatures of hyphens are the one thing that is printed of several letters.
    assert plain(escaped).replace("---", "—").replace("--", "–") == words.replace("---", "—").replace(
        "--", "–"
    )
    rest = _TOKEN.sub("", re.sub(r"^\{([\[*])\}|\$[A-Z]_[0-9a-z]\$", "", escaped))
    assert not set(rest) & set("\\{}$&#%_^~")


def test_latex_escapes_each_special_sign_and_sets_symbols_in_math_mode():
    assert escape_latex("50% & a_b #1 {x} \\y ~ ^ $") == (
        r"50\% \& a\_b \#1 \{x\} \textbackslash{}y \textasciitilde{} \textasciicircum{} \$"
    )
    assert escape_latex("−1.0 × 3 ≥ 88.6† 57.3‡ — –") == (
        r"$-$1.0 $\times$ 3 $\geq$ 88.6$^{\dagger}$ 57.3$^{\ddagger}$ --- --"
    )
    assert escape_latex("[1] a\n  b") == "{[}1] a b"
    assert escape_latex("C_k = k C_1, MAX_1, p < 0.001") == r"$C_k$ = k $C_1$, MAX\_1, p $<$ 0.001"
    assert _SYMBOL.findall("8B_1 x_1") == []


def test_latex_is_a_booktabs_table_with_a_label_and_as_many_cells_as_columns_in_each_row():
    text = to_latex(DOCUMENT)
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    rows = [line for line in body.replace("&\n", "& ").splitlines() if line.endswith(r" \\")]
    assert len(rows) == 6
    for row in rows:
        spans = sum(int(span) - 1 for span in re.findall(r"\\multicolumn\{(\d+)\}", row))
        assert len(re.findall(r"(?<!\\)&", row)) + 1 + spans == 4, row
    assert r"\textit{Open\_weights} &  &  &  \\" in rows
    assert rows[0] == r" & \multicolumn{2}{c}{Web \& Voyager} &  \\"
    assert r"\cmidrule(lr){2-3}" in body and r"$C_1$ (US\$)" in rows[1]
    assert text.count(r"\begin{") == text.count(r"\end{") == 3
    assert r"\begin{tabular}{lccc}" in text and r"\caption{Task\_success. In \%}" in text
    assert r"\label{tab:task_success}" in text


def test_markdown_has_as_many_cells_as_columns_in_each_row():
    lines = to_markdown(DOCUMENT).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5}
    # The paper's figure on MiniWoB++ is in no row.
    assert rows[0] == "| System | Web \\& Voyager: paper | Web \\& Voyager: measured | C\\_1 (US\\$) |"
    start = lines.index(rows[0])
    # One block: an empty line would end the table.
    assert lines[start : start + 6] == rows
    assert "\\<script\\>" in rows[3] and "![Cost](cost.png)" in lines
    assert "not run" in rows[3]


def test_chosen_columns_keep_the_first_one_and_their_order():
    chosen = TABLE.select(["C_1 (US$)", "measured"])
    assert [one.title for one in chosen.columns] == ["System", "measured", "C_1 (US$)"]
    assert chosen.rows[1].cells == ("8B", "−1.0 (−2.0 to 3.0)", "no price")


def test_a_row_of_another_length_is_a_mistake():
    with pytest.raises(ValueError, match="2 cells in 3 columns"):
        Table("t", "", TABLE.columns[:3], (TableRow(("a", "b")),))
