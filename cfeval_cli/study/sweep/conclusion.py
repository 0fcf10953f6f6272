"""The conclusion of a sweep, in words."""

from __future__ import annotations

from collections.abc import Mapping
from math import factorial

import pandas as pd

from cfeval_cli.errors import escape_controls
from cfeval_cli.report.titles import Pair, make_metric_title, name_truths
from cfeval_cli.report.wording import join_names
from cfeval_cli.study.sweep.runs import (
    Sweep,
    collect_taus_without_controls,
    list_ranked_explainers,
    merge_records,
    select_largest_ranking,
)
from cfeval_cli.study.sweep.seed_conclusion import Conclusion, conclude_by_question
from cfeval_cli.study.words import join_first_names, write_count

_MAX_FEW_EXPLAINERS = 5  # up to this number, a random order agrees fully with the truth with a notable probability
_TIE = 1e-9  # a difference of τ below which two metrics are equal


def write_conclusion(sweep: Sweep, correlations: pd.DataFrame) -> Conclusion:
    """Write what the runs show: tests over seeds by group; over settings only the highest mean τ.

    `correlations` are the rows of seeds_correlations.csv.
    """
    taus = collect_taus_without_controls(sweep)
    if taus.empty:
        reason = "No run ranks four explainers that are not controls by a metric and by a ground truth."
        return Conclusion("Inconclusive: no metric was compared with a ground truth", [reason])
    names = name_leading_truths(sweep, taus)
    groups = {values: runs for values, runs in sweep.groups.items() if len(runs) > 1}
    tests = {
        values: conclude_by_question(sweep.select_group(correlations, values), runs, merge_records(runs))
        for values, runs in groups.items()
    }
    has_one_group = len(sweep.groups) == 1 and any(tests.values())
    if has_one_group:
        by_question = next(iter(tests.values()))
    else:
        by_question = {name: _compare_means(sweep, taus[taus["truth"] == truth]) for truth, name in names.items()}
    points = [] if has_one_group else _list_group_conclusions(sweep, tests)
    points += _describe_explainers(taus)
    points.append(
        "Seeds are independent repetitions on the same data: the tests are about other seeds, not about other data. "
        "Runs with different settings share data, models or explainers; they are not tested against each other."
        if tests
        else "There is one seed for each setting, so nothing is tested over trained models. Runs that share data, "
        "models or explainers are no independent repetitions. The report of each run has its p-values."
    )
    return _merge_conclusions(by_question, points)


def _merge_conclusions(by_question: Mapping[str, Conclusion], points: list[str]) -> Conclusion:
    if len(by_question) == 1:
        (conclusion,) = by_question.values()
        return Conclusion(conclusion.headline[:1].upper() + conclusion.headline[1:], [*conclusion.points, *points])
    titled = {name.capitalize(): conclusion for name, conclusion in by_question.items()}
    headline = ". ".join(f"{name}: {conclusion.headline}" for name, conclusion in titled.items())
    questions = [f"{name}: {point}" for name, conclusion in titled.items() for point in conclusion.points]
    return Conclusion(headline, [*questions, *points])


def _list_group_conclusions(sweep: Sweep, tests: Mapping[tuple[str, ...], Mapping[str, Conclusion]]) -> list[str]:
    return [
        f"{sweep.describe_group(values)}, {name}: {conclusion.headline}."
        for values, by_question in tests.items() for name, conclusion in by_question.items()
    ]  # fmt: skip


def _describe_explainers(taus: pd.DataFrame) -> list[str]:
    """Describe over how many explainers τ is computed, and what few explainers imply."""
    counts = taus.loc[taus["family"] == "explainers", "explainers"].astype(int)
    if counts.empty:
        return []
    low, high = int(counts.min()), int(counts.max())
    points = [f"τ is computed without controls, over {low if low == high else f'{low} to {high}'} explainers."]
    if low != high:
        points.append("Values of τ over different numbers of explainers are not comparable.")
    if high <= _MAX_FEW_EXPLAINERS:
        points.append(
            f"{high} explainers have only {factorial(high):,} orderings: a random one agrees fully with the ground "
            f"truth with probability {1 / factorial(high):.3f}, so that a high τ is weak evidence."
        )
    return points


def name_leading_truths(sweep: Sweep, taus: pd.DataFrame) -> dict[str, str]:
    """Return the leading truths of the runs with the names of their questions."""
    names: dict[str, str] = {}
    for run in sweep.runs:
        names = {**name_truths(run.record.settings.truth, run.record), **names}
    return {truth: names.get(truth, truth) for truth in dict.fromkeys(taus["truth"])}


def _compare_means(sweep: Sweep, taus: pd.DataFrame) -> Conclusion:
    """Return which metrics have the highest mean τ with one truth over all runs."""
    record, n_runs = merge_records(sweep.runs), taus["run"].nunique()
    highest = taus.groupby("run")["tau"].transform("max")
    by_metric = taus.assign(is_best=taus["tau"] >= highest - _TIE).groupby(["metric", "variant"], sort=False)
    means = by_metric.agg(
        mean=("tau", "mean"), low=("tau", "min"), high=("tau", "max"), best=("is_best", "sum"), n=("tau", "size")
    )
    means = means[means["n"] == n_runs] if (means["n"] == n_runs).any() else means
    runs = [sweep.runs[number] for number in dict.fromkeys(taus["run"])]
    rankings = list_ranked_explainers(runs, str(taus["truth"].iloc[0]), means.index, controls=False)
    largest = select_largest_ranking(rankings)
    # τ over other explainers is another quantity
    means = means[[ranking == largest for ranking in rankings]]
    means = means.sort_values(["mean", "best"], ascending=False, kind="stable")
    pairs: list[Pair] = list(means.index)
    names = [escape_controls(make_metric_title(*pair, record).plain) for pair in pairs]
    top = means.iloc[0]
    is_first = (means["mean"] - top["mean"]).abs() < _TIE
    tied = [name for name, is_top in zip(names, is_first, strict=True) if is_top]
    verb = "has" if len(tied) == 1 else "have"
    headline = f"{join_first_names(tied, 3)} {verb} the highest mean τ over {write_count(n_runs, 'run')}"
    points = [
        f"Mean τ {top['mean']:.3f}, from {top['low']:.3f} to {top['high']:.3f}; the highest τ of all metrics (ties "
        f"included) in {int(top['best'])} of {n_runs} runs.",
    ]
    if len(means) > len(tied):
        second = means.iloc[len(tied)]
        is_second = (means["mean"] - second["mean"]).abs() < _TIE
        next_names = [name for name, is_next in zip(names, is_second, strict=True) if is_next]
        points.append(f"Next: {join_names(next_names)}, mean τ {second['mean']:.3f}.")
    return Conclusion(headline, points)
