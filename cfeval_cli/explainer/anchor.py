"""Anchor, by its authors' package."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfeval_cli.errors import number, whole
from cfeval_cli.seeding import integer, numpy_global
from cfeval_cli.types import Access, Batch, Dataset, Explanation, Ints


@dataclass(frozen=True)
class Anchor:
    """A rule that holds the prediction in place; its features in the order in which they were added.

    A feature's score is the precision of the rule up to it.
    """

    threshold: float = 0.95
    delta: float = 0.1
    tau: float = 0.15
    batch_size: int = 100

    access = Access.LABEL
    title = "Anchor"
    place = 40

    def __post_init__(self) -> None:
        for name in ("threshold", "delta", "tau"):
            number(name, getattr(self, name), 0, 1, open_low=True)
        whole("batch_size", self.batch_size, 1)

    def fit(self, dataset: Dataset, model: Any) -> Callable[[Batch], Explanation]:
        """Give the package the training rows that it samples from."""
        from anchor.anchor_tabular import AnchorTabularExplainer

        package = AnchorTabularExplainer(
            list(dataset.classes),
            [feature.name for feature in dataset.features],
            dataset.train.codes,
            # every feature must be named here, or the package takes it as ordinal
            {j: list(feature.values) for j, feature in enumerate(dataset.features)},
        )

        def labels(rows: Any) -> Ints:
            return model.labels(rows.astype(np.int32))  # type: ignore[no-any-return]

        def explain(batch: Batch) -> Explanation:
            rows = []
            for i in range(len(batch)):
                with numpy_global(integer(batch.rng(i))):
                    rule = package.explain_instance(
                        batch.codes[i],
                        labels,
                        threshold=self.threshold,
                        delta=self.delta,
                        tau=self.tau,
                        batch_size=self.batch_size,
                    ).exp_map
                rows.append([(int(j), float(p)) for j, p in zip(rule["feature"], rule["precision"], strict=True)])
            return Explanation.ragged(rows)

        return explain
