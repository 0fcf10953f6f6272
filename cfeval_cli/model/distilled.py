"""A model that is trained on the predictions of another model instead of the labels."""

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
    """The settings of the student and of its teacher, which a run trains first."""

    student: Trainable
    teacher: Trainable

    def __post_init__(self) -> None:
        for name, model in (("student", self.student), ("teacher", self.teacher)):
            if not isinstance(model, Trainable):
                raise ValueError(f"{name} must derive from cfeval_cli.core.Trainable, and {model!r} does not")

    @property
    def blind(self) -> Sequence[str] | float:
        """The features that the student does not read; the teacher may read them."""
        return self.student.blind if isinstance(self.student, SupportsFeatureSubset) else ()

    def output_type(self, dataset: Dataset) -> type:
        """Return the class of the trained student."""
        return ModelSpec.from_settings(dataset, self.student).kind

    def fit(self, dataset: Dataset, seed: int) -> Model:
        """Train the student; the labels of the data are the predictions of the teacher."""
        return self.student.fit(dataset, seed)

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> Model:
        """Return the trained student."""
        if not isinstance(self.student, Restorable):
            raise ValueError(f"{type(self.student).__name__} does not derive from Restorable")
        return self.student.restore(arrays)
