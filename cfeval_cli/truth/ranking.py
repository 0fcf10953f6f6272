"""From importance to the features that matter most."""

from __future__ import annotations

import numpy as np

from cfeval_cli.core import Explanation, Floats, Ints


def top(importance: Floats, k: int) -> Ints:
    """The k most important features (n, k), equal ones in the order of the features, NONE for absent ones."""
    return Explanation.ranked(importance, np.isfinite(importance)).top(k)
