"""The pages of runs and studies: their content, and the templates that render it."""

from __future__ import annotations

import shlex
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cfeval_cli import __version__
from cfeval_cli.core.files import make_subfolder, write_atomically
from cfeval_cli.report import paper_answer, plots, recommendation, verdict
from cfeval_cli.report.build_brief import build_brief
from cfeval_cli.report.build_costs import build_costs, build_stages, write_cost_summary
from cfeval_cli.report.build_tables import build_tables, select_metrics
from cfeval_cli.report.notes import describe_baselines
from cfeval_cli.report.page import glossary, methods, provenance, svg
from cfeval_cli.report.page.examples import select_examples
from cfeval_cli.report.page.instance_browser import InstanceBrowser, build_browser
from cfeval_cli.report.plots import COLUMN_WIDTH, Plot
from cfeval_cli.report.recommendation import AnswerText
from cfeval_cli.report.render.csv_text import render_csv
from cfeval_cli.report.render.html import Term, render_html
from cfeval_cli.report.render.latex import render_latex
from cfeval_cli.report.render.markdown import render_markdown
from cfeval_cli.report.table import Table
from cfeval_cli.report.titles import name_truths
from cfeval_cli.results.locations import COSTS_TEXT_FILE, LATEX_FILE, MARKDOWN_FILE, PAGE_FILE
from cfeval_cli.results.read import StoredRun
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.run_statistics import RunStatistics
from cfeval_cli.statistics.small_rankings import drop_small_rankings


@dataclass(frozen=True)
class Report:
    """The tables, texts, figures and page of one run. Each part is made once, however many files contain it."""

    results: StoredRun

    @cached_property
    def statistics(self) -> RunStatistics:
        """The statistics that readers see: without rankings of too few explainers."""
        return drop_small_rankings(self.results.statistics)

    @cached_property
    def tables(self) -> list[Table]:
        """All tables but that of costs, which differ between runs of the same inputs."""
        advice = [] if self.recommendation is None else self.recommendation.tables
        return [*advice, *self._result_tables]

    @cached_property
    def _result_tables(self) -> list[Table]:
        return build_tables(self.statistics, self.results.record)

    @cached_property
    def recommendation(self) -> recommendation.RecommendationText | None:
        """Which explainer to use on the model."""
        return recommendation.write_recommendation(self.results)

    @cached_property
    def verdict(self) -> verdict.Verdict:
        """Which metric agrees with the ground truth, or which explainer ranks first without one."""
        return verdict.write_verdict(self.statistics, self.results.record)

    @cached_property
    def paper(self) -> AnswerText | None:
        """How the results of one of the paper's experiments differ from the paper's tables; None for other runs."""
        return paper_answer.write_paper_answer(self.statistics, self.results.record)

    @property
    def headlines(self) -> list[str]:
        """The recommendation, the verdict and the comparison with the paper, a sentence or two a line."""
        advice = [] if self.recommendation is None else self.recommendation.paragraphs
        paper = [] if self.paper is None else [self.paper.paragraph]
        return [*advice, f"Metrics: {self.verdict.headline}.", *paper]

    @cached_property
    def brief(self) -> Table:
        """The one table that fits a screen."""
        return build_brief(self.statistics, self.results.record)

    def render_table_files(self) -> list[tuple[str, bytes]]:
        """Return the files of tables, by their names."""
        selected = select_metrics(self.statistics, self.results.record)
        is_same = selected is self.statistics
        latex_tables = self._result_tables if is_same else build_tables(selected, self.results.record)
        texts = {
            MARKDOWN_FILE: "\n".join(map(render_markdown, self.tables)),
            LATEX_FILE: "\n".join(map(render_latex, latex_tables)),
            COSTS_TEXT_FILE: render_markdown(build_costs(self.results.costs, self.results.record)),
        }
        return [(name, text.encode()) for name, text in texts.items()]

    def make_files(self, formats: Sequence[str], page: bool = True) -> Iterator[tuple[str, bytes]]:
        """Yield the figures in some formats, and the page, by the names of their files."""
        figures = draw_figures(self.results) if formats or page else {}
        for kind in formats:
            for name, plot in figures.items():
                yield f"figures/{name}.{kind}", plot.render(kind)
        if page:
            yield PAGE_FILE, self.render_page(figures, formats).encode()

    def render_page(self, figures: Mapping[str, Plot], formats: Sequence[str]) -> str:
        """Return the page as HTML; it links to the figures in some formats."""
        results, record = self.results, self.results.record
        settings, data = record.settings, record.data
        disagreements = () if self.recommendation is None else self.recommendation.disagreements
        browser = build_browser(results, disagreements)
        facts = [
            ("data", data.name), ("instances", f"{record.instances:,}"), ("explainers", str(len(record.explainers))),
            ("k", str(settings.k)), ("seed", str(settings.seed)), ("search", record.search),
            ("ground truth", ", ".join(settings.truth) if record.truths else "none"),
            ("test accuracy", f"{record.accuracy['test']:.1%}{describe_baselines(record)}"),
        ]  # fmt: skip
        return render_template(
            "run.html",
            [*self.tables, build_costs(results.costs, record), *build_stages(record)],
            glossary.list_terms(record),
            title=_write_title(record, is_recommended=self.recommendation is not None),
            lead=f"{record.instances:,} instances, k = {settings.k}, seed {settings.seed}",
            facts=facts,
            verdict=self.verdict,
            recommendation=self.recommendation,
            paper=self.paper,
            warnings=provenance.list_warnings(results),
            cost=write_cost_summary(results.costs, record),
            plots=embed_figures(figures, formats),
            examples=select_examples(browser, name_truths(settings.truth, record), disagreements),
            browser=browser,
            browser_note=_write_browser_note(browser),
            methods=methods.write_methods(record),
            citation=methods.write_citation(record.cfeval),
            provenance=provenance.list_provenance(record),
            command=shlex.join(record.command),
        )


def draw_figures(results: StoredRun) -> dict[str, Plot]:
    """Return all figures of a run by name, in the order of the page."""
    statistics = drop_small_rankings(results.statistics)
    return plots.draw_plots(statistics, results.costs, results.record, results.recommendation)


def save_figures(figures: Mapping[str, Plot], folder: Path, formats: Iterable[str]) -> None:
    """Write each figure in each format."""
    for kind in formats:
        for name, plot in figures.items():
            write_file(plot.render(kind), make_subfolder(folder, "figures") / f"{name}.{kind}")


def write_file(content: str | bytes, path: Path) -> None:
    """Write a file as a whole or not at all."""
    with write_atomically(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)


def _write_title(record: RunRecord, *, is_recommended: bool) -> str:
    name, explainers = record.data.name, record.explainers
    if len(explainers) == 1:
        return f"{name}: {next(iter(explainers.values()))}"
    if not record.truths:
        return f"{name}: {len(explainers):,} explainers of a model without ground truth"
    if is_recommended:
        return f"{name}: which of {len(explainers):,} explainers to use on this model?"
    return f"{name}: which metric ranks {len(explainers):,} explainers as the ground truth does?"


def _write_browser_note(browser: InstanceBrowser) -> str:
    n_shown, n_explainers = len(browser.instances), len(browser.explainers)
    if n_shown == browser.n_instances:
        sentences = [f"All {n_shown:,} instances."]
    else:
        sentences = [f"{n_shown:,} of {browser.n_instances:,} instances, spread evenly over the predictions."]
    if browser.n_hidden_explainers:
        sentences.append(f"{n_explainers} of {n_explainers + browser.n_hidden_explainers} explainers.")
    if browser.moves_embeddings:
        sentences.append("The search moves embeddings: a moved embedding is shown as the nearest value.")
    if not browser.truths:
        sentences.append("There is no ground truth for this model.")
    return " ".join(sentences)


@dataclass(frozen=True)
class _PageTable:
    """A table as the templates take it."""

    number: int
    title: str
    html: str
    notes: Sequence[str]
    is_supplementary: bool
    part: str


@dataclass(frozen=True)
class _PageFigure:
    """A figure as the templates take it."""

    name: str
    title: str
    caption: str
    svg: Markup
    files: Sequence[str]  # formats
    part: str
    wide: bool


def render_template(
    template: str,
    tables: Sequence[Table],
    terms: Sequence[Term],
    scripts: Sequence[str] = ("report.js",),
    **content: Any,
) -> str:
    """Return a page from its template. All content is text and escaped; terms are the entries of its glossary."""
    script, by_name = "".join(map(_read_source, scripts)), {term.name: term for term in terms}
    page_tables = [
        _PageTable(
            number=number,
            title=table.title,
            html=render_html(table, by_name) if table.rows else "",
            notes=table.notes,
            is_supplementary=table.is_supplementary,
            part=table.part,
        )
        for number, table in enumerate(tables)
    ]
    table_texts = [
        {"latex": render_latex(table), "markdown": render_markdown(table), "csv": render_csv(table)} for table in tables
    ]
    return (
        _make_environment()
        .get_template(template)
        .render(
            tables=page_tables,
            table_texts=table_texts,
            css=Markup(_read_source("report.css")),  # noqa: S704  a file of this package
            script=Markup(script),  # noqa: S704  a file of this package
            script_hash=b64encode(sha256(script.encode()).digest()).decode(),
            version=__version__,
            glossary=terms,
            **content,
        )
    )


def embed_figures(figures: Mapping[str, Plot], formats: Sequence[str]) -> list[_PageFigure]:
    """Return figures as the templates take them; formats are those of the files beside the page."""
    return [
        _PageFigure(
            name=name,
            title=plot.title,
            caption=plot.caption,
            svg=svg.make_inline_svg(plot.render("svg").decode(), name, plot.title, plot.description or plot.caption),
            files=formats,
            part=plot.part,
            wide=plot.figure.get_figwidth() > COLUMN_WIDTH,
        )
        for name, plot in figures.items()
    ]


@cache
def _make_environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("cfeval_cli.report.page"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    # the filter tojson escapes what could end a script element
    environment.policies["json.dumps_kwargs"] = {
        "ensure_ascii": False, "separators": (",", ":"), "allow_nan": False,
    }  # fmt: skip
    return environment


def _read_source(name: str) -> str:
    source, _, _ = PackageLoader("cfeval_cli.report.page").get_source(_make_environment(), name)
    return source
