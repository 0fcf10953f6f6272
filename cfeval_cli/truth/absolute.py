"""The size of an effect."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Additive, Dataset, Embedded, Floats, Gate, Rows, Subject, Truth


@dataclass(frozen=True)
class Absolute(Truth):
    """How much a value adds to the predicted class or takes from it. Moving a constant into a feature changes it."""

    name = "absolute"
    place = 40
    question = "paper"
    arbitrary = True

    def sits_out(self, subject: Subject) -> str | None:
        """Sums of effects that begin at an origin, which embeddings have."""
        return subject.lacks(Additive, Embedded)

    def importance(self, dataset: Dataset, model: Gate, rows: Rows) -> Floats:
        """|c_j(x_j)|."""
        return np.abs(model.effects(rows.codes, rows.labels))
