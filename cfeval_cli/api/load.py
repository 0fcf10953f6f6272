"""The results of a run as DataFrames and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from cfeval_cli.errors import UserError
from cfeval_cli.results.locations import PAGE_FILE, RECORD, SWEEP_FILE, has_record
from cfeval_cli.results.read import StoredRun, read_results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cfeval_cli.report.page.build import Report
    from cfeval_cli.report.recommendation import AnswerText, RecommendationText

_MAX_LISTED_RUNS = 10


@dataclass(frozen=True, repr=False)
class Results(StoredRun):
    """The results of one complete run, and the text of its report; docs/run-folder.md describes the columns."""

    @cached_property
    def scores(self) -> pd.DataFrame:
        """A row for each metric, variant, explainer and instance."""
        return self.read_frame("scores")

    @cached_property
    def explanations(self) -> pd.DataFrame:
        """A row for each instance and explainer: names of features, the most important first, and their scores."""
        table = self.read_frame("explanations")
        return table.assign(features=self._name_features(table))

    @cached_property
    def counterfactuals(self) -> pd.DataFrame:
        """A row for each instance, explainer and access: names of the changed features, and their new values."""
        table, data = self.read_frame("counterfactuals"), self.data
        values = [
            None if codes is None else [data.get_name(j, code) for j, code in zip(features, codes, strict=True)]
            for features, codes in zip(table["features"], table["codes"], strict=True)
        ]
        return table.assign(features=self._name_features(table), values=_make_list_column(values))

    @property
    def answer(self) -> RecommendationText | None:
        """Which explainer to use, in words; None if the run has no answer. `recommendation` has the values."""
        return self._report.recommendation

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """All figures by name, whether or not the run has files of them."""
        from cfeval_cli.report.page.build import draw_figures

        return {name: plot.figure for name, plot in draw_figures(self).items()}

    @property
    def report(self) -> Path | None:
        """The path of report.html; None if the run has no report."""
        path = self.folder / PAGE_FILE
        return path if path.exists() else None

    @property
    def verdict(self) -> str:
        """Which metric can be trusted, or which explainer ranks first if there is no ground truth, in words."""
        return self._report.verdict.headline

    @property
    def paper(self) -> AnswerText | None:
        """How the results of one of the paper's experiments differ from the paper's tables; None for other runs."""
        return self._report.paper

    @cached_property
    def _report(self) -> Report:
        from cfeval_cli.report.page.build import Report

        return Report(self)

    def _name_features(self, table: pd.DataFrame) -> pd.Series[Any]:
        """Return the names of the features of each row."""
        return _make_list_column([[self.data.features[j].name for j in row] for row in table["features"]])

    def __repr__(self) -> str:
        record = self.record
        summary = f"{record.data.name}, {len(record.explainers)} explainers, {record.instances:,} instances"
        return f"<Results {summary}: {self._describe_folder()}>"

    def _repr_html_(self) -> str:
        """Return answer, verdict and first table for a notebook; text from the data is escaped."""
        from cfeval_cli.report.render.html import render_html, render_notes

        first = self._report.tables[0]
        table = render_html(first, caption=True) + render_notes(first)
        advice = "".join(
            f"<p><strong>{escape(sentence)}</strong></p>"
            for sentence in (self.answer.paragraphs if self.answer else [])
        )
        return f"{advice}<p>{escape(self.verdict)}.</p>{table}<p>{escape(self._describe_folder())}</p>"

    def _describe_folder(self) -> str:
        """Return the path of the folder, and whether others would see the training rows in it."""
        if not self.has_table("training"):
            return str(self.folder)
        return f"{self.folder}, contains training data (training.parquet); training=0 leaves it out"


def load(folder: str | Path) -> Results:
    """Return the results of the run in a folder; UserError if it is not complete or a file was changed."""
    path = Path(folder).expanduser()
    runs = sorted(str(file.parent) for file in path.glob(f"*/{RECORD}"))
    if runs and not has_record(path):
        kind = "the folder of a sweep" if (path / SWEEP_FILE).exists() else "not a run folder"
        suffix = f" (and {len(runs) - _MAX_LISTED_RUNS:,} more)" if len(runs) > _MAX_LISTED_RUNS else ""
        raise UserError(f"{path} is {kind}. Load one of the runs in it: {', '.join(runs[:_MAX_LISTED_RUNS])}{suffix}.")
    return Results(**vars(read_results(path)))


def _make_list_column(lists: Sequence[object]) -> pd.Series[Any]:
    return pd.Series(list(lists), dtype=object)
