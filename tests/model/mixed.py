"""A small table of categories and numbers with missing values, and short texts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from cfeval_cli.core import Dataset, Feature, Split

COLOURS = ("blue", "green", "red")
AGES = (18.0, 25.0, 31.5, 40.0, 52.0, 67.0, np.nan)
DEBTS = (0.0, 10.0, 100.0, 1000.0)
VALUES = {"colour": COLOURS, "age": AGES, "debt": DEBTS, "flag": ("no", "yes")}


@dataclass(frozen=True)
class MixedDataset(Dataset):
    """A dataset that decodes numbers as numbers."""

    def decode(self, codes):
        return pd.DataFrame({name: np.array(values)[codes[:, j]] for j, (name, values) in enumerate(VALUES.items())})


def make_mixed_table(n=240, seed=0, classes=("bad", "good")):
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, len(values), n) for values in VALUES.values()], axis=1).astype(np.int32)
    signal = (codes[:, 0] == 2) * 2.0 + codes[:, 1] * 0.5 - codes[:, 2] * 0.7 + rng.normal(0, 0.7, n)
    labels = np.digitize(signal, np.quantile(signal, np.arange(1, len(classes)) / len(classes)))
    ends = [0, n * 2 // 3, n * 5 // 6, n]
    parts = [Split(np.arange(a, b), codes[a:b], labels[a:b]) for a, b in pairwise(ends)]
    sizes = [len(values) for values in VALUES.values()]
    return MixedDataset(
        name="mixed",
        kind="tabular",
        features=tuple(Feature(name, tuple(map(str, values))) for name, values in VALUES.items()),
        classes=classes,
        train=parts[0],
        validation=parts[1],
        test=parts[2],
        frequencies=tuple(
            np.bincount(parts[0].codes[:, j], minlength=size) / len(parts[0]) for j, size in enumerate(sizes)
        ),
        candidates=tuple(np.arange(size, dtype=np.int32) for size in sizes),
    )


def make_sentences(n=60, seed=0):
    """Return texts of one to five words."""
    rng = np.random.default_rng(seed)
    words = ("good", "bad", "film", "the", "<unk>")
    codes = rng.integers(0, 4, (n, 5)).astype(np.int32)
    codes[np.arange(5)[None] >= rng.integers(1, 6, n)[:, None]] = -1
    labels = ((codes == 0).sum(axis=1) >= (codes == 1).sum(axis=1)).astype(int)
    third = n // 3
    parts = [Split(np.arange(i, i + third), codes[i : i + third], labels[i : i + third]) for i in range(0, n, third)]
    return Dataset(
        name="sentences",
        kind="text",
        features=tuple(Feature(f"token {j + 1}", words) for j in range(5)),
        classes=("negative", "positive"),
        train=parts[0],
        validation=parts[1],
        test=parts[2],
        frequencies=(np.array([0.25, 0.25, 0.25, 0.25, 0.0]),) * 5,
        candidates=(np.arange(4, dtype=np.int32),) * 5,
        mask_code=4,
    )
