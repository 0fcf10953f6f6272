"""Anchor, by its authors' package: its beam search and its choice of samples, over arrays instead of sets."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from math import log, nan, sqrt
from types import FunctionType
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
    Gate,
    Ints,
    Subject,
    Workload,
)
from cfeval_cli.errors import number, whole
from cfeval_cli.explainer.quartiles import binned
from cfeval_cli.seeding import integer

Rule = list[tuple[int, float]]  # features, each with the precision of the rule up to it
Rows = Callable[[], Codes]
Draw = Callable[[list[int], int], tuple[Bools, Rows]]  # of samples of a rule: which features are kept, and the rows
Key = tuple[int, ...]

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
    place = 40
    gives = "set"
    effects = False

    def __post_init__(self) -> None:
        for name in ("threshold", "delta", "tau"):
            number(name, getattr(self, name), 0, 1, open_low=True)
        whole("batch_size", self.batch_size, 1)

    def workload(self, subject: Subject) -> Workload:
        """Return a rough figure: how many samples the beam search draws depends on the instance."""
        return Workload(_BATCHES * self.batch_size, ("threshold",))

    def fit(self, dataset: Dataset, model: Gate) -> Callable[[Batch], Explanation]:
        """Give the package's beam search samples of tables or of text."""
        sampler = _sentences(dataset) if dataset.kind == "text" else _rows(dataset)

        def explain(batch: Batch) -> Explanation:
            rows = []
            for i, label in enumerate(batch.labels.tolist()):
                # the generator that the package draws from, here one of the instance's own
                draw, places = sampler(batch.codes[i], np.random.RandomState(integer(batch.rng(i))))
                rows.append(self._rule(_Samples(draw, model, label, len(places)), places, dataset.kind))
            return Explanation.ragged(rows)

        return explain

    def _rule(self, samples: "_Samples", places: Ints, kind: str) -> Rule:
        # as the package does for text: the first rule that holds, and no measure of coverage
        more = {"stop_on_first": True, "coverage_samples": 1} if kind == "text" else {}
        found = _beam().anchor_beam(
            samples.draw,
            delta=self.delta,
            epsilon=self.tau,
            batch_size=self.batch_size,
            desired_confidence=self.threshold,
            **more,
        )
        return _once([(int(places[j]), float(p)) for j, p in zip(found["feature"], found["precision"], strict=True)])


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


_NOTHING = np.dtype([])  # the package sets aside room for a million samples, which are kept elsewhere


@dataclass
class _Samples:
    """The samples of one instance's search, and which of them each rule holds for."""

    sampler: Draw
    model: Gate
    label: int
    width: int
    coverage: Bools = field(init=False)  # (C, width) of the samples by which the package measures coverage
    held: dict[Key, "_Held"] = field(default_factory=dict)  # by rule
    covered: dict[Key, Bools] = field(default_factory=dict)

    def draw(self, present: list[int], size: int, compute_labels: bool = True) -> tuple[Any, Any, Any]:
        """What the package calls a sample function; it hands the coverage sample back in its state."""
        kept, rows = self.sampler(present, size)
        if not compute_labels:
            self.coverage = kept
            return None, self, None
        hits = self.model.labels(rows()) == self.label
        self.held.setdefault(tuple(present), _Held()).parts.append((kept, hits))
        nothing = np.zeros((size, self.width), _NOTHING)
        return nothing[:, :1], nothing, hits

    def single(self, feature: int) -> tuple[float, float, float]:
        """The rule of one feature: number of samples, hits and coverage."""
        self.covered[(feature,)] = self.coverage[:, feature]
        return self._narrow((feature,), (), feature)

    def longer(self, key: Key, shorter: Key, feature: int) -> tuple[float, float, float]:
        """A rule with one feature more: it takes over the samples of the shorter rule that keep the feature."""
        self.covered[key] = self.covered[shorter] & self.covered[(feature,)]
        return self._narrow(key, shorter, feature)

    def _narrow(self, key: Key, shorter: Key, feature: int) -> tuple[float, float, float]:
        kept, hits = self.held[shorter].whole()
        rows = kept[:, feature]
        self.held[key] = _Held([(kept, hits)], rows)
        size, positive = np.count_nonzero(rows), np.count_nonzero(hits & rows)
        return float(size), float(positive), np.count_nonzero(self.covered[key]) / len(self.coverage)


@dataclass
class _Held:
    """The samples of a rule: which features they keep (n, width), and hits (n,); put together when they are needed."""

    parts: list[tuple[Bools, Bools]] = field(default_factory=list)
    rows: Bools | None = None  # of the first part, which is that of a shorter rule; None: all

    def whole(self) -> tuple[Bools, Bools]:
        """All of them."""
        if self.rows is not None:
            kept, hits = self.parts[0]
            self.parts[0], self.rows = (kept[self.rows], hits[self.rows]), None
        if len(self.parts) > 1:
            kept, hits = (np.concatenate(some) for some in zip(*self.parts, strict=True))
            self.parts = [(kept, hits)]
        return self.parts[0]


@cache
def _beam() -> Any:
    """The package's search: its own code, in which the class that keeps the books is ours."""
    from anchor import anchor_base

    class Beam(_Books, anchor_base.AnchorBaseBeam):  # type: ignore[misc]
        pass

    names = {**vars(anchor_base), "AnchorBaseBeam": Beam}
    for name in ("anchor_beam", "lucb"):
        function = getattr(anchor_base.AnchorBaseBeam, name)
        own = FunctionType(function.__code__, names, name, function.__defaults__)
        setattr(Beam, name, staticmethod(own))
    return Beam


class _Books:
    """What the package's search asks of its class: the same answers, without sets of row numbers or NumPy scalars."""

    @staticmethod
    def dup_bernoulli(p: float, level: float) -> float:
        """The upper confidence bound of a share, by the package's bisection of the Kullback-Leibler divergence."""
        low, high = float(p), min(1.0, float(p) + sqrt(level / 2.0))
        return _bisect(low, low, high, float(level))[1]

    @staticmethod
    def dlow_bernoulli(p: float, level: float) -> float:
        """The lower confidence bound."""
        high = float(p)
        return _bisect(high, high, max(min(1.0, high - sqrt(level / 2.0)), 0.0), float(level))[1]

    @staticmethod
    def make_tuples(previous: list[Key], state: dict[str, Any]) -> list[Key]:
        """The rules with one feature more; their order is that of a set, as in the package."""
        samples: _Samples = state["coverage_data"]
        if not previous:
            for j in range(samples.width):
                _enter(state, (j,), [j], samples.single(j))
            return [(j,) for j in range(samples.width)]
        made: set[Key] = set()
        for j in range(samples.width):
            for shorter in previous:
                key = tuple(sorted({*shorter, j}))
                if len(key) > len(shorter) and key not in made:
                    made.add(key)
                    _enter(state, key, [*state["t_order"][shorter], j], samples.longer(key, shorter, j))
        return list(made)

    @staticmethod
    def get_sample_fns(draw: Any, rules: list[Key], state: dict[str, Any]) -> list[Callable[[int], int]]:
        """For each rule a function that draws more samples of it and returns the hits."""

        def more(rule: Key, size: int) -> int:
            hits = int(np.count_nonzero(draw(list(rule), size)[2]))
            state["t_nsamples"][rule] += size
            state["t_positives"][rule] += hits
            return hits

        return [lambda size, rule=rule: more(rule, size) for rule in rules]  # type: ignore[misc]

    @staticmethod
    def get_anchor_from_tuple(rule: Key, state: dict[str, Any]) -> dict[str, Any]:
        """The rule's features in the order in which they were added, with the precision up to each."""
        order = state["t_order"][rule]
        keys = [tuple(sorted(order[: i + 1])) for i in range(len(order))]
        return {"feature": order, "precision": [state["t_positives"][key] / state["t_nsamples"][key] for key in keys]}


def _enter(state: dict[str, Any], key: Key, order: list[int], counts: tuple[float, float, float]) -> None:
    state["t_order"][key] = order
    state["t_nsamples"][key], state["t_positives"][key], state["t_coverage"][key] = counts


def _bisect(p: float, near: float, far: float, level: float) -> tuple[float, float]:
    """Sixteen halvings between a point within the bound and one beyond it."""
    p = min(_TOP, max(_LEAST, p))
    rest = 1.0 - p
    bound = _bound(p, rest, far, level)
    # where the divergence is known to be below the level, or above it, without being computed
    inside, outside = (bound - _NEAR, bound + _NEAR) if far > near else (bound + _NEAR, bound - _NEAR)
    rising = far > near
    for _ in range(16):
        middle = (near + far) / 2.0
        if (middle < inside) if rising else (middle > inside):
            near = middle
        elif (middle > outside) if rising else (middle < outside):
            far = middle
        else:
            q = min(_TOP, max(_LEAST, middle))
            if p * log(p / q) + rest * log(rest / (1.0 - q)) > level:
                far = middle
            else:
                near = middle
    return near, far


_LEAST, _TOP = 0.0000001, 0.9999999999999999  # between which the package keeps shares
_NEAR = 1e-8  # of the bound, within which the divergence is computed
_LEFT, _RIGHT = 0.000001, 0.999999  # between which the bound is looked for beforehand


def _bound(p: float, rest: float, far: float, level: float) -> float:
    """Where the divergence reaches the level, by Newton's method from beyond; NaN if that does not come to rest."""
    q = min(_RIGHT, max(_LEFT, far))
    for _ in range(8):
        if not _LEFT <= q <= _RIGHT or (q - p) * (far - p) <= 0.0:  # on the other side there is another such point
            return nan
        step = (p * log(p / q) + rest * log(rest / (1.0 - q)) - level) * q * (1.0 - q) / (q - p)
        q -= step
        if abs(step) < _NEAR / 100:
            return q if (q - p) * (far - p) > 0.0 else nan
    return nan
