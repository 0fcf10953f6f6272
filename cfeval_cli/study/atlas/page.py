"""atlas.md and atlas.html, from the rows alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cfeval_cli.core.files import make_folder, refuse_linked_path
from cfeval_cli.report.page import build
from cfeval_cli.report.page.glossary import Term
from cfeval_cli.report.plots import Plot
from cfeval_cli.report.table import Cell, Table
from cfeval_cli.study.atlas import tables
from cfeval_cli.study.atlas.claims import Claim, answered
from cfeval_cli.study.atlas.plots import draw
from cfeval_cli.study.atlas.store import NAME, Atlas
from cfeval_cli.study.atlas.store import write as keep
from cfeval_cli.study.atlas.summary import LEAD, Summary

PAGE, TEXT = "atlas.html", "atlas.md"
_STEPS = 5  # of a colour
_HEAT = ("judge", "data")
_WORDS = {
    "τ": "Kendall's τ: of all pairs of explainers, the share that the metric orders as the truth does less the "
    "share that it orders the other way round.",
    "judge": "A model of which the truth is known.",
    "data sets": "How many data sets have a figure.",
    "judges": "How many judges have a figure.",
    "n": "Rows of the atlas: a data set, judge, truth, seed and k each.",
    "diagnosticity": "How often the truer of two explanations of one instance is preferred, ties by half; 0.5 is "
    "chance.",
    "nothing by construction": "Without what is right by construction: rows of a metric, and explainers that are made "
    "for the metric or the truth.",
    "with controls": "With explainers that name features at random, or the truth itself.",
    "better half": "Among the explainers whose true score is not below the median.",
    "by instance": "The mean over instances of τ within one instance.",
    "model rows": "What the metric asks of the model for one explanation, without what another metric has asked "
    "before.",
}


def write(atlas: Atlas, into: Path) -> tuple[Summary, list[Claim]]:
    """The rows, the tables, the figures and the page."""
    refuse_linked_path(into)
    summary = Summary(atlas)
    claims = answered(summary)
    make_folder(into)
    keep(atlas, into / NAME)
    build.write_file(tables.markdown(summary, claims), into / TEXT)
    drawn = draw(summary)
    build.save_figures(drawn, into, ("svg",))
    build.write_file(page(summary, claims, drawn), into / PAGE)
    return summary, claims


def page(summary: Summary, claims: Sequence[Claim], drawn: Mapping[str, Plot]) -> str:
    """All of it, to be opened in a browser."""
    about, heats = summary.atlas.about, []
    sure = {answer.question for answer in summary.answers if answer.best is not None and answer.sure}
    for answer in summary.answers:
        heats += [heat(tables.by(summary, answer.question, factor)) for factor in _HEAT]
    return build.render_page(
        "atlas.html",
        tables.make(summary, claims),
        [Term(name, what) for name, what in _WORDS.items()],
        scripts=("report.js", "atlas.js"),
        title="Which metric should I use?",
        answers=[(name, tables.ASKED[name], *rest, name in sure) for name, *rest in tables.headlines(summary)],
        facts=[
            ("runs", f"{about['runs']:,}"), ("rows", f"{about['rows']:,}"), ("data sets", str(len(about["data"]))),
            ("judges", str(len(about["judges"]))), ("truths", str(len(about["truths"]))),
            ("seeds", str(len(about["seeds"]))), ("k", ", ".join(map(str, about["k"]))),
        ],
        about=[
            ("data", ", ".join(about["data"])), ("judges", ", ".join(about["judges"])),
            ("truths", ", ".join(about["truths"])), ("cfeval", ", ".join(about["cfeval"])),
            ("rows, sha256", about["sha256"]),
        ],
        claims=[{"name": one.name, "text": one.text, "of": one.of, "verdict": one.verdict} for one in claims],
        left=list(summary.atlas.left),
        heats=heats,
        plots=build.embed_figures(drawn, ("svg",)),
        data=cells(summary),
    )  # fmt: skip


def heat(table: Table) -> dict[str, Any]:
    """A table whose cells have a colour: blue for, orange against, by size."""
    return {
        "title": table.title,
        "header": [title.text for title in table.header],
        "rows": [(row.title.text, [_colour(cell) for cell in row.cells]) for row in table.rows],
    }


def _colour(cell: Cell) -> dict[str, Any]:
    value = None if cell.number is None else round(cell.number, 2)  # as it is shown
    size = 0 if value is None else min(_STEPS, math.ceil(abs(value) * _STEPS))
    kind = f"{'n' if value is not None and value < 0 else 'p'}{size}" if size else ""
    return {"text": cell.text, "value": value, "kind": kind}


def cells(summary: Summary) -> dict[str, Any]:
    """The table that can be filtered: the mean over seeds of each question, data set, judge, truth, k and metric."""
    keys = ["question", "data", "judge", "truth", "k", "title"]
    figures = [LEAD, "tau", "tau_without_circular", "diagnosticity"]
    found = summary.rows.groupby(keys, sort=True)[figures].mean().round(3)
    found["n"] = summary.rows.groupby(keys, sort=True).size()
    told = found.reset_index()
    names: list[list[str]] = [sorted({str(value) for value in told[key]}) for key in keys]
    places = [{name: place for place, name in enumerate(some)} for some in names]
    rows = [
        [
            *(places[i][str(value)] for i, value in enumerate(line[: len(keys)])),
            *(_plain(value) for value in line[len(keys) :]),
        ]
        for line in told.itertuples(index=False, name=None)
    ]
    shown = ["question", "data", "judge", "truth", "k", "metric"]
    return {
        "keys": shown,
        "names": names,
        "figures": ["τ", "τ with controls", "τ, nothing by construction", "diagnosticity", "n"],
        "rows": rows,
    }


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else value
