"""The area under the ROC curve."""

from __future__ import annotations

import numpy as np

from cfeval_cli.core import Floats, Ints


def compute_auc(labels: Ints, probabilities: Floats) -> float:
    """Return the area under the ROC curve: of two classes that of the second; of more the mean, each against the rest.

    Classes that no row or every row has are left out, where scikit-learn raises an error; NaN if none remains.
    """
    from sklearn.metrics import roc_auc_score  # importing it takes half a second

    classes = range(1, 2) if probabilities.shape[1] == 2 else range(probabilities.shape[1])
    defined = [c for c in classes if 0 < np.count_nonzero(labels == c) < len(labels)]
    areas = [roc_auc_score(labels == c, probabilities[:, c]) for c in defined]
    return float(np.mean(areas)) if areas else float("nan")
