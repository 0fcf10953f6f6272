"""Encode codes as the numbers that an estimator receives: a block of columns for each feature, looked up by value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cfeval_cli.core import ABSENT, Bools, Codes, Dataset, Floats, Ints

if TYPE_CHECKING:
    import pandas as pd


class Encoder(Protocol):
    """Encodes rows for an estimator."""

    @property
    def is_category(self) -> Bools:
        """Whether each column (W,) contains the number of a category."""
        ...

    def transform(self, codes: Codes) -> Any:
        """Return the matrix (n, W), dense or sparse."""
        ...


@dataclass(frozen=True)
class TableEncoder:
    """Encodes rows of a table: for each feature, the columns (V, w) of every value."""

    blocks: tuple[Floats, ...]
    is_category: Bools

    @property
    def owners(self) -> Ints:
        """The feature (W,) of each column."""
        return np.repeat(np.arange(len(self.blocks)), [block.shape[1] for block in self.blocks])

    def transform(self, codes: Codes) -> Floats:
        """Return the matrix (n, W), by one lookup for each feature."""
        matrix = np.empty((len(codes), len(self.is_category)))
        start = 0
        for j, block in enumerate(self.blocks):
            matrix[:, start : start + block.shape[1]] = block.take(codes[:, j], axis=0)
            start += block.shape[1]
        return matrix


@dataclass(frozen=True)
class BagOfWords:
    """Encodes texts: how often each word of the vocabulary occurs."""

    n_words: int

    @property
    def is_category(self) -> Bools:
        """False for all columns."""
        return np.zeros(self.n_words, dtype=bool)

    def transform(self, codes: Codes) -> Any:
        """Return a sparse matrix (n, V)."""
        from scipy.sparse import csr_matrix

        row, position = np.nonzero(codes != ABSENT)
        counts = np.ones(len(row))
        return csr_matrix((counts, (row, codes[row, position])), shape=(len(codes), self.n_words))


def make_table_encoder(
    dataset: Dataset, *, onehot: bool, scale: bool, fill: bool, max_categories: int | None
) -> TableEncoder:
    """Encode numbers as they are, and categories as columns of 0 and 1 (`onehot`) or as their numbers.

    Parameters
    ----------
    scale : subtract the training mean from numbers and divide by the standard deviation.
    fill : replace missing numbers by the training median, and add a column that marks them; else they stay NaN.
    max_categories : categories with more values count as numbers. None: all stay categories.
    """
    blocks: list[Floats] = []
    is_category: list[bool] = []
    for j, values in enumerate(decode_values(dataset)):
        n_values = len(values)
        numbers = convert_to_numbers(values)
        is_native = False
        if numbers is not None:
            block = _make_number_block(numbers, dataset.train.codes[:, j], scale=scale, fill=fill)
        elif onehot:
            block = np.eye(n_values)
        else:
            block = np.arange(float(n_values))[:, None]
            is_native = max_categories is None or n_values <= max_categories
        blocks.append(block)
        is_category += [is_native] * block.shape[1]
    return TableEncoder(tuple(blocks), np.array(is_category))


def decode_values(dataset: Dataset) -> Sequence[pd.Series[Any]]:
    """Return every value of each feature, in the form of `decode`."""
    sizes = np.array([len(feature.values) for feature in dataset.features])
    grid = np.minimum(np.arange(sizes.max())[:, None], sizes - 1).astype(np.int32)
    decoded = dataset.decode(grid)
    if isinstance(decoded, list):
        raise TypeError("a text has no columns")
    return [decoded.iloc[:size, j] for j, size in enumerate(sizes)]


def convert_to_numbers(values: pd.Series[Any]) -> Floats | None:
    """Return the numbers of a column, NaN where one is missing; None if it contains categories."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if is_bool_dtype(values) or not is_numeric_dtype(values):
        return None
    return values.to_numpy(dtype=np.float64, na_value=np.nan)


def _make_number_block(values: Floats, train: Codes, *, scale: bool, fill: bool) -> Floats:
    """Return the columns of a feature that is a number."""
    train_values = values[train]
    present = train_values[~np.isnan(train_values)]
    centre, width = 0.0, 1.0
    if scale and len(present):
        centre, width = float(present.mean()), float(present.std()) or 1.0
    block = (values - centre) / width
    if not fill or not np.isnan(values).any():
        return block[:, None]
    median = (float(np.median(present)) - centre) / width if len(present) else 0.0
    is_missing = np.isnan(values)
    return np.stack([np.where(is_missing, median, block), is_missing.astype(np.float64)], axis=1)
