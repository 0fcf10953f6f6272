"""A judge that learns another model's predictions instead of the labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from cfeval_cli.core import (
    Dataset,
    DeclaresOutputType,
    DistilledModel,
    Model,
    ModelSpec,
    Restorable,
    SupportsFeatureSubset,
    Trainable,
)


@dataclass(frozen=True)
class Distilled(DistilledModel, DeclaresOutputType, SupportsFeatureSubset, Restorable):
    """Who learns, and from whom; a run trains the teacher first, and tells how often the two agree."""

    student: Trainable
    teacher: Trainable

    def __post_init__(self) -> None:
        for name, model in (("student", self.student), ("teacher", self.teacher)):
            if not isinstance(model, Trainable):
                raise ValueError(f"{name} must derive from cfeval_cli.core.Trainable, and {model!r} does not")

    @property
    def blind(self) -> Sequence[str] | float:
        """What the student does not see; the teacher may."""
        return self.student.blind if isinstance(self.student, SupportsFeatureSubset) else ()

    def output_type(self, dataset: Dataset) -> type:
        """It is what the student is."""
        return ModelSpec.from_settings(dataset, self.student).kind

    def fit(self, dataset: Dataset, seed: int) -> Model:
        """Train the student on data whose labels are the teacher's."""
        return self.student.fit(dataset, seed)

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> Model:
        """The student that was trained before; ValueError if the arrays are not one's."""
        if not isinstance(self.student, Restorable):
            raise ValueError("the student cannot be made from arrays")
        return self.student.restore(arrays)
