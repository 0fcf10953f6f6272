"""From codes to the numbers that an estimator is given: a block of columns for each feature, looked up by value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cfeval_cli.core import ABSENT, Bools, Codes, Dataset, Floats, Ints

if TYPE_CHECKING:
    import pandas as pd


class Encoder(Protocol):
    """Makes what an estimator is given."""

    @property
    def categories(self) -> Bools:
        """Which columns (W,) are numbers of categories."""
        ...

    def rows(self, codes: Codes) -> Any:
        """The matrix (n, W), dense or sparse."""
        ...


@dataclass(frozen=True)
class Columns:
    """A table: the columns (V, w) of every value of each feature."""

    blocks: tuple[Floats, ...]
    categories: Bools

    @property
    def owners(self) -> Ints:
        """The feature (W,) that each column belongs to."""
        return np.repeat(np.arange(len(self.blocks)), [block.shape[1] for block in self.blocks])

    def rows(self, codes: Codes) -> Floats:
        """One gather a feature."""
        made = np.empty((len(codes), len(self.categories)))
        start = 0
        for j, block in enumerate(self.blocks):
            made[:, start : start + block.shape[1]] = block.take(codes[:, j], axis=0)
            start += block.shape[1]
        return made


@dataclass(frozen=True)
class Words:
    """A text: how often each word occurs in it."""

    vocabulary: int

    @property
    def categories(self) -> Bools:
        """None."""
        return np.zeros(self.vocabulary, dtype=bool)

    def rows(self, codes: Codes) -> Any:
        """A sparse matrix."""
        from scipy.sparse import csr_matrix

        row, place = np.nonzero(codes != ABSENT)
        counted = (np.ones(len(row)), (row, codes[row, place]))
        return csr_matrix(counted, shape=(len(codes), self.vocabulary))


def columns(dataset: Dataset, *, onehot: bool, scale: bool, fill: bool, most: int | None) -> Columns:
    """Categories as columns of 0 and 1, or as numbers, of which those with more than `most` values count as numbers.

    Numbers as they are, or less their training mean, in standard deviations; a missing one stays NaN, or if `fill`
    is the training median, with a column that says so.
    """
    blocks: list[Floats] = []
    categories: list[bool] = []
    for j, values in enumerate(values_of(dataset)):
        size = len(values)
        numbers = as_numbers(values)
        if numbers is not None:
            block = _numbers(numbers, dataset.train.codes[:, j], scale=scale, fill=fill)
            named = False
        elif onehot:
            block, named = np.eye(size), False
        else:
            block, named = np.arange(float(size))[:, None], most is None or size <= most
        blocks.append(block)
        categories += [named] * block.shape[1]
    return Columns(tuple(blocks), np.array(categories))


def values_of(dataset: Dataset) -> Sequence[pd.Series[Any]]:
    """Every value of each feature, as `decode` gives it to a model."""
    sizes = np.array([len(feature.values) for feature in dataset.features])
    grid = np.minimum(np.arange(sizes.max())[:, None], sizes - 1).astype(np.int32)
    decoded = dataset.decode(grid)
    if isinstance(decoded, list):
        raise TypeError("a text has no columns")
    return [decoded.iloc[:size, j] for j, size in enumerate(sizes)]


def as_numbers(values: pd.Series[Any]) -> Floats | None:
    """The numbers of a column, NaN where one is missing; None if it is of categories."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if is_bool_dtype(values) or not is_numeric_dtype(values):
        return None
    return values.to_numpy(dtype=np.float64, na_value=np.nan)


def _numbers(values: Floats, train: Codes, *, scale: bool, fill: bool) -> Floats:
    """The block of a feature of numbers."""
    seen = values[train]
    known = seen[~np.isnan(seen)]
    centre, width = 0.0, 1.0
    if scale and len(known):
        centre, width = float(known.mean()), float(known.std()) or 1.0
    block = (values - centre) / width
    if not fill or not np.isnan(values).any():
        return block[:, None]
    middle = (float(np.median(known)) - centre) / width if len(known) else 0.0
    gone = np.isnan(values)
    return np.stack([np.where(gone, middle, block), gone.astype(np.float64)], axis=1)
