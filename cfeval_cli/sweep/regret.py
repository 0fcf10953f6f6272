"""Is the recommendation worth anything? Each judge plays the user's model with its truth hidden.

For each run of a judge, question and strategy: how much truth is lost by the explainer that the strategy chooses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.seeding import stream
from cfeval_cli.statistics.bootstrap import interval
from cfeval_cli.statistics.ranking import agreement, ranks
from cfeval_cli.statistics.recommendation import QUESTIONS, Rule
from cfeval_cli.types import Floats

STRATEGIES = {
    "rule": "(a) the rule",
    "same data": "(b) the metric that was right on other judges of the same data",
    "other data": "(c) the metric that was right on judges of other data",
    "comprehensiveness": "(d) always comprehensiveness",
    "c_soft": "(e) always C_soft, as the paper would",
    "mean rank": "(f) the mean rank over all metrics",
    "chance": "(g) chance",
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
SUMMARY = ["question", "k", "circular", "strategy", "runs", "data", "seeds", "regret", "low", "high"]
_DRAWS = 2000


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
                ours, true = ranks(values[there], "higher"), ranks(self.truth[there], "higher")
                found[r] = agreement(ours[None], true[None])[0][0, 0]
        return found

    def regret(self, values: Floats) -> float:
        """What is lost if the best by some values (E,) is chosen, each of several equally often."""
        if np.isnan(values).all():
            return float("nan")
        best = ranks(values, "higher") == np.nanmin(ranks(values, "higher"))
        return float(self.truth.max() - self.truth[best].mean())

    def by(self, metric: str, arbitrary: set[str]) -> int | None:
        """The row of a metric by name: the first variant that depends on no constant, with values for all if any."""
        mine = [r for r, row in enumerate(self.rows) if row[0] == metric and row[1] not in arbitrary]
        whole = [r for r in mine if not np.isnan(self.values[r]).any()]
        return next(iter(whole or [r for r in mine if (~np.isnan(self.values[r])).sum() >= 2]), None)


def trials(record: Mapping[str, Any], metrics: pd.DataFrame) -> list[Trial]:
    """What one run tells, by question, with and without the explainers that are made for the truth."""
    settings, facts, found = record["settings"], record["truths"], []
    some = metrics[metrics["rung"].isna() & ~metrics["control"].astype(bool)]
    for question in QUESTIONS:
        golds = [gold for gold in [*settings["gold"], *facts] if not facts.get(gold, {}).get("arbitrary")]
        asks = (question, "either")  # a truth of this very question before one that answers both
        gold = next((gold for ask in asks for gold in golds if facts.get(gold, {}).get("question") == ask), None)
        if gold is None:
            continue
        true = some[(some["metric"] == settings["agreement"]) & (some["variant"] == gold) & some["value"].notna()]
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
                    record["data"]["name"], record["model"]["name"], settings["seed"], settings["k"],
                    question, circular, truth, wide.to_numpy(float),
                    [(str(metric), str(variant)) for metric, variant in wide.index],
                )
            )  # fmt: skip
    return found


def regrets(everyone: Sequence[Trial], rule: Rule, arbitrary: set[str]) -> pd.DataFrame:
    """One row for each trial and strategy that has an answer."""
    taus = [dict(zip(trial.rows, trial.taus.tolist(), strict=True)) for trial in everyone]
    lines = []
    for trial in everyone:
        alike = [
            i for i, other in enumerate(everyone)
            if (other.k, other.question, other.circular) == (trial.k, trial.question, trial.circular)
        ]  # fmt: skip
        same = [
            i for i in alike
            if everyone[i].data == trial.data and everyone[i].seed == trial.seed and everyone[i].judge != trial.judge
        ]  # fmt: skip
        other = [i for i in alike if everyone[i].data != trial.data]
        chosen: dict[str, int | None] = {
            "rule": next((r for m in rule.believed[trial.question] if (r := trial.by(m, arbitrary)) is not None), None),
            "same data": _right([taus[i] for i in same], trial),
            "other data": _right([taus[i] for i in other], trial),
            "comprehensiveness": trial.by("comprehensiveness", arbitrary),
            "c_soft": trial.by("c_soft", set()),
        }
        told: dict[str, tuple[tuple[str, str], float]] = {
            name: (trial.rows[row], trial.regret(trial.values[row])) for name, row in chosen.items() if row is not None
        }
        whole = trial.values[~np.isnan(trial.values).any(axis=1)]
        if len(whole):
            told["mean rank"] = ("", ""), trial.regret(-ranks(whole, "higher").mean(axis=0))
        told["chance"] = ("", ""), float(trial.truth.max() - trial.truth.mean())
        key = (trial.data, trial.judge, trial.seed, trial.k, trial.question, trial.circular)
        lines += [(*key, name, *row, len(trial.truth), lost) for name, (row, lost) in told.items()]
    return pd.DataFrame(lines, columns=COLUMNS)


def _right(taus: Sequence[Mapping[tuple[str, str], float]], trial: Trial) -> int | None:
    """The metric with the highest mean τ elsewhere among those that the trial has; the first of equal ones."""
    means = []
    for row in trial.rows:
        known = [one[row] for one in taus if row in one and not np.isnan(one[row])]
        means.append(np.mean(known) if known else -np.inf)
    best = int(np.argmax(np.round(np.array(means, dtype=float), 12))) if means else -1
    return best if means and means[best] > -np.inf else None


def summary(lost: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """The mean regret of each strategy, with its 95 % interval over data sets and, within them, seeds."""
    lines = []
    for key, mine in lost.groupby(["question", "k", "circular", "strategy"], sort=False):
        cells = mine.groupby(["data", "seed"])["regret"].mean()
        sets = [cells.xs(name, level="data").to_numpy(float) for name in dict.fromkeys(mine["data"])]
        low, high = _spread(sets, seed)
        mean = float(np.mean([values.mean() for values in sets]))
        many = (len(mine), mine["data"].nunique(), mine["seed"].nunique())
        lines.append((*key, *many, mean, low, high))
    return pd.DataFrame(lines, columns=SUMMARY)


def _spread(sets: Sequence[Floats], seed: int) -> tuple[float, float]:
    """Of the mean over data sets of the mean over their seeds."""
    rng = stream(seed, "regret")
    means = []
    for _ in range(_DRAWS):
        some = rng.integers(0, len(sets), len(sets))
        means.append(np.mean([sets[i][rng.integers(0, len(sets[i]), len(sets[i]))].mean() for i in some]))
    low, high = interval(np.array(means), 0.95)
    return float(low), float(high)
