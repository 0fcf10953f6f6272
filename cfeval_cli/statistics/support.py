"""Common support: the instances on which explainers are compared like with like."""

from __future__ import annotations

import numpy as np
import pandas as pd

from cfeval_cli.types import Bools, Ints

NOWHERE = "no instance that all explainers cover"


def common(scores: pd.DataFrame, order: pd.DataFrame) -> Bools:
    """For each score, whether every explainer that has a value for its metric covers the instance.

    An explainer without any value leaves the others theirs. The rungs of a ladder are compared among themselves: they
    limit nobody, and all of their own instances are common.
    """
    rungs = set(order.loc[order["rung"].notna(), "explainer"])
    labels = [scores[name].astype("category").cat for name in ("metric", "variant", "explainer")]
    metric, variant, explainer = (label.codes.to_numpy().astype(np.int64) for label in labels)
    named = ~labels[2].categories.isin(list(rungs))
    row = _numbered(metric * len(labels[1].categories) + variant)
    instance = pd.factorize(scores["instance"].to_numpy())[0]
    size, many = int(row.max(initial=-1)) + 1, int(instance.max(initial=-1)) + 1
    part = row * len(named) + explainer
    below = np.bincount(part, weights=scores["denominator"].to_numpy(float), minlength=size * len(named))
    valued = (below.reshape(size, len(named)) != 0) & named
    counts = valued[row, explainer]
    covering = np.bincount((row * many + instance)[counts], minlength=size * many).reshape(size, many)
    return np.asarray(~named[explainer] | (covering[row, instance] == valued.sum(axis=1)[row]))


def _numbered(codes: Ints) -> Ints:
    """The same codes without gaps between them."""
    present = np.zeros(int(codes.max(initial=-1)) + 1, dtype=bool)
    present[codes] = True
    return np.asarray((np.cumsum(present) - 1)[codes])
