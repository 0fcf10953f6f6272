"""Checks of the text: its sizes, figures and rankings are compared with the tables."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean

from cfeval_cli.report.published import DATASETS, EXPLAINERS, TRUTH, Figure, Key, Pair, Published, Series
from cfeval_cli.study.paper.claims import ADULTS, CLAIMS, TWO_FEATURES
from cfeval_cli.study.paper.finding import (
    COUNTERFACTUAL,
    ERASURE,
    Finding,
    Result,
    correlate,
    count_pairs,
    get_printed_ranks,
    join,
    list_swapped_pairs,
    rank_values,
    write_figures,
)
from cfeval_cli.study.paper.views import view_published

_C_CONTINUOUS: Pair = ("c", "gradient")
_COMPREHENSIVENESS: Pair = ("comprehensiveness", "del")
_COMPLETE = ("random", "lr")  # explain every instance
_STATED_EXPLAINERS = ("random", "lime", "anchor")  # of Table 3


def check_sums(paper: Published) -> Iterator[Result]:
    """Compare the stated number of rows with the sum over the classes."""
    for dataset in DATASETS:
        total = paper.texts.get((dataset, "rows", "all"))
        classes = paper.list_class_sizes(dataset)
        if total is None or not classes:
            continue
        added = round(sum(size.value for size in classes))
        yield None if added == total.value else Finding(
            f"sum.{dataset}", "text", "text", dataset, "number of rows", "", total.printed,
            f"{' + '.join(size.printed for size in classes)} = {added:,}",
            "The numbers by class do not add up to the total.",
        )  # fmt: skip


def check_counts(paper: Published) -> Iterator[Result]:
    """Check that shares of instances, by explainers of all instances, are counts out of the stated test set."""
    for dataset in DATASETS:
        share, total = paper.texts.get(("", "share", "test")), paper.texts.get((dataset, "rows", "all"))
        if share is None or total is None:
            continue
        totals = {total.value, sum(size.value for size in paper.list_class_sizes(dataset)) or total.value}
        sizes = sorted({bound(n_rows * share.value) for n_rows in totals for bound in (math.floor, math.ceil)})
        figures = [
            (row, row.figures[name])
            for row in paper.series if row.dataset == dataset and _has_counts(row)
            for name in _COMPLETE if name in row.figures
        ]  # fmt: skip
        wrong = [(row, figure) for row, figure in figures if not any(_is_count(figure, size) for size in sizes)]
        yield None if not wrong else Finding(
            f"counts.{dataset}", "text", " and ".join(dict.fromkeys(row.table for row, _ in wrong)), dataset,
            join(row.title for row, _ in wrong), join(EXPLAINERS[name] for name in _COMPLETE),
            write_figures(figure for _, figure in wrong), f"no counts out of {sizes[0]} to {sizes[-1]} instances",
            f"{share.printed} % of the data are {sizes[0]} to {sizes[-1]} test instances. "
            "Random and LR explain each of them.",
        )  # fmt: skip


def _has_counts(series: Series) -> bool:
    """Return whether values are shares of instances; with several features, the ground truth is a share of features."""
    return series.metric in ("validity", "dfr") or (series.pair == TRUTH and series.k == 1)


def _is_count(figure: Figure, size: int) -> bool:
    low, high = figure.bounds
    return any(figure.allows(n / size) for n in range(math.floor(low * size), math.ceil(high * size) + 1))


def check_improvement(paper: Published) -> Iterator[Result]:
    """Recompute the average improvement of C over Comp. (del.): over τ and ρ of both datasets."""
    stated = paper.texts.get(("", "improvement", ""))
    ratios = []
    for coefficient in paper.coefficients:
        if coefficient.table == "2" and coefficient.metric == "c" and coefficient.figure.corrected:
            baseline = paper.find_coefficient("2", coefficient.dataset, _COMPREHENSIVENESS, coefficient.kind)
            if baseline is not None and baseline.value:
                ratios.append(coefficient.figure.value / baseline.value - 1)
    if stated is None or not ratios:
        return
    yield None if stated.allows(fmean(ratios)) else Finding(
        "improvement", "text", "text", "", "average improvement", "", f"{stated.printed} %",
        f"{100 * fmean(ratios):.2f} %",
        "The mean of C / Comp. (del.) − 1 over τ and ρ of both datasets in Table 2 is another value. "
        "For Adults, Table 2 has C (disc.) only.",
    )  # fmt: skip


def check_missing_results(paper: Published) -> Iterator[Result]:
    """Find claims about a metric that Table 2 has on one dataset only."""
    claims = (
        (_C_CONTINUOUS, "C (cont.)", "better than Comp. (del.) on both datasets"),
        (("c", "label"), "C (disc.)", "better than DFR with labels only"),
    )
    for pair, title, claim in claims:
        figures = {dataset: paper.find_coefficient("2", dataset, pair, "tau") for dataset in DATASETS}
        missing = [DATASETS[dataset] for dataset, figure in figures.items() if figure is None or not figure.corrected]
        if len(missing) == len(DATASETS):
            continue
        yield None if not missing else Finding(
            f"missing.{pair[0]}_{pair[1]}", "text", "2", "", title, "", claim, f"no result for {join(missing)}",
            "The claim rests on one dataset.",
        )  # fmt: skip


def check_claims(paper: Published) -> Iterator[Result]:
    """Evaluate the claims on rankings and correlations on the values of the tables."""
    view = view_published(paper)
    for claim in CLAIMS:
        evaluation = claim.evaluate(view)
        if evaluation is None:
            continue
        is_true, values = evaluation
        figures = ", ".join(f"{name} {value:.4f}" for name, value in values.items())
        yield None if is_true else Finding(
            f"claim.{claim.id}", "text", "1 and 2", "", "", "", claim.text.removesuffix("."), "does not hold",
            f"The values of Table 1 contradict the claim: {figures}.",
        )  # fmt: skip


def check_dfr(paper: Published) -> Iterator[Result]:
    """Check that the ranking of Adults by DFR is unrelated to the ground truth."""
    series, truth = paper.find_series(ADULTS, ("dfr", "del")), paper.find_truth(ADULTS)
    if series is None or truth is None:
        return
    ranking, true_ranking = get_printed_ranks(series), get_printed_ranks(truth)
    tau, pairs = correlate(ranking, true_ranking)["tau"], count_pairs(ranking)
    right = pairs - len(list_swapped_pairs(ranking, true_ranking))
    yield None if tau <= 0 else Finding(
        "dfr", "text", "1 and 2", "adults", series.title, "", "completely inconsistent",
        f"τ {tau:.4f}, {right} of {pairs} pairs in the true order", "The ranking agrees with the ground truth in part.",
    )  # fmt: skip


def check_small_differences(paper: Published) -> Iterator[Result]:
    """Find advantages called large or significant that are the order of one pair of explainers."""
    claims: list[tuple[str, Key, Pair, list[Pair], str]] = [
        ("refined", ADULTS, ("c_soft", "probability"), [("validity_soft", "probability")], "significantly refined"),
        *(
            (f"much_higher.{dataset}", ("1", dataset), _C_CONTINUOUS, [_COMPREHENSIVENESS], "much higher τ and ρ")
            for dataset in DATASETS
        ),
        ("far_beyond", TWO_FEATURES, ("c_soft", "probability"), [(name, "del") for name in ERASURE], "far beyond"),
    ]
    for name, key, pair, baselines, claim in claims:
        series, truth = paper.find_series(key, pair), paper.find_truth(key)
        rivals = [rival for baseline in baselines if (rival := paper.find_series(key, baseline)) is not None]
        if series is None or truth is None or not rivals:
            continue
        true_ranking = rank_values(truth)
        errors = list_swapped_pairs(rank_values(series), true_ranking)
        gains = {error for rival in rivals for error in list_swapped_pairs(rank_values(rival), true_ranking)} - {
            *errors
        }
        yield None if len(gains) != 1 else Finding(
            f"small.{name}", "text", *key, series.title, "", f"{claim} ({join(rival.title for rival in rivals)})",
            f"1 of {count_pairs(true_ranking)} pairs: {join(gains)}", "The rankings differ in the order of one pair.",
        )  # fmt: skip


def check_agreement(paper: Published) -> Iterator[Result]:
    """Check that the counterfactual metrics never rank differently, by values and by printed ranks."""
    if ("claim", "predicament") not in paper.quotes:
        return
    for key in paper.keys:
        rows = [row for row in paper.list_series(key) if row.metric in COUNTERFACTUAL and row.metric != "proximity"]
        differences = [
            f"{first.title} and {second.title}"
            for i, first in enumerate(rows) for second in rows[i + 1 :]
            if list_swapped_pairs(rank_values(first), rank_values(second))
            and get_printed_ranks(first) != get_printed_ranks(second)
        ]  # fmt: skip
        yield None if not differences else Finding(
            f"agreement.{key[0]}.{key[1]}", "text", *key, join(row.title for row in rows), "",
            "counterfactual metrics do not disagree", f"{len(differences)} of {count_pairs(rows)} pairs differ",
            f"These rank the explainers differently: {'; '.join(differences)}.",
        )  # fmt: skip


def check_table_3(paper: Published) -> Iterator[Result]:
    """Compare the stated baselines and explainers of Table 3 with its columns and rows."""
    stated, truth = paper.texts.get(("adults", "baselines", "all")), paper.find_truth(TWO_FEATURES)
    baselines = [series.title for series in paper.list_series(TWO_FEATURES) if series.metric in ERASURE]
    if stated is not None and baselines:
        yield None if len(baselines) == stated.value else Finding(
            "baselines", "text", *TWO_FEATURES, "", "baselines", stated.printed, f"{len(baselines)}: {join(baselines)}",
            "The text and the table differ in the number of baselines.",
        )  # fmt: skip
    if truth is not None and ("claim", "chosen") in paper.quotes:
        additional = [EXPLAINERS[name] for name in truth.figures if name not in _STATED_EXPLAINERS]
        yield None if not additional else Finding(
            "explainers", "text", *TWO_FEATURES, "explainers", "",
            join(EXPLAINERS[name] for name in _STATED_EXPLAINERS), f"{join(additional)} as well",
            "The table has an explainer that the text excludes. LR is the ground truth itself.",
        )  # fmt: skip


def check_omission(paper: Published) -> Iterator[Result]:
    """Check that Omission, defined by the largest drop after deletion, is best by the metrics of that drop."""
    if ("claim", "omission") not in paper.quotes:
        return
    for series in paper.series:
        if series.metric not in ("comprehensiveness", "dfr") or series.k != 1 or "omission" not in series.figures:
            continue
        figure = series.figures["omission"]
        best = max(_COMPLETE, key=lambda name: series.figures[name].value)
        yield None if figure.bounds[1] >= series.figures[best].bounds[0] else Finding(
            f"omission.{series.name}", "text", *series.key, series.title, EXPLAINERS["omission"],
            f"{figure.printed} ({figure.rank_text})", f"at least {series.figures[best].printed} ({EXPLAINERS[best]})",
            "Omission selects the feature whose deletion causes the largest drop in probability. "
            "No other explainer can exceed it by this metric.",
        )  # fmt: skip


def check_boundary(paper: Published) -> Iterator[Result]:
    """Check that an exhaustive search of one feature flips where Decision Boundary flips by one feature."""
    share, series = paper.texts.get(("", "coverage", "all")), paper.find_series(ADULTS, ("validity", "label"))
    if share is None or series is None or "decision_boundary" not in series.figures:
        return
    figure = series.figures["decision_boundary"]
    yield None if figure.bounds[1] >= 1 - share.value else Finding(
        f"boundary.{series.name}", "text", *ADULTS, series.title, EXPLAINERS["decision_boundary"], figure.printed,
        f"more than {1 - share.value:.2f}",
        f"Fewer than {share.printed} % of these explanations have a second feature. A change of the only feature flips "
        "the prediction, and an exhaustive search finds it.",
    )  # fmt: skip


def check_fallback(paper: Published) -> Iterator[Result]:
    """Check that the random edit without a flip has no effect on C; its denominator is the sum of distances."""
    validity, proximity = (paper.find_series(ADULTS, (metric, "label")) for metric in ("validity", "proximity"))
    if ("algorithm1", "no_effect") not in paper.quotes or validity is None or proximity is None:
        return
    shares = [1 - figure.value for figure in validity.figures.values()]
    yield Finding(
        "fallback", "text", *ADULTS, "C (disc.)", "", "no effect of the random edit where nothing flips",
        f"{100 * min(shares):.0f} to {100 * max(shares):.0f} % of the distance",
        "C divides by the distances of all instances. Those without a flip have this share of the distance.",
    )  # fmt: skip


STATEMENT_CHECKS = (
    check_sums, check_counts, check_improvement, check_missing_results, check_claims, check_dfr,
    check_small_differences, check_agreement, check_table_3, check_omission, check_boundary,
    check_fallback,
)  # fmt: skip
