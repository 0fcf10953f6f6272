"""Anchor, with the sampling of its authors' package, anchor-exp."""

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
from cfeval_cli.explainer.quartiles import bin_table
from cfeval_cli.seeding import draw_seed

Rule = list[tuple[int, float]]  # features, each with the precision of the rule up to it
MakeRows = Callable[[], Codes]
# From the parts of a rule and a number of samples: the parts that hold (n, parts), and the function that makes rows.
Draw = Callable[[list[int], int], tuple[Bools, MakeRows]]
# From an instance and a generator: the function that draws samples, and the feature of each part of a rule.
PrepareDraw = Callable[[Codes, Any], tuple[Draw, Ints]]

COVERAGE_SAMPLES = 10_000

_EXPECTED_BATCHES = 50  # of samples per instance, by experience


@dataclass(frozen=True)
class Anchor(Explainer):
    """Features of a rule under which the prediction stays, in the order in which they were added to it.

    The score of a feature is the precision of the rule up to it.
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
        """Return a rough estimate, because the number of samples of the beam search depends on the instance."""
        return Workload(_EXPECTED_BATCHES * self.batch_size, ("threshold",))

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Prepare the sampling for tables or texts."""
        prepare_draw = _prepare_text(dataset) if dataset.kind == "text" else _prepare_table(dataset)
        search, n_coverage = self._search(dataset.kind)

        def explain(batch: Batch) -> Explanation:
            rules = []
            for i, label in enumerate(batch.predicted_classes.tolist()):
                # The type of generator that the package uses, with a seed for each instance.
                draw, features = prepare_draw(batch.codes[i], np.random.RandomState(draw_seed(batch.make_rng(i))))

                def sample(parts: list[int], size: int, draw: Draw = draw, label: int = label) -> tuple[Bools, Bools]:
                    holds, make_rows = draw(parts, size)
                    return holds, model.predict_labels(make_rows()) == label

                coverage, _ = draw([], n_coverage)
                rules.append(_merge_duplicates([(int(features[part]), p) for part, p in search.find(sample, coverage)]))
            return Explanation.from_lists(rules)

        return explain

    def _search(self, kind: str) -> tuple[AnchorSearch, int]:
        """Return the search, and the number of samples for the coverage."""
        # For text the package accepts the first rule that is precise enough and does not measure coverage.
        is_text = kind == "text"
        search = AnchorSearch(self.threshold, self.delta, self.tau, self.batch_size, stop_on_first=is_text)
        return search, 1 if is_text else COVERAGE_SAMPLES


def _prepare_table(dataset: Dataset) -> PrepareDraw:
    """Sample training rows of a table, numbers by the package's bins."""
    train = dataset.train.codes
    if all(feature.kind != "number" for feature in dataset.features):  # the package is not needed
        return _TableSampler(train, {}, {}).prepare
    table = bin_table(dataset)
    bins = {j: table.get_bins(j) for j in table.axes}
    return _TableSampler(train, bins, {j: table.count_cuts(j) for j in bins}).prepare


def _merge_duplicates(rule: Rule) -> Rule:
    """Return each feature once; the precision of a second bound of a number counts for the feature before it."""
    rules_without_duplicates: Rule = []
    for feature, precision in rule:
        if any(feature == earlier for earlier, _ in rules_without_duplicates):
            rules_without_duplicates[-1] = (rules_without_duplicates[-1][0], precision)
        else:
            rules_without_duplicates.append((feature, precision))
    return rules_without_duplicates


_NO_CUT = -1  # of a category
_BELOW_ALL_BINS, _ABOVE_ALL_BINS = -1, 1 << 30


@dataclass(frozen=True)
class _RulePart:
    """A condition of a rule: a category is as in the instance, or the bin of a number is at most, or above, a cut."""

    feature: int
    cut: int = _NO_CUT
    is_below: bool = True


@dataclass(frozen=True)
class _TableSampler:
    """Samples training rows as the package does, with the conditions of a rule fulfilled."""

    train: Codes
    bins: dict[int, Codes]  # for each number, the bin of each code
    n_cuts: dict[int, int]  # for each number, the number of cuts between bins
    _options: dict[tuple[int, int, int], Codes] = field(default_factory=dict)

    @cached_property
    def train_bins(self) -> dict[int, Codes]:
        """For each number, the bin of each training row."""
        return {j: bins[self.train[:, j]] for j, bins in self.bins.items()}

    def prepare(self, codes: Codes, random: Any) -> tuple[Draw, Ints]:
        """Return the function that draws samples for an instance, and the feature of each part of a rule."""
        categories = [j for j in range(len(codes)) if j not in self.bins]
        parts = [_RulePart(j) for j in categories]
        for j, bins in self.bins.items():
            parts += [_RulePart(j, cut, bool(bins[codes[j]] <= cut)) for cut in range(self.n_cuts[j])]
        number_parts = {j: [i for i, part in enumerate(parts) if part.feature == j] for j in self.bins}
        holds_in_train = np.empty((len(self.train), len(parts)), dtype=bool)
        holds_in_train[:, : len(categories)] = self.train[:, categories] == codes[categories]
        for j, numbers in number_parts.items():
            for i in numbers:
                holds_in_train[:, i] = (self.train_bins[j] <= parts[i].cut) == parts[i].is_below

        def draw(rule: list[int], size: int) -> tuple[Bools, MakeRows]:
            draws = random.randint(0, len(self.train), size)
            holds = holds_in_train.take(draws, axis=0)
            holds[:, rule] = True
            fixed = [parts[i].feature for i in rule if parts[i].cut == _NO_CUT]
            is_replaced: list[
                tuple[int, Ints, Codes]
            ] = []  # numbers that violate the rule: feature, samples, new values
            for j, (above, at_most) in _find_ranges([parts[i] for i in rule]).items():
                bins = self.train_bins[j].take(draws)
                values_outside = np.flatnonzero((bins <= above) | (bins > at_most))
                if not len(values_outside):
                    continue
                new = self._draw_values(j, above, at_most, len(values_outside), int(codes[j]), random)
                is_replaced.append((j, values_outside, new))
                for i in number_parts[j]:
                    holds[values_outside, i] = (self.bins[j][new] <= parts[i].cut) == parts[i].is_below

            def make_rows() -> Codes:
                rows: Codes = self.train.take(draws, axis=0)
                rows[:, fixed] = codes[fixed]
                for j, values_outside, new in is_replaced:
                    rows[values_outside, j] = new
                return rows

            return holds, make_rows

        return draw, np.array([part.feature for part in parts])

    def _draw_values(self, feature: int, above: int, at_most: int, size: int, own: int, random: Any) -> Codes:
        """Return values of training rows whose bins are in a range; the instance's own value if there are none."""
        key = (feature, above, at_most)
        if key not in self._options:
            bins = self.train_bins[feature]
            self._options[key] = self.train[(bins > above) & (bins <= at_most), feature]
        options = self._options[key]
        return options[random.randint(0, len(options), size)] if len(options) else np.full(size, own, dtype=np.int32)


def _find_ranges(parts: list[_RulePart]) -> dict[int, tuple[int, int]]:
    """Return the range of bins that a rule permits for each number: above the first, and at most the second.

    Numbers with a lower bound come first, in the order in which the package draws them.
    """
    lower: dict[int, int] = {}
    upper: dict[int, int] = {}
    for part in parts:
        if part.cut != _NO_CUT and part.is_below:
            upper[part.feature] = min(part.cut, upper.get(part.feature, part.cut))
        elif part.cut != _NO_CUT:
            lower[part.feature] = max(part.cut, lower.get(part.feature, part.cut))
    return {
        j: (lower.get(j, _BELOW_ALL_BINS), upper.get(j, _ABOVE_ALL_BINS))
        for j in (*lower, *(j for j in upper if j not in lower))
    }


def _prepare_text(dataset: Dataset) -> PrepareDraw:
    """Mask each word that is not in the rule with probability one half; positions do not shift."""

    def prepare(codes: Codes, random: Any) -> tuple[Draw, Ints]:
        present = np.flatnonzero(codes != ABSENT)

        def draw(rule: list[int], size: int) -> tuple[Bools, MakeRows]:
            is_kept = random.random_sample((size, len(present))) < 0.5
            is_kept[:, rule] = True

            def make_rows() -> Codes:
                rows = np.tile(codes, (size, 1))
                rows[:, present] = np.where(is_kept, codes[present], dataset.mask)
                return rows

            return is_kept, make_rows

        return draw, present

    return prepare
