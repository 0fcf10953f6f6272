"""Anchor, with samples drawn as its authors' package, anchor-exp, draws them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from cfeval_cli.core import (
    ABSENT,
    Access,
    Batch,
    Bools,
    Codes,
    Dataset,
    Explainer,
    Explanation,
    Ints,
    ModelClient,
    ModelSpec,
    Workload,
)
from cfeval_cli.errors import check_float, check_int
from cfeval_cli.explainer.anchor_search import AnchorSearch
from cfeval_cli.explainer.quartiles import binned
from cfeval_cli.seeding import draw_seed

Rule = list[tuple[int, float]]  # features, each with the precision of the rule up to it
Rows = Callable[[], Codes]
Draw = Callable[[list[int], int], tuple[Bools, Rows]]  # of samples of a rule: which features are kept, and the rows

COVERAGE_SAMPLES = 10_000

_BATCHES = 50  # of samples that an instance takes, by experience


@dataclass(frozen=True)
class Anchor(Explainer):
    """A rule that holds the prediction in place; its features in the order in which they were added.

    A feature's score is the precision of the rule up to it.
    """

    threshold: float = 0.95
    delta: float = 0.1
    tau: float = 0.15
    batch_size: int = 100

    access = Access.LABEL
    title = "Anchor"
    display_order = 40
    output = "set"
    scores_are_effects = False

    def __post_init__(self) -> None:
        for name in ("threshold", "delta", "tau"):
            check_float(name, getattr(self, name), 0, 1, open_low=True)
        check_int("batch_size", self.batch_size, 1)

    def estimate_workload(self, spec: ModelSpec) -> Workload:
        """Return a rough figure: how many samples the beam search draws depends on the instance."""
        return Workload(_BATCHES * self.batch_size, ("threshold",))

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Search with samples of tables or of text, drawn as the package draws them."""
        sampler = _sentences(dataset) if dataset.kind == "text" else _rows(dataset)
        search, n_coverage = self._search(dataset.kind)

        def explain(batch: Batch) -> Explanation:
            rules = []
            for i, label in enumerate(batch.labels.tolist()):
                # the generator that the package draws from, here one of the instance's own
                draw, places = sampler(batch.codes[i], np.random.RandomState(draw_seed(batch.rng(i))))

                def sample(parts: list[int], size: int, draw: Draw = draw, label: int = label) -> tuple[Bools, Bools]:
                    holds, rows = draw(parts, size)
                    return holds, model.predict_labels(rows()) == label

                coverage, _ = draw([], n_coverage)
                rules.append(_once([(int(places[part]), p) for part, p in search.find(sample, coverage)]))
            return Explanation.from_lists(rules)

        return explain

    def _search(self, kind: str) -> tuple[AnchorSearch, int]:
        """Return the search, and the number of samples by which it measures coverage."""
        # For text the package accepts the first rule that is precise enough and does not measure coverage.
        is_text = kind == "text"
        search = AnchorSearch(self.threshold, self.delta, self.tau, self.batch_size, stop_on_first=is_text)
        return search, 1 if is_text else COVERAGE_SAMPLES


def _rows(dataset: Dataset) -> Callable[[Codes, Any], tuple[Draw, Ints]]:
    """Samples of tables, numbers in the package's bins."""
    numbers = any(feature.kind == "number" for feature in dataset.features)
    if not numbers:  # nothing to be found in the package
        return _Table(dataset.train.codes, {}, {}).sampler
    table = binned(dataset)
    bins = {j: table.bins(j) for j in table.axes}
    return _Table(dataset.train.codes, bins, {j: table.cuts(j) for j in bins}).sampler


def _once(rule: Rule) -> Rule:
    """Each feature where it came first; a second bound of a number counts for the feature named before it."""
    named: Rule = []
    for feature, precision in rule:
        if feature in [known for known, _ in named]:
            named[-1] = (named[-1][0], precision)
        else:
            named.append((feature, precision))
    return named


@dataclass(frozen=True)
class _Table:
    """Training rows, drawn as the package draws them, with what the rule says held fixed.

    A rule says that a category is as in the instance, or that a number's bin is at most, or over, one of the bins.
    """

    train: Codes
    bins: dict[int, Codes]  # for each number, the bin of each code
    cuts: dict[int, int]  # and how many cuts there are between bins
    _options: dict[tuple[int, int, int], Codes] = field(default_factory=dict)

    @cached_property
    def binned(self) -> dict[int, Codes]:
        """For each number, the bin of each training row."""
        return {j: bins[self.train[:, j]] for j, bins in self.bins.items()}

    def sampler(self, codes: Codes, random: Any) -> tuple[Draw, Ints]:
        """Draws samples of rules for one instance, and the feature that each part of a rule speaks of."""
        categories = [j for j in range(len(codes)) if j not in self.bins]
        parts = [(j, -1, True) for j in categories]  # feature, cut, and whether the bin is at most there
        for j, bins in self.bins.items():
            parts += [(j, cut, bool(bins[codes[j]] <= cut)) for cut in range(self.cuts[j])]
        of_number = {j: [(i, cut, below) for i, (k, cut, below) in enumerate(parts) if k == j] for j in self.bins}
        same = np.empty((len(self.train), len(parts)), dtype=bool)
        same[:, : len(categories)] = self.train[:, categories] == codes[categories]
        for j, mine in of_number.items():
            for i, cut, below in mine:
                same[:, i] = (self.binned[j] <= cut) == below

        def draw(present: list[int], size: int) -> tuple[Bools, Rows]:
            chosen = random.randint(0, len(self.train), size)
            kept = same.take(chosen, axis=0)
            kept[:, present] = True
            fixed = [j for j, cut, _ in (parts[i] for i in present) if cut < 0]
            moved: list[tuple[int, Ints, Codes]] = []  # numbers of some rows, which are outside what the rule says
            for j, (over, most) in _ranges([parts[i] for i in present]).items():
                bins = self.binned[j].take(chosen)
                outside = np.flatnonzero((bins <= over) | (bins > most))
                if not len(outside):
                    continue
                new = self._drawn(j, over, most, len(outside), int(codes[j]), random)
                moved.append((j, outside, new))
                for i, cut, below in of_number[j]:
                    kept[outside, i] = (self.bins[j][new] <= cut) == below

            def rows() -> Codes:
                drawn: Codes = self.train.take(chosen, axis=0)
                drawn[:, fixed] = codes[fixed]
                for j, some, new in moved:
                    drawn[some, j] = new
                return drawn

            return kept, rows

        return draw, np.array([j for j, _, _ in parts])

    def _drawn(self, feature: int, over: int, most: int, size: int, own: int, random: Any) -> Codes:
        """Values of training rows whose bins lie in a range; the instance's own if there are none."""
        key = (feature, over, most)
        if key not in self._options:
            bins = self.binned[feature]
            self._options[key] = self.train[(bins > over) & (bins <= most), feature]
        options = self._options[key]
        return options[random.randint(0, len(options), size)] if len(options) else np.full(size, own, dtype=np.int32)


def _ranges(parts: list[tuple[int, int, bool]]) -> dict[int, tuple[int, int]]:
    """For each number the range that some parts of a rule leave: over the first bin, up to the second.

    First those that have a lower end, as the package draws them.
    """
    over: dict[int, int] = {}
    most: dict[int, int] = {}
    for j, cut, below in parts:
        if cut >= 0 and below:
            most[j] = min(cut, most.get(j, cut))
        elif cut >= 0:
            over[j] = max(cut, over.get(j, cut))
    return {j: (over.get(j, -1), most.get(j, _LAST)) for j in (*over, *(j for j in most if j not in over))}


_LAST = 1 << 30  # above all bins


def _sentences(dataset: Dataset) -> Callable[[Codes, Any], tuple[Draw, Ints]]:
    """The sentence with each word that the rule does not hold masked with probability one half; nothing shifts."""

    def sampler(codes: Codes, random: Any) -> tuple[Draw, Ints]:
        there = np.flatnonzero(codes != ABSENT)

        def draw(present: list[int], size: int) -> tuple[Bools, Rows]:
            kept = random.random_sample((size, len(there))) < 0.5
            kept[:, present] = True

            def rows() -> Codes:
                drawn = np.tile(codes, (size, 1))
                drawn[:, there] = np.where(kept, codes[there], dataset.mask)
                return drawn

            return kept, rows

        return draw, there

    return sampler
