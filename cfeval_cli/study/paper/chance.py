"""Checks against chance: how much so few explainers can show at all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise, permutations, product

import numpy as np

from cfeval_cli.core import Floats
from cfeval_cli.statistics.difference import holm
from cfeval_cli.statistics.permutation import p_values
from cfeval_cli.statistics.ranking import agreement, ranks
from cfeval_cli.study.paper.counts import held_out
from cfeval_cli.study.paper.finding import (
    CE,
    ERASURE,
    SHARES,
    Finding,
    Result,
    correlate,
    listed,
    printed_ranks,
    ranked,
    show,
)
from cfeval_cli.study.paper.published import TRUTH, Coefficient, Figure, Key, Published, Series

_SURE = 0.05
_APART = 1.96  # standard errors

Ranks = Mapping[str, float]


def groups(paper: Published, key: Key) -> list[list[Series]]:
    """The metrics that Tables 2 and 3 judge, those with the same printed ranks together."""
    judged = {one.pair for one in paper.coefficients if one.source == key and one.figure.meant}
    found: dict[tuple[float, ...], list[Series]] = {}
    for series in paper.of(key):
        if series.pair in judged:
            found.setdefault(tuple(printed_ranks(series).values()), []).append(series)
    return list(found.values())


def _p(ours: Ranks, theirs: Ranks) -> dict[str, float]:
    sides = [np.array([[side[name] for name in ours]], dtype=float) for side in (ours, theirs)]
    tau, rho = p_values(*sides)
    return {"tau": float(tau[0, 0]), "rho": float(rho[0, 0])}


def exchanges(ours: Ranks, others: Ranks) -> Iterator[tuple[dict[str, float], dict[str, float]]]:
    """All ways to exchange two metrics' ranks, explainer by explainer, after which both still are rankings.

    Most do not leave rankings: who is given the other metric's first place needs that the own first one be given away.
    """
    differ = [name for name in ours if ours[name] != others[name]]
    for swaps in product((False, True), repeat=len(differ)):
        given = {name for name, swap in zip(differ, swaps, strict=True) if swap}
        a = {name: others[name] if name in given else ours[name] for name in ours}
        b = {name: ours[name] if name in given else others[name] for name in ours}
        if _ranking(a) and _ranking(b):
            yield a, b


def _ranking(some: Ranks) -> bool:
    """Whether these are the ranks of anything: from 1 on, with none left out."""
    places = np.array(list(some.values()))
    return bool((ranks(places, "lower") == places).all())


def exchanged(ours: Ranks, others: Ranks, truth: Ranks) -> tuple[float, float, float]:
    """Difference of two metrics' τ, its one-sided p, and the smallest p that these ranks allow.

    If the metrics were equally good, either could have given either ranking: all exchanges that leave rankings count.
    A rank that is printed twice is taken as a tie.
    """
    sides = (dict(zip(s, ranks(np.array(list(s.values())), "lower").tolist(), strict=True)) for s in (ours, others))
    gaps = [correlate(a, truth)["tau"] - correlate(b, truth)["tau"] for a, b in exchanges(*sides)]
    return gaps[0], _share(gaps, gaps[0]), _share(gaps, max(gaps))


def _share(gaps: list[float], least: float) -> float:
    return sum(gap >= least - 1e-9 for gap in gaps) / len(gaps)


def _judged_in(key: Key) -> str:
    return "2" if key[0] == "1" else key[0]


def coefficients(paper: Published) -> Iterator[Result]:
    """How often a random order of the explainers agrees with the truth as well; the same coefficients together."""
    found: dict[tuple[str, str, tuple[str, ...]], list[Coefficient]] = {}
    rows: dict[tuple[str, str, str], list[Coefficient]] = {}
    for one in paper.coefficients:
        if one.figure.meant and paper.truth(one.source) is not None:
            rows.setdefault((one.table, one.dataset, one.title), []).append(one)
    for (table, dataset, _), row in rows.items():
        found.setdefault((table, dataset, tuple(one.figure.meant for one in row)), []).extend(row)
    tests = []
    for (table, dataset, _), group in found.items():
        truth = paper.truth(group[0].source)
        count = 0 if truth is None else len(truth.figures)
        kinds = {one.kind: one for one in reversed(group)}
        p = {kind: _p_of(kinds[kind].figure, kind, count) for kind in ("tau", "rho") if kind in kinds}
        tests.append((table, dataset, group, count, kinds, p))
    # those that no order has count as not better at all
    corrected = holm(np.nan_to_num(np.array([max(p.values()) for *_, p in tests]), nan=1.0))
    for (table, dataset, group, count, kinds, p), after in zip(tests, corrected.tolist(), strict=True):
        sure = max(p.values()) < _SURE
        yield Finding(
            f"p.{table}.{dataset}.{group[0].metric}_{group[0].variant}", "significance", table, dataset,
            listed(one.title for one in group), "",
            ", ".join(f"{kinds[kind].sign} {kinds[kind].figure.printed}" for kind in p),
            f"p {', '.join(f'{one:.4f}' for one in p.values())}; n = {count}; of {len(tests)} tests {after:.4f}",
            f"{'Better' if sure else 'Not better'} than a random order of {count} explainers, at {_SURE:g}"
            + (f", {'also' if after < _SURE else 'but not'} after correction for {len(tests)} tests." if sure else "."),
        )  # fmt: skip


def _p_of(figure: Figure, kind: str, count: int) -> float:
    """Of a printed coefficient, by an order that has it; NaN if none has."""
    orders, found = _all_orders(count)
    there = [i for i, one in enumerate(found[kind]) if figure.allows(one)]
    if not there:
        return math.nan
    p = p_values(orders[there[0]][None], orders[:1])
    return float(p[0 if kind == "tau" else 1][0, 0])


@cache
def _all_orders(count: int) -> tuple[Floats, dict[str, list[float]]]:
    """All orders of so many explainers, and how well each agrees with the first."""
    orders = np.array(list(permutations(range(1, count + 1))), dtype=float)
    tau, rho = agreement(orders, orders[:1])
    return orders, {"tau": tau[:, 0].tolist(), "rho": rho[:, 0].tolist()}


def differences(paper: Published) -> Iterator[Result]:
    """Whether the lead of the counterfactual metrics can be told from chance, all such leads together."""
    tests = []
    for key in paper.keys:
        truth = paper.truth(key)
        if truth is None:
            continue
        ours = [group for group in groups(paper, key) if group[0].metric in CE]
        others = [group for group in groups(paper, key) if group[0].metric in ERASURE]
        for mine, theirs in product(ours, others):
            sides = printed_ranks(mine[0]), printed_ranks(theirs[0])
            if sides[0] != sides[1]:
                tests.append((key, mine[0], theirs, *exchanged(*sides, printed_ranks(truth))))
    corrected = holm(np.array([p for *_, p, _ in tests]))
    for (key, mine_, theirs, gap, p, floor), after in zip(tests, corrected.tolist(), strict=True):
        name = f"{mine_.metric}_{mine_.variant}.{theirs[0].metric}_{theirs[0].variant}"
        possible = "" if floor < _SURE else f"; no outcome with these ranks could have been below {floor:g}"
        yield Finding(
            f"difference.{key[0]}.{key[1]}.{name}", "significance", _judged_in(key), key[1],
            f"CE against {listed(s.title for s in theirs)}", "τ",
            f"{gap:+.4f}", f"p {p:.4f}, of {len(tests)} tests {after:.4f}; least {floor:.4f}",
            f"The difference {'can' if after < _SURE else 'cannot'} be told from chance{possible}.",
        )  # fmt: skip


def without_lr(paper: Published) -> Iterator[Result]:
    """LR is the truth itself; what is left when it does not count as an explainer that was ranked well."""
    for key in paper.keys:
        truth = paper.truth(key)
        if truth is None or "lr" not in truth.figures or truth.figures["lr"].value != 1 or not groups(paper, key):
            continue
        others = [name for name in truth.figures if name != "lr"]
        judged = [series for group in groups(paper, key) for series in group]
        left: dict[str, dict[str, float]] = {"erasure": {}, "CE": {}}
        before: dict[str, dict[str, float]] = {"erasure": {}, "CE": {}}
        p = []
        for series in judged:
            family = "CE" if series.metric in CE else "erasure"
            placed, true = ({name: printed_ranks(s)[name] for name in others} for s in (series, truth))
            left[family][series.title] = correlate(placed, true)["tau"]
            before[family][series.title] = correlate(printed_ranks(series), printed_ranks(truth))["tau"]
            p.append(_p(placed, true)["tau"])
        taus = [tau for family in left.values() for tau in family.values()]
        rest = (
            "all metrics then agree with the truth equally well, so that the whole lead is in where LR is put."
            if max(taus) - min(taus) < 1e-9
            else "the order of the metrics rests on so few."
        )
        yield Finding(
            f"without_lr.{key[0]}.{key[1]}", "significance", _judged_in(key), key[1], "without LR", "τ",
            _told(before), f"{_told(left)}; least p {min(p):.4f}",
            f"LR is right by definition, and {len(others)} explainers remain: {rest}",
        )  # fmt: skip


def _told(families: Mapping[str, Mapping[str, float]]) -> str:
    """The range of each family."""
    ends = {name: sorted({show(tau) for tau in taus.values()}) for name, taus in families.items()}
    return "; ".join(f"{name} {' to '.join(dict.fromkeys((e[0], e[-1])))}" for name, e in ends.items() if e)


def margins(paper: Published) -> Iterator[Result]:
    """Neighbours in a ranking by counts that lie closer than the spread of such counts."""
    for series in paper.series:
        sizes = held_out(paper, series.dataset)
        if series.metric not in SHARES or not sizes or (series.pair == TRUTH and series.k > 1):
            continue
        size, order = sizes[0], sorted(series.figures, key=lambda name: ranked(series)[name])
        close: dict[str, float] = {}
        for first, second in pairwise(order):
            a, b = series.figures[first].value, series.figures[second].value
            spread = math.sqrt((a * (1 - a) + b * (1 - b)) / size)
            if abs(a - b) < _APART * spread:
                close[f"{series.figures[first].printed} and {series.figures[second].printed}"] = abs(a - b) / spread
        what = "The truth's own ranking" if series.pair == TRUTH else f"The ranking by {series.title}"
        yield None if not close else Finding(
            f"margin.{series.name}", "significance", series.table, series.dataset, series.title, "",
            min(close, key=lambda pair: close[pair]),
            f"{min(close.values()):.1f} s.e. apart, N = {size}; {len(close)} such of {len(order) - 1}",
            f"{what} is decided in part by differences as small as chance makes them between independent samples; the "
            "paper prints nothing from which more could be said.",
        )  # fmt: skip


CHECKS = (coefficients, differences, without_lr, margins)
