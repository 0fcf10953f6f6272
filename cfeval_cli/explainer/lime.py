"""LIME, by its authors' package."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfeval_cli.errors import number, one_of, whole
from cfeval_cli.seeding import integer
from cfeval_cli.types import Access, Batch, Dataset, Explanation, Floats


@dataclass(frozen=True)
class Lime:
    """A local linear model; its coefficients for the predicted class are the scores."""

    n_samples: int = 5000
    kernel_width: float | None = None  # None: the package's default, 0.75 √M
    order: str = "absolute"  # as the package lists them; or signed: those for the prediction first

    access = Access.PROBABILITY
    title = "LIME"
    place = 30

    def __post_init__(self) -> None:
        whole("n_samples", self.n_samples, 2)
        if self.kernel_width is not None:
            number("kernel_width", self.kernel_width, 0, open_low=True)
        one_of("order", self.order, ("absolute", "signed"))

    def fit(self, dataset: Dataset, model: Any) -> Callable[[Batch], Explanation]:
        """Give the package the training distribution."""
        from lime.lime_tabular import LimeTabularExplainer
        from sklearn.utils import check_random_state

        package = LimeTabularExplainer(
            dataset.train.codes.astype(float),
            feature_names=[feature.name for feature in dataset.features],
            categorical_features=list(range(dataset.width)),
            categorical_names={j: list(feature.values) for j, feature in enumerate(dataset.features)},
            class_names=list(dataset.classes),
            kernel_width=self.kernel_width,
            feature_selection="none",  # forward selection would take ten times as long
            discretize_continuous=False,
        )

        def proba(rows: Floats) -> Floats:
            positive = model.proba(rows.astype(np.int32))
            return np.column_stack([1.0 - positive, positive])

        def explain(batch: Batch) -> Explanation:
            rows = []
            for i, label in enumerate(batch.labels.tolist()):
                package.random_state = package.base.random_state = check_random_state(integer(batch.rng(i)))
                told = package.explain_instance(
                    batch.codes[i].astype(float),
                    proba,
                    labels=(label,),
                    num_features=dataset.width,
                    num_samples=self.n_samples,
                )
                rows.append(self._ordered(told.local_exp[label]))
            return Explanation.ragged(rows)

        return explain

    def _ordered(self, weights: list[tuple[int, float]]) -> list[tuple[int, float]]:
        size = abs if self.order == "absolute" else float
        return sorted(((int(j), float(w)) for j, w in weights), key=lambda pair: (-size(pair[1]), pair[0]))
