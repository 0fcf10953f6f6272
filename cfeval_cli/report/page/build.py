"""The pages: what goes into them, and the templates that they are made from."""

from __future__ import annotations

import shlex
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cfeval_cli import __version__
from cfeval_cli.core.files import make_subfolder, whole_file
from cfeval_cli.report import distributions, plots, recommendation, verdict
from cfeval_cli.report.build_brief import build_brief
from cfeval_cli.report.build_costs import build_costs
from cfeval_cli.report.build_tables import build_tables, select_metrics
from cfeval_cli.report.notes import describe_baselines
from cfeval_cli.report.page import examples, glossary, instances, methods, provenance, stages, svg
from cfeval_cli.report.plots import NARROW, Plot
from cfeval_cli.report.render.csv_text import render_csv
from cfeval_cli.report.render.html import render_html
from cfeval_cli.report.render.latex import render_latex
from cfeval_cli.report.render.markdown import render_markdown
from cfeval_cli.report.table import Table
from cfeval_cli.report.titles import name_truths
from cfeval_cli.results.read import Results
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.findings import Findings

PAGE_FILE = "report.html"


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    return table.astype({name: object for name, kind in table.dtypes.items() if isinstance(kind, pd.StringDtype)})


@dataclass(frozen=True)
class Report:
    """What is told of a run; each part is made once, however many files have it."""

    results: Results

    @cached_property
    def tables(self) -> list[Table]:
        """All but costs, which are not the same another time."""
        first = [] if self.recommendation is None else [self.recommendation.table]
        return [*first, *self._of_findings]

    @cached_property
    def _of_findings(self) -> list[Table]:
        return build_tables(self._findings, self.results.record)

    @cached_property
    def _findings(self) -> Findings:
        """With names as Python has them, among which lines of so small tables are found in half the time."""
        found = self.results.findings
        every = {one.name: getattr(found, one.name) for one in fields(found) if one.name != "tau_resamples"}  # long
        return replace(found, **{name: _plain(table) for name, table in every.items() if table is not None})

    @property
    def _shown(self) -> list[Table]:
        """The same on the page, where the recommendation's words have a place of their own."""
        first, rest = self.tables[:1], self.tables[1:]
        return self.tables if self.recommendation is None else [*(replace(one, notes=()) for one in first), *rest]

    @cached_property
    def recommendation(self) -> recommendation.Recommendation | None:
        """Which explainer is to be used on the model."""
        return recommendation.write_recommendation(self.results)

    @cached_property
    def verdict(self) -> verdict.Verdict:
        """Which metric or explainer is to be believed."""
        return verdict.write_verdict(self._findings, self.results.record)

    @property
    def answer(self) -> list[str]:
        """What is to be known first, a sentence or two a line."""
        advice = [] if self.recommendation is None else self.recommendation.headlines
        return [*(f"Recommendation: {line}" for line in advice), f"Verdict: {self.verdict.headline}."]

    @cached_property
    def brief(self) -> Table:
        """One table for a screen."""
        return build_brief(self._findings, self.results.record)

    def texts(self) -> list[tuple[str, bytes]]:
        """The files that have the tables, by their names."""
        chosen = select_metrics(self._findings, self.results.record)
        same = chosen is self._findings  # which to make again takes as long as the run of a small table
        latex = self._of_findings if same else build_tables(chosen, self.results.record)
        written = {
            "tables.md": "\n".join(map(render_markdown, self.tables)),
            "tables.tex": "\n".join(map(render_latex, latex)),
            "costs.md": render_markdown(build_costs(self.results.costs, self.results.record)),
        }
        return [(name, text.encode()) for name, text in written.items()]

    def files(self, figures: Sequence[str], page: bool = True) -> Iterator[tuple[str, bytes]]:
        """The figures in so many formats, and the page, by the names of their files."""
        drawn = draw_figures(self.results) if figures or page else {}
        for kind in figures:
            for name, plot in drawn.items():
                yield f"figures/{name}.{kind}", plot.render(kind)
        if page:
            yield PAGE_FILE, self.page(drawn, figures).encode()

    def page(self, drawn: Mapping[str, Plot], figures: Sequence[str]) -> str:
        """All of it, to be opened in a browser."""
        results, record = self.results, self.results.record
        settings, data, count = record.settings, record.data, record.instances
        disagree = () if self.recommendation is None else self.recommendation.disagree
        browser = instances.build_browser(results, disagree)
        facts = [
            ("data", data.name), ("instances", f"{count:,}"), ("explainers", str(len(record.explainers))),
            ("k", str(settings.k)), ("seed", str(settings.seed)), ("search", record.search),
            ("gold", ", ".join(settings.gold) if record.truths else "not known"),
            ("test accuracy", f"{record.accuracy['test']:.1%}{describe_baselines(record)}"),
        ]  # fmt: skip
        return render_page(
            "run.html",
            [*self._shown, build_costs(results.costs, results.record)],
            glossary.list_terms(record),
            title=_title(record, advised=self.recommendation is not None),
            facts=facts,
            verdict=self.verdict,
            recommendation=self.recommendation,
            warnings=provenance.list_warnings(results),
            plots=embed_figures(drawn, figures),
            examples=examples.select_examples(browser, name_truths(settings.gold, record), disagree),
            browser_note=_browser_note(browser),
            methods=methods.write_methods(record),
            citation=methods.write_citation(record.cfeval),
            data=browser,
            provenance=provenance.list_provenance(record),
            command=shlex.join(record.command),
            stages=stages.compute_stage_bar(record.seconds, record.stages, results.costs),
        )


def draw_figures(results: Results) -> dict[str, Plot]:
    """All figures of a run, in the order of the page."""
    drawn = plots.draw_plots(results.findings, results.costs, results.record)
    drawn |= distributions.draw_distributions(results.predicted, results.edits(), results.shown, results.record)
    order = [name for names in _PARTS.values() for name in names]
    return dict(sorted(drawn.items(), key=lambda item: order.index(item[0].partition("_")[0])))


# the figures of each part of a page, by the first words of their names
_PARTS = {
    "scores": ("scores", "ranks", "distributions", "counterfactuals"),
    "trust": ("correlations", "truth", "graded"),
    "cost": ("costs", "convergence"),
}


def save_figures(drawn: Mapping[str, Plot], into: Path, kinds: Iterable[str]) -> None:
    """Each figure in each format."""
    for kind in kinds:
        for name, plot in drawn.items():
            write_file(plot.render(kind), make_subfolder(into, "figures") / f"{name}.{kind}")


def write_file(what: str | bytes, path: Path) -> None:
    """Write a file whole or not at all."""
    with whole_file(path) as partial:
        partial.write_bytes(what.encode() if isinstance(what, str) else what)


def _title(record: RunRecord, *, advised: bool) -> str:
    name, explainers = record.data.name, record.explainers
    if len(explainers) == 1:
        return f"{name}: {next(iter(explainers.values()))}"
    if not record.truths:
        return f"{name}: {len(explainers):,} explainers of a model whose truth is not known"
    if advised:
        return f"{name}: which of {len(explainers):,} explainers to use on this model?"
    return f"{name}: which metric tells the truth about {len(explainers):,} explainers?"


def render_page(
    template: str,
    made: Sequence[Table],
    known: Sequence[glossary.Term],
    scripts: Sequence[str] = ("report.js",),
    **told: Any,
) -> str:
    """A page from its template; everything that is told is text, and escaped. `known` are the words that it defines."""
    env = _environment()
    script = "".join(map(_source, scripts))
    shown = [
        {
            "title": one.title,
            "html": render_html(one, lambda title: glossary.find_term(title, known)) if one.rows else "",
            "notes": one.notes,
            "detail": one.detail,
            "part": one.part,
            "number": number,
        }
        for number, one in enumerate(made)
    ]
    texts = [{"latex": render_latex(one), "markdown": render_markdown(one), "csv": render_csv(one)} for one in made]
    return env.get_template(template).render(
        tables=shown,
        texts=texts,
        css=Markup(_source("report.css")),  # noqa: S704  our own
        script=Markup(script),  # noqa: S704
        script_hash=b64encode(sha256(script.encode()).digest()).decode(),
        version=__version__,
        glossary=known,
        **told,
    )


def embed_figures(drawn: Mapping[str, Plot], files: Sequence[str]) -> list[dict[str, Any]]:
    """Figures as the templates take them."""
    return [
        {
            "name": name,
            "title": plot.title,
            "caption": plot.caption,
            "svg": svg.make_inline_svg(plot.render("svg").decode(), name, plot.title, plot.caption),
            "files": files,
            "part": next((part for part, names in _PARTS.items() if name.partition("_")[0] in names), "trust"),
            "wide": plot.figure.get_figwidth() > NARROW,
        }
        for name, plot in drawn.items()
    ]


@cache
def _environment() -> Environment:
    env = Environment(
        loader=PackageLoader("cfeval_cli.report.page"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    # tojson escapes what could end a script element
    env.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}
    return env


def _source(name: str) -> str:
    source, _, _ = PackageLoader("cfeval_cli.report.page").get_source(_environment(), name)
    return source


def _browser_note(browser: Mapping[str, Any]) -> str:
    shown, total, named = len(browser["instances"]), browser["total"], len(browser["explainers"])
    some = f"{shown:,} of {total:,} instances, spread evenly over what the model predicts."
    told = [f"All {total:,} instances." if shown == total else some]
    if browser["left"]:
        told.append(f"{named} of {named + browser['left']} explainers.")
    if browser["moved"]:
        told.append("The search moves embeddings: a moved one is told by the value that is nearest to it.")
    if not browser["golds"]:
        told.append("No truth is known of this model, so that no gold is shown.")
    return " ".join(told)
