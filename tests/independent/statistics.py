"""The tables of statistics, recomputed from scores.parquet and docs/statistics.md with nothing of cfeval."""

from functools import cache
from itertools import combinations, permutations
from math import nan

import numpy as np

from tests.independent.recomputation import (
    SUBSETS,
    Ranked,
    agreements_of,
    bounds_of,
    counted,
    extremes,
    generator,
    orders,
)
from tests.independent.recomputation import between as ends_of

LEAST = 30  # instances that an interval needs


class Tables(Ranked):
    """Values and resamples of a run, and who is ranked by whom."""

    def __init__(self, run):
        super().__init__(run, run.drawn)
        self.record, self.level, self.scores = run.record, run.settings["confidence"], run.stored_scores
        self.some = counted(run, self.scores)
        self.roles = {name: facts["role"] for name, facts in self.record["metrics"].items()}
        self.pairs = list(dict.fromkeys(key[:2] for key in self.drawn))
        self.judged = [pair for pair in self.pairs if self.roles[pair[0]] == "judged"]
        self.known = {}

    def places(self, one, names):
        """Ranks (E, 1 + B) of the explainers."""
        if (one, names) not in self.known:
            self.known[one, names] = places(self.side(one, names))
        return self.known[one, names]

    def enough(self, pair, names):
        """Whether each explainer is scored on as many instances as an interval needs."""
        return all(len(self.some[*pair, name]) >= LEAST for name in names)

    def ends(self, draws, enough=True):
        """Both ends of an interval, and the standard error."""
        draws = draws[~np.isnan(draws)]
        if not enough or not len(draws):
            return nan, nan, nan
        return *ends_of(draws, self.level), np.std(draws, ddof=1)


def places(values):
    """Ranks from 1, the best first, of values of which the larger is the better (E, …): ties share their places."""
    values = np.array(values)
    a, b = values[:, None], values[None]
    with np.errstate(invalid="ignore"):
        before = np.where(np.abs(b - a) <= 1e-12 * np.maximum(np.maximum(abs(a), abs(b)), 1e-3), 0.5, b > a)
    return before.sum(axis=1) + 0.5


def spearman(tables, a, b, names, most=None):
    """ρ (1 + B,) on average ranks; none where one side is all tied."""
    missing = sum(np.sum(tables.side(one, names), axis=0)[:most] for one in (a, b))
    a, b = (tables.places(one, names)[:, :most] - (len(names) + 1) / 2 for one in (a, b))
    below = np.sqrt((a**2).sum(axis=0) * (b**2).sum(axis=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((below > 0) & ~np.isnan(missing), (a * b).sum(axis=0) / below, nan)


def by_chance(ranks, truth):
    """The shares of all orders of the truth whose τ, and whose ρ, with some ranks is at least the real one."""
    orders = np.array(list(permutations(range(len(ranks)))))
    a, b = np.array(ranks), np.array(truth)[orders]  # the first order is the real one
    pairs = list(combinations(range(len(a)), 2))
    taus = sum(np.sign(a[i] - a[j]) * np.sign(b[:, i] - b[:, j]) for i, j in pairs)
    rhos = (b - b.mean(axis=1, keepdims=True)) @ (a - a.mean())
    shares = [np.mean(told >= told[0] - 1e-9) for told in (taus, rhos)]
    return shares[0], nan if np.ptp(a) == 0 or np.ptp(b) == 0 else shares[1]


def correlations(tables):
    """{(metric, variant, truth, agreement, subset): figures} that agreements() has not: errors, ρ and p."""
    found, known = {}, {}
    for metric, variant, reference, agreement in agreements_of(tables.record, tables.drawn):
        pair, truth = (metric, variant), (agreement, reference)
        for subset in SUBSETS:
            names = tables.list_ranked(pair, truth, subset)
            if len(names) < 2:
                continue
            line = found[metric, variant, reference, agreement, subset] = {}
            ranks = [tuple(tables.places(one, names)[:, 0]) for one in (pair, truth)]
            line["tau_se"] = tables.ends(tables.tau(pair, truth, subset)[1:], tables.enough(pair, names))[2]
            if tuple(ranks) not in known:
                known[tuple(ranks)] = by_chance(*ranks)
            line["p_tau"], p_rho = known[tuple(ranks)]
            if subset == "all":
                rho = spearman(tables, pair, truth, names)
                ends = tables.ends(rho[1:], tables.enough(pair, names) and not np.isnan(rho[0]))
                line |= {"rho": rho[0], "rho_low": ends[0], "rho_high": ends[1], "rho_se": ends[2], "p_rho": p_rho}
    return found


def intervals(tables):
    """{(metric, variant, explainer): value_low, value_high, value_se and rank}, of explainers that are no rungs."""
    found = {}
    for pair in tables.pairs:
        names = tables.list_ranked(pair, pair)
        ranks = tables.places(pair, names)[:, 0]
        better = tables.record["metrics"][pair[0]]["better"] != "none"
        for name, rank in zip(names, ranks, strict=True):
            draws = tables.drawn[*pair, name]
            ends = tables.ends(draws[1:], len(tables.some[*pair, name]) >= LEAST)
            told = dict(zip(("value_low", "value_high", "value_se"), ends, strict=True))
            found[*pair, name] = told | {"rank": rank if better else nan}
    return found


def differences(tables):
    """{(truth, agreement, subset, metric, variant, other metric, other variant): figures} of differences.csv."""
    found = {}
    for agreement, reference in (pair for pair in tables.pairs if tables.roles[pair[0]] == "truth"):
        defined = [pair for pair in tables.judged if tables.tau(pair, (agreement, reference)) is not None]
        for subset in SUBSETS:
            for key, figures in compared(tables, defined, (agreement, reference), subset).items():
                found[reference, agreement, subset, *key[0], *key[1]] = figures
    return found


def compared(tables, pairs, truth, subset):
    """{(one, other): figures}, the larger τ over all explainers first."""
    gaps, found = {}, {}
    taken = {one: tables.tau(one, truth, subset) for one in pairs}
    # to the bit, but for the sign of zero and what stands for nothing
    exact = {one: (np.where(np.isnan(tau), nan, tau) + 0.0).tobytes() for one, tau in taken.items() if tau is not None}
    for a, b in combinations(pairs, 2):
        if tables.tau(b, truth)[0] > tables.tau(a, truth)[0]:
            a, b = b, a
        names = [tables.list_ranked(one, truth, subset) for one in (a, b)]
        taus = [taken[a], taken[b]]
        line = dict.fromkeys(("difference", "low", "high", "p", "p_holm"), nan) | {"same": False}
        found[a, b] = line
        enough = tables.enough(a, names[0]) and tables.enough(b, names[1])
        if names[0] != names[1] or taus[0] is None or not enough:
            continue
        gap = taus[0] - taus[1]
        line |= {"difference": gap[0], "same": exact[a] == exact[b]}
        draws = gap[1:][~np.isnan(gap[1:])]
        line["low"], line["high"], _ = tables.ends(gap[1:])
        sides = min((draws <= 0).sum(), (draws >= 0).sum())
        line["p"] = min(1.0, 2 * (1 + sides) / (len(draws) + 1))
        line["p_holm"] = 1.0
        gaps[a, b] = line
    kinds = {one: (tables.list_ranked(one, truth, subset), tau) for one, tau in exact.items()}  # one hypothesis each
    tests = {}
    for (a, b), line in gaps.items():
        if not line["same"]:
            tests.setdefault(frozenset((kinds[a], kinds[b])), []).append(line)
    largest = 0.0
    ordered = sorted(tests.values(), key=lambda lines: lines[0]["p"])
    for place, lines in enumerate(ordered):
        largest = max(largest, min(1.0, (len(ordered) - place) * lines[0]["p"]))
        for line in lines:
            line["p_holm"] = largest
    return found


def by_instance(tables):
    """{(metric, variant, truth, agreement, subset): figures} of instance_agreement.csv."""
    times, found = resamples(tables), {}

    @cache
    def by_scores(pair, names):
        """Who is above whom by their scores of each instance (pairs, N)."""
        ids = list(tables.run.rows)
        return orders([np.array([score(tables, (*pair, name), i) for i in ids]) for name in names])

    for metric, variant, reference, agreement in agreements_of(tables.record, tables.drawn):
        sign = -1 if tables.record["metrics"][metric]["better"] == "lower" else 1
        for subset in SUBSETS:
            names = tuple(name for name in tables.names if subset == "all" or not tables.controls[name])
            if len(names) < 2:
                continue
            a, b = by_scores((metric, variant), names), by_scores((agreement, reference), names)
            both = ~np.isnan(a) & ~np.isnan(b)
            pairs, told = both.sum(axis=0), (both & (b != 0)).sum(axis=0)
            gains = sign * np.where(both, a * b, 0).sum(axis=0)
            there = pairs > 0
            if not there.any():
                continue
            taus = np.where(there, gains / np.maximum(pairs, 1), 0.0)
            line = found[metric, variant, reference, agreement, subset] = {}
            for name, above, below in (("tau", taus, there.astype(float)), ("d", gains, told)):
                with np.errstate(invalid="ignore", divide="ignore"):
                    draws = (times @ above) / (times @ below)
                    line[name] = above.sum() / below.sum()
                ends = tables.ends(draws, there.sum() >= LEAST)
                line[f"{name}_low"], line[f"{name}_high"] = ends[:2]
            line |= {"instances": there.sum(), "ordered": (told > 0).sum()}
    return found


def score(tables, key, i):
    """One instance's, if it counts."""
    if key not in tables.drawn or i not in tables.some[key] or not tables.scores[key][i][1]:
        return nan
    above, below = tables.scores[key][i]
    return above / below


def resamples(tables):
    """How often each resample (B, N) has each instance: the first 2,000 if the run was to draw what it takes."""
    size = len(tables.run.rows)
    rng = generator(tables.run.settings["seed"], "bootstrap", None)
    drawn = rng.integers(0, size, (tables.record["resampled"], size))
    drawn = drawn[:2000] if tables.run.settings["resamples"] == "auto" else drawn
    return np.stack([np.bincount(row, minlength=size) for row in drawn]).astype(float)


def between(tables):
    """{(metric, variant, other metric, other variant): figures} of metric_agreement.csv."""
    found = {}
    most = 2001 if tables.run.settings["resamples"] == "auto" else None
    for a, b in combinations(tables.judged, 2):
        names = tables.list_ranked(a, b)
        if len(names) < 2 or np.isnan(spearman(tables, a, b, names, most=1)[0]):
            continue
        tau = tables.tau(a, b)
        ends = tables.ends(tau[1:most], tables.enough(a, names) and tables.enough(b, names))
        found[*a, *b] = {"explainers": len(names), "tau": tau[0], "tau_low": ends[0], "tau_high": ends[1]}
    return found


def standing(tables):
    """{(metric, variant, explainer): place} between the worst and the best on the instances that count."""
    sets, found = bounds_of(tables.run), {}
    for (metric, variant, name), part in tables.scores.items():
        if (metric, variant) not in sets or (metric, variant, name) not in tables.drawn:
            continue
        mine = [i for i in part if i in tables.some[metric, variant, name] and i in sets[metric, variant]]
        below = sum(part[i][1] for i in mine)
        if not mine or not below:
            continue
        _, worst, best, _, _ = extremes(metric, {i: sets[metric, variant][i] for i in mine})
        value = sum(part[i][0] for i in mine) / below
        found[metric, variant, name] = (value - worst) / (best - worst) if abs(best - worst) > 1e-9 else nan
    return found
