"""Tests of the printed correlations against random orders of the explainers, and the correlations without LR."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations

import numpy as np

from cfeval_cli.statistics.hypothesis_tests import adjust_holm
from cfeval_cli.statistics.permutation import compute_permutation_p_values
from cfeval_cli.study.paper.finding import (
    COUNTERFACTUAL,
    Finding,
    Result,
    correlate,
    get_printed_ranks,
    join,
)
from cfeval_cli.study.paper.published import Coefficient, Published, Series

_LEVEL = 0.05


def check_significance(paper: Published) -> Iterator[Result]:
    """Compute p of every pair of printed τ and ρ; metrics with the same coefficients are one test."""
    rows: dict[tuple[str, str, str], list[Coefficient]] = {}
    for coefficient in paper.coefficients:
        if coefficient.figure.corrected and paper.find_truth(coefficient.source) is not None:
            rows.setdefault((coefficient.table, coefficient.dataset, coefficient.title), []).append(coefficient)
    tests: dict[tuple[str, str, tuple[float, ...]], list[Coefficient]] = {}
    for (table, dataset, _), row in rows.items():
        tests.setdefault((table, dataset, tuple(coefficient.figure.value for coefficient in row)), []).extend(row)
    sizes = [
        len(truth.figures) for (first, *_) in tests.values() if (truth := paper.find_truth(first.source)) is not None
    ]
    p = [
        max(_compute_p(coefficient, size) for coefficient in group)
        for group, size in zip(tests.values(), sizes, strict=True)
    ]
    adjusted = adjust_holm(np.nan_to_num(np.array(p), nan=1.0)).tolist()
    for ((table, dataset, _), group), size, before, after in zip(tests.items(), sizes, p, adjusted, strict=True):
        word = "Significantly" if after < _LEVEL else "Not significantly"
        yield Finding(
            f"p.{table}.{dataset}.{group[0].metric}_{group[0].variant}", "significance", table, dataset,
            join(coefficient.title for coefficient in group), "",
            join(f"{coefficient.symbol} {coefficient.figure.corrected}" for coefficient in group),
            f"p = {before:.3f}, Holm-adjusted {after:.3f}", f"{word} better than a random order of {size} explainers.",
        )  # fmt: skip


def _compute_p(coefficient: Coefficient, size: int) -> float:
    """Compute p by an order of the explainers that has the printed coefficient; NaN if none has it."""
    identity = tuple(map(float, range(1, size + 1)))
    truth = {str(i): rank for i, rank in enumerate(identity)}
    for order in permutations(identity):
        ranking = {str(i): rank for i, rank in enumerate(order)}
        if coefficient.figure.allows(correlate(ranking, truth)[coefficient.kind]):
            tau, rho = compute_permutation_p_values(np.array([order]), np.array([identity]))
            return float((tau if coefficient.kind == "tau" else rho)[0, 0])
    return math.nan


def check_without_lr(paper: Published) -> Iterator[Result]:
    """Recompute τ without LR, which is the ground truth itself."""
    for key in paper.keys:
        truth = paper.find_truth(key)
        judged = {
            coefficient.pair
            for coefficient in paper.coefficients
            if coefficient.source == key and coefficient.figure.corrected
        }
        rows = [series for series in paper.list_series(key) if series.pair in judged]
        if truth is None or "lr" not in truth.figures or not rows:
            continue
        explainers = [name for name in truth.figures if name != "lr"]
        before, after = (
            {row.title: _compute_tau(row, truth, names) for row in rows} for names in (truth.figures, explainers)
        )
        counterfactual = {row.title for row in rows if row.metric in COUNTERFACTUAL}
        is_tied = max(after.values()) - min(after.values()) < 1e-9
        yield Finding(
            f"without_lr.{key[0]}.{key[1]}", "significance", "2" if key[0] == "1" else key[0], key[1], "without LR",
            "τ",
            _write_families(before, counterfactual), _write_families(after, counterfactual),
            f"LR is the ground truth itself. With the other {len(explainers)} explainers, "
            + ("all metrics have the same τ." if is_tied else "τ of the erasure metrics is lower."),
        )  # fmt: skip


def _compute_tau(series: Series, truth: Series, explainers: Iterable[str]) -> float:
    ranking = get_printed_ranks(series)
    return correlate({name: ranking[name] for name in explainers}, get_printed_ranks(truth))["tau"]


def _write_families(taus: Mapping[str, float], counterfactual: set[str]) -> str:
    families = {
        "erasure": [tau for title, tau in taus.items() if title not in counterfactual],
        "counterfactual": [tau for title, tau in taus.items() if title in counterfactual],
    }
    return "; ".join(
        f"{name} {' to '.join(dict.fromkeys(f'{tau:.2f}' for tau in (min(values), max(values))))}"
        for name, values in families.items() if values
    )  # fmt: skip


CHECKS = (check_significance, check_without_lr)
