"""The best and the worst value of each metric that explanations with k features can have, and their best feature sets.

All sets of k features are enumerated where that is feasible; beyond, sets grow greedily by one feature.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import perm

import numpy as np
import pandas as pd

from cfeval_cli.core import (
    ABSENT,
    Bools,
    Codes,
    Floats,
    Ints,
    Ledger,
    LedgerKey,
    Metric,
    MetricInput,
    Score,
    SupportsEdits,
)
from cfeval_cli.core.explanation import mark_selected
from cfeval_cli.core.ranking import count_shared_features
from cfeval_cli.pipeline.context import RunContext
from cfeval_cli.pipeline.score import create_metric_input, evaluate_metric
from cfeval_cli.pipeline.search import search_counterfactuals
from cfeval_cli.seeding import make_stream
from cfeval_cli.statistics.bootstrap import MIN_INSTANCES
from cfeval_cli.statistics.scores import MetricKey, Scores

COLUMNS = ["metric", "variant", "better", "method", "instances", "sets", "worst", "best", "optima", "informative"]
TRUTH_COLUMNS = ["metric", "variant", "truth", "share", "share_informative"]

_MAX_SETS_PER_CALL = 1 << 14  # of search and metrics
_MAX_SETS = 1 << 19  # in total; beyond, fewer instances are enumerated
_MAX_ROWS = 1 << 23  # of a model that evaluates edits cheaply; an eighth of that for others
_ROWS_PER_DRAWN_SET = 300  # where removal draws replacements
_MAX_GREEDY_INSTANCES = 200  # each metric grows its own sets
_TOLERANCE = 1e-12  # for rounding: values that differ by no more are equally good


@dataclass(frozen=True)
class Objective:
    """A metric and variant with its extremes."""

    metric: MetricKey
    better: str


@dataclass(frozen=True)
class ScoredSets:
    """Feature sets, several for each instance, and their scores."""

    owner: Ints  # (m,) the instance of each set, ascending
    features: Ints  # (m, k)
    scores: Mapping[Objective, tuple[Floats, Floats]]  # numerator and denominator (m,); NaN without a score
    truth_shares: Mapping[str, Floats]  # (m,) by truth: the share of the reference features that a set has

    def count_sets(self, selection: Bools | slice = slice(None)) -> int:
        """Return how many different sets there are, whatever the order of their features."""
        owner, features = self.owner[selection], np.sort(self.features[selection], axis=1)
        return len(np.unique(np.column_stack([owner, features]), axis=0))

    def has_score(self, objective: Objective) -> Bools:
        """Return whether each set (m,) has a score."""
        return ~np.isnan(self.scores[objective][1])

    def find_extreme(self, objective: Objective, instances: Bools, *, worst: bool = False) -> tuple[float, Bools]:
        """Return the extreme value over some instances (N,), and whether each set (m,) reaches it.

        The best ratio of sums does not consist of the best ratios. Dinkelbach's algorithm: for the current ratio λ,
        take the set of each instance with the largest n - λd; repeat with the ratio of these until it does not grow.
        """
        numerator, denominator = self.scores[objective]
        sign = 1.0 if (objective.better == "higher") != worst else -1.0
        positions = np.flatnonzero(instances[self.owner] & self.has_score(objective))
        is_optimal = np.zeros(len(self.owner), dtype=bool)
        if not len(positions):
            return np.nan, is_optimal
        n, d = sign * numerator[positions], denominator[positions]
        starts = np.flatnonzero(np.diff(self.owner[positions], prepend=-1))
        sizes = np.diff([*starts, len(positions)])
        is_candidate = d >= np.repeat(np.maximum.reduceat(d, starts), sizes)  # first the sets with a distance
        ratio = -np.inf
        while True:
            first = _find_first(is_candidate, starts)
            total = d[first].sum()
            value = n[first].sum() / total if total else np.nan
            if not value > ratio + _TOLERANCE * max(1.0, abs(value)):
                break
            ratio = float(value)
            gain = n - ratio * d
            largest = np.repeat(np.maximum.reduceat(gain, starts), sizes)
            is_candidate = gain >= largest - _TOLERANCE * np.maximum(1.0, np.abs(largest))
        if ratio == -np.inf:
            return np.nan, is_optimal
        is_optimal[positions] = is_candidate
        return sign * ratio + 0.0, is_optimal  # turns -0 into 0

    def find_informative(self, objective: Objective, is_optimal: Bools) -> Bools:
        """Return whether the sets of each instance (N,) differ in value: one of them is not optimal (m,)."""
        return np.bincount(self.owner, self.has_score(objective) & ~is_optimal) > 0

    def average_truth_shares(self, is_selected: Bools) -> dict[str, float]:
        """Return the mean share of reference features in some sets (m,), with the same weight for each instance."""
        owner = self.owner[is_selected]
        weight = 1.0 / np.bincount(owner)[owner]
        return {name: _compute_weighted_mean(shares[is_selected], weight) for name, shares in self.truth_shares.items()}


def _compute_weighted_mean(values: Floats, weights: Floats) -> float:
    """Return the weighted mean of the values that are not NaN."""
    is_defined = ~np.isnan(values)
    total = weights[is_defined].sum()
    return float((values[is_defined] * weights[is_defined]).sum() / total) if total else np.nan


def _find_first(is_candidate: Bools, starts: Ints) -> Ints:
    """Return the first candidate of each instance; its sets begin at `starts`."""
    candidates = np.flatnonzero(is_candidate)
    return candidates[np.searchsorted(candidates, starts)]


@dataclass(frozen=True)
class FeatureSetBounds:
    """The extremes of each metric on some of the instances."""

    sets: ScoredSets
    instances: Ints  # (n,) positions among all instances
    is_exact: bool  # all sets were enumerated

    @cached_property
    def _best_sets(self) -> dict[Objective, tuple[float, Bools]]:
        """The best value of each metric that has one, and whether each set (m,) reaches it."""
        all_instances = np.ones(len(self.instances), dtype=bool)
        best_sets = {objective: self.sets.find_extreme(objective, all_instances) for objective in self.sets.scores}
        return {objective: (best, is_best) for objective, (best, is_best) in best_sets.items() if not np.isnan(best)}

    def tabulate(self) -> pd.DataFrame:
        """Return bounds.csv."""
        lines, n_sets = [], self.sets.count_sets()
        all_instances = np.ones(len(self.instances), dtype=bool)
        for objective, (best, is_optimal) in self._best_sets.items():
            worst, _ = self.sets.find_extreme(objective, all_instances, worst=True)
            is_informative, has_score = (
                self.sets.find_informative(objective, is_optimal),
                self.sets.has_score(objective),
            )
            n_instances = len(np.unique(self.sets.owner[has_score]))
            lines.append(
                {
                    "metric": objective.metric[0], "variant": objective.metric[1], "better": objective.better,
                    "method": "enumerated" if self.is_exact else "greedy", "instances": n_instances,
                    "sets": n_sets if has_score.all() else self.sets.count_sets(has_score),
                    "worst": worst, "best": best, "optima": self.sets.count_sets(is_optimal) / n_instances,
                    "informative": int(is_informative.sum()),
                }
            )  # fmt: skip
        return pd.DataFrame(lines, columns=COLUMNS)

    def tabulate_truth(self) -> pd.DataFrame:
        """Return bounds_truth.csv."""
        lines = []
        for objective, (_, is_optimal) in self._best_sets.items():
            is_informative = self.sets.find_informative(objective, is_optimal)
            shares = self.sets.average_truth_shares(is_optimal)
            shares_informative = self.sets.average_truth_shares(is_optimal & is_informative[self.sets.owner])
            lines += [(*objective.metric, truth, shares[truth], shares_informative[truth]) for truth in shares]
        return pd.DataFrame(lines, columns=TRUTH_COLUMNS)

    def measure_circularity(self) -> dict[tuple[str, str, str], float]:
        """Return the share of a truth's top k features in the best sets of a metric, by metric, variant and truth.

        It is the mean over instances whose sets differ in value, where all sets were scored for enough of these.
        """
        measured = {}
        for objective, (_, is_optimal) in self._best_sets.items() if self.is_exact else ():
            is_informative = self.sets.find_informative(objective, is_optimal)
            is_selected = is_optimal & is_informative[self.sets.owner]
            for truth, share in self.sets.average_truth_shares(is_selected).items():
                has_truth = ~np.isnan(self.sets.truth_shares[truth])
                if len(np.unique(self.sets.owner[is_selected & has_truth])) >= MIN_INSTANCES:
                    measured[*objective.metric, truth] = share
        return measured

    def compute_normalised(self, scores: Scores, metrics: pd.DataFrame) -> list[float]:
        """Return for each row of the summary where its value lies between the worst (0) and the best (1).

        Both are those of the instances on which the explainer has a score.
        """
        objectives = {objective.metric: objective for objective in self.sets.scores}
        extremes: dict[tuple[Objective, bytes], tuple[float, float]] = {}
        places = []
        for row in metrics.itertuples():
            objective = objectives.get((str(row.metric), str(row.variant)))
            series = None if objective is None else scores.series.get((objective.metric, str(row.explainer)))
            if objective is None or series is None or not series.n_included:
                places.append(np.nan)
                continue
            numerator, denominator, positions = series.select_included()
            has_score = np.isin(self.instances, positions)
            indices = np.searchsorted(positions, self.instances[has_score])
            total = denominator[indices].sum()
            value = numerator[indices].sum() / total if total else np.nan
            key = (objective, has_score.tobytes())
            if key not in extremes:
                worst, best = (self.sets.find_extreme(objective, has_score, worst=end)[0] for end in (True, False))
                extremes[key] = worst, best
            worst, best = extremes[key]
            differ = abs(best - worst) > _TOLERANCE * max(1.0, abs(best))
            places.append(float((value - worst) / (best - worst)) + 0.0 if differ else np.nan)  # turns -0 into 0
            scores.scratch.release()
        return places


def is_bounded(metric: Metric) -> bool:
    """Return whether a metric is a function of the set of k features, so that all sets can be enumerated."""
    return metric.better != "none" and metric.needs in ("set", "counterfactual")


def compute_bounds(
    context: RunContext, truth: Mapping[str, Floats], advance: Callable[[int], None]
) -> FeatureSetBounds:
    """Score all sets of k features, or grow sets greedily where these are too many."""
    k, all_costs = context.plan.settings.k, context.ledger
    context = replace(context, ledger=Ledger())  # the costs of all sets are added up
    n_enumerated = min(k, 1 if context.dataset.padded else 2)  # features
    instances = _sample_instances(context, n_enumerated)
    codes = context.instances.codes[instances]
    sampled_truth = {name: importance[instances] for name, importance in truth.items()}
    owner, features = np.arange(len(instances)), np.zeros((len(instances), 0), dtype=np.int64)
    for _ in range(n_enumerated):
        owner, features = _add_feature(codes, owner, features)
    sets = _score_sets(context, instances, sampled_truth, owner, features, advance)
    for _ in range(n_enumerated, k):
        owner, features = _add_feature(codes, *_select_extreme_sets(sets, len(instances)))
        sets = _score_sets(context, instances, sampled_truth, owner, features, advance)
    all_costs.add(LedgerKey("bounds"), context.ledger)
    return FeatureSetBounds(sets, instances, is_exact=n_enumerated == k)


def _sample_instances(context: RunContext, n_enumerated: int) -> Ints:
    """Return the positions of all instances with at least k features, or of a seeded sample of them."""
    settings = context.plan.settings
    n_present = (context.instances.codes != ABSENT).sum(axis=1)
    eligible = np.flatnonzero(n_present >= settings.k)
    n_sets = max(1, perm(int(n_present.max(initial=1)), n_enumerated))
    limit = min(settings.bounds, max(1, _MAX_SETS // n_sets))
    if any(
        removal.replacement is not None and removal.replacement.value is None for removal in context.removals.values()
    ):
        n_rows = _MAX_ROWS if context.spec.supports(SupportsEdits) else _MAX_ROWS // 8
        limit = min(limit, max(1, n_rows // (n_sets * _ROWS_PER_DRAWN_SET)))
    if settings.k > n_enumerated:
        limit = min(limit, _MAX_GREEDY_INSTANCES)
    if len(eligible) <= limit:
        return eligible
    return np.sort(make_stream(settings.seed, "bounds").choice(eligible, limit, replace=False))


def _add_feature(codes: Codes, owner: Ints, features: Ints) -> tuple[Ints, Ints]:
    """Return every set with one more feature of its instance, in each order, since a search may depend on the order."""
    is_free = codes[owner] != ABSENT
    np.put_along_axis(is_free, features, False, axis=1)
    positions, new_features = np.nonzero(is_free)
    larger_sets = np.column_stack([owner[positions], features[positions], new_features])
    if features.shape[1]:
        larger_sets = np.unique(larger_sets, axis=0)  # sets of several objectives can be equal
    return larger_sets[:, 0], larger_sets[:, 1:]


def _select_extreme_sets(sets: ScoredSets, n_instances: int) -> tuple[Ints, Ints]:
    """Return the first best and the first worst set of each instance for each metric, which grow greedily."""
    is_selected, all_instances = np.zeros(len(sets.owner), dtype=bool), np.ones(n_instances, dtype=bool)
    for objective in sets.scores:
        for worst in (False, True):
            positions = np.flatnonzero(sets.find_extreme(objective, all_instances, worst=worst)[1])
            is_selected[positions[np.unique(sets.owner[positions], return_index=True)[1]]] = True
    return sets.owner[is_selected], sets.features[is_selected]


def _score_sets(
    context: RunContext,
    instances: Ints,
    truth: Mapping[str, Floats],
    owner: Ints,
    features: Ints,
    advance: Callable[[int], None],
) -> ScoredSets:
    """Search counterfactuals of each set and compute the metrics, in chunks that bound the memory."""
    metrics = [metric for metric in context.plan.metrics.values() if is_bounded(metric)]
    parts: dict[Objective, list[tuple[Floats, Floats]]] = {}
    truth_shares: dict[str, list[Floats]] = {name: [] for name in truth}
    for start in range(0, len(owner), _MAX_SETS_PER_CALL):
        chunk = slice(start, start + _MAX_SETS_PER_CALL)
        inputs = _create_input(context, instances, truth, owner[chunk], features[chunk])
        for metric in metrics:
            for score in evaluate_metric(context, inputs, metric):
                if isinstance(score, Score):
                    objective = Objective((metric.name, score.variant), metric.better)
                    parts.setdefault(objective, []).append(_fill_missing(score, len(inputs)))
        is_selected = mark_selected(inputs.codes, inputs.features)
        for name, shares in truth_shares.items():
            n_shared = count_shared_features(inputs.truth[name], is_selected, inputs.k)
            shares.append(np.where(np.isnan(inputs.truth[name]).any(axis=1), np.nan, n_shared / inputs.k))
        advance(len(inputs))
    scores = {
        objective: (np.concatenate([n for n, _ in chunks]), np.concatenate([d for _, d in chunks]))
        for objective, chunks in parts.items()
    }
    return ScoredSets(owner, features, scores, {name: np.concatenate(shares) for name, shares in truth_shares.items()})


def _create_input(
    context: RunContext, instances: Ints, truth: Mapping[str, Floats], owner: Ints, features: Ints
) -> MetricInput:
    """Return the metrics' input for some sets, each like an explanation of its instance."""
    rows = context.rows.take(instances[owner])
    edits = search_counterfactuals(context, rows, features, "bounds", lambda _: None, use_cache=False)
    own_truth = {name: importance[owner] for name, importance in truth.items()}
    return create_metric_input(context, rows, features, np.ones(len(rows), dtype=bool), edits, own_truth)


def _fill_missing(score: Score, size: int) -> tuple[Floats, Floats]:
    """Return numerator and denominator of all sets; NaN for sets without a score, as with an unknown truth."""
    if score.positions is None:
        return score.numerator, score.denominator
    numerator, denominator = np.full((2, size), np.nan)
    numerator[score.positions], denominator[score.positions] = score.numerator, score.denominator
    return numerator, denominator
