"""`load`: what a run found, as DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from cfeval_cli.errors import UserError
from cfeval_cli.results.read import Results, read_results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cfeval_cli.report.page.build import Report


@dataclass(frozen=True, repr=False)
class Run(Results):
    """The results of one complete run, with what the report says of them; docs/run-folder.md has the columns."""

    @cached_property
    def scores(self) -> pd.DataFrame:
        """A row for each metric, variant, explainer and instance."""
        return self._parquet("scores.parquet")

    @cached_property
    def explanations(self) -> pd.DataFrame:
        """A row for each instance and explainer: features by name, the most important first, and their scores."""
        table, names = self._parquet("explanations.parquet"), self.data.features
        return table.assign(features=_objects([[names[j] for j in row] for row in table["features"]]))

    @cached_property
    def counterfactuals(self) -> pd.DataFrame:
        """A row for each instance, explainer and access: features by name, and the values that they were given."""
        table, data = self._parquet("counterfactuals.parquet"), self.data
        values = [
            None if codes is None else [data.get_name(j, code) for j, code in zip(features, codes, strict=True)]
            for features, codes in zip(table["features"], table["codes"], strict=True)
        ]
        names = [[data.features[j] for j in row] for row in table["features"]]
        return table.assign(features=_objects(names), values=_objects(values))

    @property
    def advice(self) -> list[str]:
        """Which explainer to take, in a sentence for each question; nothing of a run that recommends nothing."""
        told = self._report.recommendation
        return [] if told is None else list(told.headlines)

    @cached_property
    def recommendation(self) -> pd.DataFrame | None:
        """The figures behind the advice, as the report shows them; None of a run that recommends nothing."""
        told = self._report.recommendation
        if told is None:
            return None
        rows = [[row.title.text, *row.texts] for row in told.table.rows]
        return pd.DataFrame(rows, columns=pd.Index([title.text for title in told.table.header]))

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """All figures by name, drawn anew, whether or not the run has files of them."""
        from cfeval_cli.report.page.build import draw_figures

        return {name: plot.figure for name, plot in draw_figures(self).items()}

    @property
    def report(self) -> Path | None:
        """report.html, if the run has one."""
        page = self.folder / "report.html"
        return page if page.exists() else None

    @property
    def verdict(self) -> str:
        """Which metric or explainer is to be believed, in one sentence."""
        return self._report.verdict.headline

    @cached_property
    def _report(self) -> Report:
        from cfeval_cli.report.page.build import Report

        return Report(self)

    def _parquet(self, name: str) -> pd.DataFrame:
        return pd.read_parquet(self.folder / name)

    def __repr__(self) -> str:
        record = self.record
        facts = f"{record.data.name}, {len(record.explainers)} explainers, {record.instances:,} instances"
        return f"<Run {facts}: {self.folder}>"

    def _repr_html_(self) -> str:
        """For a notebook: the verdict and the first table; whatever comes from the data is escaped."""
        from cfeval_cli.report.render.html import render_html, render_notes

        first = self._report.tables[0]
        table = render_html(first, caption=True) + render_notes(first)
        advice = "".join(f"<p><strong>{escape(one)}</strong></p>" for one in self.advice)
        return f"{advice}<p>{escape(self.verdict)}.</p>{table}<p>{escape(str(self.folder))}</p>"


def load(folder: str | Path) -> Run:
    """The run in a folder, every file as the run left it; UserError if it is not complete, or was changed."""
    path = Path(folder).expanduser()
    runs = sorted(str(file.parent) for file in path.glob("*/run.json"))
    if runs and not (path / "run.json").exists():
        kind = "the folder of a sweep" if (path / "multirun.yaml").exists() else "no run folder"
        more = f" (and {len(runs) - 10:,} more)" * (len(runs) > 10)
        raise UserError(f"{path} is {kind}. Load one of the runs in it: {', '.join(runs[:10])}{more}.")
    results = read_results(path)
    return Run(*(getattr(results, field.name) for field in fields(results)))


def _objects(values: Sequence[object]) -> pd.Series[Any]:
    """A column of lists."""
    return pd.Series(list(values), dtype=object)
