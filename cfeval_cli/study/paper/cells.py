"""Checks of the tables: every figure that follows from others is computed again from them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from cfeval_cli.report.numbers import write_ordinal
from cfeval_cli.study.paper.finding import (
    CE,
    ERASURE,
    Finding,
    Result,
    correlate,
    listed,
    places,
    printed_ranks,
    ranked,
    show,
)
from cfeval_cli.study.paper.published import DATASETS, EXPLAINERS, TRUTH, Coefficient, Figure, Published, Series


def _at(series: Series, explainer: str = "") -> dict[str, str]:
    """Where a figure is: Table 3 has the explainers in its rows."""
    name = EXPLAINERS.get(explainer, "")
    row, column = (name, series.title) if series.table == "3" else (series.title, name)
    return {"table": series.table, "dataset": series.dataset, "row": row, "column": column}


def _of(one: Coefficient, sign: str | None = None) -> dict[str, str]:
    sign = one.sign if sign is None else sign
    row, column = (sign, one.title) if one.table == "3" else (one.title, sign)
    return {"table": one.table, "dataset": one.dataset, "row": row, "column": column}


def typos(paper: Published) -> Iterator[Result]:
    """Printed characters that are not the number they must be, and ranks with a wrong ending."""
    for series in paper.series:
        for name, figure in series.figures.items():
            yield _typo(figure, f"typo.{series.name}.{name}", _at(series, name))
    for one in paper.coefficients:
        if one.figure.meant:
            yield _typo(
                one.figure, f"typo.{one.table}.{one.dataset}.{one.metric}_{one.variant}.{one.kind}", _of(one)
            )  # fmt: skip
    endings = [f for series in paper.series for f in series.figures.values() if f.rank is not None]
    wrong = [figure for figure in endings if figure.rank_text != write_ordinal(figure.rank)]
    if not wrong:
        yield None
        return
    tables = listed(s.table for s in paper.series if any(f in wrong for f in s.figures.values()))
    yield Finding(
        "typo.endings", "typo", tables.replace(", ", "+"), "", "", "",
        f"{listed(f.rank_text for f in wrong)} ({len(wrong)} times)", listed(write_ordinal(f.rank) for f in wrong),
        "A wrong ending that changes no rank.",
    )  # fmt: skip


def _typo(figure: Figure, name: str, where: dict[str, str]) -> Result:
    if float(figure.printed) == figure.value:
        return None
    point = figure.printed == figure.meant.replace(".", "")
    meaning = f"{'A decimal point is missing' if point else 'A misprint'}; the digits tell what was meant."
    return Finding(name, "typo", **where, printed=figure.printed, recomputed=figure.meant, meaning=meaning)


def rank_order(paper: Published) -> Iterator[Result]:
    """Printed ranks against the order of the values beside them."""
    for series in paper.series:
        if any(figure.rank is None for figure in series.figures.values()):
            continue
        printed, by_value = printed_ranks(series), ranked(series)
        wrong = [name for name in printed if printed[name] != by_value[name]]
        if not wrong:
            yield None
            continue
        truth = paper.truth((series.table, series.dataset))
        change = "The correlations of Table 2 are those of the printed ranks, not of the values."
        if truth is not None:
            as_printed, as_valued = (correlate(side, ranked(truth)) for side in (printed, by_value))
            change = (
                f"τ with the truth is {show(as_printed['tau'])} by the printed ranks and {show(as_valued['tau'])} by "
                "the values, so one of the two columns of figures is not what was measured."
            )
        yield Finding(
            f"rank.{series.name}", "contradiction", **_at(series), printed=places(printed, wrong),
            recomputed=places(by_value, wrong), meaning=change,
        )  # fmt: skip


def bold_ranks(paper: Published) -> Iterator[Result]:
    """A rank is to be bold exactly if the truth has the same."""
    for series in paper.series:
        truth = paper.truth((series.table, series.dataset))
        if truth is None or series.pair == TRUTH:
            continue
        for name, figure in series.figures.items():
            if figure.rank is None:
                continue
            right = figure.rank == truth.figures[name].rank
            yield None if right == figure.bold else Finding(
                f"bold.{series.name}.{name}", "contradiction", **_at(series, name), printed=_weight(figure.bold),
                recomputed=_weight(right), meaning="The mark for a right rank does not fit the ranks.",
            )  # fmt: skip


def _weight(bold: bool) -> str:
    return "bold" if bold else "not bold"


def quotients(paper: Published) -> Iterator[Result]:
    """C and C_soft against validity / proximity, with all the room that the printed digits leave."""
    for series in paper.series:
        parts = divided(paper, series)
        if parts is None:
            continue
        above, below = parts
        wrong = []
        for name, figure in series.figures.items():
            ends = [a / b for a in above.figures[name].bounds for b in below.figures[name].bounds]
            if figure.allows(min(ends), max(ends)):
                yield None
                continue
            wrong.append(name)
            exact = above.figures[name].value / below.figures[name].value
            yield Finding(
                f"quotient.{series.name}.{name}", "arithmetic", **_at(series, name), printed=figure.printed,
                recomputed=f"{exact:.4f} ({min(ends):.4f} to {max(ends):.4f})",
                meaning=f"{series.title} is not {above.title} / {below.title}; no rounding explains it.",
            )  # fmt: skip
        if wrong and reciprocal(series, below):
            as_defined = {n: above.figures[n].value / below.figures[n].value for n in series.figures}
            order = sorted(as_defined, key=lambda n: -as_defined[n])
            same = order == sorted(order, key=lambda n: -series.figures[n].value)
            yield Finding(
                f"reciprocal.{series.name}", "arithmetic", **_at(series), printed=f"{above.title} / {below.title}",
                recomputed=f"1 / {below.title} in {len(series.figures)} of {len(series.figures)} cells",
                meaning=f"{series.title} as printed does not look at the prediction at all; computed as defined, its "
                f"values change and its ranking {'stays' if same else 'changes too'}.",
            )  # fmt: skip
            continue
        for name in wrong:
            yield _implied(paper, series, above, below, name)
            yield _same_digits(paper, above, name)


def divided(paper: Published, series: Series) -> tuple[Series, Series] | None:
    """The two rows that a row of C or C_soft is the quotient of: the last ones above it."""
    if series.metric not in ("c", "c_soft"):
        return None
    before = paper.of((series.table, series.dataset))
    before = before[: before.index(series)][::-1]
    above = next((s for s in before if s.pair == (series.metric.replace("c", "validity", 1), series.variant)), None)
    below = next((s for s in before if s.pair == ("proximity", series.variant)), None)
    return None if above is None or below is None else (above, below)


def reciprocal(series: Series, below: Series) -> bool:
    """Whether a whole row is 1 / proximity."""
    for name, figure in series.figures.items():
        low, high = below.figures[name].bounds
        if not figure.allows(1 / high, 1 / low):
            return False
    return True


def _implied(paper: Published, series: Series, above: Series, below: Series, name: str) -> Finding:
    """What validity must have been, if C and proximity are right."""
    figure = above.figures[name]
    exact = series.figures[name].value * below.figures[name].value
    implied = f"{exact:.4f} = C × {below.title}"
    for other in paper.of((series.table, series.dataset)):
        # a row that is the reciprocal of the distance has more of its digits
        if other.metric == "c_soft" and other.variant == series.variant and reciprocal(other, below):
            implied += f"; {series.figures[name].value / other.figures[name].value:.4f} = C / C_soft"
    by_value = ranked(above)[name]
    # its rank among the others as they are printed, if it were what C implies
    fits = figure.rank == 1 + sum(f.value > exact for n, f in above.figures.items() if n != name)
    return Finding(
        f"implied.{above.name}.{name}", "contradiction", **_at(above, name), printed=figure.printed, recomputed=implied,
        meaning=f"The printed value would be the {write_ordinal(by_value)} of its row and is ranked "
        f"{write_ordinal(figure.rank)}; the rank {'fits' if fits else 'does not fit'} the value that {series.title} "
        "implies.",
    )  # fmt: skip


def _same_digits(paper: Published, series: Series, name: str) -> Result:
    """Whether a wrong figure has the digits of another score, the decimal point aside."""
    figure = series.figures[name]
    bare = figure.printed.replace(".", "").lstrip("0")
    for other in paper.of((series.table, series.dataset)):
        parts = divided(paper, other)
        if other.metric != "c_soft" or other.variant != series.variant or parts is None:
            continue
        exact = f"{parts[0].figures[name].value / parts[1].figures[name].value:.{len(bare)}g}"
        if exact.replace(".", "").strip("0") == bare.strip("0"):
            return Finding(
                f"digits.{series.name}.{name}", "note", **_at(series, name), printed=figure.printed,
                recomputed=f"{exact} = {parts[0].title} / {parts[1].title}",
                meaning=f"It has the digits of {other.title} as defined, which could be coincidence or a slip from one "
                "row into another.",
            )  # fmt: skip
    return None


def limits(paper: Published) -> Iterator[Result]:
    """An instance whose label stays keeps at least half the probability, so a drop has a largest possible mean."""
    flips = {
        ("validity_soft", "gradient"): ("validity", "gradient"),
        ("validity_soft", "probability"): ("validity", "label"),  # an exhaustive search finds a flip if there is one
        ("comprehensiveness", "del"): ("dfr", "del"),
    }
    for series in paper.series:
        flipped = paper.find((series.table, series.dataset), flips.get(series.pair, ("", "")))
        if flipped is None:
            continue
        for name, figure in series.figures.items():
            most = (1 + flipped.figures[name].bounds[1]) / 2
            yield None if figure.bounds[0] <= most else Finding(
                f"limit.{series.name}.{name}", "contradiction", **_at(series, name), printed=figure.printed,
                recomputed=f"at most {most:.4f} with {flipped.title} {flipped.figures[name].printed}",
                meaning=f"So large a mean drop in probability needs more changed labels than {flipped.title} says: "
                "one of the two is wrong, whatever the data.",
            )  # fmt: skip


def repeats(paper: Published) -> Iterator[Result]:
    """Rows that are the same in every column."""
    for key in paper.keys:
        for first, second in combinations(paper.of(key), 2):
            same = all(first.figures[name].value == second.figures[name].value for name in first.figures)
            if not same:
                yield None
                continue
            name = f"repeat.{second.name}"
            where = _at(second)
            if first.pair == second.pair:
                yield Finding(
                    name, "note", **where, printed=f"{len(first.figures)} values", recomputed=f"those of {first.title} "
                    "above", meaning="One search served both scores, so they are not two pieces of evidence.",
                )  # fmt: skip
                continue
            others = [s for s in paper.of(key) if s.variant == second.variant and s.metric != second.metric]
            differ = [
                s.title for s in others
                if (twin := paper.find(key, (s.metric, first.variant))) is not None and _unlike(s, twin)
            ]  # fmt: skip
            more = f", although {listed(differ)} does differ between the two" if differ else ""
            yield Finding(
                name, "contradiction", **where, printed=f"{len(first.figures)} values",
                recomputed=f"those of {first.title}",
                meaning=f"Two ways to remove features cannot give the same figures throughout{more}: one row is "
                "probably a copy, and its correlations are no second result.",
            )  # fmt: skip


def _unlike(one: Series, other: Series) -> bool:
    return any(one.figures[name].value != other.figures[name].value for name in one.figures)


def coefficients(paper: Published) -> Iterator[Result]:
    """Every τ and ρ from the printed ranks, and from the values behind these."""
    for one in paper.coefficients:
        series, truth = paper.find(one.source, one.pair), paper.truth(one.source)
        if not one.figure.meant or series is None or truth is None:
            continue
        name = f"{one.table}.{one.dataset}.{one.metric}_{one.variant}.{one.kind}"
        from_ranks = correlate(printed_ranks(series), printed_ranks(truth))[one.kind]
        from_values = correlate(ranked(series), ranked(truth))[one.kind]
        yield None if one.figure.allows(from_ranks) else Finding(
            f"ranks.{name}", "arithmetic", **_of(one), printed=one.figure.printed, recomputed=show(from_ranks),
            meaning=f"The printed {one.sign} is not that of the printed ranks{_lookalikes(paper, one)}.",
        )  # fmt: skip
        yield None if one.figure.allows(from_values) else Finding(
            f"values.{name}", "contradiction", **_of(one), printed=one.figure.printed, recomputed=show(from_values),
            meaning=f"By its own values the metric agrees with the truth "
            f"{'better' if from_values > one.figure.value else 'worse'} than Table {one.table} says.",
        )  # fmt: skip


def _lookalikes(paper: Published, one: Coefficient) -> str:
    """Rows to which a figure that is wrong in its own would be right."""
    titles = []
    for series in paper.of(one.source):
        if series.metric in ERASURE and paper.coefficient(one.table, one.dataset, series.pair, one.kind):
            exact = correlate(printed_ranks(series), printed_ranks(paper.truth(one.source) or series))[one.kind]
            titles += [series.title] if one.figure.allows(exact) else []
    return f"; it is that of {listed(titles)}" if titles else ""


def best(paper: Published) -> Iterator[Result]:
    """The largest of a column is to be bold: by the printed coefficients, and by those of the values."""
    for table, dataset, kind in dict.fromkeys((c.table, c.dataset, c.kind) for c in paper.coefficients):
        group = [c for c in paper.coefficients if (c.table, c.dataset, c.kind) == (table, dataset, kind)]
        group = [c for c in group if c.figure.meant]
        if not group:
            continue
        bold = [c.title for c in group if c.figure.bold]
        largest = max(c.figure.value for c in group)
        by_print = [c.title for c in group if c.figure.value == largest]
        yield None if bold == by_print else Finding(
            f"bold.{table}.{dataset}.{kind}", "contradiction", table, dataset, "", group[0].sign,
            listed(bold), listed(by_print), "The largest coefficients are not those in bold.",
        )  # fmt: skip
        again: dict[str, float] = {}
        for c in group:
            series, truth = paper.find(c.source, c.pair), paper.truth(c.source)
            if series is not None and truth is not None:
                again[c.title] = correlate(ranked(series), ranked(truth))[c.kind]
        by_value = [title for title, coefficient in again.items() if coefficient > max(again.values()) - 1e-9]
        yield None if set(by_value) == set(by_print) else Finding(
            f"best.{table}.{dataset}.{kind}", "contradiction", table, dataset, "", group[0].sign,
            listed(by_print), f"{show(max(again.values()))}: {_more(by_value, by_print)}",
            f"By the values the best of {DATASETS[dataset]} are not those that Table {table} says.",
        )  # fmt: skip


def _more(names: list[str], known: list[str]) -> str:
    """What is new in a list; the whole of it if something known is missing."""
    new = [name for name in names if name not in known]
    return f"{listed(new)} as well" if set(known) <= set(names) else listed(names)


def digits(paper: Published) -> Iterator[Result]:
    """Digits that were cut off where others were rounded."""
    cut: list[str] = []
    up: list[str] = []
    for one in paper.coefficients:
        series, truth = paper.find(one.source, one.pair), paper.truth(one.source)
        if not one.figure.meant or series is None or truth is None:
            continue
        exact = correlate(printed_ranks(series), printed_ranks(truth))[one.kind]
        if show(exact, one.figure) != one.figure.meant and one.figure.allows(exact):
            cut.append(one.figure.printed)
        elif show(exact, one.figure) == one.figure.meant and one.figure.value > exact + 1e-9:
            up.append(one.figure.printed)
    yield None if not cut else Finding(
        "digits.coefficients", "note", "2", "", "", "τ, ρ", f"{listed(cut)} cut off",
        f"{listed(up)} rounded" if up else "none rounded up",
        "Digits are cut off in some cells and rounded in others, so last digits do not count.",
    )  # fmt: skip


def zeros(paper: Published) -> Iterator[Result]:
    """Zeros that stand for what was not computed."""
    groups: dict[tuple[str, str, str], list[Coefficient]] = {}
    for one in paper.coefficients:
        groups.setdefault((one.table, one.dataset, one.title), []).append(one)
    for group in groups.values():
        blank = [one for one in group if not one.figure.meant]
        first = group[0]
        signs = listed(one.sign for one in blank)
        yield None if not blank else Finding(
            f"zero.{first.table}.{first.dataset}.{first.metric}_{first.variant}", "note", **_of(first, signs),
            printed=listed(one.figure.printed for one in blank), recomputed="not computed",
            meaning="A coefficient of zero would mean no agreement at all; here it means that there is no figure.",
        )  # fmt: skip


def variants(paper: Published) -> Iterator[Result]:
    """Figures under the name of another search."""
    seen: dict[tuple[str, str, str], Coefficient] = {}
    for one in paper.coefficients:
        seen.setdefault((one.table, one.dataset, one.title), one)
    for one in seen.values():
        source = paper.find(one.source, one.pair)
        yield None if one.variant == one.printed_variant or source is None else Finding(
            f"variant.{one.table}.{one.dataset}.{one.metric}", "note", **_of(one, "τ, ρ"),
            printed=one.title, recomputed=f"{one.metric} by the search with {one.variant} access",
            meaning=f"{DATASETS.get(one.dataset, one.dataset)} was searched value by value: there is no result of the "
            "continuous search on it, under whatever name.",
        )  # fmt: skip


def same_rankings(paper: Published) -> Iterator[Result]:
    """Counterfactual rows that rank the explainers alike, parts and wholes: one ranking is one piece of evidence."""
    for key in paper.keys:
        ours = [series for series in paper.of(key) if series.metric in CE]
        for series in ours:
            parts = divided(paper, series)
            if parts is None:
                continue
            alike = [part.title for part in parts if ranked(part) == ranked(series)]
            yield None if not alike else Finding(
                f"alike.{series.name}", "note", **_at(series), printed=f"{series.title} as a score of its own",
                recomputed=f"ranks as {' and as '.join(alike)} alone",
                meaning=f"What {series.title} adds to its parts cannot be seen in this ranking.",
            )  # fmt: skip


def optimum(paper: Published) -> Iterator[Result]:
    """If gold is weight × value, deleting the gold has the largest effect that any deletion can have."""
    for series in paper.series:
        if series.metric not in ERASURE or series.variant != "del" or "lr" not in series.figures:
            continue
        low, high = series.figures["lr"].bounds
        for name, figure in series.figures.items():
            if name == "lr":
                continue
            better = figure.bounds[0] > high if series.better == "higher" else figure.bounds[1] < low
            yield None if not better else Finding(
                f"optimum.{series.name}.{name}", "note", **_at(series, name), printed=figure.printed,
                recomputed=f"LR {series.figures['lr'].printed} is the optimum",
                meaning="Of a linear model no explanation of the same size can beat the features with the largest "
                "weight × value here, so either the gold is something else or the two figures are of different "
                "instances; the metric's 'wrong' rank is then no fault of the metric.",
            )  # fmt: skip


def own_optimum(paper: Published) -> Iterator[Result]:
    """Omission names the feature whose deletion takes most from p(ŷ): no other can be better by Comp., or flip more."""
    if ("claim", "omission") not in paper.quotes:
        return
    for series in paper.series:
        if series.metric not in ("comprehensiveness", "dfr") or series.k != 1 or "omission" not in series.figures:
            continue
        figure = series.figures["omission"]
        always = {name: series.figures[name] for name in ("random", "lr") if name in series.figures}
        best = max(always, key=lambda name: always[name].value, default="")
        yield None if not best or figure.bounds[1] >= always[best].bounds[0] else Finding(
            f"own.{series.name}", "claim", **_at(series, "omission"), printed=f"{figure.printed} ({figure.rank_text})",
            recomputed=f"at least {always[best].printed} ({EXPLAINERS[best]})",
            meaning="Omission is said to delete each feature and take the largest drop in probability, which is what "
            "Comp. measures and, of two classes, what flips first: whatever the model, it is 1st by definition if it "
            "deletes as the metric does. It did something else, or the row is wrong.",
        )  # fmt: skip


CHECKS = (
    typos, rank_order, bold_ranks, quotients, limits, repeats, coefficients, best, digits, zeros, variants,
    same_rankings, optimum, own_optimum,
)  # fmt: skip
