"""Checks of the tables: figures that follow from other figures are recomputed from them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations

from cfeval_cli.report.numbers import write_ordinal
from cfeval_cli.report.published import EXPLAINERS, TRUTH, Coefficient, Published, Series
from cfeval_cli.study.paper.finding import (
    Finding,
    Result,
    correlate,
    get_printed_ranks,
    join,
    rank_values,
    write_figures,
    write_ranks,
)

_MAX_DEVIATION = 4  # standard errors
_NUMERATORS = {"c": "validity", "c_soft": "validity_soft"}
# metrics of the drop in probability, and the share of flips of the same edits: an exhaustive search finds a flip if any
_FLIPS = {
    ("validity_soft", "gradient"): ("validity", "gradient"),
    ("validity_soft", "probability"): ("validity", "label"),
    ("comprehensiveness", "del"): ("dfr", "del"),
}


def _locate(series: Series, explainer: str = "") -> dict[str, str]:
    """Return the place of a figure; Table 3 has the explainers in its rows."""
    name = EXPLAINERS.get(explainer, "")
    row, column = (name, series.title) if series.table == "3" else (series.title, name)
    return {"table": series.table, "dataset": series.dataset, "row": row, "column": column}


def _locate_coefficient(coefficient: Coefficient, sign: str = "") -> dict[str, str]:
    sign, title = sign or coefficient.symbol, coefficient.title
    row, column = (sign, title) if coefficient.table == "3" else (title, sign)
    return {"table": coefficient.table, "dataset": coefficient.dataset, "row": row, "column": column}


def check_characters(paper: Published) -> Iterator[Result]:
    """Compare printed characters with the numbers that the rest of the row allows, and ranks with their endings."""
    cells = [
        (f"{series.name}.{name}", figure, _locate(series, name))
        for series in paper.series for name, figure in series.figures.items()
    ]  # fmt: skip
    cells += [
        (coefficient.name, coefficient.figure, _locate_coefficient(coefficient))
        for coefficient in paper.coefficients if coefficient.figure.corrected
    ]  # fmt: skip
    for name, figure, place in cells:
        is_right = float(figure.printed) == figure.value
        yield None if is_right else Finding(
            f"misprint.{name}", "misprint", **place, printed=figure.printed, recomputed=figure.corrected,
            meaning="The decimal point is missing.",
        )  # fmt: skip
    wrong = {
        figure.rank_text: write_ordinal(figure.rank)
        for _, figure, _ in cells if figure.rank is not None and figure.rank_text != write_ordinal(figure.rank)
    }  # fmt: skip
    count = sum(figure.rank_text in wrong for _, figure, _ in cells)
    yield None if not wrong else Finding(
        "misprint.endings", "misprint", "1 and 3", "", "ranks", "", f"{join(wrong)} ({count} times)",
        join(wrong.values()), "The ending of the ordinal is wrong. The rank is not affected.",
    )  # fmt: skip


def check_ranks(paper: Published) -> Iterator[Result]:
    """Compare printed ranks with the order of the values."""
    for series in paper.series:
        truth = paper.find_truth(series.key)
        if truth is None or any(figure.rank is None for figure in series.figures.values()):
            continue
        printed, by_value = get_printed_ranks(series), rank_values(series)
        wrong = [name for name in printed if printed[name] != by_value[name]]
        before, after = (correlate(ranking, rank_values(truth))["tau"] for ranking in (printed, by_value))
        yield None if not wrong else Finding(
            f"rank.{series.name}", "table", **_locate(series), printed=write_ranks(printed, wrong),
            recomputed=write_ranks(by_value, wrong),
            meaning="The printed ranks are not those of the values. "
            f"τ with the ground truth is {before:.4f} by the printed ranks and {after:.4f} by the values.",
        )  # fmt: skip


def check_quotients(paper: Published) -> Iterator[Result]:
    """Compare C and C_soft with validity / proximity, allowing for rounded or truncated digits."""
    for series in paper.series:
        parts = _find_parts(paper, series)
        if parts is None:
            continue
        above, below = parts
        quotients = {name: above.figures[name].value / below.figures[name].value for name in series.figures}
        wrong = [
            name for name, figure in series.figures.items()
            if not figure.allows(*_bound_quotient(above.figures[name].bounds, below.figures[name].bounds))
        ]  # fmt: skip
        is_reciprocal = all(
            figure.allows(*_bound_quotient((1, 1), below.figures[name].bounds))
            for name, figure in series.figures.items()
        )
        products = [f"{series.figures[name].value * below.figures[name].value:.4f}" for name in wrong]
        comparison = (
            f"All printed values equal 1 / {below.title}."
            if is_reciprocal
            else f"{series.title} × {below.title} is {' '.join(products)}, but the printed {above.title} is "
            f"{write_figures(above.figures[name] for name in wrong)}."
        )
        yield None if not wrong else Finding(
            f"quotient.{series.name}", "table", **_locate(series, wrong[0] if len(wrong) == 1 else ""),
            printed=write_figures(series.figures[name] for name in wrong),
            recomputed=" ".join(f"{quotients[name]:.4f}" for name in wrong),
            meaning=f"The definition is {above.title} / {below.title}. {comparison}",
        )  # fmt: skip


def _bound_quotient(above: tuple[float, float], below: tuple[float, float]) -> tuple[float, float]:
    quotients = [a / b for a in above for b in below]
    return min(quotients), max(quotients)


def _find_parts(paper: Published, series: Series) -> tuple[Series, Series] | None:
    """Find the rows that C or C_soft is the quotient of: the last ones above it."""
    if series.metric not in _NUMERATORS:
        return None
    rows = paper.list_series(series.key)
    rows_above = rows[: rows.index(series)][::-1]
    wanted = (_NUMERATORS[series.metric], series.variant), ("proximity", series.variant)
    above, below = (next((row for row in rows_above if row.pair == pair), None) for pair in wanted)
    return None if above is None or below is None else (above, below)


def check_limits(paper: Published) -> Iterator[Result]:
    """Check that a mean drop in probability is possible: without a flip, at most half of the probability is lost."""
    for series in paper.series:
        flips = paper.find_series(series.key, _FLIPS.get(series.pair, ("", "")))
        if flips is None:
            continue
        for name, figure in series.figures.items():
            limit = (1 + flips.figures[name].bounds[1]) / 2
            yield None if figure.bounds[0] <= limit else Finding(
                f"limit.{series.name}.{name}", "table", **_locate(series, name), printed=figure.printed,
                recomputed=f"at most {limit:.4f}",
                meaning=f"The mean drop in probability cannot exceed (1 + {flips.title}) / 2. "
                f"{flips.title} is printed as {flips.figures[name].printed}.",
            )  # fmt: skip


def check_repeated_rows(paper: Published) -> Iterator[Result]:
    """Find rows of different metrics with the same values throughout."""
    for key in paper.keys:
        for first, second in combinations(paper.list_series(key), 2):
            is_same = first.pair != second.pair and all(
                figure.value == second.figures[name].value for name, figure in first.figures.items()
            )
            yield None if not is_same else Finding(
                f"repeat.{second.name}", "table", **_locate(second), printed=f"{len(second.figures)} values",
                recomputed=f"the values of {first.title}",
                meaning="Two ways to remove features have the same values for all explainers.",
            )  # fmt: skip


def check_coefficients(paper: Published) -> Iterator[Result]:
    """Compare every τ and ρ with that of the printed ranks and that of the printed values."""
    for coefficient in paper.coefficients:
        series, truth = paper.find_series(coefficient.source, coefficient.pair), paper.find_truth(coefficient.source)
        if not coefficient.figure.corrected or series is None or truth is None:
            continue
        by_rank = correlate(get_printed_ranks(series), get_printed_ranks(truth))[coefficient.kind]
        by_value = correlate(rank_values(series), rank_values(truth))[coefficient.kind]
        is_possible = [coefficient.figure.allows(value) for value in (by_rank, by_value)]
        source = f"Table {coefficient.source[0]}"
        yield None if all(is_possible) else Finding(
            f"coefficient.{coefficient.name}", "table", **_locate_coefficient(coefficient),
            printed=coefficient.figure.printed, recomputed=f"{by_rank:.4f} by ranks, {by_value:.4f} by values",
            meaning=f"The ranks and the values of {source} give different coefficients." if any(is_possible)
            else f"The printed coefficient does not follow from {source}: neither from its ranks nor from its values.",
        )  # fmt: skip


def check_zeros(paper: Published) -> Iterator[Result]:
    """Find zeros printed for coefficients that were not computed."""
    missing = [coefficient for coefficient in paper.coefficients if not coefficient.figure.corrected]
    for dataset in dict.fromkeys(coefficient.dataset for coefficient in missing):
        titles = join(coefficient.title for coefficient in missing if coefficient.dataset == dataset)
        yield Finding(
            f"zero.2.{dataset}", "misprint", "2", dataset, titles, "τ, ρ", "0", "not computed",
            "The metric was not computed on these data. A coefficient of 0 would mean no agreement.",
        )  # fmt: skip
    if not missing:
        yield None


def check_variants(paper: Published) -> Iterator[Result]:
    """Find coefficients under the name of another search."""
    for coefficient in paper.coefficients:
        if coefficient.kind != "tau":
            continue
        is_right = coefficient.variant == coefficient.printed_variant
        yield None if is_right or paper.find_series(coefficient.source, coefficient.pair) is None else Finding(
            f"variant.{coefficient.table}.{coefficient.dataset}.{coefficient.metric}", "misprint",
            **_locate_coefficient(coefficient, "τ, ρ"), printed=coefficient.title, recomputed="C_soft (disc.)",
            meaning="The values are those of the discrete search. Adults has no continuous search.",
        )  # fmt: skip


def check_chance_level(paper: Published) -> Iterator[Result]:
    """Compare the ground truth of random features with its expectation, k / number of features."""
    for series in paper.series:
        features, size = (
            paper.texts.get((series.dataset, "features", "all")),
            paper.count_test_instances(series.dataset),
        )
        figure = series.figures.get("random")
        if series.pair != TRUTH or features is None or size is None or figure is None:
            continue
        m, k = round(features.value), series.k
        expected = k / m
        spread = math.sqrt(expected * (1 - expected) * (m - k) / (m - 1) / k / size)  # k draws without repetition
        deviation = (figure.value - expected) / spread
        yield None if abs(deviation) < _MAX_DEVIATION else Finding(
            f"random.{series.name}", "table", **_locate(series, "random"), printed=figure.printed,
            recomputed=f"{expected:.4f} ± {spread:.4f}",
            meaning=f"{k} of {m} features drawn at random include {k}/{m} of the true features on average. "
            f"The printed value deviates by {deviation:.0f} standard errors.",
        )  # fmt: skip


TABLE_CHECKS = (
    check_characters, check_zeros, check_variants, check_ranks, check_quotients, check_limits,
    check_repeated_rows, check_coefficients, check_chance_level,
)  # fmt: skip
