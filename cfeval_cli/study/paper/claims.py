"""What the text of the results says, against the tables it speaks of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import combinations, pairwise, product
from statistics import mean

from cfeval_cli.study.paper.finding import CE, ERASURE, Finding, Result, correlate, listed, printed_ranks, ranked, show
from cfeval_cli.study.paper.published import DATASETS, EXPLAINERS, Coefficient, Figure, Key, Published

_C = ("c", "gradient")  # C (cont.)
_COMP = ("comprehensiveness", "del")


def _printed(paper: Published, table: str, metric: str) -> dict[tuple[str, str], Coefficient]:
    """By dataset and kind, the coefficient of a metric in whatever variant has a value."""
    found = (c for c in paper.coefficients if c.table == table and c.metric == metric and c.figure.meant)
    return {(c.dataset, c.kind): c for c in found}


def improvement(paper: Published) -> Iterator[Result]:
    """The average improvement over the strongest baseline, by every natural way to average."""
    stated = paper.texts.get(("", "improvement", ""))
    baseline = {
        (c.dataset, c.kind): c.figure.value
        for c in paper.coefficients if c.table == "2" and c.pair == _COMP and c.figure.meant
    }  # fmt: skip
    if stated is None or not baseline:
        return
    ways: dict[str, float] = {}
    for ours, kinds, datasets in product(("c", "c_soft"), (("tau",), ("rho",), ("tau", "rho")), _some(DATASETS)):
        score = {where: c.figure.value for where, c in _printed(paper, "2", ours).items()}
        cells = [where for where in baseline if where in score and where[0] in datasets and where[1] in kinds]
        if {where[0] for where in cells} != set(datasets):
            continue
        pairs = [(score[where], baseline[where]) for where in cells]
        of = (
            f"{' and '.join({'tau': 'τ', 'rho': 'ρ'}[kind] for kind in kinds)}, {listed(DATASETS[d] for d in datasets)}"
        )
        a, b = (mean(side) for side in zip(*pairs, strict=True))
        if not all(x and y for x, y in [*pairs, (a, b)]):
            continue  # nothing to divide by
        ways[f"{ours}: mean of (ours - theirs) / theirs; {of}"] = mean((x - y) / y for x, y in pairs)
        ways[f"{ours}: mean of (ours - theirs) / ours; {of}"] = mean((x - y) / x for x, y in pairs)
        ways[f"{ours}: means' difference / theirs; {of}"] = (a - b) / b
        ways[f"{ours}: means' difference / ours; {of}"] = (a - b) / a
        ways[f"{ours}: percentage points; {of}"] = a - b
    if not ways:
        return
    hits = {way: value for way, value in ways.items() if stated.allows(value)}
    usual = next(value for way, value in reversed(ways.items()) if "mean of (ours - theirs) / theirs" in way)
    if any("mean of (ours - theirs) / theirs" in way for way in hits):
        yield None
        return
    methods = {way.partition(": ")[2].partition("; ") for way in hits}
    how = " or ".join(sorted(method for method, _, _ in methods)) or f"none of {len(ways)} ways"
    cells_of = listed(sorted(of for _, _, of in methods)) or "none"
    absent = [DATASETS[d] for d in DATASETS if paper.coefficient("2", d, _C, "tau") not in _meant(paper)]
    borrowed = f"; the figures for {listed(absent)} are not those of the metric it speaks of" if absent else ""
    wrongly = "divided by the new value instead" if any("/ ours" in way for way in hits) else "computed otherwise"
    yield Finding(
        "improvement", "arithmetic", "text", "", "average improvement", "", f"{stated.printed} %",
        f"{how}; usual: {usual:.2%}",
        f"An improvement is a share of what one starts from: here it was {wrongly} ({len(hits)} of {len(ways)} "
        f"ways to average give the figure: over {cells_of}){borrowed}.",
    )  # fmt: skip


def _some(names: dict[str, str]) -> list[tuple[str, ...]]:
    return [some for size in range(1, len(names) + 1) for some in combinations(names, size)]


def _meant(paper: Published) -> list[Figure]:
    return [c.figure for c in paper.coefficients if c.figure.meant]


def completely_inconsistent(paper: Published) -> Iterator[Result]:
    """The text says that DFR's ranking of Adults has nothing to do with the true one."""
    key = ("1", "adults")
    series, truth = paper.find(key, ("dfr", "del")), paper.truth(key)
    if series is None or truth is None:
        return
    ours, true = printed_ranks(series), printed_ranks(truth)
    pairs = list(combinations(ours, 2))
    right = sum((ours[a] - ours[b]) * (true[a] - true[b]) > 0 for a, b in pairs)
    same = sum(ours[name] == true[name] for name in ours)
    tau = correlate(ours, true)["tau"]
    yield None if tau <= 0 else Finding(
        "claim.dfr", "claim", "1+2", "adults", series.title, "", "completely inconsistent",
        f"τ {show(tau)}; {right} of {len(pairs)} pairs, {same} of {len(ours)} ranks right",
        "No rank is exactly right, but the ranking agrees with the truth more than it disagrees."
        if not same else "The ranking agrees with the truth more than it disagrees.",
    )  # fmt: skip


def both_datasets(paper: Published) -> Iterator[Result]:
    """C (cont.) is said to beat the strongest baseline on both datasets."""
    there = {d: _value(paper, "2", d, _C) for d in DATASETS}
    if not any(c.pair == _C for c in paper.coefficients):
        return
    absent = [DATASETS[d] for d, figure in there.items() if figure is None]
    yield None if not absent else Finding(
        "claim.c_cont", "claim", "2", "", "C (cont.)", "", f"better than Comp. (del.) on {len(there)} datasets",
        f"a figure on {len(there) - len(absent)}; none on {listed(absent)}",
        "What is claimed for the continuous search was measured on part of the data only.",
    )  # fmt: skip


def _value(paper: Published, table: str, dataset: str, pair: tuple[str, str]) -> Figure | None:
    figure = paper.coefficient(table, dataset, pair, "tau")
    return figure if figure is not None and figure.meant else None


def labels_only(paper: Published) -> Iterator[Result]:
    """The case for label access rests on the datasets for which there is such a search."""
    pair = ("c", "label")
    if not any(c.pair == pair for c in paper.coefficients):
        return
    absent = [DATASETS[d] for d in DATASETS if _value(paper, "2", d, pair) is None]
    yield None if not absent else Finding(
        "claim.labels", "claim", "2", "", "C (disc.)", "", "higher τ, ρ than DFR with labels alone",
        f"no figure on {listed(absent)}",
        f"The comparison with labels alone was made on {len(DATASETS) - len(absent)} of {len(DATASETS)} datasets.",
    )  # fmt: skip


def _by_values(paper: Published, key: Key) -> dict[str, tuple[str, float]]:
    """τ by the values, of every metric that Table 2 judges: title to metric and τ."""
    truth = paper.truth(key)
    judged = {c.pair: c for c in paper.coefficients if c.source == key and c.figure.meant}
    found = {}
    for series in paper.of(key):
        if series.pair in judged and truth is not None:
            found[series.title] = (series.metric, correlate(ranked(series), ranked(truth))["tau"])
    return found


def strongest_baseline(paper: Published) -> Iterator[Result]:
    """Comp. (del.) is called the strongest baseline, and the counterfactual scores are said to beat all."""
    for dataset, title in DATASETS.items():
        found = _by_values(paper, ("1", dataset))
        erasure = {name: tau for name, (metric, tau) in found.items() if metric in ERASURE}
        ours = {name: tau for name, (metric, tau) in found.items() if metric in CE}
        mine = paper.find(("1", dataset), _COMP)
        if not erasure or not ours or mine is None:
            continue
        top = max(erasure.values())
        stronger = [name for name, tau in erasure.items() if tau > erasure[mine.title] + 1e-9]
        yield None if not stronger else Finding(
            f"claim.strongest.{dataset}", "claim", "1+2", dataset, mine.title, "τ by values",
            f"strongest baseline ({show(erasure[mine.title])})", f"{listed(stronger)} {show(top)}",
            f"On {title} the proposed metrics were compared with a baseline that is not the strongest.",
        )  # fmt: skip
        equal = [name for name, tau in erasure.items() if tau > max(ours.values()) - 1e-9]
        yield None if not equal else Finding(
            f"claim.superior.{dataset}", "claim", "1+2", dataset, listed(ours), "τ by values",
            "higher than every erasure metric", f"{show(max(ours.values()))}; {listed(equal)} {show(top)}",
            f"By the values that are printed, no superiority is left on {title}.",
        )  # fmt: skip


def refined(paper: Published) -> Iterator[Result]:
    """Dividing by proximity is said to refine the ranking of Adults by Validity_soft significantly."""
    key = ("1", "adults")
    soft, c_soft, truth = (
        paper.find(key, pair)
        for pair in (("validity_soft", "probability"), ("c_soft", "probability"), ("recall", "signed"))
    )
    if soft is None or c_soft is None or truth is None:
        return
    before, after = printed_ranks(soft), printed_ranks(c_soft)
    turned = [
        (a, b) for a, b in combinations(before, 2) if (before[a] - before[b]) * (after[a] - after[b]) < 0
    ]  # fmt: skip
    taus = [correlate(side, printed_ranks(truth))["tau"] for side in (before, after)]
    yield None if len(turned) != 1 or taus[1] <= taus[0] else Finding(
        "claim.refined", "claim", "1", "adults", f"{soft.title}, {c_soft.title}", "",
        "significantly refined by Proximity",
        f"τ {show(taus[0])} to {show(taus[1])}: {len(turned)} pair, "
        + ", ".join(soft.figures[name].printed for pair in turned for name in pair),
        "The refinement is the order of two explainers whose scores nearly coincide.",
    )  # fmt: skip


def far_beyond(paper: Published) -> Iterator[Result]:
    """With two features, C_soft is said to be far beyond the other two baselines."""
    key = ("3", "adults")
    ours = next((s for s in paper.of(key) if s.metric == "c_soft"), None)
    truth = paper.truth(key)
    if ours is None or truth is None:
        return
    others = [s for s in paper.of(key) if s.metric in ERASURE]
    true, ranks = printed_ranks(truth), printed_ranks(ours)
    wrong = {
        s.title: [(a, b) for a, b in combinations(true, 2)
                  if (printed_ranks(s)[a] - printed_ranks(s)[b]) * (true[a] - true[b]) < 0]
        for s in others
    }  # fmt: skip
    pairs = {pair for some in wrong.values() for pair in some}
    told = ", ".join(f"{EXPLAINERS[a]}/{EXPLAINERS[b]}" for a, b in sorted(pairs))
    yield None if len(pairs) != 1 else Finding(
        "claim.far_beyond", "claim", "3", "adults", "", ours.title, "far beyond the baselines",
        f"{len(pairs)} of {len(list(combinations(true, 2)))} pairs: {told}",
        "All baselines fail in the same one pair, and only there.",
    )  # fmt: skip
    values = sorted(ours.figures, key=lambda name: ranks[name])
    gap = min(
        ((abs(ours.figures[a].value - ours.figures[b].value), a, b) for a, b in pairwise(values)),
    )
    share = gap[0] / max(figure.value for figure in ours.figures.values())
    yield None if share > 0.01 else Finding(
        "claim.gap", "claim", "3", "adults", f"{EXPLAINERS[gap[1]]}, {EXPLAINERS[gap[2]]}", ours.title,
        f"{ours.figures[gap[1]].printed}, {ours.figures[gap[2]].printed}",
        f"{gap[0]:.4f} apart, {share:.1%} of the largest",
        "The agreement with the truth depends on the last digits of two figures.",
    )  # fmt: skip
    stated = paper.texts.get(("adults", "baselines", "all"))
    if stated is None:
        return
    yield None if len(others) == stated.value else Finding(
        "claim.baselines", "claim", "3", "adults", "", "", f"{stated.printed} baselines", f"{len(others)}: "
        f"{listed(s.title for s in others)}", "The text does not fit its table.",
    )  # fmt: skip


def left_out(paper: Published) -> Iterator[Result]:
    """Explainers are said to be left out of Table 3 because they name one feature only."""
    first, third = paper.truth(("1", "adults")), paper.truth(("3", "adults"))
    if first is None or third is None:
        return
    absent = [name for name in first.figures if name not in third.figures]
    coverage = paper.texts.get(("", "coverage", "all"))
    yield None if "omission" not in absent or coverage is None else Finding(
        "claim.left_out", "claim", "3", "adults", listed(EXPLAINERS[name] for name in absent), "",
        f"name several for under {coverage.printed} %", f"{len(third.figures)} of "
        f"{len(first.figures)} left; Omission scores all features",
        "Omission could have named as many features as one likes: nothing forced so small a comparison.",
    )  # fmt: skip


def consistency(paper: Published) -> Iterator[Result]:
    """Rankings that are said to be right in every place."""
    for key, metric in ((("1", "adults"), "c"), (("3", "adults"), "c_soft")):
        stated = paper.texts.get((key[1], "consistency", metric))
        series = next((s for s in paper.of(key) if s.metric == metric), None)
        truth = paper.truth(key)
        if stated is None or series is None or truth is None:
            continue
        same = mean(ranked(series)[name] == ranked(truth)[name] for name in series.figures)
        yield None if stated.allows(same) else Finding(
            f"claim.consistent.{series.name}", "claim", *key, series.title, "", f"{stated.printed} %", f"{same:.0%}",
            "By the values the ranking is not that of the truth.",
        )  # fmt: skip


def disagree(paper: Published) -> Iterator[Result]:
    """Comp. and Suff. are said to rank differently on Movie Reviews, the counterfactual scores not to."""
    key = ("1", "movie_reviews")
    for metrics, alike in ((("comprehensiveness", "sufficiency"), False), (("c", "c_soft"), True)):
        first, second = (next((s for s in paper.of(key) if s.metric == metric), None) for metric in metrics)
        if first is None or second is None:
            continue
        yield None if (ranked(first) == ranked(second)) == alike else Finding(
            f"claim.disagree.{metrics[0]}", "claim", *key, f"{first.title}, {second.title}", "",
            *(("the same ranking", "different rankings") if alike else ("different rankings", "the same ranking")),
            "The text does not fit the values of its table.",
        )  # fmt: skip


def distance(paper: Published) -> Iterator[Result]:
    """One changed feature in one-hot space is √2 away, and the text repeats it."""
    stated = paper.texts.get(("adults", "proximity", "label"))
    series = paper.find(("1", "adults"), ("proximity", "label"))
    if series is None or stated is None:
        return
    for name, figure in series.figures.items():
        yield None if figure.allows(2**0.5) and stated.allows(figure.value) else Finding(
            f"claim.distance.{name}", "claim", "1", "adults", series.title, EXPLAINERS[name], figure.printed,
            f"{2**0.5:.4f}", "One changed feature has one distance in one-hot space.",
        )  # fmt: skip


def predicament(paper: Published) -> Iterator[Result]:
    """The counterfactual scores are said never to disagree with each other."""
    if ("claim", "predicament") not in paper.quotes:
        return
    for key in paper.keys:
        ours = [series for series in paper.of(key) if series.metric in CE and series.metric != "proximity"]
        apart = []
        for first, second in combinations(ours, 2):
            one, other = ranked(first), ranked(second)
            turned = [
                f"{EXPLAINERS[a]}/{EXPLAINERS[b]}" for a, b in combinations(one, 2)
                if (one[a] - one[b]) * (other[a] - other[b]) < 0
            ]  # fmt: skip
            # Movie Reviews' Validity of LR is a misprint that another finding tells of
            if turned and printed_ranks(first) != printed_ranks(second):
                apart.append((f"{first.title} and {second.title}", turned))
        whole = {tuple(ranked(series).values()) for series in ours if series.metric in ("c", "c_soft")}
        combined = ", although the scores that divide by the distance agree" if len(whole) == 1 else ""
        yield None if not apart else Finding(
            f"claim.predicament.{key[0]}.{key[1]}", "claim", *key, "", "", "CE scores do not disagree",
            f"{len(apart)} of {len(list(combinations(ours, 2)))} pairs: "
            f"{listed(one for _, turned in apart for one in turned)}",
            "What is held against Comp. and Suff. is true of the method's own scores: a user with "
            f"{apart[-1][0]} has to decide which to trust{combined}.",
        )  # fmt: skip


def much_higher(paper: Published) -> Iterator[Result]:
    """C (cont.) is said to have much higher coefficients than Comp. (del.)."""
    if ("claim", "much_higher") not in paper.quotes:
        return
    for dataset in DATASETS:
        key = ("1", dataset)
        ours, theirs, truth = paper.find(key, _C), paper.find(key, _COMP), paper.truth(key)
        if ours is None or theirs is None or truth is None:
            continue
        true = ranked(truth)
        wrong = [
            {pair for pair in combinations(true, 2) if _turned(ranked(side), true, pair)} for side in (ours, theirs)
        ]
        gain = wrong[1] - wrong[0]
        told = listed(f"{EXPLAINERS[a]}/{EXPLAINERS[b]}" for a, b in sorted(gain))
        yield None if len(gain) - len(wrong[0] - wrong[1]) != 1 else Finding(
            f"claim.much_higher.{dataset}", "claim", "1+2", dataset, f"{ours.title}, {theirs.title}", "",
            "much higher τ and ρ", f"1 of {len(list(combinations(true, 2)))} pairs: {told}",
            f"The smallest difference that two rankings of {len(true)} explainers can have.",
        )  # fmt: skip


def _turned(ours: Mapping[str, float], truth: Mapping[str, float], pair: tuple[str, str]) -> bool:
    a, b = pair
    return (ours[a] - ours[b]) * (truth[a] - truth[b]) < 0


def chosen(paper: Published) -> Iterator[Result]:
    """Who is said to be in Table 3, and who is."""
    quote, truth = paper.quotes.get(("claim", "chosen")), paper.truth(("3", "adults"))
    if quote is None or truth is None:
        return
    named = [name for name, title in EXPLAINERS.items() if re.search(rf"\b{title}\b", quote)]
    more = [EXPLAINERS[name] for name in truth.figures if name not in named]
    yield None if not more else Finding(
        "claim.chosen", "claim", "3", "adults", "", "", f"only {listed(EXPLAINERS[name] for name in named)}",
        f"{len(truth.figures)}: {listed(more)} as well",
        "The explainer that is the truth itself was added, and the whole lead of C_soft in Table 3 is where it is put.",
    )  # fmt: skip


CHECKS = (
    improvement, completely_inconsistent, both_datasets, labels_only, strongest_baseline, refined, far_beyond, left_out,
    consistency, disagree, distance, predicament, much_higher, chosen,
)  # fmt: skip
