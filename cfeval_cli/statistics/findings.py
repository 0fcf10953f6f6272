"""All that follows from the scores of a run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, Protocol

import pandas as pd

from cfeval_cli.statistics import between, correlation, difference, instancewise, invariance
from cfeval_cli.statistics.correlation import Agreements, Family, families
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
    tau_resamples: pd.DataFrame | None = field(default=None, metadata={"file": "tau_resamples.parquet"})


OPTIONAL = [one.name for one in fields(Findings) if one.default is None]  # which a run may not have


def file_of(one: Field[Any]) -> str:
    """The name of a table's file."""
    return str(one.metadata.get("file", f"{one.name}.csv"))


@dataclass(frozen=True)
class Circular:
    """What is so by construction; which explainers are made for which metric or truth, the summary tells."""

    pairs: Collection[tuple[str, str, str]] = ()  # metrics and variants with the truths that they are best at
    drop: bool = False  # whether all of it is left out of every τ


def conclude(
    scores: Scores,
    order: pd.DataFrame,
    how: Bootstrap,
    ladder_gold: str = "",
    bounds: Extremes | None = None,
    reparametrised: Reparametrised | None = None,
    circular: Circular | None = None,
    *,
    common: bool = False,
) -> Findings:
    """Values, their uncertainty, their place between the bounds, and how well each metric agrees with the truth.

    `order` has the rows that the summary should have; a ladder's rungs were made from the gold of that definition.
    Of the scores only those that are `common` count, if that is wanted; each explainer's own are told beside them.
    """
    shared = scores.shared if common else None
    arrays = scores.numbered() if shared is None else shared
    metrics = summarise(arrays, order, None if shared is None else scores)
    circular = circular or Circular()
    whole, gone = Resampled.of(arrays, metrics, how), metrics[metrics["circular"] & circular.drop]
    drawn = whole.without(gone) if len(gone) else whole
    everyone = [family for family in families(drawn, ladder_gold) if family.judged]
    if circular.drop:
        everyone = [family.barring(circular.pairs, drawn) for family in everyone]
    groups = [family for family in everyone if family.truths]
    by_subset = [_judge_subsets(family, drawn, how) for family in groups]
    ranked = [one for agreements in by_subset for one in agreements]
    with_intervals(metrics, whole, how)
    if bounds is not None:
        metrics.insert(list(metrics).index("rank"), "place", bounds.places(arrays, metrics))
    others = [family for family in everyone if family.name == "explainers"]
    named = [family for family in others if family.truths]
    fewer = drawn.first(how.alone.resamples)
    metrics.insert(list(metrics).index("note"), "moves", invariance.of_values(metrics, reparametrised))
    correlations = pd.DataFrame([line for one in ranked for line in one.lines(drawn, how)], columns=correlation.COLUMNS)
    correlations.insert(
        list(correlations).index("note"), "circular", correlation.of_circular(correlations, circular.pairs)
    )
    ranges = None
    if reparametrised is not None:
        ranges = invariance.table(reparametrised, drawn, [one.family for one in ranked])
    correlations.insert(list(correlations).index("note"), "moves", invariance.of_taus(correlations, ranges))
    return Findings(
        metrics=metrics,
        correlations=correlations,
        differences=pd.DataFrame(
            [line for agreements in by_subset for line in difference.lines(agreements, drawn, how)],
            columns=difference.COLUMNS,
        ),
        instance_agreement=pd.DataFrame(
            [line for family in named for line in instancewise.lines(arrays.without(gone), drawn, family, how.alone)],
            columns=instancewise.COLUMNS,
        ),
        metric_agreement=pd.DataFrame(
            [line for family in others for line in between.lines(fewer, family, how.alone)],
            columns=between.COLUMNS,
        ),
        bounds=None if bounds is None else bounds.table(),
        invariance=ranges,
        tau_resamples=_draws(by_subset, drawn),
    )


def _draws(by_subset: Sequence[Sequence[Agreements]], drawn: Resampled) -> pd.DataFrame | None:
    """Every τ of the explainers in some resamples; None if there is none."""
    parts = [correlation.draws(of, drawn) for of in by_subset if of[0].family.name == "explainers"]
    return parts[0] if parts and len(parts[0]) else None


def _judge_subsets(family: Family, drawn: Resampled, how: Bootstrap) -> list[Agreements]:
    """Return the agreements of all explainers and of those that are not controls; a ladder has no controls."""
    of_all = Agreements.of(drawn, family, how)
    if family.name == correlation.GRADED:
        return [of_all]
    rest = family.without(drawn.controls)
    return [of_all, Agreements.of(drawn, rest, how) if len(rest.controls) else replace(of_all, family=rest)]
