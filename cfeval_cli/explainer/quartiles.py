"""Tables in the form that the packages lime and anchor read: numbers in quartile bins of the training rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cfeval_cli.core import Codes, Dataset, Floats, Ints


@dataclass(frozen=True)
class BinnedTable:
    """The training rows with their numbers, and the packages' bins of these numbers.

    Missing values have a bin of their own, above all others.
    """

    train: Floats  # (n, M) the values of numbers, the codes of categories
    axes: dict[int, Floats]  # for each number, the values of its codes; a missing value is above all others
    discretizer: Any  # of the package

    @property
    def categories(self) -> list[int]:
        """The features that are not numbers."""
        return [j for j in range(self.train.shape[1]) if j not in self.axes]

    def get_bins(self, feature: int) -> Codes:
        """Return the bin of each code of a number."""
        return np.asarray(self.discretizer.lambdas[feature](self.axes[feature]), dtype=np.int32)

    def count_cuts(self, feature: int) -> int:
        """Return the number of cuts between the bins of a number; bins may be empty."""
        return len(self.discretizer.names[feature]) - 1

    def draw_values(self, feature: int, bins: Ints, random: Any) -> Codes:
        """Return a value for each bin: of those in the column, the nearest to a number that the package draws."""
        package = self.discretizer
        package.random_state = random
        numbers = package.get_undiscretize_values(feature, bins)
        low, high, mean, deviation = (
            np.array(values[feature]) for values in (package.mins, package.maxs, package.means, package.stds)
        )
        # For a bin with a single number the package returns its standardised value, not the number.
        is_single = ((low - mean) / deviation == (high - mean) / deviation)[bins]
        return self.find_nearest(feature, np.where(is_single, low[bins], numbers))

    def find_nearest(self, feature: int, numbers: Floats) -> Codes:
        """Return the codes with the nearest numbers; of two at the same distance, the smaller."""
        axis = self.axes[feature]
        return np.searchsorted(axis[:-1] + np.diff(axis) / 2, numbers, side="left").astype(np.int32)


def bin_table(dataset: Dataset) -> BinnedTable:
    """Compute the bins with the package's class."""
    from lime.discretize import QuartileDiscretizer

    axes = {j: _list_numbers(dataset, j) for j, feature in enumerate(dataset.features) if feature.kind == "number"}
    train = dataset.train.codes.astype(float)
    for j, axis in axes.items():
        train[:, j] = axis[dataset.train.codes[:, j]]

    class TrainingQuartiles(QuartileDiscretizer):  # type: ignore[misc]
        """Quartiles, with a bin for missing values."""

        def bins(self, data: Floats, labels: object) -> list[Floats]:
            return [_compute_cuts(dataset, j, axes[j], data[:, j]) for j in self.to_discretize]

    names = [feature.name for feature in dataset.features]
    discretizer = TrainingQuartiles(train, [j for j in range(dataset.n_features) if j not in axes], names)
    for j in axes:
        missing, codes = dataset.features[j].missing_code, dataset.train.codes[:, j]
        if missing is not None and (codes != missing).any():  # the last bin of numbers ends at the largest one
            discretizer.maxs[j][-2] = axes[j][codes[codes != missing].max()]
    return BinnedTable(train, axes, discretizer)


def _list_numbers(dataset: Dataset, feature: int) -> Floats:
    """Return the number of each code, in ascending order; a missing value is above all others."""
    missing = dataset.features[feature].missing_code
    axis = np.asarray(dataset.features[feature].decoded_values, dtype=np.float64).copy()
    if missing is not None:
        numbers = axis[:missing]
        axis[missing] = numbers[-1] + max(1.0, numbers[-1] - numbers[0])
    return axis


def _compute_cuts(dataset: Dataset, feature: int, axis: Floats, train: Floats) -> Floats:
    """Return the quartiles, and the largest number of the column if there are missing values."""
    missing = dataset.features[feature].missing_code
    if missing is None:
        return np.percentile(train, [25, 50, 75])
    numbers = train[train != axis[missing]]
    return np.append(np.percentile(numbers, [25, 50, 75]) if len(numbers) else [], axis[missing - 1])
