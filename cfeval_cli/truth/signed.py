"""The paper's truth: weight times value."""

from __future__ import annotations

from dataclasses import dataclass

from cfeval_cli.types import Dataset, Floats, Gate, Rows, Truth


@dataclass(frozen=True)
class Signed(Truth):
    """How much a value adds to the predicted class. Moving a constant from the bias into a feature changes it."""

    name = "signed"
    place = 10
    question = "paper"
    arbitrary = True

    def importance(self, dataset: Dataset, model: Gate, rows: Rows) -> Floats:
        """s·c_j(x_j)."""
        return model.effects(rows.codes, rows.labels)
