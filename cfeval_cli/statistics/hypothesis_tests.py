"""p-values from bootstrap resamples, and their correction for many tests."""

from __future__ import annotations

import numpy as np

from cfeval_cli.core import Floats

SIGNIFICANCE_LEVEL = 0.05


def compute_bootstrap_p_values(differences: Floats) -> Floats:
    """Return the two-sided p (J,) that a difference is zero, from its resamples (B, J).

    It is twice the share of resamples on the other side of zero. The real sample counts as one more, so no p is zero.
    """
    beyond = np.minimum((differences <= 0).sum(axis=0), (differences >= 0).sum(axis=0))
    n_defined = (~np.isnan(differences)).sum(axis=0)
    return np.asarray(np.minimum(1.0, 2 * (1 + beyond) / (1 + n_defined)))


def adjust_holm(p: Floats) -> Floats:
    """Return p-values with Holm's step-down correction for all of them."""
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, p[order] * (len(p) - np.arange(len(p)))))
    return adjusted


def is_underpowered(n_resamples: int, n_pairs: int) -> bool:
    """Return whether no difference among so many pairs of metrics can be significant after Holm's correction."""
    return 2 / (n_resamples + 1) * n_pairs >= SIGNIFICANCE_LEVEL
