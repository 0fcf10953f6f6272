"""LIME, by its authors' package."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfeval_cli.errors import number, one_of, whole
from cfeval_cli.seeding import integer
from cfeval_cli.types import ABSENT, Access, Batch, Codes, Dataset, Explanation, Floats, Ints


@dataclass(frozen=True)
class Lime:
    """A local linear model; its coefficients for the predicted class are the scores."""

    n_samples: int = 5000
    kernel_width: float | None = None  # None: the package's default, 0.75 √M on tables, 25 on text
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
        """Give the package the training distribution, or positions of words."""
        return self._fit_text(dataset, model) if dataset.kind == "text" else self._fit_table(dataset, model)

    def _fit_table(self, dataset: Dataset, model: Any) -> Callable[[Batch], Explanation]:
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
            return _both(model.proba(rows.astype(np.int32)))

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

    def _fit_text(self, dataset: Dataset, model: Any) -> Callable[[Batch], Explanation]:
        """The package's sampling, kernel and regression over token positions; only its string work is left out.

        A removed word is masked, so that nothing shifts, and a word that occurs twice is two features.
        """
        from lime.lime_text import LimeTextExplainer
        from sklearn.utils import check_random_state

        width = {} if self.kernel_width is None else {"kernel_width": self.kernel_width}
        package = LimeTextExplainer(bow=False, feature_selection="none", **width)
        sample = package._LimeTextExplainer__data_labels_distances

        def explain(batch: Batch) -> Explanation:
            rows = []
            for i, label in enumerate(batch.labels.tolist()):
                package.random_state = package.base.random_state = check_random_state(integer(batch.rng(i)))
                there = np.flatnonzero(batch.codes[i] != ABSENT)
                proba = _masking(model, batch.codes[i], there, dataset.mask)
                data, predicted, distances = sample(_Positions(len(there)), proba, self.n_samples)
                _, weights, _, _ = package.base.explain_instance_with_data(
                    data, predicted, distances, label, len(there), feature_selection="none"
                )
                rows.append(self._ordered([(there[place], weight) for place, weight in weights]))
            return Explanation.ragged(rows)

        return explain

    def _ordered(self, weights: list[tuple[int, float]]) -> list[tuple[int, float]]:
        size = abs if self.order == "absolute" else float
        return sorted(((int(j), float(w)) for j, w in weights), key=lambda pair: (-size(pair[1]), pair[0]))


@dataclass(frozen=True)
class _Positions:
    """What the package takes for an indexed string: a removal is told as the positions that are gone."""

    size: int

    def num_words(self) -> int:
        return self.size

    def raw_string(self) -> Ints:
        return np.zeros(0, dtype=np.int64)

    def inverse_removing(self, removed: Ints) -> Ints:
        return removed


def _masking(model: Any, codes: Codes, there: Ints, mask: int) -> Callable[[list[Ints]], Floats]:
    """The model on a sentence with some of its words masked."""

    def proba(removals: list[Ints]) -> Floats:
        rows = np.tile(codes, (len(removals), 1))
        rows[np.repeat(np.arange(len(removals)), [len(r) for r in removals]), there[np.concatenate(removals)]] = mask
        return _both(model.proba(rows))

    return proba


def _both(positive: Floats) -> Floats:
    """Probabilities of both classes."""
    return np.column_stack([1.0 - positive, positive])
