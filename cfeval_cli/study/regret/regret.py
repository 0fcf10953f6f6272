"""What is lost by choosing an explainer by a metric: each judge plays the user's model with its truth hidden.

For each run of a judge, question and strategy: how much truth is lost by the explainer that the strategy chooses.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.core import Floats
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.ranking import compute_rank_correlations, compute_ranks
from cfeval_cli.statistics.recommendation import QUESTIONS, PreferredMetrics
from cfeval_cli.statistics.student_t import compute_t_interval

# Metrics by which a user could always choose, and whether only by variants that no parametrisation moves.
_METRICS: list[dict[str, Any]] = json.loads(
    resources.files("cfeval_cli.study.regret").joinpath("metrics.json").read_text(encoding="utf-8")
)
STRATEGIES = {
    "rule": "the rule",
    "same data": "what was right on other judges of the same data",
    "other data": "what was right on judges of other data",
    **{entry["metric"]: entry["title"] for entry in _METRICS},
    "mean rank": "the mean rank over all metrics",
    "chance": "chance",
}
COLUMNS = [
    "data",
    "judge",
    "seed",
    "k",
    "question",
    "circular",
    "strategy",
    "metric",
    "variant",
    "explainers",
    "regret",
]
SUMMARY = [
    "question",
    "k",
    "circular",
    "strategy",
    "runs",
    "data",
    "seeds",
    "regret",
    "low",
    "high",
    "more",
    "more_low",
    "more_high",
]


@dataclass(frozen=True)
class Trial:
    """One run of a judge: what each metric and the truth say of each explainer."""

    data: str
    judge: str
    seed: int
    k: int
    question: str
    circular: str  # keep or drop: whether explainers that are made for the truth are among them
    truth: Floats  # (E,) the higher the better
    values: Floats  # (R, E) of the metrics, turned so that the higher is the better; NaN where there is none
    rows: Sequence[tuple[str, str]]  # (R,) metrics and variants

    @property
    def taus(self) -> Floats:
        """τ (R,) of each metric with the truth over the explainers that it has a value of; NaN for fewer than two."""
        found = np.full(len(self.rows), np.nan)
        for r, values in enumerate(self.values):
            there = ~np.isnan(values)
            if there.sum() >= 2:
                ours, true = compute_ranks(values[there], "higher"), compute_ranks(self.truth[there], "higher")
                found[r] = compute_rank_correlations(ours[None], true[None])[0][0, 0]
        return found

    def regret(self, values: Floats) -> float:
        """What is lost if the best by some values (E,) is chosen, each of several equally often."""
        if np.isnan(values).all():
            return float("nan")
        best = compute_ranks(values, "higher") == np.nanmin(compute_ranks(values, "higher"))
        return float(self.truth.max() - self.truth[best].mean())

    def by(self, metric: str, arbitrary: set[str]) -> int | None:
        """The row of a metric by name: the first variant that depends on no constant, with values for all if any."""
        mine = [r for r, row in enumerate(self.rows) if row[0] == metric and row[1] not in arbitrary]
        whole = [r for r in mine if not np.isnan(self.values[r]).any()]
        return next(iter(whole or [r for r in mine if (~np.isnan(self.values[r])).sum() >= 2]), None)


def trials(record: RunRecord, metrics: pd.DataFrame) -> list[Trial]:
    """What one run tells, by question, with and without the explainers that are made for the truth."""
    settings, questions, found = record.settings, record.questions, []
    some = metrics[metrics["rung"].isna() & ~metrics["control"].astype(bool)]
    for question in QUESTIONS:
        golds = [gold for gold in [*settings.gold, *questions] if gold in questions]
        asks = (question, "either")  # a truth of this very question before one that answers both
        gold = next((gold for ask in asks for gold in golds if questions[gold] == ask), None)
        if gold is None:
            continue
        true = some[(some["metric"] == settings.agreement) & (some["variant"] == gold) & some["value"].notna()]
        for circular in ("keep", "drop"):
            names = true.loc[~true["circular"].astype(bool) | (circular == "keep"), "explainer"].tolist()
            if len(names) < 2:
                continue
            judged = some[(some["role"] == "judged") & some["explainer"].isin(names)]
            sign = judged["better"].map({"higher": 1.0, "lower": -1.0})
            wide = judged.assign(value=judged["value"] * sign).pivot_table(
                index=["metric", "variant"], columns="explainer", values="value", dropna=False, sort=False
            )
            wide = wide.reindex(columns=names).dropna(how="all")
            truth = true.set_index("explainer")["value"].reindex(names).to_numpy(float)
            found.append(
                Trial(
                    record.data.name, record.model.name, settings.seed, settings.k,
                    question, circular, truth, wide.to_numpy(float),
                    [(str(metric), str(variant)) for metric, variant in wide.index],
                )
            )  # fmt: skip
    return found


def regrets(everyone: Sequence[Trial], rule: PreferredMetrics, arbitrary: set[str]) -> pd.DataFrame:
    """One row for each trial and strategy that has an answer."""
    rows = list(dict.fromkeys(row for trial in everyone for row in trial.rows))
    place = {row: at for at, row in enumerate(rows)}
    taus = np.full((len(everyone), len(rows)), np.nan)
    for i, trial in enumerate(everyone):
        taus[i, [place[row] for row in trial.rows]] = trial.taus
    asked = [(trial.k, trial.question, trial.circular) for trial in everyone]
    data, seeds, judges = (np.array([getattr(trial, name) for trial in everyone]) for name in ("data", "seed", "judge"))
    alike = {key: np.array([one == key for one in asked]) for key in dict.fromkeys(asked)}
    lines = []
    for trial, key in zip(everyone, asked, strict=True):
        here = data == trial.data
        # every strategy may use the same metrics: none of a variant that the rule may not use
        allowed = np.array([row[1] not in arbitrary for row in trial.rows])
        mine = [place[row] for row in trial.rows]
        others = np.where(allowed, taus[:, mine], np.nan)
        chosen: dict[str, int | None] = {
            "rule": next((r for m in rule.believed[trial.question] if (r := trial.by(m, arbitrary)) is not None), None),
            "same data": _right(others[alike[key] & here & (seeds == trial.seed) & (judges != trial.judge)]),
            "other data": _right(others[alike[key] & ~here]),
        }
        for entry in _METRICS:
            chosen[entry["metric"]] = trial.by(entry["metric"], arbitrary if entry["identifiable_only"] else set())
        told: dict[str, tuple[tuple[str, str], float]] = {
            name: (trial.rows[row], trial.regret(trial.values[row])) for name, row in chosen.items() if row is not None
        }
        whole = trial.values[allowed & ~np.isnan(trial.values).any(axis=1)]
        if len(whole):
            told["mean rank"] = ("", ""), trial.regret(-compute_ranks(whole, "higher").mean(axis=0))
        told["chance"] = ("", ""), float(trial.truth.max() - trial.truth.mean())
        about = (trial.data, trial.judge, trial.seed, trial.k, trial.question, trial.circular)
        lines += [(*about, name, *row, len(trial.truth), lost) for name, (row, lost) in told.items()]
    return pd.DataFrame(lines, columns=COLUMNS)


def _right(taus: Floats) -> int | None:
    """The metric of the highest mean τ (T, R) elsewhere; the first of equal ones, None if no τ is known."""
    known = ~np.isnan(taus)
    many = known.sum(axis=0)
    if not many.any():
        return None
    means = np.where(many > 0, np.where(known, taus, 0.0).sum(axis=0) / np.maximum(many, 1), -np.inf)
    return int(np.argmax(np.round(means, 12)))


def summary(lost: pd.DataFrame) -> pd.DataFrame:
    """The mean regret of each strategy and by how much it is more than the rule's, with 95 % intervals.

    t-intervals over data sets, of the means over their seeds; more than the rule's where both have an answer.
    """
    lines = []
    for asked, some in lost.groupby(["question", "k", "circular"], sort=False):
        cells = some.groupby(["data", "seed", "strategy"])["regret"].mean().unstack()
        for name in dict.fromkeys(some["strategy"]):
            mine = some[some["strategy"] == name]
            many = (len(mine), mine["data"].nunique(), mine["seed"].nunique())
            more = cells[name] - cells["rule"] if "rule" in cells else cells[name] * np.nan
            lines.append((*asked, name, *many, *_told(cells[name]), *_told(more)))
    return pd.DataFrame(lines, columns=SUMMARY)


def _told(cells: pd.Series) -> tuple[float, float, float]:
    """The mean over data sets of the mean over their seeds, with its t-interval over data sets.

    A percentile bootstrap of five data sets covers too little: 73 to 87 % instead of 95 %.
    """
    sets = cells.dropna().groupby(level="data", sort=False).mean().to_numpy(float)
    found = compute_t_interval(sets)
    return found.mean, found.low, found.high
