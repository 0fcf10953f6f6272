"""Control explainer that ranks features at random."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import ABSENT, Access, Batch, Dataset, Explainer, Explanation, ModelClient


@dataclass(frozen=True)
class Random(Explainer):
    """Features in a uniformly random order."""

    access = Access.NOTHING
    title = "Random"
    display_order = 10
    is_control = True
    scores_are_effects = False

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Return the function that draws an order for each instance."""

        def explain(batch: Batch) -> Explanation:
            scores = np.stack([batch.make_rng(i).random(dataset.n_features) for i in range(len(batch))])
            return Explanation.from_scores(scores, batch.codes != ABSENT)

        return explain
