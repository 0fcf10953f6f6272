"""Anchor, by its authors' package: its beam search and bounds, over samples that are made as arrays."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfeval_cli.errors import number, whole
from cfeval_cli.seeding import integer, numpy_global
from cfeval_cli.types import ABSENT, Access, Batch, Bools, Codes, Dataset, Explanation, Ints

Rule = list[tuple[int, float]]  # features, each with the precision of the rule up to it
Sample = tuple[Any, Any, Any]


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
        """Hand the package's beam search a sampler for tables or for text."""
        rule = (self._text if dataset.kind == "text" else self._table)(dataset, model)

        def explain(batch: Batch) -> Explanation:
            rows = []
            for i, label in enumerate(batch.labels.tolist()):
                with numpy_global(integer(batch.rng(i))):
                    rows.append(rule(batch.codes[i], label))
            return Explanation.ragged(rows)

        return explain

    def _table(self, dataset: Dataset, model: Any) -> Callable[[Codes, int], Rule]:
        """Rules over columns: training rows, drawn as the package draws them, with the rule's columns held fixed."""
        train = dataset.train.codes

        def rule(codes: Codes, label: int) -> Rule:
            def sample(present: list[int], size: int, compute_labels: bool = True) -> Sample:
                rows = train[np.random.randint(0, len(train), size)]  # noqa: NPY002  seeded around the call
                rows[:, present] = codes[present]
                return _sampled(rows == codes, lambda: model.labels(rows) == label if compute_labels else None)

            return self._search(sample, np.arange(len(codes)))

        return rule

    def _text(self, dataset: Dataset, model: Any) -> Callable[[Codes, int], Rule]:
        """Rules over token positions: each word that the rule does not hold is masked with probability one half.

        Nothing shifts, and positions are those of the codes.
        """

        def rule(codes: Codes, label: int) -> Rule:
            there = np.flatnonzero(codes != ABSENT)

            def sample(present: list[int], size: int, compute_labels: bool = True) -> Sample:
                kept = np.random.random((size, len(there))) < 0.5  # noqa: NPY002  seeded around the call
                kept[:, present] = True
                rows = np.tile(codes, (size, 1))
                rows[:, there] = np.where(kept, codes[there], dataset.mask)
                return _sampled(kept, lambda: model.labels(rows) == label if compute_labels else None)

            # as the package does for text: the first rule that holds, and no measure of coverage
            return self._search(sample, there, stop_on_first=True, coverage_samples=1)

        return rule

    def _search(self, sample: Callable[..., Sample], places: Ints, **more: Any) -> Rule:
        from anchor.anchor_base import AnchorBaseBeam

        found = AnchorBaseBeam.anchor_beam(
            sample,
            delta=self.delta,
            epsilon=self.tau,
            batch_size=self.batch_size,
            desired_confidence=self.threshold,
            **more,
        )
        return [(int(places[j]), float(p)) for j, p in zip(found["feature"], found["precision"], strict=True)]


def _sampled(kept: Bools, labels: Callable[[], Any]) -> Sample:
    """What the beam search takes: raw rows, which it only keeps as examples, which features are kept, and hits.

    In narrow types, since it sets aside room for 10,000 batches of each.
    """
    hits = labels()
    raw = np.zeros((len(kept), 1), dtype=np.int8)
    return raw, kept.astype(np.int8), np.zeros(0, np.int8) if hits is None else hits.astype(np.int8)
