"""SHAP: Shapley values by the algorithms of the shap package.

For the same background and seed the values are the package's, up to rounding.
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
    CircularRelation,
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
from cfeval_cli.errors import UserError, check_int, check_option
from cfeval_cli.explainer.coalitions import (
    draw_background,
    estimate_by_permutations,
    estimate_by_regression,
    pad_background,
)
from cfeval_cli.seeding import draw_seed

log = logging.getLogger("cfeval")

_MAX_COUNTED_FEATURES = 60  # 2 to a larger power exceeds every number of samples
_ADDITIVITY_TOLERANCE = 1e-4  # of values of trees, because some libraries compute in single precision

ComputeScores = Callable[[Batch], Floats]  # (n, M)
# From the codes of an instance, its label, background rows and a generator to values (M,).
Estimate = Callable[[Codes, int, Codes, Any], Floats]


@dataclass(frozen=True)
class Shap(Explainer):
    """Shapley values of p(ŷ), relative to its mean over background rows; with `linear`, of the logit of ŷ."""

    algorithm: str = "auto"  # permutation, kernel, tree or linear; auto: tree where it applies, else permutation
    background: int = 100  # number of training rows, drawn with the seed; the background of a text is the mask token
    permutations: int = 10  # orders of the features, each forwards and backwards
    n_samples: int | None = None  # sets of features for kernel; None: the package's default, 2 M + 2048
    seed: int = 0  # of the background
    title: str = "SHAP"

    access = Access.WHITE_BOX  # for algorithms that read trees or linear weights
    min_access = Access.PROBABILITY
    display_order = 52

    def __post_init__(self) -> None:
        check_option("algorithm", self.algorithm, ("auto", "permutation", "kernel", "tree", "linear"))
        for name in ("background", "permutations"):
            check_int(name, getattr(self, name), 1)
        if self.n_samples is not None:
            check_int("n_samples", self.n_samples, 2)
        check_int("seed", self.seed, 0)

    def circular_with(self, spec: ModelSpec, k: int) -> CircularRelation:
        """Return the Shapley values, which SHAP estimates; for texts with the mask token as the background."""
        return CircularRelation(truths={"shapley"})

    def check(self, spec: ModelSpec) -> None:
        """Raise an error for an algorithm that does not apply to the model."""
        if self.algorithm in _NEEDED_ABILITIES and (
            reason := spec.missing_ability_reason(_NEEDED_ABILITIES[self.algorithm])
        ):
            raise ValueError(f"algorithm={self.algorithm}: {reason}. Use algorithm=auto.")

    def choose_access(self, spec: ModelSpec) -> Access:
        """Everything for algorithms that read the model, otherwise probabilities."""
        return Access.WHITE_BOX if self._may_read_model(spec) else Access.PROBABILITY

    def estimate_workload(self, spec: ModelSpec) -> Workload:
        """Return the number of sets of features times that of background rows; 0 for algorithms that read the model.

        It is unknown for algorithm=auto and an estimator, because not every estimator has trees.
        """
        if self.algorithm in _NEEDED_ABILITIES:
            return Workload(0)
        dataset = spec.dataset
        sizes = dataset.test_lengths
        if self.algorithm == "kernel":
            sets, settings = 2 + (2 * sizes + 2**11 if self.n_samples is None else self.n_samples), ["n_samples"]
        else:
            sets, settings = 2 + 2 * self.permutations * (sizes - 1), ["permutations"]
        rows = 1 if dataset.padded else min(self.background, len(dataset.train))
        settings += [] if dataset.padded else ["background"]
        evaluations = rows * float(np.minimum(sets, 2.0 ** np.minimum(sizes, _MAX_COUNTED_FEATURES)).mean())
        return Workload(None if self._may_read_model(spec) else evaluations, tuple(settings))

    def _may_read_model(self, spec: ModelSpec) -> bool:
        return self.algorithm in _NEEDED_ABILITIES or (self.algorithm == "auto" and spec.supports(HasEncodedEstimator))

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Draw the background, and prepare the algorithm."""
        compute_scores = self._prepare(dataset, model)

        def explain(batch: Batch) -> Explanation:
            return Explanation.from_scores(compute_scores(batch), batch.codes != ABSENT)

        return explain

    def _prepare(self, dataset: Dataset, model: ModelClient) -> ComputeScores:
        rows = draw_background(dataset, self.background, self.seed)
        if self.algorithm == "linear":
            return _prepare_linear(dataset, model)
        if self.algorithm == "tree" or (self.algorithm == "auto" and model.access >= Access.WHITE_BOX):
            try:
                compute_tree_scores = _prepare_tree(model, rows)
                log.info("shap uses algorithm=tree")
                return compute_tree_scores
            except _UnsupportedTrees as error:
                if self.algorithm == "tree":
                    raise UserError(f"explainer.shap.algorithm=tree: {error}. Use algorithm=auto.") from error
                log.info("shap uses algorithm=permutation instead of tree: %s", error)
        estimate: Estimate = (
            partial(estimate_by_regression, model, self.n_samples)
            if self.algorithm == "kernel"
            else partial(estimate_by_permutations, model, self.permutations)
        )

        def compute_scores(batch: Batch) -> Floats:
            scores = np.zeros(batch.codes.shape)
            for i, codes in enumerate(batch.codes):
                random = np.random.RandomState(draw_seed(batch.make_rng(i)))  # the generator of the package
                scores[i] = estimate(codes, int(batch.predicted_classes[i]), pad_background(codes, rows), random)
            return scores

        return compute_scores


_NEEDED_ABILITIES: dict[str, type] = {"tree": HasEncodedEstimator, "linear": HasLinearLogit}


class _UnsupportedTrees(Exception):
    """Raised for a model whose trees the package cannot explain, with the reason."""


def _prepare_linear(dataset: Dataset, model: ModelClient) -> ComputeScores:
    """Use the package's algorithm for linear models, relative to the mean embeddings of the training rows."""
    import shap

    train = dataset.train.codes
    means = np.stack([_compute_mean_embedding(model, j, train[:, j]) for j in range(dataset.n_features)])
    logits, slopes = model.compute_linear_logits(train[:1])
    bias = float(logits[0] - (model.embed_rows(train[:1])[0] * slopes).sum())
    masker = shap.maskers.Independent({"mean": means.ravel(), "cov": np.zeros((1, 1))})
    package = shap.LinearExplainer((slopes.ravel(), bias), masker)

    def compute_scores(batch: Batch) -> Floats:
        values = package.shap_values(model.embed_rows(batch.codes).reshape(len(batch), -1))
        signs = np.where(batch.predicted_classes == 1, 1.0, -1.0)[:, None]
        return np.asarray(signs * values.reshape(len(batch), dataset.n_features, -1).sum(axis=2))

    return compute_scores


def _compute_mean_embedding(model: ModelClient, feature: int, codes: Codes) -> Floats:
    """Return the mean embedding of a feature over the rows where it is present."""
    values, counts = np.unique(codes[codes != ABSENT], return_counts=True)
    if not len(values):
        return np.zeros(model.embed_values(feature, np.zeros(1, dtype=np.int32)).shape[1])
    return np.asarray(counts @ model.embed_values(feature, values.astype(np.int32)) / counts.sum())


def _prepare_tree(model: ModelClient, rows: Codes) -> ComputeScores:
    """Use the package's algorithm for trees on the encoded columns; a feature has the sum of its columns."""
    encoded = model.get_encoded_estimator()
    try:
        columns, owners, classes = encoded.encode(rows), encoded.get_column_features(), encoded.get_estimator_classes()
        package = _make_tree_explainer(encoded.get_estimator(), columns)
        # The package rounds instances to the type of numbers that the trees read, but not the background.
        rounded = columns.astype(package.model.input_dtype).astype(np.float64)
        package = _make_tree_explainer(encoded.get_estimator(), rounded)
        values = _stack_classes(package.shap_values(columns, check_additivity=False), len(classes))
    except Exception as error:  # encoders and the package raise errors of many types for what they do not support
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise _UnsupportedTrees(reason) from error
    probability = model.predict_proba(rows)[:, classes]
    difference = np.abs(values.sum(axis=1) - (probability - probability.mean(axis=0))).max()
    if not difference <= _ADDITIVITY_TOLERANCE:  # as with splits by category, which the package reads as numbers
        raise _UnsupportedTrees(f"the values do not sum to the model's probabilities, they differ by {difference:.2g}")
    positions = {int(number): position for position, number in enumerate(classes)}

    def compute_scores(batch: Batch) -> Floats:
        values = package.shap_values(encoded.encode(batch.codes), check_additivity=False)
        of_labels = [positions[int(label)] for label in batch.predicted_classes]
        columns = _stack_classes(values, len(classes))[np.arange(len(batch)), :, of_labels]
        return _sum_columns(columns, owners, batch.codes.shape[1])

    return compute_scores


def _make_tree_explainer(estimator: object, columns: Floats) -> Any:
    import shap

    masker = shap.maskers.Independent(columns, max_samples=len(columns))
    return shap.TreeExplainer(estimator, masker, model_output="probability")


def _stack_classes(values: Any, n_classes: int) -> Floats:
    """Return values (n, W, C) of all classes; for some libraries the package returns only the second of two."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 2 and n_classes == 2:
        return np.stack([-array, array], axis=2)
    if array.ndim != 3 or array.shape[2] != n_classes:
        raise ValueError(f"values of shape {array.shape} for {n_classes} classes")
    return array


def _sum_columns(values: Floats, owners: Ints, n_features: int) -> Floats:
    """Return the sums (n, M) of the columns (n, W) of each feature; zero for a feature without columns."""
    order = np.argsort(owners, kind="stable")
    owners, values = owners[order], values[:, order]
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    sums = np.zeros((len(values), n_features))
    sums[:, owners[starts]] = np.add.reduceat(values, starts, axis=1)
    return sums
