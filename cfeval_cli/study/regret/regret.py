"""The regret of choosing an explainer by a metric: for each judge, its reference attributions are hidden.

The regret is the true score of the best explainer less that of the chosen one, for each run of a judge, question and
strategy.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import astuple, dataclass

import numpy as np
import pandas as pd

from cfeval_cli.core import Bools, Floats
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.metric_ranking import PreferredMetrics
from cfeval_cli.statistics.ranking import compute_rank_correlations, compute_ranks
from cfeval_cli.statistics.recommendation import QUESTIONS
from cfeval_cli.statistics.student_t import compute_t_interval
from cfeval_cli.study.definitions import load_definitions


@dataclass(frozen=True)
class FixedMetric:
    """A metric that a user could choose by in every run."""

    metric: str
    title: str
    identifiable_only: bool  # only variants that do not depend on the parametrisation of the model


_FIXED_METRICS = load_definitions("cfeval_cli.study.regret", "fixed_metrics.json", tuple[FixedMetric, ...])
STRATEGIES = {
    "rule": "metric-based ranking",
    "same data": "best metric on other judges, same data",
    "other data": "best metric on judges of other data",
    **{fixed.metric: fixed.title for fixed in _FIXED_METRICS},
    "mean rank": "mean rank over all metrics",
    "chance": "chance",
}
_KEY = ["data", "judge", "seed", "k", "question", "circular"]
COLUMNS = [*_KEY, "strategy", "metric", "variant", "explainers", "regret"]
SUMMARY = [
    "question", "k", "circular", "strategy", "runs", "data", "seeds", "regret", "low", "high", "more", "more_low",
    "more_high",
]  # fmt: skip


@dataclass(frozen=True)
class Setup:
    """The run and question that an explainer is chosen for."""

    data: str
    judge: str
    seed: int
    k: int
    question: str
    circular: str  # keep or drop: whether explainers that are circular with the ground truth are candidates

    @property
    def task(self) -> tuple[int, str, str]:
        """Return what two setups must share for a metric to be chosen on one and used on the other."""
        return self.k, self.question, self.circular


@dataclass(frozen=True)
class ExplainerChoice:
    """The candidates of one setup: their scores by each metric and by the ground truth."""

    setup: Setup
    truth: Floats  # (E,) higher is better
    values: Floats  # (R, E) scores by metric, signed so that higher is better; NaN where a metric has no value
    rows: Sequence[tuple[str, str]]  # (R,) metrics and variants

    def compute_taus(self) -> Floats:
        """Return τ (R,) of each metric with the ground truth; NaN for metrics with fewer than two values."""
        taus = np.full(len(self.rows), np.nan)
        for row, values in enumerate(self.values):
            has_value = ~np.isnan(values)
            if has_value.sum() >= 2:
                by_metric, by_truth = (
                    compute_ranks(values[has_value], "higher"),
                    compute_ranks(self.truth[has_value], "higher"),
                )
                taus[row] = compute_rank_correlations(by_metric[None], by_truth[None])[0][0, 0]
        return taus

    def compute_regret(self, scores: Floats) -> float:
        """Return the expected regret of choosing by scores (E,), with ties broken at random."""
        if np.isnan(scores).all():
            return float("nan")
        ranking = compute_ranks(scores, "higher")
        is_best = ranking == np.nanmin(ranking)
        return float(self.truth.max() - self.truth[is_best].mean())

    def find_row(self, metric: str, excluded_variants: Set[str]) -> int | None:
        """Return the row of a metric's first variant, preferably one that scores all explainers."""
        rows = [i for i, row in enumerate(self.rows) if row[0] == metric and row[1] not in excluded_variants]
        complete = [row for row in rows if not np.isnan(self.values[row]).any()]
        return next(iter(complete or [row for row in rows if (~np.isnan(self.values[row])).sum() >= 2]), None)


def list_choices(record: RunRecord, metrics: pd.DataFrame) -> list[ExplainerChoice]:
    """Return the choices that a run poses: by question, with and without circular explainers."""
    settings, questions, choices = record.settings, record.questions, []
    candidates = metrics[metrics["quality_level"].isna() & ~metrics["control"].astype(bool)]
    for question in QUESTIONS:
        # a truth of this very question comes before one that answers both
        name = next((name for wanted in (question, "either") for name in questions if questions[name] == wanted), None)
        if name is None:
            continue
        is_true_score = (candidates["metric"] == settings.agreement) & (candidates["variant"] == name)
        true_scores = candidates[is_true_score & candidates["value"].notna()]
        for circular in ("keep", "drop"):
            is_kept = ~true_scores["circular"].astype(bool) | (circular == "keep")
            names = true_scores.loc[is_kept, "explainer"].tolist()
            if len(names) < 2:
                continue
            scores = candidates[(candidates["role"] == "judged") & candidates["explainer"].isin(names)]
            sign = scores["better"].map({"higher": 1.0, "lower": -1.0})
            wide = scores.assign(value=scores["value"] * sign).pivot_table(
                index=["metric", "variant"], columns="explainer", values="value", dropna=False, sort=False
            )
            wide = wide.reindex(columns=names).dropna(how="all")
            truth = true_scores.set_index("explainer")["value"].reindex(names).to_numpy(float)
            setup = Setup(record.data.name, record.model.name, settings.seed, settings.k, question, circular)
            rows = [(str(metric), str(variant)) for metric, variant in wide.index]
            choices.append(ExplainerChoice(setup, truth, wide.to_numpy(float), rows))
    return choices


def compute_regrets(
    choices: Sequence[ExplainerChoice], preferred: PreferredMetrics, arbitrary: Set[str]
) -> pd.DataFrame:
    """Return one row for each choice and applicable strategy; `arbitrary` variants are not identifiable."""
    places = {row: i for i, row in enumerate(dict.fromkeys(row for choice in choices for row in choice.rows))}
    taus = np.full((len(choices), len(places)), np.nan)
    for i, choice in enumerate(choices):
        taus[i, [places[row] for row in choice.rows]] = choice.compute_taus()
    setups = [choice.setup for choice in choices]
    data, seeds, judges = (np.array([getattr(setup, name) for setup in setups]) for name in ("data", "seed", "judge"))
    tasks = [setup.task for setup in setups]
    has_task: dict[tuple[int, str, str], Bools] = {
        task: np.array([other == task for other in tasks]) for task in dict.fromkeys(tasks)
    }
    lines = []
    for choice in choices:
        setup = choice.setup
        is_same_data = data == setup.data
        is_same_split = is_same_data & (seeds == setup.seed)
        # every strategy may use the same metrics: none of a variant that the metric-based ranking may not use
        is_allowed = np.array([row[1] not in arbitrary for row in choice.rows])
        known_taus = np.where(is_allowed, taus[:, [places[row] for row in choice.rows]], np.nan)
        ranked = (choice.find_row(metric, arbitrary) for metric in preferred.metrics[setup.question])
        selected: dict[str, int | None] = {
            "rule": next((row for row in ranked if row is not None), None),
            "same data": _select_metric(known_taus[has_task[setup.task] & is_same_split & (judges != setup.judge)]),
            "other data": _select_metric(known_taus[has_task[setup.task] & ~is_same_data]),
        }
        for fixed in _FIXED_METRICS:
            excluded = arbitrary if fixed.identifiable_only else set()
            selected[fixed.metric] = choice.find_row(fixed.metric, excluded)
        outcomes: dict[str, tuple[tuple[str, str], float]] = {
            name: (choice.rows[row], choice.compute_regret(choice.values[row]))
            for name, row in selected.items() if row is not None
        }  # fmt: skip
        complete = choice.values[is_allowed & ~np.isnan(choice.values).any(axis=1)]
        if len(complete):
            outcomes["mean rank"] = ("", ""), choice.compute_regret(-compute_ranks(complete, "higher").mean(axis=0))
        outcomes["chance"] = ("", ""), float(choice.truth.max() - choice.truth.mean())
        lines += [(*astuple(setup), name, *row, len(choice.truth), regret) for name, (row, regret) in outcomes.items()]
    return pd.DataFrame(lines, columns=COLUMNS)


def _select_metric(taus: Floats) -> int | None:
    """Return the first column with the highest mean of τ (T, R) over other runs; None if no τ is known."""
    is_known = ~np.isnan(taus)
    counts = is_known.sum(axis=0)
    if not counts.any():
        return None
    means = np.where(counts > 0, np.where(is_known, taus, 0.0).sum(axis=0) / np.maximum(counts, 1), -np.inf)
    return int(np.argmax(np.round(means, 12)))


def summarise_regrets(regrets: pd.DataFrame) -> pd.DataFrame:
    """Return the mean regret of each strategy, and its difference to the metric-based ranking, with 95 % t-intervals.

    The units are data sets, each with the mean over its seeds. The difference is over runs in which both apply.
    """
    lines = []
    for task, rows in regrets.groupby(["question", "k", "circular"], sort=False):
        cells = rows.groupby(["data", "seed", "strategy"])["regret"].mean().unstack()
        for name in dict.fromkeys(rows["strategy"]):
            of_strategy = rows[rows["strategy"] == name]
            counts = (len(of_strategy), of_strategy["data"].nunique(), of_strategy["seed"].nunique())
            differences = cells[name] - cells["rule"] if "rule" in cells else cells[name] * np.nan
            lines.append((*task, name, *counts, *_average_data_sets(cells[name]), *_average_data_sets(differences)))
    return pd.DataFrame(lines, columns=SUMMARY)


def _average_data_sets(cells: pd.Series) -> tuple[float, float, float]:
    """Return the mean over data sets of the means over their seeds, with its t-interval.

    A percentile bootstrap of five data sets covers too little: 73 to 87 % instead of 95 %.
    """
    means = cells.dropna().groupby(level="data", sort=False).mean().to_numpy(float)
    result = compute_t_interval(means)
    return result.mean, result.low, result.high
