"""Explainable boosting machine without interactions: the logit is a sum of one effect per feature."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfeval_cli import core
from cfeval_cli.core import (
    Bools,
    Codes,
    Dataset,
    DeclaresOutputType,
    Floats,
    HasArrays,
    HasUsedFeatures,
    Ints,
    Restorable,
    SupportsEdits,
    SupportsFeatureSubset,
)
from cfeval_cli.errors import UserError, check_float, check_int, import_extra
from cfeval_cli.model.blind import Blind, check_blind, choose_read_features, keep_features, make_mask
from cfeval_cli.model.embedding import compute_softmax
from cfeval_cli.model.encoding import TableEncoder, make_table_encoder
from cfeval_cli.model.linear import LinearModel
from cfeval_cli.seeding import draw_seed, make_stream

log = logging.getLogger("cfeval")

MAX_SEED = 2**31  # the package accepts smaller seeds
_MAX_WARNING_CHARACTERS = 500


@dataclass(frozen=True)
class AdditiveModel(SupportsEdits, core.HasAdditiveEffects, HasUsedFeatures, HasArrays):
    """A trained model of two classes: logit(x) = b + Σ_j c_j(x_j)."""

    linear: LinearModel  # its embeddings are the effects, and its weights are 1

    def predict_positive(self, codes: Codes) -> Floats:
        """Return P(1|x) (n,) of codes (n, M)."""
        return self.linear.predict_positive(codes)

    def predict_edited(self, codes: Codes, features: Ints, positions: Ints, values: Codes) -> Floats:
        """Return P(1|x) (m,) of edits: the features (n, k) of positions (m,) get the values (m, k)."""
        return self.linear.predict_edited(codes, features, positions, values)

    def compute_effects(self, codes: Codes, classes: Ints) -> Floats:
        """Return the effects (n, M) of the values on the logit of one class (n,) for each row."""
        return self.linear.compute_effects(codes, classes)

    def compute_value_effects(self, feature: int, target: int) -> Floats:
        """Return the effects (V,) of all values of a feature on the logit of a class."""
        return self.linear.compute_value_effects(feature, target)

    def compute_mean_effects(self) -> Floats:
        """Return the mean effects (2, M) of the features on each class over the training set."""
        return self.linear.compute_mean_effects()

    def get_used_features(self) -> Bools:
        """Return whether the model uses each feature (M,)."""
        return self.linear.get_used_features()

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays for model.npz."""
        return self.linear.to_arrays()


@dataclass(frozen=True)
class AdditiveClasses(core.Probabilistic, core.HasAdditiveEffects, HasUsedFeatures, HasArrays):
    """A trained model of three or more classes, with a sum of effects for each class."""

    bias: Floats  # (C,)
    tables: tuple[Floats, ...]  # for each feature, the effects (V, C) of its values
    means: Floats  # (M, C) over the training set
    is_read: Bools  # (M,) whether the model uses each feature

    def predict_proba(self, codes: Codes) -> Floats:
        """Return the probabilities (n, C) of codes (n, M)."""
        logits = np.tile(self.bias, (len(codes), 1))
        for j, table in enumerate(self.tables):
            logits += table[codes[:, j]]
        return compute_softmax(logits)

    def compute_effects(self, codes: Codes, classes: Ints) -> Floats:
        """Return the effects (n, M) of the values on the logit of one class for each row, against the others."""
        effects = [subtract_other_classes(table)[codes[:, j], classes] for j, table in enumerate(self.tables)]
        return np.stack(effects, axis=1)

    def compute_value_effects(self, feature: int, target: int) -> Floats:
        """Return the effects (V,) of all values of a feature on the logit of a class, against the others."""
        return np.asarray(subtract_other_classes(self.tables[feature])[:, target])

    def compute_mean_effects(self) -> Floats:
        """Return the mean effects (C, M) of the features on each class over the training set."""
        return np.asarray(subtract_other_classes(self.means).T)

    def get_used_features(self) -> Bools:
        """Return whether the model uses each feature (M,)."""
        return self.is_read

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays for model.npz."""
        sizes = np.array([len(table) for table in self.tables])
        return {
            "bias": self.bias, "effects": np.concatenate(self.tables), "sizes": sizes, "means": self.means,
            "shown": self.is_read,
        }  # fmt: skip


def subtract_other_classes(effects: Floats) -> Floats:
    """Return the effects (…, C) on the logit of each class minus the mean of the logits of the other classes."""
    classes = effects.shape[-1]
    return np.asarray(effects - (effects.sum(axis=-1, keepdims=True) - effects) / (classes - 1))


@dataclass(frozen=True)
class Additive(DeclaresOutputType, SupportsFeatureSubset, Restorable):
    """Settings of the boosting machine."""

    bags: int = 4  # models that are averaged, each on a part of the training rows
    bins: int = 256  # of a number, at most
    learning_rate: float = 0.015
    max_rounds: int = 10_000
    blind: Blind = ()  # features that the model does not read: names, or the share that is drawn

    def __post_init__(self) -> None:
        check_blind(self.blind)
        check_int("bags", self.bags, 1)
        check_int("bins", self.bins, 2)
        check_float("learning_rate", self.learning_rate, 0, open_low=True)
        check_int("max_rounds", self.max_rounds, 1)

    def output_type(self, dataset: Dataset) -> type:
        """Return AdditiveModel for two classes, AdditiveClasses for more."""
        return AdditiveModel if len(dataset.classes) == 2 else AdditiveClasses

    def fit(self, dataset: Dataset, seed: int) -> AdditiveModel | AdditiveClasses:
        """Train the package's model, and return the effects of all values."""
        if dataset.kind == "text":
            raise UserError(f"model=additive is for tables, and {dataset.name} is a text. Use model=logistic.")
        if len(np.unique(dataset.train.labels)) < len(dataset.classes):
            raise UserError(f"model=additive: the training part of {dataset.name} lacks one of its classes.")
        reads = choose_read_features(dataset, self.blind, seed)
        visible = keep_features(dataset, reads)
        encoder = make_table_encoder(visible, onehot=False, scale=False, fill=False, max_categories=None)
        boosted = self._fit_boosting(encoder, visible, draw_seed(make_stream(seed, "model")) % MAX_SEED)
        effects = compute_effects_of_values(boosted, encoder)
        outputs = effects[0].shape[1]
        tables = [np.zeros((len(feature.values), outputs)) for feature in dataset.features]
        for position, j in enumerate(reads.tolist()):
            tables[j] = effects[position]
        means = np.stack([table[dataset.train.codes[:, j]].mean(axis=0) for j, table in enumerate(tables)])
        bias = np.atleast_1d(np.asarray(boosted.intercept_, dtype=np.float64))
        read = make_mask(dataset.n_features, reads)
        if outputs > 1:
            return AdditiveClasses(bias, tuple(tables), means, read)
        return AdditiveModel(LinearModel(float(bias[0]), read[:, None].astype(np.float64), tuple(tables), means))

    def _fit_boosting(self, encoder: TableEncoder, dataset: Dataset, seed: int) -> Any:
        """Return the trained model of the package; its warnings go to the log."""
        from threadpoolctl import threadpool_limits

        glassbox = import_extra("interpret.glassbox", "model=additive", "judges")
        kinds = ["nominal" if is_category else "continuous" for is_category in encoder.is_category]
        boosted = glassbox.ExplainableBoostingClassifier(
            interactions=0, outer_bags=self.bags, max_bins=self.bins, learning_rate=self.learning_rate,
            max_rounds=self.max_rounds, feature_types=kinds, n_jobs=1, random_state=seed,
        )  # fmt: skip
        with warnings.catch_warnings(record=True) as warned, threadpool_limits(1):
            warnings.simplefilter("always")
            boosted.fit(encoder.transform(dataset.train.codes), dataset.train.labels)
        for text in dict.fromkeys(str(warning.message) for warning in warned):
            log.debug("model: %s", " ".join(text.split())[:_MAX_WARNING_CHARACTERS])
        return boosted

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> AdditiveModel | AdditiveClasses:
        """Return the trained model."""
        if "effects" not in arrays:
            return AdditiveModel(LinearModel.from_arrays(arrays))
        tables = np.split(arrays["effects"], np.cumsum(arrays["sizes"])[:-1])
        return AdditiveClasses(arrays["bias"], tuple(tables), arrays["means"], arrays["shown"])


def compute_effects_of_values(boosted: Any, encoder: TableEncoder) -> list[Floats]:
    """Return the effects (V, outputs) of every value of each feature, from the package's effects of a table of them."""
    sizes = [len(block) for block in encoder.blocks]
    grid = np.minimum(np.arange(max(sizes))[:, None], np.array(sizes) - 1).astype(np.int32)
    terms = np.asarray(boosted.eval_terms(encoder.transform(grid)), dtype=np.float64)
    terms = terms.reshape(terms.shape[0], terms.shape[1], -1)
    effects = [np.zeros((size, terms.shape[2])) for size in sizes]
    for term, (feature,) in enumerate(boosted.term_features_):
        effects[feature] = terms[: sizes[feature], term].copy()
    return effects
