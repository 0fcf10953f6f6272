"""Anchor, by its authors' package."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfeval_cli.errors import number, whole
from cfeval_cli.seeding import integer, numpy_global
from cfeval_cli.types import ABSENT, Access, Batch, Codes, Dataset, Explanation, Ints


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
        """Choose the package's search for tables or for text."""
        rule = (self._text if dataset.kind == "text" else self._table)(dataset, model)

        def explain(batch: Batch) -> Explanation:
            rows = []
            for i, label in enumerate(batch.labels.tolist()):
                with numpy_global(integer(batch.rng(i))):
                    found = rule(batch.codes[i], label)
                rows.append([(int(j), float(p)) for j, p in zip(found["feature"], found["precision"], strict=True)])
            return Explanation.ragged(rows)

        return explain

    def _table(self, dataset: Dataset, model: Any) -> Callable[[Codes, int], dict[str, Any]]:
        """Rules over columns, sampling from training rows."""
        from anchor.anchor_tabular import AnchorTabularExplainer

        package = AnchorTabularExplainer(
            list(dataset.classes),
            [feature.name for feature in dataset.features],
            dataset.train.codes,
            # every feature must be named here, or the package takes it as ordinal
            {j: list(feature.values) for j, feature in enumerate(dataset.features)},
        )
        settings = {name: getattr(self, name) for name in ("threshold", "delta", "tau", "batch_size")}

        def labels(rows: Any) -> Ints:
            return model.labels(rows.astype(np.int32))  # type: ignore[no-any-return]

        return lambda codes, _: package.explain_instance(codes, labels, **settings).exp_map

    def _text(self, dataset: Dataset, model: Any) -> Callable[[Codes, int], dict[str, Any]]:
        """Rules over token positions: the package's beam search, with its unknown-word distribution as arrays.

        Each word that the rule does not hold is masked with probability one half; nothing shifts, and positions are
        those of the codes.
        """
        from anchor.anchor_base import AnchorBaseBeam

        def rule(codes: Codes, label: int) -> dict[str, Any]:
            there = np.flatnonzero(codes != ABSENT)

            def sample(present: list[int], size: int, compute_labels: bool = True) -> tuple[Any, Any, Any]:
                kept = np.random.random((size, len(there))) < 0.5  # noqa: NPY002  seeded around the call
                kept[:, present] = True
                labels = np.zeros(0, dtype=np.int8)
                if compute_labels:
                    rows = np.tile(codes, (size, 1))
                    rows[:, there] = np.where(kept, codes[there], dataset.mask)
                    labels = (model.labels(rows) == label).astype(np.int8)
                # narrow types: the package sets aside room for 10,000 batches of each
                return np.zeros((size, 1), dtype=np.int8), kept.astype(np.int8), labels

            found = AnchorBaseBeam.anchor_beam(
                sample, delta=self.delta, epsilon=self.tau, batch_size=self.batch_size,
                desired_confidence=self.threshold, stop_on_first=True, coverage_samples=1,
            )  # fmt: skip
            return {"feature": there[np.array(found["feature"], dtype=int)], "precision": found["precision"]}

        return rule
