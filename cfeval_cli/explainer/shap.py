"""SHAP: Shapley values by the ways of the shap package, which draws, weighs and walks through trees as it does.

For the same background and seed the values are the package's, to rounding.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from cfeval_cli.core import (
    ABSENT,
    Access,
    Batch,
    Codes,
    Dataset,
    Explainer,
    Explanation,
    Floats,
    HasEncodedEstimator,
    HasLinearLogit,
    Ints,
    ModelClient,
    ModelSpec,
    Workload,
)
from cfeval_cli.errors import UserError, check_installed, check_int, check_option
from cfeval_cli.explainer.coalitions import background, behind, kernel, permutation
from cfeval_cli.seeding import draw_seed

log = logging.getLogger("cfeval")

_MOST = 60  # features whose sets are counted
_NEAR = 1e-4  # values of trees sum to the model's probability within this: some libraries have small kinds of numbers

Scores = Callable[[Batch], Floats]  # (n, M)


@dataclass(frozen=True)
class Shap(Explainer):
    """How much each feature takes p(ŷ) from the mean over the background to where it is; `linear`: the logit of ŷ."""

    algorithm: str = "auto"  # permutation, kernel, tree or linear; auto: tree where that can be, else permutation
    background: int = 100  # training rows, drawn with the seed; of a text it is the mask token
    permutations: int = 10  # orders of the features, each there and back
    n_samples: int | None = None  # sets of features for kernel; None: the package's default, 2 M + 2048
    seed: int = 0  # of the background
    title: str = "SHAP"

    access = Access.WHITE_BOX  # to look into trees and linear models
    least = Access.PROBABILITY
    place = 52

    def __post_init__(self) -> None:
        check_option("algorithm", self.algorithm, ("auto", "permutation", "kernel", "tree", "linear"))
        for name in ("background", "permutations"):
            check_int(name, getattr(self, name), 1)
        if self.n_samples is not None:
            check_int("n_samples", self.n_samples, 2)
        check_int("seed", self.seed, 0)

    def estimates(self, dataset: Dataset) -> set[str]:
        """What it is a sample of, or of a text, with the mask for what is not known, something near it."""
        return {"shapley"}

    def check(self, spec: ModelSpec) -> None:
        """Refuse an algorithm that cannot be had of such a model, or without the package."""
        if self.algorithm in _NEEDS and (reason := spec.missing_ability_reason(_NEEDS[self.algorithm])):
            raise ValueError(f"algorithm={self.algorithm}: {reason}. Use algorithm=auto.")
        if self._looks_inside(spec):
            check_installed("shap", "shap")

    def asks(self, spec: ModelSpec) -> Access:
        """Everything where it looks into the model, else probabilities."""
        return Access.WHITE_BOX if self._looks_inside(spec) else Access.PROBABILITY

    def workload(self, spec: ModelSpec) -> Workload:
        """Return the number of sets of features times that of background rows; none where it looks into the model.

        Unknown with algorithm=auto and an estimator, of which only those of trees are looked into.
        """
        if self.algorithm in _NEEDS:
            return Workload(0)
        dataset = spec.dataset
        sizes = dataset.test_lengths
        if self.algorithm == "kernel":
            sets, settings = 2 + (2 * sizes + 2**11 if self.n_samples is None else self.n_samples), ["n_samples"]
        else:
            sets, settings = 2 + 2 * self.permutations * (sizes - 1), ["permutations"]
        rows = 1 if dataset.padded else min(self.background, len(dataset.train))
        settings += [] if dataset.padded else ["background"]  # of a text it is the mask token
        evaluations = rows * float(np.minimum(sets, 2.0 ** np.minimum(sizes, _MOST)).mean())
        return Workload(None if self._looks_inside(spec) else evaluations, tuple(settings))

    def _looks_inside(self, spec: ModelSpec) -> bool:
        return self.algorithm in _NEEDS or (self.algorithm == "auto" and spec.supports(HasEncodedEstimator))

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Draw the background, and find the way."""
        scores = self._way(dataset, model)

        def explain(batch: Batch) -> Explanation:
            return Explanation.from_scores(scores(batch), batch.codes != ABSENT)

        return explain

    def _way(self, dataset: Dataset, model: ModelClient) -> Scores:
        rows = background(dataset, self.background, self.seed)
        if self.algorithm == "linear":
            return _linear(dataset, model)
        if self.algorithm == "tree" or (self.algorithm == "auto" and model.access >= Access.WHITE_BOX):
            found = _tree(model, rows)
            if not isinstance(found, str):
                return found
            if self.algorithm == "tree":
                raise UserError(f"explainer.shap.algorithm=tree: {found}. Use algorithm=auto.")
            log.info("shap takes permutations, since of its trees %s", found)
        if self.algorithm == "kernel":
            one: Callable[[Codes, int, Codes, Any], Floats] = partial(_kernel, model, self.n_samples)
        else:
            one = partial(_permutation, model, self.permutations)

        def scores(batch: Batch) -> Floats:
            told = np.zeros(batch.codes.shape)
            for i, codes in enumerate(batch.codes):
                random = np.random.RandomState(draw_seed(batch.rng(i)))  # as the package's, seeded
                told[i] = one(codes, int(batch.labels[i]), behind(codes, rows), random)
            return told

        return scores


_NEEDS: dict[str, type] = {"tree": HasEncodedEstimator, "linear": HasLinearLogit}


def _permutation(model: ModelClient, times: int, codes: Codes, label: int, rows: Codes, random: Any) -> Floats:
    return permutation(model, codes, label, rows, times, random)


def _kernel(model: ModelClient, samples: int | None, codes: Codes, label: int, rows: Codes, random: Any) -> Floats:
    return kernel(model, codes, label, rows, samples, random)


def _linear(dataset: Dataset, model: ModelClient) -> Scores:
    """By the package, from the mean embeddings of all training rows that have the feature."""
    import shap

    train = dataset.train.codes
    means = np.stack([_mean(model, j, train[:, j]) for j in range(dataset.n_features)])
    logits, slopes = model.compute_linear_logits(train[:1])
    bias = float(logits[0] - (model.embed_rows(train[:1])[0] * slopes).sum())
    masker = shap.maskers.Independent({"mean": means.ravel(), "cov": np.zeros((1, 1))})
    package = shap.LinearExplainer((slopes.ravel(), bias), masker)

    def scores(batch: Batch) -> Floats:
        told = package.shap_values(model.embed_rows(batch.codes).reshape(len(batch), -1))
        towards = np.where(batch.labels == 1, 1.0, -1.0)[:, None]
        return np.asarray(towards * told.reshape(len(batch), dataset.n_features, -1).sum(axis=2))

    return scores


def _mean(model: ModelClient, feature: int, codes: Codes) -> Floats:
    values, counts = np.unique(codes[codes != ABSENT], return_counts=True)
    if not len(values):
        return np.zeros(model.embed_values(feature, np.zeros(1, dtype=np.int32)).shape[1])
    return np.asarray(counts @ model.embed_values(feature, values.astype(np.int32)) / counts.sum())


def _tree(model: ModelClient, rows: Codes) -> Scores | str:
    """By the package, on the columns that the trees are given; a feature has the sum of its columns. Or why not."""
    encoded = model.get_encoded_estimator()
    columns, owners, classes = encoded.encode(rows), encoded.get_column_features(), encoded.get_estimator_classes()
    try:
        package = _package(encoded.get_estimator(), columns)
        # it rounds what is explained to the numbers that the trees read, and forgets the background
        package = _package(encoded.get_estimator(), columns.astype(package.model.input_dtype).astype(np.float64))
        values = _of_classes(package.shap_values(columns, check_additivity=False), len(classes))
    except Exception as error:  # whatever kind of model the package does not know, and says so in whatever way
        return f"the package says: {' '.join(str(error).split())[:200]}"
    known = model.predict_proba(rows)[:, classes]
    apart = np.abs(values.sum(axis=1) - (known - known.mean(axis=0))).max()
    if not apart <= _NEAR:  # as with splits by category, which the package takes for numbers
        return f"the values do not sum to the model's probabilities: they are {apart:.2g} away"
    place = {int(number): at for at, number in enumerate(classes)}

    def scores(batch: Batch) -> Floats:
        told = _of_classes(package.shap_values(encoded.encode(batch.codes), check_additivity=False), len(classes))
        mine = told[np.arange(len(batch)), :, [place[int(label)] for label in batch.labels]]
        return _summed(mine, owners, batch.codes.shape[1])

    return scores


def _package(estimator: object, columns: Floats) -> Any:
    import shap

    masker = shap.maskers.Independent(columns, max_samples=len(columns))
    return shap.TreeExplainer(estimator, masker, model_output="probability")


def _of_classes(values: Any, classes: int) -> Floats:
    """Values (n, W, C) of all classes; the package tells those of two by the second alone for some libraries."""
    told = np.asarray(values, dtype=np.float64)
    if told.ndim == 2 and classes == 2:
        return np.stack([-told, told], axis=2)
    if told.ndim != 3 or told.shape[2] != classes:
        raise ValueError(f"values of shape {told.shape} for {classes} classes")
    return told


def _summed(values: Floats, owners: Ints, width: int) -> Floats:
    """The sums (n, M) of the columns (n, W) that belong to each feature; zero for one that is not looked at."""
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    sums = np.zeros((len(values), width))
    sums[:, owners[starts]] = np.add.reduceat(values, starts, axis=1)
    return sums
