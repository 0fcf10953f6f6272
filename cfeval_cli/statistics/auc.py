"""The area under the ROC curve."""

from __future__ import annotations

import numpy as np

from cfeval_cli.core import Floats, Ints


def compute_auc(labels: Ints, probabilities: Floats) -> float:
    """Return the AUC of the second of two classes, or the mean one-vs-rest AUC of more classes.

    Classes that no row or every row has are left out, where scikit-learn raises an error; NaN if none remains.
    """
    from sklearn.metrics import roc_auc_score  # importing it takes half a second

    classes = range(1, 2) if probabilities.shape[1] == 2 else range(probabilities.shape[1])
    defined = [c for c in classes if 0 < np.count_nonzero(labels == c) < len(labels)]
    areas = [roc_auc_score(labels == c, probabilities[:, c]) for c in defined]
    return float(np.mean(areas)) if areas else float("nan")
