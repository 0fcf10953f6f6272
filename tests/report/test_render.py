"""Every renderer of the one table model: values, missing values with their reason, escaping, alignment, width."""

import io
import re

import numpy as np
import pytest
from rich.console import Console

from cfeval_cli.report.numbers import COUNT, P_VALUE, PERCENT, SHORT_DECIMAL, TENTH_PERCENT, WHOLE_NUMBER, NumberFormat
from cfeval_cli.report.render.csv_text import render_csv
from cfeval_cli.report.render.html import Term, render_html, render_notes
from cfeval_cli.report.render.latex import render_latex
from cfeval_cli.report.render.markdown import render_markdown
from cfeval_cli.report.render.narrow import render_narrow
from cfeval_cli.report.render.terminal import render_terminal
from cfeval_cli.report.table import BLANK, Cell, Row, Table, Title

EVIL = "<b>&|*_$\x1b[2J[red]"
ESCAPED_NAME = "<b>&|*_$\\x1b[2J[red]"
ESCAPED = {
    "markdown": "\\<b\\>\\&\\|\\*\\_\\$\\\\x1b\\[2J\\[red\\]",
    "latex": r"\textless{}b\textgreater{}\&|*\_\$\textbackslash{}x1b[2J[red]",
    "html": r"&lt;b&gt;&amp;|*_$\x1b[2J[red]",
    "csv": ESCAPED_NAME,
    "terminal": ESCAPED_NAME,
    "narrow": ESCAPED_NAME,
}


def write_terminal(table, width=80):
    stream = io.StringIO()
    Console(file=stream, width=width).print(render_terminal(table, width))
    return stream.getvalue()


RENDERERS = {
    "markdown": render_markdown,
    "latex": render_latex,
    "html": lambda table: f"{render_html(table, caption=True)}{render_notes(table)}",
    "csv": lambda table: render_csv(table).replace("\x1b", "\\x1b"),
    "terminal": write_terminal,
    "narrow": lambda table: "\n".join(line.plain for line in render_narrow(table, 80)),
}


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Cell(0.36521, 0.342, 0.3889, rank=3, marks="‡§", rank_marks="*"), "0.3652 [0.342, 0.389]‡§ (3rd*)"),
        (Cell(0.5, np.nan, np.nan, rank=2.5, is_tied=True), "0.5000 (2.5=)"),
        (Cell(-1e-9), "0.0000"),
        (Cell(12345.6), "1.235e+04"),
        (Cell(0.5, deviation=0.25, n=3, form=NumberFormat(decimals=2)), "0.50 ± 0.25 (3)"),
        (Cell(1.5, n=1234), "1.5000 (1,234)"),
        (
            Cell(0.5, -1, 1, marks="§", is_range=True, detail="scale", form=NumberFormat(decimals=2)),
            "0.50§ -1.00 to 1.00 (scale)",
        ),
        (Cell(low=0.1, high=0.5, marks="§", is_range=True, form=NumberFormat(decimals=2)), "0.10 to 0.50§"),
        (Cell(low=0.5, high=0.5, is_range=True, form=NumberFormat(decimals=2)), "0.50"),
        (Cell(0.524, 0.42, 0.62, form=PERCENT), "52% [42%, 62%]"),
        (Cell(0.524, form=TENTH_PERCENT), "52.4%"),
        (Cell(2 / 3, -1, 1, marks="◦", form=SHORT_DECIMAL), ".67 [-1,1]◦"),
        (Cell(0.0001, form=P_VALUE), "<0.001"),
        (Cell(12345, form=COUNT), "12,345"),
        (Cell(12345, form=WHOLE_NUMBER), "12345"),
        (Cell("text", detail="more"), "text (more)"),
        (Cell(), "–"),
        (Cell(np.nan, 0, 1, rank=1, marks="*", n=3, detail="x"), "–"),
        (BLANK, ""),
    ],
)  # fmt: skip
def test_cell_text_has_value_interval_rank_and_marks(cell, text):
    assert cell.text == text


def test_title_text_has_all_parts():
    title = Title("C", ("disc.", "label"), "higher", "*", "§", number=1)
    assert (title.text, title.plain) == ("1 C* (disc., label) ↑ §", "C (disc., label)")
    assert Title("Random", marks="†").text == "Random†" and Title("x", direction="lower").text == "x ↓"


@pytest.mark.parametrize("name", RENDERERS)
def test_text_is_escaped_in_every_position(name):
    table = Table(
        EVIL,
        [Title("Metric"), Title(EVIL), Title("n", marks=EVIL)],
        [[Row(Title(EVIL, [EVIL], suffix=EVIL), [Cell(EVIL, bold=True), Cell(1.0, detail=EVIL, marks=EVIL)])]],
        [EVIL],
    )
    text = RENDERERS[name](table)
    places = {"markdown": 10, "html": 10, "csv": 8}  # the others break long lines, or repeat titles
    assert text.count(ESCAPED[name]) == places.get(name, text.count(ESCAPED[name])) >= 5
    assert "\x1b" not in text
    if name == "html":
        assert EVIL[:5] not in text and render_html(table, TERMS).count(ESCAPED["html"]) == 8 + 4 * 3


TERMS = {name: Term(EVIL, EVIL) for name in ("Metric", "n", EVIL)}


MISSING = Table(
    "t", [Title("Metric"), Title("a"), Title("b")],
    [[Row(Title("x"), [Cell(reason=f"needs {EVIL}"), Cell(-0.25, -0.5, 0.125)])]], ["–: needs more."],
)  # fmt: skip


@pytest.mark.parametrize("name", RENDERERS)
def test_missing_value_is_a_dash_with_its_reason_below(name):
    text = RENDERERS[name](MISSING)
    assert ("--" if name == "latex" else "–") in text and not re.search("nan|None", text)
    assert name == "csv" or re.search(r"(–|--): needs more\.", text)


def test_html_has_the_reason_and_the_number_of_a_cell_as_data():
    text = render_html(MISSING)
    assert f'<td title="needs {ESCAPED["html"]}">–</td>' in text
    assert '<td data-value="-0.25">-0.2500 <small>[-0.500, 0.125]</small></td>' in text
    rows = [Row(Title("x", direction="lower", number=2), [Cell(0.5, rank=1, bold=True), Cell("text")])]
    text = render_html(Table("t", [Title("Metric"), Title("a"), Title("b")], [rows], ranked=True))
    assert '<table class="sortable" data-across>' in text
    assert '<tr data-direction="lower"><th scope="row" data-value="2">2 x ↓</th>' in text
    assert '<td class="agrees" data-value="0.5"><b>0.5000 <span class="rank">(1st)</span></b></td>' in text
    assert "<td>text</td>" in text


def test_numbers_are_aligned_to_the_right():
    first = Row(Title("a long title"), [Cell(0.5), Cell(12345, form=COUNT)])
    rows = [first, Row(Title("x"), [Cell(), Cell(1, form=COUNT)])]
    table = Table("t", [Title("Metric"), Title("value"), Title("n")], [rows])
    assert render_markdown(table).splitlines()[3] == "| --- | ---: | ---: |"
    assert r"\begin{tabular}{lrr}" in render_latex(table)
    for lines in (write_terminal(table).splitlines(), [line.plain for line in render_narrow(table, 80)]):
        first, second = (next(line for line in lines if name in line) for name in ("a long title", "x "))
        assert first.rindex("5") == second.rindex("1") and first.index("0.5000") + 5 == second.index("–")


@pytest.mark.parametrize("width", [30, 60, 80, 120])
def test_terminal_tables_fit_the_width(width):
    header = [Title("Metric"), *(Title(f"Explainer{i}", is_explainer=True) for i in range(9))]
    cells = [Cell(0.1234, rank=i + 1) for i in range(9)]
    table = Table("A title " * 9, header, [[Row(Title("Metric", ["a", "b"], "higher"), cells)]], ["A note " * 20])
    texts = [write_terminal(table, width), "\n".join(line.plain for line in render_narrow(table, width))]
    for text in texts:
        assert max(map(len, text.splitlines())) <= width
    assert texts[0].count("0.1234") == 9


def test_narrow_table_stacks_columns_and_has_ranks_below_values():
    header = [Title("Metric"), Title("DecisionBoundary", is_explainer=True), Title("τ\u00a0one")]
    header.append(Title("τ\u00a0other", is_stacked=True))
    row = Row(
        Title("C", ["d"], "higher"),
        [Cell(0.5, rank=1, bold=True), Cell(0.25, form=SHORT_DECIMAL), Cell(1, form=SHORT_DECIMAL)],
    )
    lines = [line.plain.split() for line in render_narrow(Table("t", header, [[row]]), 80)]
    assert lines[1:3] == [["Decision", "τ", "one"], ["Boundary", "τ", "other"]]
    assert lines[4:6] == [["C", "(d)", "↑", "0.5000", ".25"], ["1st", "1"]]


def test_latex_separates_intervals_and_allows_harmless_formulas_only():
    title = Title("C", ["disc."], "higher", latex=r"$\mathcal{C}$", marks="*")
    table = Table("t", [Title("Metric"), Title("a")], [[Row(title, [Cell(-0.5, -1, 0, rank=2)])]])
    values, intervals = render_latex(table).split(r"\caption{t: intervals.}")
    assert r"$\mathcal{C}$* (disc.) $\uparrow$ & $-$0.5000 (2) \\" in values
    assert r"$\mathcal{C}$* (disc.) $\uparrow$ & [-1.000, 0.000] \\" in intervals
    evil = Table("t", table.header, [[Row(Title("C", latex=r"\input{x}"), [Cell(1.0)])]])
    assert r"\input" not in render_latex(evil) and "\nC & 1.0000" in render_latex(evil)
