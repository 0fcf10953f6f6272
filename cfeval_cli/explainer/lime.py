"""LIME: its authors' package says which samples are drawn and how they are weighed; the rest is array work.

For the same seed the coefficients are the package's, to rounding.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
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
    Floats,
    Ints,
    ModelClient,
    ModelSpec,
    Workload,
)
from cfeval_cli.errors import check_float, check_int, check_option
from cfeval_cli.explainer.quartiles import binned
from cfeval_cli.seeding import draw_seed

# From an instance and its generator: which of the present features each sample keeps (m, n), and the rows (n, M).
Draw = Callable[[Codes, Any], tuple[Bools, Codes]]
Kernel = Callable[[Floats], Floats]  # from how many features are kept, 0 … m, to weights


@dataclass(frozen=True)
class Lime(Explainer):
    """A local linear model; its coefficients for the predicted class are the scores."""

    n_samples: int = 5000
    kernel_width: float | None = None  # None: the package's default, 0.75 √M on tables, 25 on text
    order: str = "signed"  # those that speak for the prediction first; or absolute: by size, as the package lists them
    title: str = "LIME"
    samples_of: str | None = None  # the explainer whose random numbers it takes; None: it draws its own

    access = Access.PROBABILITY
    display_order = 30

    def __post_init__(self) -> None:
        check_int("n_samples", self.n_samples, 2)
        if self.kernel_width is not None:
            check_float("kernel_width", self.kernel_width, 0, open_low=True)
        check_option("order", self.order, ("signed", "absolute"))

    def estimate_workload(self, spec: ModelSpec) -> Workload:
        """Return the number of samples, each of which is one model evaluation."""
        return Workload(self.n_samples, ("n_samples",))

    def derive_from(self, other: Explainer) -> Callable[[Explanation], Explanation] | None:
        """From the same coefficients in another order."""
        own = replace(self, samples_of=None)  # who takes another's samples has none to give
        if not isinstance(other, Lime) or replace(other, order=self.order, title=self.title) != own:
            return None
        return partial(Explanation.sort_by, by=self._size)

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Take distribution and kernel from the package."""
        draw, kernel = (self._sentences if dataset.kind == "text" else self._rows)(dataset)

        def explain(batch: Batch) -> Explanation:
            rows = []
            for i in range(len(batch)):
                there = np.flatnonzero(batch.codes[i] != ABSENT)
                kept, samples = draw(batch.codes[i], np.random.RandomState(draw_seed(batch.rng(i))))
                target = model.predict_class_proba(samples, np.full(len(samples), batch.labels[i]))
                weights = kernel(np.arange(len(there) + 1.0))[np.count_nonzero(kept, axis=0)]
                rows.append(self._ordered(there, _ridge(kept.astype(float), target, weights)))
            return Explanation.from_lists(rows)

        return explain

    def _rows(self, dataset: Dataset) -> tuple[Draw, Kernel]:
        """Each column drawn from its training distribution; a sample keeps a column where it drew the own value.

        Numbers are drawn and kept by bin.
        """
        from lime.lime_tabular import LimeTabularExplainer

        table = binned(dataset)
        package = LimeTabularExplainer(
            table.train,
            categorical_features=table.categories,
            kernel_width=self.kernel_width,
            discretizer=table.discretizer,
        )
        values = [np.array(package.feature_values[j], dtype=np.int32) for j in range(dataset.n_features)]
        cumulative = [np.cumsum(package.feature_frequencies[j]) for j in range(dataset.n_features)]
        ends = [shares[:-1] / shares[-1] for shares in cumulative]
        bins = {j: table.bins(j) for j in table.axes}

        def draw(codes: Codes, random: Any) -> tuple[Bools, Codes]:
            uniform = random.random_sample(
                (dataset.n_features, self.n_samples)
            )  # as one call of choice for each column
            samples = np.empty(uniform.shape, dtype=np.int32)
            for j, names in enumerate(values):
                samples[j] = names[_place(ends[j], uniform[j])]
            own = codes.copy()
            for j, bin_of in bins.items():
                own[j] = bin_of[codes[j]]
            samples[:, 0] = own
            kept = samples == own[:, None]
            for j in bins:  # after all columns, as in the package
                samples[j, 1:] = table.drawn(j, samples[j, 1:], random)
            samples[:, 0] = codes
            return kept, samples.T

        return draw, lambda kept: package.base.kernel_fn(np.sqrt(dataset.n_features - kept))

    def _sentences(self, dataset: Dataset) -> tuple[Draw, Kernel]:
        """A random number of words, at random places, masked: nothing shifts, and a word that occurs twice is two."""
        from lime.lime_text import LimeTextExplainer

        width = {} if self.kernel_width is None else {"kernel_width": self.kernel_width}
        package = LimeTextExplainer(bow=False, **width)

        def draw(codes: Codes, random: Any) -> tuple[Bools, Codes]:
            there = np.flatnonzero(codes != ABSENT)
            removed = random.randint(1, len(there) + 1, self.n_samples - 1)
            places = np.tile(np.arange(len(there)), (self.n_samples - 1, 1))
            for row in places:  # as choice without replacement does it, without its overhead
                random.shuffle(row)
            kept = np.ones((self.n_samples, len(there)), dtype=bool)
            kept[np.arange(1, self.n_samples)[:, None], places] = np.arange(len(there)) >= removed[:, None]
            samples = np.tile(codes, (self.n_samples, 1))
            samples[:, there] = np.where(kept, codes[there], dataset.mask)
            return kept.T, samples

        # the package's distance is a hundred times the cosine distance to a row of ones
        return draw, lambda kept: package.base.kernel_fn(100.0 * (1.0 - np.sqrt(kept / (len(kept) - 1))))

    def _ordered(self, features: Ints, coefficients: Floats) -> list[tuple[int, float]]:
        order = np.argsort(-self._size(coefficients), kind="stable")
        return [(int(features[i]), float(coefficients[i])) for i in order]

    def _size(self, coefficients: Floats) -> Floats:
        return np.abs(coefficients) if self.order == "absolute" else coefficients


def _place(ends: Floats, points: Floats) -> Ints:
    """In which of the parts of the unit interval each point lies; the ends are those of all parts but the last."""
    if len(ends) > 16:
        return np.searchsorted(ends, points, side="right")
    place = np.zeros(len(points), dtype=np.int64)
    for end in ends:  # the same, faster for few parts
        place += points >= end
    return place


def _ridge(kept: Floats, target: Floats, weights: Floats) -> Floats:
    """Coefficients of the package's regression: weighted least squares with an intercept and a penalty of one."""
    from scipy.linalg import solve

    weighted = kept * weights
    total, sums = weights.sum(), weighted.sum(axis=1)
    moments = weighted @ kept.T - np.outer(sums, sums) / total + np.eye(len(kept))
    return np.asarray(solve(moments, weighted @ target - sums * (weights @ target) / total, assume_a="pos"))
