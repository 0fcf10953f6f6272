"""How well probabilities tell classes apart, whatever the classes' shares."""

from __future__ import annotations

import numpy as np

from cfeval_cli.core import Floats, Ints


def auc(labels: Ints, probabilities: Floats) -> float:
    """The area under the ROC curve: of two classes that of the second; of more the mean over classes, each against all.

    That is how often a row of the class gets more than one of another, half of the ties counted. Classes that no row or
    every row has are left out; NaN if none is left.
    """
    classes = range(1, 2) if probabilities.shape[1] == 2 else range(probabilities.shape[1])
    told = [_against_all(labels == c, probabilities[:, c]) for c in classes]
    known = [area for area in told if not np.isnan(area)]
    return float(np.mean(known)) if known else float("nan")


def _against_all(mine: np.ndarray, scores: Floats) -> float:
    """From the sum of the ranks of a class (Mann and Whitney)."""
    size, others = int(mine.sum()), int((~mine).sum())
    if not size or not others:
        return float("nan")
    _, place, tied = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(tied) - (tied - 1) / 2)[place]  # not SciPy's: its module of statistics takes a second to import
    return float((ranks[mine].sum() - size * (size + 1) / 2) / (size * others))
