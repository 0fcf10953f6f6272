"""The regret of an answer: one half of the instances decides which explainer to use, the other half scores it.

The regret is the score of the best explainer on the other half less that of the chosen one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from cfeval_cli.core import Floats
from cfeval_cli.results.record import RunRecord
from cfeval_cli.seeding import make_stream
from cfeval_cli.statistics.best_explainer import SIGNIFICANCE_LEVEL
from cfeval_cli.statistics.bootstrap import MIN_INSTANCES
from cfeval_cli.statistics.recommendation import Answer, ReferenceSample
from cfeval_cli.statistics.student_t import compute_t_interval
from cfeval_cli.study.regret.sample import StoredQuestion

N_SPLITS = 20  # random halves of the instances of each run
STRATEGIES = {
    "best": "highest score (the answer)",
    "alternative": "non-inferior alternative, if there is one",
    "not worse": "cheapest not significantly worse",
    "metric": "metric-based ranking",
    "first": "first in the table",
    "chance": "chance",
}
_KEY = ["data", "model", "seed", "k", "question"]
COLUMNS = [*_KEY, "strategy", "explainers", "instances", "conclusive", "regret"]
SUMMARY = [
    "question", "k", "strategy", "runs", "data", "seeds", "conclusive", "regret", "low", "high", "more", "more_low",
    "more_high",
]  # fmt: skip


def compute_regrets(record: RunRecord, question: StoredQuestion) -> pd.DataFrame:
    """Return a row for each strategy: means over random halves; none for few instances or a single explainer."""
    names, size, settings = question.names, len(question.sample.importance), record.settings
    if len(names) < 2 or size < 2 * MIN_INSTANCES:
        return pd.DataFrame(columns=COLUMNS)
    regrets, is_conclusive = _resample(question)
    key = (record.data.name, record.model.name, settings.seed, settings.k, question.question)
    share = float(np.mean(is_conclusive))
    lines = [(*key, name, len(names), size, share, float(np.mean(values))) for name, values in regrets.items()]
    return pd.DataFrame(lines, columns=COLUMNS)


def _resample(question: StoredQuestion) -> tuple[dict[str, list[float]], list[bool]]:
    """Return the regret of each strategy, and whether the answer is conclusive, for each random half."""
    sample = replace(question.sample, ranks={name: question.sample.ranks[name] for name in question.names})
    size, k = len(sample.importance), question.recommendation.k
    regrets: dict[str, list[float]] = {}
    is_conclusive = []
    for split in range(N_SPLITS):
        order = make_stream(question.seed, "regret", split).permutation(size)
        answer = question.answer_again(sample.take(np.sort(order[: size // 2])))
        scores = compute_mean_scores(sample.take(np.sort(order[size // 2 :])), k)
        for strategy, selected in choose_explainers(answer, question).items():
            regret = max(scores.values()) - float(np.mean([scores[name] for name in selected]))
            regrets.setdefault(strategy, []).append(regret)
        is_conclusive.append(answer.is_conclusive)
    return regrets, is_conclusive


def compute_mean_scores(sample: ReferenceSample, k: int) -> dict[str, float]:
    """Return the mean recall of each explainer."""
    return {name: float(np.average(sample.compute_scores(name, k)[0], weights=sample.weights)) for name in sample.ranks}


def choose_explainers(answer: Answer, question: StoredQuestion) -> Mapping[str, Sequence[str]]:
    """Return which explainers each strategy chooses; of several, each is as likely."""
    facts, best = question.recommendation.explainers, str(answer.best)
    names = {score.explainer for score in answer.scores}
    alternative, is_proven = answer.alternative, answer.alternative is not None and answer.alternative.is_non_inferior
    worse = {pair.other for pair in answer.differences if pair.explainer == best and pair.p < SIGNIFICANCE_LEVEL}
    costs = {name: cost for name in names - worse if (cost := facts[name].evaluations) is not None}
    by_metric = [check.first for check in question.stored.checks if check.source == "metric"]
    selections = {
        "best": [best],
        "alternative": [alternative.explainer if alternative is not None and is_proven else best],
        "not worse": [min(costs, key=lambda name: (costs[name], name)) if facts[best].evaluations else best],
        "metric": sorted(by_metric[0]) if by_metric else [],
        "first": question.names[:1],
        "chance": sorted(names),
    }
    return {name: selected for name, selected in selections.items() if selected}


def summarise_regrets(regrets: pd.DataFrame) -> pd.DataFrame:
    """Return the mean regret of each strategy, and its difference to naming the best, with 95 % t-intervals.

    The units are data sets, each with the mean over its runs. The difference is over runs in which both apply.
    """
    lines = []
    for task, rows in regrets.groupby(["question", "k"], sort=False):
        by_run = rows.groupby(["data", "seed", "model", "strategy"])["regret"].mean().unstack()
        for name in dict.fromkeys(rows["strategy"]):
            of_strategy = rows[rows["strategy"] == name]
            counts = (len(of_strategy), of_strategy["data"].nunique(), of_strategy["seed"].nunique())
            estimates = _average_data_sets(by_run[name]), _average_data_sets(by_run[name] - by_run["best"])
            lines.append((*task, name, *counts, of_strategy["conclusive"].mean(), *estimates[0], *estimates[1]))
    return pd.DataFrame(lines, columns=SUMMARY)


def _average_data_sets(by_run: pd.Series) -> tuple[float, float, float]:
    """Return the mean over data sets of the means over their runs, with its t-interval.

    A percentile bootstrap of five data sets covers too little: 73 to 87 % instead of 95 %.
    """
    means: Floats = by_run.dropna().groupby(level="data", sort=False).mean().to_numpy(float)
    result = compute_t_interval(means)
    return result.mean, result.low, result.high
