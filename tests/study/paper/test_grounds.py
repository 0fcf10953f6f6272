"""What the audit's findings rest on, each computed here in another way: by brute force, in closed form, or by scipy."""

import math
import os
import re
from itertools import combinations, permutations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cfeval_cli.errors import UserError
from cfeval_cli.study.paper import counts
from cfeval_cli.study.paper.audit import CHECKS, of_the_paper
from cfeval_cli.study.paper.chance import exchanged, exchanges
from cfeval_cli.study.paper.method import symbols
from cfeval_cli.study.paper.published import load, read
from cfeval_cli.study.paper.words import measure

ROOT = Path(__file__).parents[3]
DATA = Path(os.environ.get("CFEVAL_DATA", ROOT / "data"))
SIX = ("random", "omission", "lime", "anchor", "decision_boundary", "lr")


@pytest.fixture(scope="module")
def told():
    return {one.id: one for one in of_the_paper().findings}


@pytest.fixture(scope="module")
def rows():
    """Values of Table 1, by dataset, metric and variant."""
    frame = load()
    frame = frame[(frame["table"] == "1") & (frame["coefficient"] == "")]
    return {
        where: dict(zip(some["explainer"], some["value"], strict=False))
        for where, some in frame.groupby(["dataset", "metric", "variant"])
    }


# --- exchanges of ranks


def cycles(ours, others):
    """How many rings of more than one place lead from one order to the other and back."""
    to, seen, found = dict(zip(ours, others, strict=True)), set(), 0
    for start in to:
        ring = []
        while start not in seen:
            seen.add(start)
            ring.append(start)
            start = to[start]
        found += len(ring) > 1
    return found


@given(st.permutations(range(1, 7)), st.permutations(range(1, 7)), st.permutations(range(1, 7)))
def test_exchanges_are_those_of_whole_rings(ours, others, truth):
    sides = [dict(zip(SIX, map(float, side), strict=True)) for side in (ours, others)]
    made = list(exchanges(*sides))
    assert len(made) == 2 ** cycles(ours, others)
    for a, b in made:
        assert sorted(a.values()) == sorted(b.values()) == [1, 2, 3, 4, 5, 6]
        assert all({a[name], b[name]} == {sides[0][name], sides[1][name]} for name in SIX)
    gaps = [
        stats.kendalltau(list(a.values()), truth)[0] - stats.kendalltau(list(b.values()), truth)[0] for a, b in made
    ]
    gap, p, floor = exchanged(*sides, dict(zip(SIX, map(float, truth), strict=True)))
    assert gap == pytest.approx(gaps[0])
    assert p == np.mean([one >= gaps[0] - 1e-9 for one in gaps]) >= floor == np.mean(np.array(gaps) >= max(gaps) - 1e-9)


def test_of_64_exchanges_with_dfr_four_leave_rankings(rows, told):
    sides = [stats.rankdata([-v for v in rows["adults", *pair].values()]) for pair in (("c", "label"), ("dfr", "del"))]
    assert (sides[0] != sides[1]).all()  # so that each of six may be exchanged or not
    left = [
        swaps for swaps in product((0, 1), repeat=6)
        if sorted(np.where(swaps, *sides)) == sorted(np.where(swaps, *sides[::-1])) == [1, 2, 3, 4, 5, 6]
    ]  # fmt: skip
    assert len(left) == 4
    truth = stats.rankdata([-v for v in rows["adults", "recall", "signed"].values()])
    gaps = [
        stats.kendalltau(np.where(swaps, *sides), truth)[0] - stats.kendalltau(np.where(swaps, *sides[::-1]), truth)[0]
        for swaps in left
    ]
    assert sum(gap >= max(gaps) - 1e-9 for gap in gaps) / 4 == 0.25 and max(gaps) == pytest.approx(8 / 15)
    assert told["difference.1.adults.c_label.dfr_del"].recomputed.startswith("p 0.2500, of 6 tests 1.0000;")


def test_ties_are_exchanged_only_if_rankings_are_left():
    ours, others = {"a": 1.5, "b": 1.5, "c": 3.0}, {"a": 1.0, "b": 2.0, "c": 3.0}
    assert list(exchanges(ours, others)) == [(ours, others), (others, ours)]


def by_holm(p):
    """Step by step: the smallest times all, the next times one fewer, and never less than the one before."""
    after, least = [0.0] * len(p), 0.0
    for step, place in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        least = max(least, min(1.0, p[place] * (len(p) - step)))
        after[place] = least
    return after


@pytest.mark.parametrize("kind", ["p.", "difference."])
def test_p_values_are_corrected_over_all_of_their_kind(told, kind):
    texts = [one.recomputed for name, one in told.items() if name.startswith(kind)]
    if kind == "p.":
        sizes = [int(re.search(r"n = (\d)", text).group(1)) for text in texts]
        printed = [[float(x) for x in re.findall(r"p ([\d.]+), ([\d.]+);", text)[0]] for text in texts]
        # the printed four digits, back to counts of orders
        raw = [
            max(round(x * math.factorial(n)) / math.factorial(n) for x in p)
            for p, n in zip(printed, sizes, strict=True)
        ]
    else:
        raw = [float(re.match(r"p ([\d.]+)", text).group(1)) for text in texts]
    assert len(raw) == {"p.": 8, "difference.": 6}[kind]
    told_after = [float(re.search(rf"of {len(raw)} tests ([\d.]+)", text).group(1)) for text in texts]
    assert told_after == pytest.approx(by_holm(raw), abs=5e-5)


# --- what follows from how explainers and searches are made, on models small enough to try everything


def model(rng, features=4, values=3):
    """Effects of every value and a constant; label 1 if the sum is positive."""
    return rng.normal(size=(features, values)), rng.normal()


def logit(effects, constant, x):
    return constant + sum(effects[j, v] for j, v in enumerate(x))


def test_one_feature_that_crosses_the_boundary_flips_under_exhaustive_search(told):
    """So validity is at least the share of Decision Boundary explanations of one feature."""
    rng = np.random.default_rng(0)
    one = flips = 0
    for _ in range(60):
        effects, constant = model(rng)
        x = tuple(rng.integers(0, 3, 4))
        label = logit(effects, constant, x) > 0
        crossing = [z for z in product(range(3), repeat=4) if (logit(effects, constant, z) > 0) != label]
        if not crossing:
            continue
        edits = [[j for j in range(4) if z[j] != x[j]] for z in crossing]
        fewest = min(edits, key=len)
        if len(fewest) == 1:
            one += 1
            tried = [tuple(v if j == fewest[0] else w for j, w in enumerate(x)) for v in range(3)]
            flips += any((logit(effects, constant, z) > 0) != label for z in tried)
    assert one > 10 and flips == one
    assert float(told["boundary.1.adults.validity_label"].printed) < 1 - 0.5


def test_the_largest_drop_by_deletion_is_the_best_comprehensiveness_and_flips_whenever_any_does(told):
    """For any function of the features, not only for sums: here one with products."""
    rng = np.random.default_rng(1)
    comp, flipped = [], []
    for _ in range(200):
        pairs, x = rng.normal(size=(4, 4)), rng.normal(size=4)

        def p(z, pairs=pairs):
            return 1 / (1 + math.exp(-(z.sum() + z @ pairs @ z)))

        sign = 1 if p(x) >= 0.5 else -1
        after = [p(np.where(np.arange(4) == j, 0, x)) for j in range(4)]
        drops = [sign * (p(x) - one) for one in after]
        flips = [(one >= 0.5) != (p(x) >= 0.5) for one in after]
        omission = int(np.argmax(drops))
        comp.append((drops[omission], max(drops)))
        flipped.append((flips[omission], any(flips)))
    assert all(own == best for own, best in comp) and all(own == best for own, best in flipped)
    assert {own for own, _ in flipped} == {False, True}
    found = [one for name, one in told.items() if name.startswith("own.")]
    assert len(found) == 5
    for one in found:
        printed, least = float(one.printed.split()[0]), float(re.search(r"at least ([\d.]+)", one.recomputed).group(1))
        assert printed < least


def test_the_random_pick_is_in_the_denominator_of_c(rows, told):
    """Instance by instance: 0.0682 of 1,568 flip, all at distance 1.414."""
    shares, alone = [], []
    for name in SIX:
        size, distance = 1568, rows["adults", "proximity", "label"][name]
        flips = round(rows["adults", "validity", "label"][name] * size)
        each = np.full(size, distance)
        flipped = np.arange(size) < flips
        assert flipped.sum() / each.sum() == pytest.approx(rows["adults", "c", "label"][name], abs=1.1e-4)
        shares.append(each[~flipped].sum() / each.sum())
        alone.append(flipped.sum() / each[flipped].sum())
        # another distance where nothing flips is another score
        assert flipped.sum() / np.where(flipped, each, 2 * each).sum() < 0.85 * flipped.sum() / each.sum()
    text = told["method.fallback"].recomputed
    assert text.startswith(f"{min(shares):.0%} to {max(shares):.0%} of all distance")
    assert f"else C {alone[0]:.4f}" in text and max(alone) - min(alone) < 1e-9


def test_returning_the_input_itself_would_shrink_proximity(rows, told):
    """Distance 0 where nothing flips, 1.414 where something does."""
    means = []
    for name in SIX:
        flipped = np.arange(1568) < round(rows["adults", "validity", "label"][name] * 1568)
        means.append(np.where(flipped, 1.414, 0).mean())
    low, high = map(float, re.search(r"Proximity ([\d.]+) to ([\d.]+)", told["method.return"].recomputed).groups())
    assert (low, high) == (pytest.approx(min(means), abs=5e-4), pytest.approx(max(means), abs=5e-4))


def test_a_search_over_two_features_has_twice_the_variables(told):
    instances, size, features = 7, 5, 2
    free = np.zeros((instances, features, size))
    assert free.size == 2 * instances * size
    assert "2Nd" in told["method.parameters"].recomputed


def test_no_probability_drops_by_more_than_it_was(rows, told):
    rng = np.random.default_rng(2)
    before, after = rng.uniform(0.5, 1, 1000), rng.uniform(0, 1, 1000)
    assert (before - after).mean() <= before.mean()
    largest = max(
        row[name] for (dataset, metric, _), row in rows.items() for name in ("random", "lr")
        if dataset == "movie_reviews" and metric in ("validity_soft", "comprehensiveness", "sufficiency")
    )  # fmt: skip
    assert f"at least {largest:.1%}" in told["confidence.movie_reviews"].recomputed and largest > 0.712 + 0.13


# --- what the text says


def test_scores_of_the_method_disagree_on_adults(rows, told):
    pairs = [("validity", "label"), ("c", "label"), ("validity_soft", "probability"), ("c_soft", "probability")]
    ranks = {pair: tuple(stats.rankdata([-v for v in rows["adults", *pair].values()])) for pair in pairs}
    differ = [(a, b) for a, b in combinations(pairs, 2) if ranks[a] != ranks[b]]
    assert len(differ) == 3 and all(("validity_soft", "probability") in pair for pair in differ)
    assert told["claim.predicament.1.adults"].recomputed.startswith("3 of 6 pairs")
    assert "claim.predicament.1.movie_reviews" not in told


def test_the_lead_on_movie_reviews_is_one_pair(rows, told):
    truth = list(rows["movie_reviews", "recall", "signed"].values())
    taus = [
        stats.kendalltau(list(rows["movie_reviews", *pair].values()), truth)[0]
        for pair in (("c", "gradient"), ("comprehensiveness", "del"))
    ]
    assert (taus[0] - taus[1]) * 15 / 2 == pytest.approx(1)
    assert told["claim.much_higher.movie_reviews"].recomputed == "1 of 15 pairs: Omission/DecisionBoundary"


# --- a word drawn from a sentence


def write_sentences(folder, lengths):
    for name, some in zip(("rt-polarity.pos", "rt-polarity.neg"), lengths, strict=True):
        (folder / name).write_bytes(
            b"".join(b" ".join([b"w"] * n) + b"\n" for n in some) + b"\xff\xfe not utf-8 \xe9\n"
        )


def test_a_word_at_random_is_gold_once_in_its_sentence(tmp_path):
    """All pairs of a gold word and a drawn one, of every sentence."""
    lengths = [[1, 2, 4], [3, 5]]
    write_sentences(tmp_path, lengths)
    hits = [np.mean([gold == drawn for gold, drawn in product(range(n), repeat=2)]) for some in lengths for n in some]
    mean, count = measure(tmp_path)
    assert (mean, count) == (pytest.approx(np.mean(hits)), 5)
    with pytest.raises(UserError, match=r"rt-polarity.pos is not there"):
        measure(tmp_path / "nowhere")


def test_the_constant_is_that_of_the_data():
    if not (DATA / "rt-polarity.pos").exists():
        pytest.skip(f"no sentence polarity data in {DATA}")
    lines = [
        line for name in ("pos", "neg") for line in (DATA / f"rt-polarity.{name}").read_bytes().split(b"\n") if line
    ]
    good = [line for line in lines if line.decode("utf-8", "replace").encode() == line]
    words = np.array([len(line.decode().split()) for line in good])
    assert (len(good), round(float(stats.hmean(words)) ** -1, 9)) == (counts.WORDS[1], counts.WORDS[0])


def test_how_far_random_words_are_off(told):
    mean, size = counts.WORDS[0], 1043
    drawn = stats.binom(size, mean)
    off = (0.0790 * size - drawn.mean()) / drawn.std()
    assert told["random.1.movie_reviews.recall_signed"].recomputed == (
        f"{drawn.mean() / size:.3f} ± {drawn.std() / size:.3f}: {off:+.1f} s.e., p {2 * stats.norm.sf(off):.3f}"
    )
    assert told["random.1.movie_reviews.recall_signed"].recomputed.startswith("0.064 ± 0.008")


# --- the words, mended: then there is nothing to find

MENDED = [
    (("algorithm1", "end"), r"Return $\mathbf{x}_i^{\mathrm{cf}}$, $\mathcal{F}(\mathbf{x}_i^{cf})$, $\mathbf{e}_k^i$",
     "method.return"),
    (("algorithm1", "edit"), r"$\mathbf{x}_i^{cf}$ $\leftarrow$ replace corresponding values of $e'$ in $\mathbf{x}_i$",
     "method.assigned"),
    (("algorithm1", "soft"), "line 10 and line 15 of the algorithm will return the class probability", "method.soft"),
    (("algorithm2", "edit"), r"replace values of $\mathbf{w}_{i}^{\mathrm{cf}}$ in $\mathbf{x}_i$", "method.replaced"),
    (("continuous", "parameters"), r"The total number of parameters needing to be optimized is $d \sum_i L_i$",
     "method.parameters"),
    (("symbol", "features"), "randomly pick $L_i$ features/words as explanations", "method.letters"),
    (("citation", "boundary"), r"\citet{hase2020evaluating} provided a simple method", "method.citation"),
    (("claim", "chosen"), "We only choose Random, LIME, Anchor and LR", "claim.chosen"),
]  # fmt: skip


@pytest.fixture(scope="module")
def finders():
    """The check that finds it, by the name of the finding."""
    paper = read(load())
    return {one.id: check for check in CHECKS for one in check(paper) if one is not None}


@pytest.mark.parametrize(("where", "words", "name"), MENDED)
def test_a_mended_passage_is_passed(told, finders, where, words, name):
    frame = load()
    chosen = (frame["table"] == "quote") & (frame["metric"] == where[0]) & (frame["variant"] == where[1])
    assert chosen.sum() == 1 and name in told
    frame.loc[chosen, "printed"] = words
    assert name not in {one.id for one in finders[name](read(frame)) if one is not None}


def test_symbols_are_read_without_their_looks():
    assert symbols(r"Return $\mathbf{x}_i^{\mathrm{cf}}$, $\hat{y}_i^\mathrm{cf}, \mathbf{e}_k^i$") == [
        "x_i^cf", "y_i^cf", "e_k^i",
    ]  # fmt: skip


def test_orders_of_four_and_six_have_the_shares_that_are_told(told):
    """One order of 24, or of 720, is the truth itself."""
    for size, name in ((4, "p.3.adults.c_soft_probability"), (6, "p.2.adults.c_label")):
        orders = np.array(list(permutations(range(size))))
        first, second = zip(*combinations(range(size), 2), strict=True)
        share = (np.sign(orders[:, second] - orders[:, first]).mean(axis=1) > 1 - 1e-9).mean()  # whose τ is 1
        assert told[name].recomputed.startswith(f"p {share:.4f}, ")
