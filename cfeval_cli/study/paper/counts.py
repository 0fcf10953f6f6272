"""Checks of the sizes: what can be counted must come out as whole numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator

from cfeval_cli.study.paper.finding import SHARES, Finding, Result, listed
from cfeval_cli.study.paper.published import DATASETS, EXPLAINERS, TRUTH, Figure, Published, Series

ALWAYS = ("random", "lr")  # name k features of every instance, so that their shares are of the whole test set
_FAR = 4  # standard errors that no luck explains
_APART = 1.96  # standard errors that luck seldom explains

# The mean of 1 / words over the sentences of Movie Reviews, and how many these are. The paper does not print it; the
# data tell: python -c "from cfeval_cli.study.paper.words import measure; print(measure('data'))"
WORDS = (0.063803032, 10_433)


def totals(paper: Published, dataset: str) -> dict[str, int]:
    """How many rows there are, as stated and as the classes add up."""
    stated = paper.texts.get((dataset, "rows", "all"))
    classes = [paper.texts.get((dataset, "rows", name)) for name in ("positive", "negative")]
    found = {} if stated is None else {"stated": round(stated.value)}
    if None not in classes:
        found["by class"] = sum(round(one.value) for one in classes if one is not None)
    return found


def held_out(paper: Published, dataset: str) -> list[int]:
    """How many instances a test set of the stated share can have, for each total, rounded down or up."""
    share = paper.texts.get(("", "share", "test"))
    if share is None:
        return []
    exact = [total * share.value for total in totals(paper, dataset).values()]
    return sorted({size for one in exact for size in (math.floor(one + 1e-9), math.ceil(one - 1e-9))})


def whole(figure: Figure, size: int) -> int | None:
    """The count that, of so many instances, could have been printed as this share."""
    low, high = figure.bounds
    return next((n for n in range(math.floor(low * size), math.ceil(high * size) + 1) if figure.allows(n / size)), None)


def sums(paper: Published) -> Iterator[Result]:
    """The classes add up to the whole."""
    for dataset in DATASETS:
        found = totals(paper, dataset)
        if len(found) < 2:
            continue
        stated, added = found.values()
        parts = " + ".join(paper.texts[dataset, "rows", name].printed for name in ("positive", "negative"))
        yield None if stated == added else Finding(
            f"sum.{dataset}", "arithmetic", "text", dataset, "rows", "", paper.texts[dataset, "rows", "all"].printed,
            f"{added:,} = {parts}", "It is not said which rows were used.",
        )  # fmt: skip


def accuracies(paper: Published) -> Iterator[Result]:
    """The test accuracy is a whole number of instances out of the test set, for every total that is stated."""
    for dataset in DATASETS:
        accuracy = paper.texts.get((dataset, "accuracy", "test"))
        sizes = held_out(paper, dataset)
        if accuracy is None or not sizes:
            continue
        share = paper.texts["", "share", "test"].value
        fits = {size: whole(accuracy, size) for size in sizes}
        told = ", ".join(f"{n}/{size}" for size, n in fits.items() if n is not None) or "none"
        for name, total in totals(paper, dataset).items():
            near = [size for size in sizes if abs(size - total * share) < 1]
            yield None if any(fits[size] is not None for size in near) else Finding(
                f"accuracy.{dataset}.{name.replace(' ', '_')}", "arithmetic", "text", dataset, "accuracy", "",
                f"{accuracy.printed} %", f"no count out of {' or '.join(map(str, near))}; fits {told}",
                f"The accuracy cannot be of a test set drawn from {total:,} rows, the total {name}.",
            )  # fmt: skip


def _shares(paper: Published, dataset: str) -> list[tuple[Series, str, Figure]]:
    """Printed shares of instances that are neither none nor all."""
    return [
        (series, name, figure)
        for series in paper.series if series.dataset == dataset and series.metric in SHARES
        # of several features, part can be gold: such a truth is no count of instances
        and not (series.pair == TRUTH and series.k > 1)
        for name, figure in series.figures.items() if 0 < figure.value < 1
    ]  # fmt: skip


def fractions(paper: Published) -> Iterator[Result]:
    """All shares of explainers that always answer, and the accuracy, are counts out of one test set."""
    for dataset in DATASETS:
        sizes = held_out(paper, dataset)
        shares = _shares(paper, dataset)
        always = [one for one in shares if one[1] in ALWAYS]
        accuracy = paper.texts.get((dataset, "accuracy", "test"))
        if not sizes or not always or accuracy is None:
            continue
        fit = {size: [one for one in always if whole(one[2], size) is not None] for size in sizes}
        right = {size: whole(accuracy, size) is not None for size in sizes}
        good = [size for size in sizes if len(fit[size]) == len(always)]
        told = "; ".join(f"{size}: {len(fit[size])}{' and accuracy' if right[size] else ''}" for size in sizes)
        meaning = (
            f"The shares are counts out of {listed(map(str, good))} instances and the accuracy is not, so accuracy and "
            "scores are not of the same test set or model."
            if good
            else "These are no counts out of a test set of the stated size: they are means over something that the "
            "paper does not tell of, such as several runs, or another number of instances."
        )
        by = listed(EXPLAINERS[name] for name in ALWAYS)
        yield None if any(right[size] for size in good) else Finding(
            f"fractions.{dataset}", "arithmetic", listed(s.table for s, _, _ in always).replace(", ", "+"), dataset,
            "shares", by, f"{len(always)} shares and accuracy", f"fit N = {told}", meaning,
        )  # fmt: skip
        for size in good:
            off = [(s, n, f) for s, n, f in shares if whole(f, size) is None]
            yield None if not off else Finding(
                f"instances.{dataset}.{size}", "note", listed(s.table for s, _, _ in off).replace(", ", "+"), dataset,
                listed(s.title for s, _, _ in off), listed(EXPLAINERS[n] for _, n, _ in off),
                listed(f.printed for _, _, f in off), f"no count out of {size}, as {len(shares) - len(off)} others are",
                "These are averages over other instances than the rest, so the ranks compare unlike things.",
            )  # fmt: skip


def chance_level(paper: Published) -> Iterator[Result]:
    """What a random choice must score: the share of the gold that is found, or at least one in common."""
    for series in paper.series:
        features, sizes = paper.texts.get((series.dataset, "features", "all")), held_out(paper, series.dataset)
        figure = series.figures.get("random")
        if series.pair != TRUTH or features is None or not sizes or figure is None:
            continue
        m, k, size = round(features.value), series.k, sizes[0]
        recall = k / m
        spread = math.sqrt(recall * (1 - recall) * (m - k) / (m - 1) / k / size)  # k draws without repetition
        off = (figure.value - recall) / spread
        if abs(off) < _FAR:
            yield None
            continue
        hit = 1 - math.comb(m - k, k) / math.comb(m, k)
        hit_off = (figure.value - hit) / math.sqrt(hit * (1 - hit) / size)
        yield Finding(
            f"random.{series.name}", "contradiction", series.table, series.dataset, EXPLAINERS["random"], series.title,
            figure.printed, f"{recall:.4f} ({off:+.1f} s.e.); hit rate {hit:.4f} ({hit_off:+.1f} s.e.)",
            f"The share of {k} gold features among {m} that a random choice finds is known; the printed one is "
            f"{'a rate of at least one in common' if abs(hit_off) < _FAR else 'neither of the two usual scores'}, not "
            "the fraction that the text defines.",
        )  # fmt: skip


def random_words(paper: Published) -> Iterator[Result]:
    """A word drawn from a sentence of n is the gold one in one case of n: known, but for the noise of a test set."""
    truth, sizes = paper.truth(("1", "movie_reviews")), held_out(paper, "movie_reviews")
    figure = None if truth is None else truth.figures.get("random")
    if truth is None or figure is None or not sizes or WORDS[1] not in totals(paper, "movie_reviews").values():
        return  # or these are other sentences
    mean, size = WORDS[0], sizes[0]
    spread = math.sqrt(mean * (1 - mean) / size)
    off = (figure.value - mean) / spread
    # a normal variable lies so far off, to either side
    p = math.erfc(abs(off) / math.sqrt(2))
    omission = truth.figures.get("omission")
    beside = ""
    if omission is not None:
        beside = f"; Omission's, which should be far above, is {(omission.value - mean) / spread:+.1f} s.e. from it"
    yield None if abs(off) < _APART else Finding(
        f"random.{truth.name}", "significance", truth.table, truth.dataset, truth.title, EXPLAINERS["random"],
        figure.printed, f"{mean:.3f} ± {spread:.3f}: {off:+.1f} s.e., p {p:.3f}",
        f"What a word drawn at random scores follows from the lengths of the sentences ({WORDS[1]:,} of the data; the "
        f"paper does not print it). By itself, chance puts the figure so far off in {p:.1%} of cases{beside}.",
    )  # fmt: skip


def boundary(paper: Published) -> Iterator[Result]:
    """An edit of one feature that crosses the boundary is in the space that an exhaustive search of it goes through."""
    coverage = paper.texts.get(("", "coverage", "all"))
    for series in paper.series:
        figure = series.figures.get("decision_boundary")
        if series.pair != ("validity", "label") or series.k != 1 or coverage is None or figure is None:
            continue
        third = next((s for s in paper.series if s.dataset == series.dataset and s.k > 1), None)
        if third is None or "decision_boundary" in third.figures:
            continue  # it is not among those that are said to name one feature
        least = 1 - coverage.value
        yield None if figure.bounds[1] >= least else Finding(
            f"boundary.{series.name}", "contradiction", series.table, series.dataset, series.title,
            EXPLAINERS["decision_boundary"], figure.printed,
            f"over {least:.2f}: fewer than {coverage.printed} % name a second feature",
            "Its explanation is the edit of fewest features that crosses the boundary. If that is one feature, as the "
            "text says of more than half, trying all values of that feature must flip. The search was not exhaustive, "
            "or the explanations are others than described, or many are empty and were counted as failures.",
        )  # fmt: skip


def confidence(paper: Published) -> Iterator[Result]:
    """A probability cannot drop by more than it was, so a mean drop is a floor for the model's mean confidence."""
    for dataset, title in DATASETS.items():
        accuracy = paper.texts.get((dataset, "accuracy", "test"))
        drops = [
            (series.figures[name].bounds[0], series, name)
            for series in paper.series
            if series.dataset == dataset and series.metric in ("validity_soft", "comprehensiveness", "sufficiency")
            for name in ALWAYS if name in series.figures
        ]  # fmt: skip
        if accuracy is None or not drops:
            continue
        least, series, name = max(drops, key=lambda drop: drop[0])
        sure = least > accuracy.bounds[1] + 0.05
        yield None if not sure else Finding(
            f"confidence.{dataset}", "note", "text+1", dataset, "accuracy", "", f"{accuracy.printed} %",
            f"mean confidence at least {least:.1%}: {series.title} of {EXPLAINERS[name]}",
            f"The model of {title} believes itself at least {100 * (least - accuracy.bounds[1]):.0f} points more than "
            "it is right. How steep a model is decides how far a counterfactual has to go, so that Proximity and C say "
            "as much of the training as of the explanations.",
        )  # fmt: skip


def nested(paper: Published) -> Iterator[Result]:
    """Who finds the first gold feature with one guess has at least one in common with two."""
    for key in paper.keys:
        more = paper.truth(key)
        fewer = next(
            (s for s in paper.series if more and s.pair == TRUTH and s.dataset == key[1] and s.k < more.k), None
        )
        if more is None or fewer is None:
            continue
        rate = any(one is not None for one in chance_level(_only(paper, more)))
        for name, figure in more.figures.items():
            least = fewer.figures[name].bounds[0] if rate else fewer.figures[name].bounds[0] * fewer.k / more.k
            yield None if figure.bounds[1] >= least else Finding(
                f"nested.{more.name}.{name}", "contradiction", more.table, more.dataset, EXPLAINERS[name], more.title,
                figure.printed, f"at least {fewer.figures[name].printed} (Table {fewer.table}, k = {fewer.k})",
                f"Read as a rate of at least one in common, as {EXPLAINERS['random']} must be read, the score cannot "
                "fall when a second feature is added: no one definition of the truth fits the whole column.",
            )  # fmt: skip


def _only(paper: Published, series: Series) -> Published:
    return Published((series,), (), paper.texts)


def below_chance(paper: Published) -> Iterator[Result]:
    """Omission deletes one feature at a time: of a linear model that is the gold itself, if deleting means zero."""
    for key in paper.keys:
        truth = paper.truth(key)
        if truth is None or not {"omission", "random"} <= set(truth.figures):
            continue
        omission, chance = truth.figures["omission"], truth.figures["random"]
        yield None if omission.value == 1 else Finding(
            f"omission.{truth.name}", "note", truth.table, truth.dataset, truth.title, EXPLAINERS["omission"],
            omission.printed, f"1 if deleting sets to zero; {EXPLAINERS['random']} {chance.printed}",
            "Deletion as the erasure metrics do it would find the gold always; the figure, "
            f"{'below' if omission.value < chance.value else 'above'} that of a random choice, shows that another "
            "removal, or a mistake, is behind it.",
        )  # fmt: skip


CHECKS = (
    sums, accuracies, fractions, chance_level, nested, boundary, random_words, below_chance, confidence,
)  # fmt: skip
