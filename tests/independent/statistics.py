"""Recompute the tables of statistics from scores.parquet and docs/statistics.md, without code of cfeval."""

from functools import cache
from itertools import combinations, permutations
from math import nan

import numpy as np

from tests.independent.recomputation import (
    SUBSETS,
    ExplainerRankings,
    compare_pairs,
    compute_interval,
    find_extremes,
    find_used_instances,
    list_agreements,
    make_generator,
    score_all_sets,
)

MIN_INSTANCES = 30  # instances that an interval needs


class Tables(ExplainerRankings):
    """Values, resamples and rankings of a run."""

    def __init__(self, run):
        super().__init__(run, run.draws)
        self.record, self.level, self.scores = run.record, run.settings["confidence"], run.stored_scores
        self.used_instances = find_used_instances(run, self.scores)
        self.roles = {name: facts["role"] for name, facts in self.record["metrics"].items()}
        self.pairs = list(dict.fromkeys(key[:2] for key in self.draws))
        self.judged_pairs = [pair for pair in self.pairs if self.roles[pair[0]] == "judged"]
        self.cache = {}

    def get_ranks(self, metric, names):
        """Return ranks (E, 1 + B) of the explainers."""
        if (metric, names) not in self.cache:
            self.cache[metric, names] = compute_ranks(self.get_oriented_values(metric, names))
        return self.cache[metric, names]

    def has_enough_instances(self, pair, names):
        """Return whether each explainer has enough instances for an interval."""
        return all(len(self.used_instances[*pair, name]) >= MIN_INSTANCES for name in names)

    def compute_interval(self, draws, is_sufficient=True):
        """Return both ends of an interval, and the standard error."""
        draws = draws[~np.isnan(draws)]
        if not is_sufficient or not len(draws):
            return nan, nan, nan
        return *compute_interval(draws, self.level), np.std(draws, ddof=1)


def compute_ranks(values):
    """Return ranks from 1 for the largest of values (E, …); ties share the mean rank."""
    values = np.array(values)
    a, b = values[:, None], values[None]
    with np.errstate(invalid="ignore"):
        comparisons = np.where(np.abs(b - a) <= 1e-12 * np.maximum(np.maximum(abs(a), abs(b)), 1e-3), 0.5, b > a)
    return comparisons.sum(axis=1) + 0.5


def compute_spearman(tables, a, b, names, n_draws=None):
    """Return ρ (1 + B,) of average ranks; NaN if one ranking is all tied."""
    missing = sum(np.sum(tables.get_oriented_values(metric, names), axis=0)[:n_draws] for metric in (a, b))
    a, b = (tables.get_ranks(metric, names)[:, :n_draws] - (len(names) + 1) / 2 for metric in (a, b))
    below = np.sqrt((a**2).sum(axis=0) * (b**2).sum(axis=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((below > 0) & ~np.isnan(missing), (a * b).sum(axis=0) / below, nan)


def compute_p_values(ranks, truth):
    """Return the shares of all orders of the truth with at least the observed τ, and ρ."""
    truth_orders = np.array(list(permutations(range(len(ranks)))))
    a, b = np.array(ranks), np.array(truth)[truth_orders]  # the first order is the real one
    pairs = list(combinations(range(len(a)), 2))
    taus = sum(np.sign(a[i] - a[j]) * np.sign(b[:, i] - b[:, j]) for i, j in pairs)
    rhos = (b - b.mean(axis=1, keepdims=True)) @ (a - a.mean())
    shares = [np.mean(coefficients >= coefficients[0] - 1e-9) for coefficients in (taus, rhos)]
    return shares[0], nan if np.ptp(a) == 0 or np.ptp(b) == 0 else shares[1]


def compute_correlations(tables):
    """Return {(metric, variant, truth, agreement, subset): standard errors, ρ and p}."""
    results, p_by_ranks = {}, {}
    for metric, variant, reference, agreement in list_agreements(tables.record, tables.draws):
        pair, truth = (metric, variant), (agreement, reference)
        for subset in SUBSETS:
            names = tables.list_common_explainers(pair, truth, subset)
            if len(names) < 2:
                continue
            line = results[metric, variant, reference, agreement, subset] = {}
            ranks = [tuple(tables.get_ranks(metric, names)[:, 0]) for metric in (pair, truth)]
            line["tau_se"] = tables.compute_interval(
                tables.tau(pair, truth, subset)[1:], tables.has_enough_instances(pair, names)
            )[2]
            if tuple(ranks) not in p_by_ranks:
                p_by_ranks[tuple(ranks)] = compute_p_values(*ranks)
            line["p_tau"], p_rho = p_by_ranks[tuple(ranks)]
            if subset == "all":
                rho = compute_spearman(tables, pair, truth, names)
                ends = tables.compute_interval(
                    rho[1:], tables.has_enough_instances(pair, names) and not np.isnan(rho[0])
                )
                line |= {"rho": rho[0], "rho_low": ends[0], "rho_high": ends[1], "rho_se": ends[2], "p_rho": p_rho}
    return results


def compute_intervals(tables):
    """Return {(metric, variant, explainer): value_low, value_high, value_se and rank} without graded controls."""
    results = {}
    for pair in tables.pairs:
        names = tables.list_common_explainers(pair, pair)
        ranks = tables.get_ranks(pair, names)[:, 0]
        better = tables.record["metrics"][pair[0]]["better"] != "none"
        for name, rank in zip(names, ranks, strict=True):
            draws = tables.draws[*pair, name]
            ends = tables.compute_interval(draws[1:], len(tables.used_instances[*pair, name]) >= MIN_INSTANCES)
            ends = dict(zip(("value_low", "value_high", "value_se"), ends, strict=True))
            results[*pair, name] = ends | {"rank": rank if better else nan}
    return results


def compute_differences(tables):
    """Return the figures of differences.csv by truth, agreement, subset and two metrics."""
    results = {}
    for agreement, reference in (pair for pair in tables.pairs if tables.roles[pair[0]] == "truth"):
        ranked_pairs = [pair for pair in tables.judged_pairs if tables.tau(pair, (agreement, reference)) is not None]
        for subset in SUBSETS:
            for key, figures in compare_metrics(tables, ranked_pairs, (agreement, reference), subset).items():
                results[reference, agreement, subset, *key[0], *key[1]] = figures
    return results


def compare_metrics(tables, pairs, truth, subset):
    """Return {(metric, other metric): figures}, with the larger τ over all explainers first."""
    tested_lines, results = {}, {}
    tau_by_metric = {metric: tables.tau(metric, truth, subset) for metric in pairs}
    # to the bit, except for the sign of zero and missing values
    exact = {
        metric: (np.where(np.isnan(tau), nan, tau) + 0.0).tobytes()
        for metric, tau in tau_by_metric.items()
        if tau is not None
    }
    for a, b in combinations(pairs, 2):
        if tables.tau(b, truth)[0] > tables.tau(a, truth)[0]:
            a, b = b, a
        names = [tables.list_common_explainers(metric, truth, subset) for metric in (a, b)]
        taus = [tau_by_metric[a], tau_by_metric[b]]
        line = dict.fromkeys(("difference", "low", "high", "p", "p_holm"), nan) | {"same": False}
        results[a, b] = line
        is_sufficient = tables.has_enough_instances(a, names[0]) and tables.has_enough_instances(b, names[1])
        if names[0] != names[1] or taus[0] is None or not is_sufficient:
            continue
        gap = taus[0] - taus[1]
        line |= {"difference": gap[0], "same": exact[a] == exact[b]}
        draws = gap[1:][~np.isnan(gap[1:])]
        line["low"], line["high"], _ = tables.compute_interval(gap[1:])
        sides = min((draws <= 0).sum(), (draws >= 0).sum())
        line["p"] = min(1.0, 2 * (1 + sides) / (len(draws) + 1))
        line["p_holm"] = 1.0
        tested_lines[a, b] = line
    kind_by_metric = {
        metric: (tables.list_common_explainers(metric, truth, subset), tau) for metric, tau in exact.items()
    }  # one hypothesis each
    tests = {}
    for (a, b), line in tested_lines.items():
        if not line["same"]:
            tests.setdefault(frozenset((kind_by_metric[a], kind_by_metric[b])), []).append(line)
    max_p = 0.0
    sorted_tests = sorted(tests.values(), key=lambda lines: lines[0]["p"])
    for place, lines in enumerate(sorted_tests):
        max_p = max(max_p, min(1.0, (len(sorted_tests) - place) * lines[0]["p"]))
        for line in lines:
            line["p_holm"] = max_p
    return results


def compute_instance_agreement(tables):
    """Return {(metric, variant, truth, agreement, subset): figures} of instance_agreement.csv."""
    times, results = draw_resamples(tables), {}

    @cache
    def compare_scores(pair, names):
        """Compare pairs of explainers by their scores of each instance (pairs, N)."""
        ids = list(tables.run.rows)
        return compare_pairs([np.array([score(tables, (*pair, name), i) for i in ids]) for name in names])

    for metric, variant, reference, agreement in list_agreements(tables.record, tables.draws):
        sign = -1 if tables.record["metrics"][metric]["better"] == "lower" else 1
        for subset in SUBSETS:
            names = tuple(name for name in tables.names if subset == "all" or not tables.controls[name])
            if len(names) < 2:
                continue
            a, b = compare_scores((metric, variant), names), compare_scores((agreement, reference), names)
            have_values = ~np.isnan(a) & ~np.isnan(b)
            pairs, n_ordered = have_values.sum(axis=0), (have_values & (b != 0)).sum(axis=0)
            gains = sign * np.where(have_values, a * b, 0).sum(axis=0)
            has_pairs = pairs > 0
            if not has_pairs.any():
                continue
            taus = np.where(has_pairs, gains / np.maximum(pairs, 1), 0.0)
            line = results[metric, variant, reference, agreement, subset] = {}
            for name, above, below in (("tau", taus, has_pairs.astype(float)), ("d", gains, n_ordered)):
                with np.errstate(invalid="ignore", divide="ignore"):
                    draws = (times @ above) / (times @ below)
                    line[name] = above.sum() / below.sum()
                ends = tables.compute_interval(draws, has_pairs.sum() >= MIN_INSTANCES)
                line[f"{name}_low"], line[f"{name}_high"] = ends[:2]
            line |= {"instances": has_pairs.sum(), "ordered": (n_ordered > 0).sum(), "pairs": n_ordered.sum()}
    return results


def score(tables, key, i):
    """Return the score of an instance; NaN if the value does not use it."""
    if key not in tables.draws or i not in tables.used_instances[key] or not tables.scores[key][i][1]:
        return nan
    above, below = tables.scores[key][i]
    return above / below


def draw_resamples(tables):
    """Count each instance in each resample (B, N): the first 2,000 resamples if their number is automatic."""
    size = len(tables.run.rows)
    rng = make_generator(tables.run.settings["seed"], "bootstrap", None)
    positions = rng.integers(0, size, (tables.record["resampled"], size))
    positions = positions[:2000] if tables.run.settings["resamples"] == "auto" else positions
    return np.stack([np.bincount(row, minlength=size) for row in positions]).astype(float)


def compute_metric_agreement(tables):
    """Return {(metric, variant, other metric, other variant): figures} of metric_agreement.csv."""
    results = {}
    n_draws = 2001 if tables.run.settings["resamples"] == "auto" else None
    for a, b in combinations(tables.judged_pairs, 2):
        names = tables.list_common_explainers(a, b)
        if len(names) < 2 or np.isnan(compute_spearman(tables, a, b, names, n_draws=1)[0]):
            continue
        tau = tables.tau(a, b)
        ends = tables.compute_interval(
            tau[1:n_draws], tables.has_enough_instances(a, names) and tables.has_enough_instances(b, names)
        )
        results[*a, *b] = {"explainers": len(names), "tau": tau[0], "tau_low": ends[0], "tau_high": ends[1]}
    return results


def compute_normalised_values(tables):
    """Return {(metric, variant, explainer): normalised value}, 0 for the worst and 1 for the best possible."""
    sets, results = score_all_sets(tables.run), {}
    for (metric, variant, name), part in tables.scores.items():
        if (metric, variant) not in sets or (metric, variant, name) not in tables.draws:
            continue
        instances = [
            i for i in part if i in tables.used_instances[metric, variant, name] and i in sets[metric, variant]
        ]
        below = sum(part[i][1] for i in instances)
        if not instances or not below:
            continue
        _, worst, best, _, _ = find_extremes(metric, {i: sets[metric, variant][i] for i in instances})
        value = sum(part[i][0] for i in instances) / below
        results[metric, variant, name] = (value - worst) / (best - worst) if abs(best - worst) > 1e-9 else nan
    return results
