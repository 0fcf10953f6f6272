"""atlas.md and atlas.html, from the rows of the atlas alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cfeval_cli.core.files import make_folder, refuse_linked_path
from cfeval_cli.report.page import build
from cfeval_cli.report.plots import Plot
from cfeval_cli.report.render.html import Term
from cfeval_cli.report.table import Cell, Table
from cfeval_cli.study.atlas.claims import ClaimResult, check_claims
from cfeval_cli.study.atlas.plots import draw_figures
from cfeval_cli.study.atlas.store import ATLAS_FILE, Atlas, write_atlas
from cfeval_cli.study.atlas.summary import LEADING_TAU, AtlasSummary
from cfeval_cli.study.atlas.tables import (
    QUESTION_TEXTS,
    build_factor_table,
    build_tables,
    write_headlines,
    write_markdown,
)

PAGE_FILE, TEXT_FILE = "atlas.html", "atlas.md"
_COLOUR_STEPS = 5
_HEAT_MAP_FACTORS = ("judge", "data")
_FIGURE_FORMATS = ("svg",)
_TERMS = {
    "τ": "Kendall's τ: among all pairs of explainers, the share that the metric orders as the ground truth does less "
    "the share that it orders the other way round.",
    "judge": "A model with known ground truth.",
    "data sets": "The number of data sets with a value.",
    "judges": "The number of judges with a value.",
    "n": "Rows of the atlas: each is one data set, judge, truth, seed and k.",
    "diagnosticity": "How often the more faithful of two explanations of one instance is preferred, ties count half; "
    "chance is 0.5.",
    "without circular": "Without rows in which the metric is circular (optimal by construction), and without "
    "explainers that are circular with the metric or the ground truth.",
    "with controls": "With explainers that select features at random, or by the ground truth itself.",
    "better half": "Among the explainers with a true score of at least the median.",
    "by instance": "The mean over instances of τ within one instance.",
    "model evaluations": "Model evaluations of the metric for one explanation, without those that another metric "
    "already made.",
}


def write_results(atlas: Atlas, into: Path) -> tuple[AtlasSummary, list[ClaimResult]]:
    """Write the rows, the tables, the figures and the page."""
    refuse_linked_path(into)
    summary = AtlasSummary(atlas)
    claims = check_claims(summary)
    make_folder(into)
    write_atlas(atlas, into / ATLAS_FILE)
    build.write_file(write_markdown(summary, claims), into / TEXT_FILE)
    plots = draw_figures(summary)
    build.save_figures(plots, into, _FIGURE_FORMATS)
    build.write_file(render(summary, claims, plots), into / PAGE_FILE)
    return summary, claims


def render(summary: AtlasSummary, claims: Sequence[ClaimResult], plots: Mapping[str, Plot]) -> str:
    """Render the page for the browser."""
    about = summary.atlas.description
    conclusive = {question.question for question in summary.questions if question.is_conclusive}
    return build.render_template(
        "atlas.html",
        build_tables(summary, claims),
        [Term(name, text) for name, text in _TERMS.items()],
        scripts=("report.js", "atlas.js"),
        title="Which metric should I use?",
        answers=[
            (line.question, QUESTION_TEXTS[line.question], line.text, line.points, line.question in conclusive)
            for line in write_headlines(summary)
        ],
        facts=[
            ("runs", f"{about.runs:,}"), ("rows", f"{about.rows:,}"), ("data sets", str(len(about.data))),
            ("judges", str(len(about.judges))), ("truths", str(len(about.truths))),
            ("seeds", str(len(about.seeds))), ("k", ", ".join(map(str, about.k))),
        ],
        about=[
            ("data", ", ".join(about.data)), ("judges", ", ".join(about.judges)),
            ("truths", ", ".join(about.truths)), ("cfeval", ", ".join(about.cfeval)),
            ("rows, sha256", about.sha256),
        ],
        claims=claims,
        excluded=list(summary.atlas.excluded),
        heat_maps=[
            build_heat_map(build_factor_table(summary, question.question, factor))
            for question in summary.questions for factor in _HEAT_MAP_FACTORS
        ],
        plots=build.embed_figures(plots, _FIGURE_FORMATS),
        data=list_cells(summary),
    )  # fmt: skip


def build_heat_map(table: Table) -> dict[str, Any]:
    """Return a table with coloured cells: blue for positive values, orange for negative ones, darker if larger."""
    return {
        "title": table.title,
        "header": [title.text for title in table.header],
        "rows": [(row.title.text, [_colour_cell(cell) for cell in row.cells]) for row in table.rows],
    }


def _colour_cell(cell: Cell) -> dict[str, Any]:
    value = None if cell.number is None else round(cell.number, 2)  # as it is shown
    step = 0 if value is None else min(_COLOUR_STEPS, math.ceil(abs(value) * _COLOUR_STEPS))
    css_class = f"{'n' if value is not None and value < 0 else 'p'}{step}" if step else ""
    return {"text": cell.text, "value": value, "kind": css_class}


def list_cells(summary: AtlasSummary) -> dict[str, Any]:
    """Return the data of the table that readers can filter: means over seeds, with keys as numbers into `names`."""
    keys = ["question", "data", "judge", "truth", "k", "title"]
    columns = [LEADING_TAU, "tau", "tau_without_circular", "diagnosticity"]
    by_key = summary.rows.groupby(keys, sort=True)
    means = by_key[columns].mean().round(3)
    means["n"] = by_key.size()
    table = means.reset_index()
    names: list[list[str]] = [sorted({str(value) for value in table[key]}) for key in keys]
    codes = [{name: code for code, name in enumerate(values)} for values in names]
    rows = [
        [
            *(codes[i][str(value)] for i, value in enumerate(line[: len(keys)])),
            *(None if math.isnan(value) else value for value in line[len(keys) :]),
        ]
        for line in table.itertuples(index=False, name=None)
    ]
    return {
        "keys": ["question", "data", "judge", "truth", "k", "metric"],
        "names": names,
        "figures": ["τ", "τ with controls", "τ without circular", "diagnosticity", "n"],
        "rows": rows,
    }
