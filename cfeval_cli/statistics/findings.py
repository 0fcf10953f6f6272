"""All that follows from the scores of a run."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Protocol

import pandas as pd

from cfeval_cli.statistics import between, correlation, difference, instancewise, invariance
from cfeval_cli.statistics.correlation import Agreements, families
from cfeval_cli.statistics.invariance import Reparametrised
from cfeval_cli.statistics.resampled import Bootstrap, Resampled, with_intervals
from cfeval_cli.statistics.scores import Scores
from cfeval_cli.statistics.summary import summarise


class Extremes(Protocol):
    """The best and the worst that any explanation could get."""

    def table(self) -> pd.DataFrame:
        """Rows of bounds.csv."""
        ...

    def places(self, scores: Scores, metrics: pd.DataFrame) -> list[float]:
        """For each row of the summary, how far its value lies from the worst (0) to the best (1)."""
        ...


@dataclass(frozen=True)
class Findings:
    """Tables of the run folder, by the names of their files."""

    metrics: pd.DataFrame
    correlations: pd.DataFrame
    differences: pd.DataFrame
    instance_agreement: pd.DataFrame
    metric_agreement: pd.DataFrame
    bounds: pd.DataFrame | None = None
    invariance: pd.DataFrame | None = None
    noise: pd.DataFrame | None = None
    noise_metrics: pd.DataFrame | None = None


OPTIONAL = [field.name for field in fields(Findings) if field.default is None]  # which a run may not have


def conclude(
    scores: pd.DataFrame,
    order: pd.DataFrame,
    how: Bootstrap,
    ladder_gold: str = "",
    bounds: Extremes | None = None,
    reparametrised: Reparametrised | None = None,
) -> Findings:
    """Values, their uncertainty, their place between the bounds, and how well each metric agrees with the truth.

    `order` has the rows that the summary should have; a ladder's rungs were made from the gold of that definition.
    """
    metrics, arrays = summarise(scores, order), Scores.of(scores)
    drawn = Resampled.of(arrays, metrics, how)
    everyone = [family for family in families(drawn, ladder_gold) if family.judged]
    groups = [family for family in everyone if family.truths]
    found = [Agreements.of(drawn, family, how) for family in groups]
    with_intervals(metrics, drawn, how)
    if bounds is not None:
        metrics.insert(list(metrics).index("rank"), "place", bounds.places(arrays, metrics))
    named = [family for family in groups if family.name == "explainers"]
    metrics.insert(list(metrics).index("note"), "moves", invariance.of_values(metrics, reparametrised))
    correlations = pd.DataFrame([line for one in found for line in one.lines(drawn, how)], columns=correlation.COLUMNS)
    ranges = None
    if reparametrised is not None:
        ranges = invariance.table(reparametrised, drawn, groups)
    correlations.insert(list(correlations).index("note"), "moves", invariance.of_taus(correlations, ranges))
    return Findings(
        metrics=metrics,
        correlations=correlations,
        differences=pd.DataFrame(
            [line for one in found for line in difference.lines(one, drawn, how)], columns=difference.COLUMNS
        ),
        instance_agreement=pd.DataFrame(
            [line for family in named for line in instancewise.lines(arrays, drawn, family, how)],
            columns=instancewise.COLUMNS,
        ),
        metric_agreement=pd.DataFrame(
            [line for family in everyone if family.name == "explainers" for line in between.lines(drawn, family, how)],
            columns=between.COLUMNS,
        ),
        bounds=None if bounds is None else bounds.table(),
        invariance=ranges,
    )
