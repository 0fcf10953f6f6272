"""Features at random: the floor that every explainer should beat."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import ABSENT, Access, Batch, Dataset, Explainer, Explanation, ModelClient


@dataclass(frozen=True)
class Random(Explainer):
    """A uniform order of the features."""

    access = Access.NOTHING
    title = "Random"
    display_order = 10
    is_control = True
    scores_are_effects = False

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Nothing to prepare."""

        def explain(batch: Batch) -> Explanation:
            scores = np.stack([batch.rng(i).random(dataset.n_features) for i in range(len(batch))])
            return Explanation.from_scores(scores, batch.codes != ABSENT)

        return explain
