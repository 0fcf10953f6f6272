"""Explainable boosting without interactions: a judge whose logit is a sum of one effect for each feature."""

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
    HasReadFeatures,
    Ints,
    Restorable,
    SupportsEdits,
    SupportsFeatureSubset,
)
from cfeval_cli.errors import UserError, check_float, check_int, import_extra
from cfeval_cli.model.blind import Blind, check_blind, choose_read_features, keep_features, make_mask
from cfeval_cli.model.encoding import TableEncoder, make_table_encoder
from cfeval_cli.model.linear import LinearModel
from cfeval_cli.seeding import draw_seed, make_stream

log = logging.getLogger("cfeval")

_SEED = 2**31  # below which the package takes a seed
_LONGEST = 500  # characters of what the package says


@dataclass(frozen=True)
class AdditiveModel(SupportsEdits, core.HasAdditiveEffects, HasReadFeatures, HasArrays):
    """Of two classes: logit(x) = b + Σ_j c_j(x_j), looked up as the logistic model's is."""

    linear: LinearModel  # whose embeddings are the effects themselves

    def predict_positive(self, codes: Codes) -> Floats:
        """P(1|x) of (n, M) codes."""
        return self.linear.predict_positive(codes)

    def predict_edited(self, codes: Codes, features: Ints, rows: Ints, values: Codes) -> Floats:
        """P(1|x) (m,) of edits: the features (n, k) of some rows (m,) get the values (m, k)."""
        return self.linear.predict_edited(codes, features, rows, values)

    def compute_effects(self, codes: Codes, of: Ints) -> Floats:
        """Effects (n, M) of the values on the logit of each row's class."""
        return self.linear.compute_effects(codes, of)

    def compute_value_effects(self, feature: int, of: int) -> Floats:
        """Effects of every value of one feature on the logit of one class."""
        return self.linear.compute_value_effects(feature, of)

    def compute_mean_effects(self) -> Floats:
        """Mean effect (2, M) of each feature on each class over the training set."""
        return self.linear.compute_mean_effects()

    def get_used_features(self) -> Bools:
        """The features (M,) that it was trained on."""
        return self.linear.get_used_features()

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """What is written to model.npz."""
        return self.linear.to_arrays()


@dataclass(frozen=True)
class AdditiveClasses(core.Probabilistic, core.HasAdditiveEffects, HasReadFeatures, HasArrays):
    """Of three classes or more: a sum for each; what counts for a class is its sum less the mean of the others'."""

    bias: Floats  # (C,)
    tables: tuple[Floats, ...]  # for each feature, the effects (V, C) of its values
    means: Floats  # (M, C) over the training set
    shown: Bools  # (M,) the features that it was trained on

    def predict_proba(self, codes: Codes) -> Floats:
        """Probabilities (n, C) of (n, M) codes."""
        logits = np.tile(self.bias, (len(codes), 1))
        for j, table in enumerate(self.tables):
            logits += table[codes[:, j]]
        raised = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))

    def compute_effects(self, codes: Codes, of: Ints) -> Floats:
        """Effects (n, M) of the values on the logit of each row's class, against the others'."""
        told = np.stack([against(table)[codes[:, j], of] for j, table in enumerate(self.tables)], axis=1)
        return np.asarray(told)

    def compute_value_effects(self, feature: int, of: int) -> Floats:
        """Effects of every value of one feature on the logit of one class, against the others'."""
        return np.asarray(against(self.tables[feature])[:, of])

    def compute_mean_effects(self) -> Floats:
        """Mean effect (C, M) of each feature on each class over the training set."""
        return np.asarray(against(self.means).T)

    def get_used_features(self) -> Bools:
        """The features (M,) that it was trained on."""
        return self.shown

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """What is written to model.npz."""
        sizes = np.array([len(table) for table in self.tables])
        return {
            "bias": self.bias, "effects": np.concatenate(self.tables), "sizes": sizes, "means": self.means,
            "shown": self.shown,
        }  # fmt: skip


def against(effects: Floats) -> Floats:
    """Each class's effect less the mean of the other classes' (…, C)."""
    classes = effects.shape[-1]
    return np.asarray(effects - (effects.sum(axis=-1, keepdims=True) - effects) / (classes - 1))


@dataclass(frozen=True)
class Additive(DeclaresOutputType, SupportsFeatureSubset, Restorable):
    """How it is trained."""

    bags: int = 4  # models on parts of the training rows, whose mean is taken
    bins: int = 256  # into which numbers are put, at most
    learning_rate: float = 0.015
    max_rounds: int = 10_000
    blind: Blind = ()  # features that it is not shown: names, or a share of them

    def __post_init__(self) -> None:
        check_blind(self.blind)
        check_int("bags", self.bags, 1)
        check_int("bins", self.bins, 2)
        check_float("learning_rate", self.learning_rate, 0, open_low=True)
        check_int("max_rounds", self.max_rounds, 1)

    def output_type(self, dataset: Dataset) -> type:
        """Two classes have one sum, more have one each."""
        return AdditiveModel if len(dataset.classes) == 2 else AdditiveClasses

    def fit(self, dataset: Dataset, seed: int) -> AdditiveModel | AdditiveClasses:
        """Train with the package, and look up the effect of every value once and for all."""
        if dataset.kind == "text":
            raise UserError(f"model=additive is for tables, and {dataset.name} is a text. Use model=logistic.")
        if len(np.unique(dataset.train.labels)) < len(dataset.classes):
            raise UserError(f"model=additive: the training part of {dataset.name} lacks one of its classes.")
        reads = choose_read_features(dataset, self.blind, seed)
        seen = keep_features(dataset, reads)
        encoder = make_table_encoder(seen, onehot=False, scale=False, fill=False, max_categories=None)
        boosted = self._boosted(encoder, seen, draw_seed(make_stream(seed, "model")) % _SEED)
        shown = effects_of(boosted, encoder)
        outputs = shown[0].shape[1]
        tables = [np.zeros((len(feature.values), outputs)) for feature in dataset.features]
        for place, j in enumerate(reads.tolist()):
            tables[j] = shown[place]
        means = np.stack([table[dataset.train.codes[:, j]].mean(axis=0) for j, table in enumerate(tables)])
        bias = np.atleast_1d(np.asarray(boosted.intercept_, dtype=np.float64))
        read = make_mask(dataset.n_features, reads)
        if outputs > 1:
            return AdditiveClasses(bias, tuple(tables), means, read)
        return AdditiveModel(LinearModel(float(bias[0]), read[:, None].astype(np.float64), tuple(tables), means))

    def _boosted(self, encoder: TableEncoder, dataset: Dataset, seed: int) -> Any:
        """The package's model; what it warns of goes to the log."""
        from threadpoolctl import threadpool_limits

        glassbox = import_extra("interpret.glassbox", "model=additive", "judges")
        kinds = ["nominal" if named else "continuous" for named in encoder.is_category]
        boosted = glassbox.ExplainableBoostingClassifier(
            interactions=0, outer_bags=self.bags, max_bins=self.bins, learning_rate=self.learning_rate,
            max_rounds=self.max_rounds, feature_types=kinds, n_jobs=1, random_state=seed,
        )  # fmt: skip
        with warnings.catch_warnings(record=True) as warned, threadpool_limits(1):
            warnings.simplefilter("always")
            boosted.fit(encoder.transform(dataset.train.codes), dataset.train.labels)
        for text in dict.fromkeys(str(one.message) for one in warned):
            log.debug("model: %s", " ".join(text.split())[:_LONGEST])
        return boosted

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> AdditiveModel | AdditiveClasses:
        """The model that was trained before, from what it said of itself; ValueError if that is not so."""
        if "effects" in arrays:
            return _classes(arrays)
        return AdditiveModel(LinearModel.restored(arrays))


def effects_of(boosted: Any, encoder: TableEncoder) -> list[Floats]:
    """The effects (V, outputs) of every value of each feature: what the package says of a table of all values."""
    sizes = [len(block) for block in encoder.blocks]
    grid = np.minimum(np.arange(max(sizes))[:, None], np.array(sizes) - 1).astype(np.int32)
    told = np.asarray(boosted.eval_terms(encoder.transform(grid)), dtype=np.float64)
    told = told.reshape(*told.shape[:2], -1)
    effects = [np.zeros((size, told.shape[2])) for size in sizes]
    for term, (feature,) in enumerate(boosted.term_features_):
        effects[feature] = told[: sizes[feature], term].copy()
    return effects


def _classes(arrays: Mapping[str, NDArray[Any]]) -> AdditiveClasses:
    """From plain arrays that fit together; ValueError says why they do not."""
    if set(arrays) != {"bias", "effects", "sizes", "means", "shown"}:
        raise ValueError(f"it has {', '.join(sorted(arrays))}")
    bias, effects, sizes, means, shown = (arrays[name] for name in ("bias", "effects", "sizes", "means", "shown"))
    if any(one.dtype != np.float64 or not np.isfinite(one).all() for one in (bias, effects, means)):
        raise ValueError("some numbers are not finite, or of another kind")
    if sizes.dtype != np.int64 or shown.dtype != bool or sizes.ndim != 1 or shown.shape != sizes.shape:
        raise ValueError("sizes and what is shown tell of different features")
    if bias.ndim != 1 or len(bias) < 3 or effects.ndim != 2 or effects.shape[1:] != bias.shape:
        raise ValueError("the effects are of other classes than the bias")
    if means.shape != (len(sizes), len(bias)) or (sizes < 1).any() or sizes.sum() != len(effects):
        raise ValueError("the effects are of other values than the sizes tell")
    return AdditiveClasses(bias, tuple(np.split(effects, np.cumsum(sizes)[:-1])), means, shown)
