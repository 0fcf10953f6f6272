"""What the runs of a sweep say together, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import factorial

import pandas as pd

from cfeval_cli.errors import escape_controls
from cfeval_cli.report.titles import make_metric_title, name_truths
from cfeval_cli.report.wording import join_names
from cfeval_cli.statistics.correlation import GRADED
from cfeval_cli.statistics.subsets import WITHOUT_CONTROLS
from cfeval_cli.study.sweep.runs import Sweep, most_ranked, ranked_alike, taus
from cfeval_cli.study.sweep.tables import merged, of_group
from cfeval_cli.study.sweep.verdict import by_question

_Pair = tuple[str, str]  # metric and variant


@dataclass(frozen=True)
class Answer:
    """A headline and what is to be said below it."""

    headline: str
    points: Sequence[str]


def contended(sweep: Sweep) -> pd.DataFrame:
    """For each run and metric, τ without controls, or on a ladder, which has none."""
    rows = taus(sweep)
    return rows[(rows["family"] == GRADED) | (rows["subset"] == WITHOUT_CONTROLS)].dropna(subset="tau")


_FEW = 5  # explainers, of which a random order may well be the right one


def say(sweep: Sweep, seeds: pd.DataFrame) -> Answer:
    """What the seeds say together, setting by setting; over settings only which metric is closest on average.

    `seeds` are the lines of seeds_correlations.csv.
    """
    told = contended(sweep)
    if told.empty:
        reason = "No run has correlations with a truth over two explainers that are no controls."
        return Answer("These runs cannot tell which metric agrees with the truth", [reason])
    names = asked(sweep, told)
    groups = {values: runs for values, runs in sweep.groups.items() if len(runs) > 1}
    tests = {values: by_question(of_group(sweep, seeds, values), runs, merged(runs)) for values, runs in groups.items()}
    alone = len(sweep.groups) == 1 and any(tests.values())
    parts = next(iter(tests.values())) if alone else {}
    parts = parts or {name: _closest(sweep, told[told["gold"] == gold]) for gold, name in names.items()}
    if len(parts) == 1:
        headline, points = next(iter(parts.values()))
        headline = headline[:1].upper() + headline[1:]
    else:
        headline = ". ".join(f"{name.capitalize()}: {one}" for name, (one, _) in parts.items())
        points = [f"{name.capitalize()}: {point}" for name, (_, more) in parts.items() for point in more]
    if not alone:
        for values, questions in tests.items():
            where = ", ".join(f"{key}={value}" for key, value in zip(sweep.keys, values, strict=True))
            points += [f"{where}, {name}: {one}." for name, (one, _) in questions.items()]
    ranked = told.loc[told["family"] == "explainers", "explainers"].astype(int)
    least, most = (int(ranked.min()), int(ranked.max())) if len(ranked) else (_FEW + 1, _FEW + 1)
    if len(ranked):
        some = str(least) if least == most else f"{least} to {most}"
        points.append(f"τ is taken without controls, over {some} explainers.")
    if least != most:
        points.append("With more or fewer explainers τ does not mean the same.")
    if most <= _FEW:
        points.append(
            f"{most} explainers have only {factorial(most):,} orders: a random one agrees fully with the truth with "
            f"probability {1 / factorial(most):.3f}, so that a large τ says little."
        )
    points.append(
        "Seeds are independent repetitions on the same data: what is said of them speaks of other seeds, not of other "
        "data. No test is made over runs that differ in a setting, which share data, models or explainers."
        if tests
        else "With one seed of each setting nothing can be said of other trained models; runs that share data, models "
        "or explainers are no independent repetitions, and no test is made of them. Each run's own report has its "
        "p-values."
    )
    return Answer(headline, points)


def asked(sweep: Sweep, told: pd.DataFrame) -> dict[str, str]:
    """The truths that runs lead with, by what they ask."""
    golds: dict[str, str] = {}
    for run in sweep.runs:
        golds = {**name_truths(run.record.settings.gold, run.record), **golds}
    known = dict.fromkeys(told["gold"])
    return {gold: golds.get(gold, gold) for gold in known}


def _closest(sweep: Sweep, told: pd.DataFrame) -> tuple[str, list[str]]:
    """Which metric is closest to one truth on average."""
    record, many = merged(sweep.runs), told["run"].nunique()
    best = told.groupby("run")["tau"].transform("max")
    by = told.assign(best=told["tau"] >= best - 1e-9).groupby(["metric", "variant"], sort=False)
    found = by.agg(
        mean=("tau", "mean"), low=("tau", "min"), high=("tau", "max"), best=("best", "sum"), n=("tau", "size")
    )
    found = found[found["n"] == many] if (found["n"] == many).any() else found  # of those that all runs have
    runs = [sweep.runs[number] for number in dict.fromkeys(told["run"])]
    who = ranked_alike(runs, str(told["gold"].iloc[0]), found.index, controls=False)
    found = found[[one == most_ranked(who) for one in who]]  # a τ over other explainers is another figure
    found = found.sort_values(["mean", "best"], ascending=False, kind="stable")
    pairs: list[_Pair] = list(found.index)
    names = [escape_controls(make_metric_title(*pair, record).plain) for pair in pairs]
    top = found.iloc[0]
    alike = [name for name, mean in zip(names, found["mean"], strict=True) if abs(mean - top["mean"]) < 1e-9]
    verb = "agrees" if len(alike) == 1 else "agree"
    more = [f"{len(alike) - 3} more"] if len(alike) > 4 else alike[3:]
    headline = (
        f"{join_names([*alike[:3], *more])} {verb} best with the truth on average over {many} run{'s' * (many != 1)}"
    )
    points = [
        f"Mean τ {top['mean']:.3f}, from {top['low']:.3f} to {top['high']:.3f}; the largest τ of all metrics (ties "
        f"included) in {int(top['best'])} of {many} runs.",
    ]
    if len(found) > len(alike):
        after = found.iloc[len(alike)]
        next_ = [name for name, mean in zip(names, found["mean"], strict=True) if abs(mean - after["mean"]) < 1e-9]
        points.append(f"Next: {join_names(next_)}, mean τ {after['mean']:.3f}.")
    return headline, points
