"""The best and the worst score that any explanation of size k could get, and what the best one names.

All sets of k features are tried where that is feasible; beyond, sets grow greedily by one feature.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import perm

import numpy as np
import pandas as pd

from cfeval_cli.core import ABSENT, Bools, Codes, Floats, Ints, Metric, MetricInput, Score, SupportsEdits
from cfeval_cli.core.ranking import count_shared_features
from cfeval_cli.pipeline.context import RunContext
from cfeval_cli.pipeline.score import create_metric_input, evaluate_metric
from cfeval_cli.pipeline.search import search_counterfactuals
from cfeval_cli.seeding import make_stream
from cfeval_cli.statistics.scores import MetricKey, Scores

COLUMNS = ["metric", "variant", "better", "method", "instances", "sets", "worst", "best", "optima", "telling"]
_ENDS = ("", "_telling")  # of columns: over all instances, and over those that tell sets apart

_CHUNK = 1 << 14  # sets put before search and metrics at once
_MOST = 1 << 19  # sets in all; beyond, fewer instances are tried
_ROWS = 1 << 23  # rows put before a model that evaluates edits cheaply; an eighth of that before others
_DRAWN = 300  # rows that a set takes where removal draws
_GREEDY = 200  # instances at most for which sets are grown: every metric grows its own
_SAME = 1e-12  # scores that differ by no more are equally good


@dataclass(frozen=True)
class Goal:
    """A metric's variant, of which the extremes are wanted."""

    row: MetricKey
    better: str


@dataclass(frozen=True)
class Pool:
    """Sets of features, several for each instance, and what they score."""

    member: Ints  # (m,) which instance, ascending
    features: Ints  # (m, k)
    scores: Mapping[Goal, tuple[Floats, Floats]]  # numerator and denominator (m,); NaN where a metric says nothing
    truth_shares: Mapping[str, Floats]  # (m,) the share of the reference features that a set has, by truth

    def sets(self, some: Bools | slice = slice(None)) -> int:
        """How many different sets there are among some, whatever the order of their features."""
        return len(np.unique(np.column_stack([self.member[some], np.sort(self.features[some], axis=1)]), axis=0))

    def scored(self, goal: Goal) -> Bools:
        """The sets (m,) of which a metric says something."""
        return ~np.isnan(self.scores[goal][1])

    def best(self, goal: Goal, instances: Bools, *, worst: bool = False) -> tuple[float, Bools]:
        """The extreme value over some instances (N,), and the sets (m,) that reach it.

        A ratio of sums is not the best where every part is. Dinkelbach: with λ the ratio so far, take for each instance
        the set with the largest n - λd, and begin again with the ratio of those, until it does not grow.
        """
        numerator, denominator = self.scores[goal]
        sign = 1.0 if (goal.better == "higher") != worst else -1.0
        mine = np.flatnonzero(instances[self.member] & self.scored(goal))
        chosen = np.zeros(len(self.member), dtype=bool)
        if not len(mine):
            return np.nan, chosen
        n, d = sign * numerator[mine], denominator[mine]
        starts = np.flatnonzero(np.diff(self.member[mine], prepend=-1))
        sizes = np.diff([*starts, len(mine)])
        good = d >= np.repeat(np.maximum.reduceat(d, starts), sizes)  # to begin with: sets that have a distance
        ratio = -np.inf
        while True:
            one = _firsts(good, starts)
            below = d[one].sum()
            value = n[one].sum() / below if below else np.nan
            if not value > ratio + _SAME * max(1.0, abs(value)):
                break
            ratio = float(value)
            gain = n - ratio * d
            top = np.repeat(np.maximum.reduceat(gain, starts), sizes)
            good = gain >= top - _SAME * np.maximum(1.0, np.abs(top))
        if ratio == -np.inf:
            return np.nan, chosen
        chosen[mine] = good
        return sign * ratio + 0.0, chosen  # no -0

    def telling(self, goal: Goal, optima: Bools) -> Bools:
        """The instances (N,) that tell sets apart: those with a set that is not among the best (m,)."""
        return np.bincount(self.member, self.scored(goal) & ~optima) > 0

    def truth_shares_of(self, optima: Bools) -> dict[str, float]:
        """The share of the reference features in some sets (m,); of several sets of an instance, all count the same."""
        member = self.member[optima]
        weight = 1.0 / np.bincount(member)[member]
        return {name: _weighted(shares[optima], weight) for name, shares in self.truth_shares.items()}


def _weighted(values: Floats, weights: Floats) -> float:
    """The weighted mean of the values that are known."""
    known = ~np.isnan(values)
    total = weights[known].sum()
    return float((values[known] * weights[known]).sum() / total) if total else np.nan


def _firsts(chosen: Bools, starts: Ints) -> Ints:
    """The first chosen set of each instance."""
    places = np.flatnonzero(chosen)
    return places[np.searchsorted(places, starts)]


@dataclass(frozen=True)
class FeatureSetBounds:
    """Extremes of every metric on some of the instances."""

    pool: Pool
    goals: list[Goal]
    instances: Ints  # (n,) their places among all instances
    exact: bool  # were all sets tried?

    def tabulate(self) -> pd.DataFrame:
        """Rows of bounds.csv."""
        everyone = np.ones(len(self.instances), dtype=bool)
        lines, whole = [], self.pool.sets()
        for goal in self.goals:
            worst, _ = self.pool.best(goal, everyone, worst=True)
            best, optima = self.pool.best(goal, everyone)
            if np.isnan(best):
                continue
            telling, scored = self.pool.telling(goal, optima), self.pool.scored(goal)
            many = len(np.unique(self.pool.member[scored]))
            apart = optima & telling[self.pool.member]
            lines.append(
                {
                    "metric": goal.row[0], "variant": goal.row[1], "better": goal.better,
                    "method": "enumerated" if self.exact else "greedy", "instances": many,
                    "sets": whole if scored.all() else self.pool.sets(scored), "worst": worst, "best": best,
                    "optima": self.pool.sets(optima) / many, "telling": int(telling.sum()),
                    **{f"truth_{name}": of for name, of in self.pool.truth_shares_of(optima).items()},
                    **{f"truth_{name}_telling": of for name, of in self.pool.truth_shares_of(apart).items()},
                }
            )  # fmt: skip
        return pd.DataFrame(
            lines, columns=[*COLUMNS, *(f"truth_{name}{end}" for end in _ENDS for name in self.pool.truth_shares)]
        )

    def compute_places(self, scores: Scores, metrics: pd.DataFrame) -> list[float]:
        """For each row of the summary, how far its value lies from the worst (0) to the best (1).

        Both are those of the instances that the explainer was scored on.
        """
        goals = {goal.row: goal for goal in self.goals}
        known: dict[tuple[Goal, bytes], tuple[float, float]] = {}
        places = []
        for line in metrics.itertuples():
            row, part = (str(line.metric), str(line.variant)), None
            if row in goals:
                part = scores.series.get((row, str(line.explainer)))
            if part is None or not part.n_counted:
                places.append(np.nan)
                continue
            numerator, denominator, scored = part.select_counted()
            there = np.isin(self.instances, scored)
            at = np.searchsorted(scored, self.instances[there])
            below = denominator[at].sum()
            value = numerator[at].sum() / below if below else np.nan
            key = (goals[row], there.tobytes())
            if key not in known:
                known[key] = (self.pool.best(key[0], there, worst=True)[0], self.pool.best(key[0], there)[0])
            worst, best = known[key]
            apart = abs(best - worst) > _SAME * max(1.0, abs(best))
            places.append(float((value - worst) / (best - worst)) + 0.0 if apart else np.nan)  # no -0
            scores.scratch.release()
        return places


def bounded(metric: Metric) -> bool:
    """Whether it is a function of the k features, of which all sets can be tried."""
    return metric.better != "none" and metric.needs in ("set", "counterfactual")


def compute_bounds(
    context: RunContext, truth: Mapping[str, Floats], advance: Callable[[int], None]
) -> FeatureSetBounds:
    """Try all sets of k features, or as many as is feasible."""
    plan, everyone = context.plan, context.instances
    exact = min(plan.settings.k, 1 if context.dataset.padded else 2)
    some = _sample(context, exact)
    codes = everyone.codes[some]
    trial = _Trial(context, some, {name: importance[some] for name, importance in truth.items()}, advance)
    member, features = np.arange(len(some)), np.zeros((len(some), 0), dtype=np.int64)
    pool = None
    for size in range(1, plan.settings.k + 1):
        member, features = _extended(codes, member, features)
        if size < exact:
            continue
        pool = trial.evaluate(member, features)
        if size < plan.settings.k:
            member, features = _kept(pool, len(some))
    if pool is None:
        raise ValueError("k is at least 1")
    return FeatureSetBounds(pool, list(pool.scores), some, exact == plan.settings.k)


def _sample(context: RunContext, exact: int) -> Ints:
    """The instances to try: all that have k features, or a seeded sample of them."""
    plan = context.plan
    present = (context.instances.codes != ABSENT).sum(axis=1)
    able = np.flatnonzero(present >= plan.settings.k)
    sets = max(1, perm(int(present.max(initial=1)), exact))
    most = min(plan.settings.bounds, max(1, _MOST // sets))
    if any(way.replacement is not None and way.replacement.value is None for way in context.removals.values()):
        rows = _ROWS if context.spec.supports(SupportsEdits) else _ROWS // 8
        most = min(most, max(1, rows // (sets * _DRAWN)))
    if plan.settings.k > exact:
        most = min(most, _GREEDY)
    if len(able) <= most:
        return able
    return np.sort(make_stream(plan.settings.seed, "bounds").choice(able, most, replace=False))


def _extended(codes: Codes, member: Ints, features: Ints) -> tuple[Ints, Ints]:
    """Every set with one more of its instance's features; the order of features counts, since it may for a search."""
    free = codes[member] != ABSENT
    np.put_along_axis(free, features, False, axis=1)
    rows, more = np.nonzero(free)
    grown = np.column_stack([member[rows], features[rows], more])
    if features.shape[1]:
        grown = np.unique(grown, axis=0)  # sets of several goals can meet
    return grown[:, 0], grown[:, 1:]


def _kept(pool: Pool, size: int) -> tuple[Ints, Ints]:
    """The sets that are best or worst for some metric: what a greedy search goes on with."""
    everyone = np.ones(size, dtype=bool)
    keep = np.zeros(len(pool.member), dtype=bool)
    for goal in pool.scores:
        for worst in (False, True):
            _, chosen = pool.best(goal, everyone, worst=worst)
            places = np.flatnonzero(chosen)
            keep[places[np.unique(pool.member[places], return_index=True)[1]]] = True  # the first of each instance
    return pool.member[keep], pool.features[keep]


def _everywhere(score: Score, size: int) -> tuple[Floats, Floats]:
    """Numerator and denominator of all sets: NaN where there is no score, as with a truth that is not known."""
    if score.positions is None:
        return score.numerator, score.denominator
    numerator, denominator = np.full((2, size), np.nan)
    numerator[score.positions], denominator[score.positions] = score.numerator, score.denominator
    return numerator, denominator


@dataclass(frozen=True)
class _Trial:
    """Search and metrics, ready to be given sets of features."""

    context: RunContext
    instances: Ints
    truth: Mapping[str, Floats]
    advance: Callable[[int], None]

    def evaluate(self, member: Ints, features: Ints) -> Pool:
        """What each set scores, chunk by chunk."""
        plan = self.context.plan
        parts: dict[Goal, list[tuple[Floats, Floats]]] = {}
        truth_shares: dict[str, list[Floats]] = {name: [] for name in self.truth}
        for start in range(0, len(member), _CHUNK):
            some = slice(start, start + _CHUNK)
            case = self._case(member[some], features[some])
            for metric in (metric for metric in plan.metrics.values() if bounded(metric)):
                scored = evaluate_metric(self.context, case, metric, "bounds")
                for score in (score for score in scored if isinstance(score, Score)):
                    goal = Goal((metric.name, score.variant), metric.better)
                    parts.setdefault(goal, []).append(_everywhere(score, len(case)))
            for name, kept in truth_shares.items():
                unknown = np.isnan(case.truth[name]).any(axis=1)
                kept.append(np.where(unknown, np.nan, count_shared_features(case, name) / features.shape[1]))
            self.advance(len(member[some]))
        scores = {
            goal: (np.concatenate([n for n, _ in some]), np.concatenate([d for _, d in some]))
            for goal, some in parts.items()
        }
        return Pool(member, features, scores, {name: np.concatenate(kept) for name, kept in truth_shares.items()})

    def _case(self, member: Ints, features: Ints) -> MetricInput:
        rows = self.context.rows.take(self.instances[member])
        edits = search_counterfactuals(self.context, rows, features, "bounds", lambda _: None, use_cache=False)
        truth = {name: importance[member] for name, importance in self.truth.items()}
        return create_metric_input(self.context, rows, features, np.ones(len(rows), dtype=bool), edits, truth)
