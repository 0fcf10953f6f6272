"""Common support: the instances on which explainers are compared like with like."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfeval_cli.types import Bools

NOWHERE = "no instance that all explainers cover"


def common(scores: pd.DataFrame, order: pd.DataFrame) -> Bools:
    """For each score, whether every explainer that has a value for its metric covers the instance.

    An explainer without any value leaves the others theirs. The rungs of a ladder are compared among themselves: they
    limit nobody, and all of their own instances are common.
    """
    rungs = set(order.loc[order["rung"].notna(), "explainer"])
    labels = [scores[name].astype("category").cat for name in ("metric", "variant", "explainer")]
    metric, variant, explainer = (label.codes.to_numpy() for label in labels)
    named = ~labels[2].categories.isin(list(rungs))
    row = _numbered(metric.astype(np.int32) * len(labels[1].categories) + variant)
    instance = pd.factorize(scores["instance"].to_numpy())[0].astype(np.int32)
    denominator = scores["denominator"].to_numpy(float)
    many = int(instance.max(initial=-1)) + 1
    result = np.empty(len(scores), dtype=bool)
    for one in range(int(row.max(initial=-1)) + 1):  # a row at a time, so that memory stays bounded
        at = np.flatnonzero(row == one)
        who, where = explainer[at], instance[at]
        below = np.bincount(who, weights=denominator[at], minlength=len(named))
        valued = (below != 0) & named
        covering = np.bincount(where[valued[who]], minlength=many)
        result[at] = ~named[who] | (covering[where] == valued.sum())
    return result


def _numbered(codes: NDArray[np.int32]) -> NDArray[np.int32]:
    """The same codes without gaps between them."""
    present = np.zeros(int(codes.max(initial=-1)) + 1, dtype=bool)
    present[codes] = True
    return (np.cumsum(present, dtype=np.int32) - np.int32(1))[codes]
