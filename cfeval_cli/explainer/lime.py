"""LIME, with the sampling distribution and the kernel of its authors' package.

For the same seed the coefficients are the package's, up to rounding.
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
from cfeval_cli.explainer.quartiles import bin_table
from cfeval_cli.seeding import draw_seed

# From an instance and a generator: which of the present features each sample keeps (m, n), and the rows (n, M).
Draw = Callable[[Codes, Any], tuple[Bools, Codes]]
Kernel = Callable[[Floats], Floats]  # from the numbers of features that are kept, 0 … m, to weights

_MAX_COMPARED_ENDS = 16


@dataclass(frozen=True)
class Lime(Explainer):
    """A local linear model; its coefficients for the predicted class are the scores."""

    n_samples: int = 5000
    kernel_width: float | None = None  # None: the package's default, 0.75 √M on tables, 25 on text
    order: str = "signed"  # the highest score first; or absolute: by absolute value, as in the package
    title: str = "LIME"
    samples_of: str | None = None  # the explainer with the samples to reuse; None: own samples

    access = Access.PROBABILITY
    display_order = 30

    def __post_init__(self) -> None:
        check_int("n_samples", self.n_samples, 2)
        if self.kernel_width is not None:
            check_float("kernel_width", self.kernel_width, 0, open_low=True)
        check_option("order", self.order, ("signed", "absolute"))

    def estimate_workload(self, spec: ModelSpec) -> Workload:
        """Return the number of samples; each takes one model evaluation."""
        return Workload(self.n_samples, ("n_samples",))

    def derive_from(self, other: Explainer) -> Callable[[Explanation], Explanation] | None:
        """Return the function that sorts the coefficients of another LIME with the same samples."""
        own = replace(self, samples_of=None)  # samples that are reused themselves cannot be reused again
        if not isinstance(other, Lime) or replace(other, order=self.order, title=self.title) != own:
            return None
        return partial(Explanation.sort_by, compute_key=self._compute_sort_key)

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Prepare the distribution and the kernel of the package."""
        draw, kernel = (self._prepare_text if dataset.kind == "text" else self._prepare_table)(dataset)

        def explain(batch: Batch) -> Explanation:
            explanations = []
            for i in range(len(batch)):
                features = np.flatnonzero(batch.codes[i] != ABSENT)
                is_kept, samples = draw(batch.codes[i], np.random.RandomState(draw_seed(batch.make_rng(i))))
                target = model.predict_class_proba(samples, np.full(len(samples), batch.predicted_classes[i]))
                weights = kernel(np.arange(len(features) + 1.0))[np.count_nonzero(is_kept, axis=0)]
                explanations.append(self._sort(features, _fit_ridge(is_kept.astype(float), target, weights)))
            return Explanation.from_lists(explanations)

        return explain

    def _prepare_table(self, dataset: Dataset) -> tuple[Draw, Kernel]:
        """Draw each column from its training distribution; a sample keeps a column if it draws the instance's value.

        Two numbers are equal if they are in the same bin.
        """
        from lime.lime_tabular import LimeTabularExplainer

        table = bin_table(dataset)
        package = LimeTabularExplainer(
            table.train,
            categorical_features=table.categories,
            kernel_width=self.kernel_width,
            discretizer=table.discretizer,
        )
        values = [np.array(package.feature_values[j], dtype=np.int32) for j in range(dataset.n_features)]
        cumulative = [np.cumsum(package.feature_frequencies[j]) for j in range(dataset.n_features)]
        ends = [shares[:-1] / shares[-1] for shares in cumulative]
        bins = {j: table.get_bins(j) for j in table.axes}

        def draw(codes: Codes, random: Any) -> tuple[Bools, Codes]:
            # The same numbers as one call of `choice` for each column draws.
            uniform = random.random_sample((dataset.n_features, self.n_samples))
            samples = np.empty(uniform.shape, dtype=np.int32)
            for j, column_values in enumerate(values):
                samples[j] = column_values[_find_interval(ends[j], uniform[j])]
            own = codes.copy()
            for j, bin_of in bins.items():
                own[j] = bin_of[codes[j]]
            samples[:, 0] = own
            is_kept = samples == own[:, None]
            for j in bins:  # after all columns, as in the package
                samples[j, 1:] = table.draw_values(j, samples[j, 1:], random)
            samples[:, 0] = codes
            return is_kept, samples.T

        return draw, lambda n_kept: package.base.kernel_fn(np.sqrt(dataset.n_features - n_kept))

    def _prepare_text(self, dataset: Dataset) -> tuple[Draw, Kernel]:
        """Mask a random number of words at random positions; others do not shift, and repeated words are separate."""
        from lime.lime_text import LimeTextExplainer

        width = {} if self.kernel_width is None else {"kernel_width": self.kernel_width}
        package = LimeTextExplainer(bow=False, **width)

        def draw(codes: Codes, random: Any) -> tuple[Bools, Codes]:
            present = np.flatnonzero(codes != ABSENT)
            n_removed = random.randint(1, len(present) + 1, self.n_samples - 1)
            orders = np.tile(np.arange(len(present)), (self.n_samples - 1, 1))
            for row in orders:  # the same numbers as `choice` without replacement draws, without its overhead
                random.shuffle(row)
            is_kept = np.ones((self.n_samples, len(present)), dtype=bool)
            is_kept[np.arange(1, self.n_samples)[:, None], orders] = np.arange(len(present)) >= n_removed[:, None]
            samples = np.tile(codes, (self.n_samples, 1))
            samples[:, present] = np.where(is_kept, codes[present], dataset.mask)
            return is_kept.T, samples

        # The package's distance is a hundred times the cosine distance to a row of ones.
        return draw, lambda n_kept: package.base.kernel_fn(100.0 * (1.0 - np.sqrt(n_kept / (len(n_kept) - 1))))

    def _sort(self, features: Ints, coefficients: Floats) -> list[tuple[int, float]]:
        order = np.argsort(-self._compute_sort_key(coefficients), kind="stable")
        return [(int(features[i]), float(coefficients[i])) for i in order]

    def _compute_sort_key(self, coefficients: Floats) -> Floats:
        return np.abs(coefficients) if self.order == "absolute" else coefficients


def _find_interval(ends: Floats, points: Floats) -> Ints:
    """Return the number of the interval of each point, from the ends of all intervals but the last."""
    if len(ends) > _MAX_COMPARED_ENDS:
        return np.searchsorted(ends, points, side="right")
    numbers = np.zeros(len(points), dtype=np.int64)
    for end in ends:  # the same, faster for few intervals
        numbers += points >= end
    return numbers


def _fit_ridge(is_kept: Floats, target: Floats, weights: Floats) -> Floats:
    """Return the coefficients of the package's regression: weighted, with an intercept and a penalty of one."""
    from scipy.linalg import solve

    weighted = is_kept * weights
    total, sums = weights.sum(), weighted.sum(axis=1)
    moments = weighted @ is_kept.T - np.outer(sums, sums) / total + np.eye(len(is_kept))
    return np.asarray(solve(moments, weighted @ target - sums * (weights @ target) / total, assume_a="pos"))
