"""Tables as the packages lime and anchor are given them: numbers in quartile bins of the training rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cfeval_cli.core import Codes, Dataset, Floats, Ints


@dataclass(frozen=True)
class Binned:
    """The training rows with their numbers, and the bins that the packages put those in.

    Missing is a bin of its own, above all others.
    """

    train: Floats  # (n, M) numbers as they are, categories by code
    axes: dict[int, Floats]  # for each number, where its codes lie; what is missing lies above all
    discretizer: Any  # the package's

    @property
    def categories(self) -> list[int]:
        """The features that are no numbers."""
        return [j for j in range(self.train.shape[1]) if j not in self.axes]

    def bins(self, feature: int) -> Codes:
        """The bin of each code of a number."""
        return np.asarray(self.discretizer.lambdas[feature](self.axes[feature]), dtype=np.int32)

    def cuts(self, feature: int) -> int:
        """How many cuts there are between the bins of a number, some of which may be empty."""
        return len(self.discretizer.names[feature]) - 1

    def drawn(self, feature: int, bins: Ints, random: Any) -> Codes:
        """A number for each bin, drawn as the package does: from a normal distribution that ends where the bin does.

        The model is asked about numbers of the column, so the nearest is taken.
        """
        told = self.discretizer
        told.random_state = random
        numbers = told.get_undiscretize_values(feature, bins)
        low, high, mean, deviation = (np.array(part[feature]) for part in (told.mins, told.maxs, told.means, told.stds))
        # of a bin of one number the package gives how many deviations it is from itself
        single = ((low - mean) / deviation == (high - mean) / deviation)[bins]
        return self.nearest(feature, np.where(single, low[bins], numbers))

    def nearest(self, feature: int, numbers: Floats) -> Codes:
        """The codes whose numbers are nearest, of two as near the smaller."""
        axis = self.axes[feature]
        return np.searchsorted(axis[:-1] + np.diff(axis) / 2, numbers, side="left").astype(np.int32)


def binned(dataset: Dataset) -> Binned:
    """Find the bins, by the package's own class."""
    from lime.discretize import QuartileDiscretizer

    axes = {j: _axis(dataset, j) for j, feature in enumerate(dataset.features) if feature.kind == "number"}
    train = dataset.train.codes.astype(float)
    for j, axis in axes.items():
        train[:, j] = axis[dataset.train.codes[:, j]]

    class Quartiles(QuartileDiscretizer):  # type: ignore[misc]
        """With a bin for what is missing."""

        def bins(self, data: Floats, labels: object) -> list[Floats]:
            return [_cuts(dataset, j, axes[j], data[:, j]) for j in self.to_discretize]

    names = [feature.name for feature in dataset.features]
    made = Quartiles(train, [j for j in range(dataset.n_features) if j not in axes], names)
    for j in axes:
        missing = dataset.features[j].missing_code
        if missing is not None and (dataset.train.codes[:, j] != missing).any():  # the last bin of numbers ends there
            made.maxs[j][-2] = axes[j][dataset.train.codes[:, j][dataset.train.codes[:, j] != missing].max()]
    return Binned(train, axes, made)


def _axis(dataset: Dataset, feature: int) -> Floats:
    """Where the codes of a number lie, ascending."""
    about = dataset.features[feature]
    axis = np.asarray(about.decoded_values, dtype=np.float64).copy()
    if about.missing_code is not None:
        known = axis[: about.missing_code]
        axis[about.missing_code] = known[-1] + max(1.0, known[-1] - known[0])
    return axis


def _cuts(dataset: Dataset, feature: int, axis: Floats, train: Floats) -> Floats:
    """The quartiles, and the largest number of the column if something is missing above it."""
    missing = dataset.features[feature].missing_code
    if missing is None:
        return np.percentile(train, [25, 50, 75])
    known = train[train != axis[missing]]
    return np.append(np.percentile(known, [25, 50, 75]) if len(known) else [], axis[missing - 1])
