"""Names with markup, formulas and codes for terminals: text in tables, documents, figures, logs and messages."""

import io
import re
import shutil
import subprocess
import xml.etree.ElementTree
from functools import cache
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from cfeval_cli.cli.main import print_error
from cfeval_cli.errors import UserError, escape_controls
from cfeval_cli.report import plots
from cfeval_cli.report.render import html, latex, markdown, narrow, terminal
from cfeval_cli.report.table import Cell, Row, Table, Title
from cfeval_cli.report.titles import make_metric_title
from cfeval_cli.statistics.bootstrap import Bootstrap
from cfeval_cli.statistics.run_statistics import compute_statistics
from cfeval_cli.statistics.scores import Scores
from cfeval_cli.study.paper.compare import render_documents
from tests.hostile.mutations import parametrize_seeds
from tests.records import change_record, make_metric
from tests.report.test_plots import COSTS, RUN
from tests.report.test_tables import RECORD
from tests.statistics.tables import build

NASTY = [
    "<script>alert(1)</script>", "&lt;b&gt;", "&amp;", "\"'><img src=x onerror=y>", "</td></table>", "<!--", "]]>",
    "\\input{/etc/passwd}",
    "\\write18{x}", "$\\frac", "$x$", "%", "#", "^", "~", "~~x~~", "_", "{", "}", "\\", "\\\\", "\n", "\n\n", "\r",
    "|", "*", "**", "`", "```", "[x](javascript:y)",
    "![x](y)", "<javascript:x>", "[", "]", "[red]", "[/]", "[/red]", "[bold", ":smile:", "\u202e", "\u2066", "\u2028",
    "\x1b[2J", "\x1b]0;x\x07",
    "\x9b2J", "\b", "\x7f", "\0", "\ufeff", "\ud800", "é", "😀", "中", "---", "1. ", "# ", "> ", "\t", "www.x.y",
    "https://x.y", "@x", "<b", "&#60;", "{0}", "%s",
]  # fmt: skip
HIDDEN_CHARACTERS = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
# what a name may be: pieces that mean something somewhere, and any text
NAMES = st.lists(st.sampled_from(NASTY) | st.text(max_size=4), min_size=1, max_size=5).map("".join)


def make_table(name):
    """A table with a name wherever one can stand."""
    return Table(
        name,
        [Title("Metric"), Title(name)],
        [[Row(Title(name), [Cell(-1, 0, 1, bold=True)]), Row(Title(name), [Cell(name)])]],
        [name],
    )


class PageParser(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, *attrs))
        self.texts.append("")

    def handle_endtag(self, tag):
        self.texts.append("")

    def handle_data(self, data):
        self.texts[-1:] = [self.texts[-1] + data] if self.texts else [data]

    def handle_comment(self, data):
        self.tags.append(("comment", data))

    handle_decl = handle_pi = unknown_decl = handle_comment


MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def html_with_notes(table):
    return html.render_html(table, caption=True) + html.render_notes(table)


@cache
def plain():
    """What is seen where the name is a plain one: in HTML, and in Markdown."""
    return PageParser(html_with_notes(make_table("name"))), PageParser(
        MARKDOWN.render(markdown.render_markdown(make_table("name")))
    )


def check(name):
    table, escaped_name = make_table(name), escape_controls(name)
    assert not HIDDEN_CHARACTERS.search(escaped_name) and "\n" not in escaped_name
    # HTML: the same elements as with a plain name, and the same text
    page, other = PageParser(html_with_notes(table)), plain()[0]
    assert page.tags == other.tags and [escaped_name if text == "name" else text for text in other.texts] == page.texts
    # Markdown: as parsed by a CommonMark parser with tables
    page, other = PageParser(MARKDOWN.render(markdown.render_markdown(table))), plain()[1]
    assert page.tags == other.tags
    normalised = " ".join(escaped_name.split())
    assert [normalised if text == "name" else text.strip() for text in other.texts] == [
        " ".join(t.split()) for t in page.texts
    ]
    # LaTeX: no character that means something but what the table itself writes
    escaped = latex.escape_latex(name)
    unescaped = re.sub(
        r"\\(text(backslash|asciitilde|asciicircum|less|greater)|ldots|S)\{\}|\$\\(uparrow|downarrow|tau|alpha|Delta|rho|d?dagger|leq|pm|circ)\$|\\[&%$#_{}]",
        "",
        escaped,
    )
    assert not re.search(r"[\\~^&%$#_{}]", unescaped)
    assert not any(line.startswith(("[", "*")) for line in latex.render_latex(table).splitlines())
    # the terminal: nothing raw, the whole text
    lines = "\n".join(line.plain for line in narrow.render_narrow(table, 10_000))
    assert not HIDDEN_CHARACTERS.search(lines) and normalised in " ".join(lines.split())
    stream = io.StringIO()
    Console(file=stream, width=10_000, force_terminal=False).print(terminal.render_terminal(table, 10_000))
    assert not HIDDEN_CHARACTERS.search(stream.getvalue()) and escaped_name.rstrip() in stream.getvalue()


@parametrize_seeds(100, 1500)
def test_names_are_text_in_every_format(seeds):
    ran = 0

    @settings(max_examples=len(seeds))
    @given(NAMES)
    def run(name):
        nonlocal ran
        assume(escape_controls(name).strip())
        ran += 1
        check(name)

    run()
    assert ran >= len(seeds)


@pytest.mark.parametrize("name", NASTY)
def test_known_attacks_are_text(name):
    check(name)
    check(f"a{name}b")


def test_checks_detect_missing_escapes(monkeypatch):
    """With each of the escapes taken away in turn, a check fails."""
    for module, function, name in (
        (html, "Markup", "<b>"), (markdown, "_escape", "*x*"), (latex, "escape_latex", "$"),
        (terminal, "escape_controls", "\x1b[2J"), (narrow, "escape_controls", "\x1b[2J"),
        (markdown, "escape_controls", "\x1b[2J"),
    ):  # fmt: skip
        with monkeypatch.context() as patch, pytest.raises(AssertionError):
            patch.setattr(module, function, str if function == "Markup" else lambda text: text)
            check(name)


@pytest.mark.parametrize(
    "formula",
    ["\\input{/etc/passwd}", "\\immediate\\write18{x}", "$\\csname input\\endcsname x$", "%", "a & b", "$x", "}{",
     "x^2", "$_$",
     "$a_b_c$", "\\\\", "^^5cinput",
     "$}$", "\\text", "{", "$$", "\n", "~", "#1", "\\mathrmx{a}"],
)  # fmt: skip
def test_latex_from_a_run_folder_is_a_name_or_left_out(formula):
    record = change_record(RECORD, metrics={"c": make_metric("C_1", latex=formula, details=["{search}", "{variant}"])})
    table = Table("t", [Title("Metric"), Title("x")], [[Row(make_metric_title("c", "label", record), [Cell("y")])]])
    rendered = latex.render_latex(table)
    assert "\nC\\_1 (" in rendered or formula == "\\text"  # which takes what follows; harmless, and no name of cfeval


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("pdflatex"), reason="no pdflatex")
def test_latex_with_names_of_any_kind_is_compiled(tmp_path):
    """All but the characters that pdflatex has no font for, which are left to other engines."""
    names = [name for name in NASTY if escape_controls(name).isascii() or name == "é"]
    rng = np.random.default_rng(0)
    names += ["".join(rng.choice(names, 4)) for _ in range(100)]
    text = render_documents([make_table(name) for name in names], "")["paper.tex"]
    text = re.sub(r"(\\end\{table\*?\})", r"\1\\clearpage", text)
    (tmp_path / "paper.tex").write_text(text, encoding="utf-8")
    process = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "paper.tex"],
        cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False, timeout=120,
    )  # fmt: skip
    assert process.returncode == 0, process.stdout[-2000:]
    assert "root:" not in process.stdout


def test_names_in_figures_are_text():
    name = "$\\frac \x1b[2J <b>& \ud800 \u202e _ ^ {"
    metrics = {key: metric.model_copy(update={"title": name}) for key, metric in RUN.metrics.items()}
    record = change_record(RUN, data={"name": name}, explainers=dict.fromkeys(RUN.explainers, name), metrics=metrics)
    scores, order = build(4, n=30)
    statistics = compute_statistics(
        Scores.from_frame(scores), order, Bootstrap(0, n_resamples=50, min_instances=1), "signed"
    )
    figures = list(plots.draw_plots(statistics, COSTS, record).values())
    for figure in figures:
        xml.etree.ElementTree.fromstring(figure.render("svg"))  # whole, without control characters
    assert figures[0].render("png")


def test_control_characters_in_messages_are_escaped(capsys):
    code = print_error(UserError("bad \x1b[2J\x9b\u202e\r name\nsecond line"))
    assert code == 2 and capsys.readouterr().err == "cfeval: bad \\x1b[2J\\x9b\\u202e\\r name\nsecond line\n"
