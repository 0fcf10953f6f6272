"""Small problems to check components on: data of each kind, with models of each ability."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from cfeval_cli.core import (
    ABSENT,
    Access,
    Batch,
    Classifier,
    Codes,
    Dataset,
    Feature,
    Floats,
    Ints,
    Ledger,
    LedgerKey,
    Model,
    ModelClient,
    ModelSpec,
    Probabilistic,
    Rows,
    Split,
)
from cfeval_cli.model.linear import LinearModel
from cfeval_cli.model.tree import Tree

N_TRAIN, N_TEST = 80, 10
TOLERANCE = 1e-9
EXPLAINED_MODEL = Tree(max_depth=3, min_leaf=3)


@dataclass(frozen=True, eq=False)
class Problem:
    """Data and a trained model that components are checked on."""

    name: str
    dataset: Dataset
    model: Model

    @cached_property
    def spec(self) -> ModelSpec:
        """The properties of the model on which components decide whether they apply."""
        return ModelSpec.from_model(self.dataset, self.model)

    @cached_property
    def rows(self) -> Rows:
        """The test instances with the model's predictions."""
        codes = self.dataset.test.codes
        labels = self.make_client(Access.LABEL).predict_labels(codes)
        if not isinstance(self.model, Probabilistic):
            return Rows(self.dataset.test.ids, codes, labels)
        probability = self.make_client(Access.PROBABILITY).predict_class_proba(codes, labels)
        return Rows(self.dataset.test.ids, codes, labels, probability)

    def make_client(self, access: Access) -> ModelClient:
        """Return a client of the model that refuses more than a level of access."""
        return Ledger().open_client(self.model, access, LedgerKey("The component"), padded=self.dataset.padded)

    def make_batch(self, order: Ints, seed: int = 0) -> Batch:
        """Return some test instances to be explained."""
        rows = self.rows.take(order)
        return Batch(
            rows.ids, rows.codes, rows.predicted_classes, rows.probability, seed=seed, component="explainer.checked"
        )


@cache
def make_problems() -> tuple[Problem, ...]:
    """Return a table and a text with a linear model, and tables with models that have fewer abilities."""
    table, text = make_table(), make_text()
    three_classes = replace(make_table(1), classes=("low", "middle", "high"))
    blind = make_linear(table)
    blind.weights[1] = 0.0
    return (
        Problem("a table with a linear model", table, make_linear(table)),
        Problem("a text with a linear model", text, make_linear(text)),
        Problem("a table with a model of probabilities of three classes", three_classes, _Chances.make(three_classes)),
        Problem("a table with a model of labels", table, _Labels(make_linear(table))),
        Problem("a table with a decision tree", table, EXPLAINED_MODEL.fit(table, 0)),
        Problem("a table with a model that does not read all features", table, blind),
    )


def make_table(seed: int = 0) -> Dataset:
    """Return a table of categories, ordered values and a number; one feature may not change."""
    rng = np.random.default_rng(seed)
    sizes = (3, 4, 3, 8)
    features = (
        Feature("colour", ("red", "green", "blue")),
        Feature("grade", ("low", "fair", "good", "best"), is_ordered=True),
        Feature("origin", ("north", "south", "west"), allowed_change="none"),
        Feature("size", tuple(f"{x:g}" for x in range(8)), kind="number", numbers=np.arange(8.0)),
    )
    codes = np.stack([rng.integers(0, size, N_TRAIN + 2 * N_TEST) for size in sizes], axis=1).astype(np.int32)
    labels = (codes.sum(axis=1) + rng.integers(0, 3, len(codes)) > 8).astype(np.int64)
    train, validation, test = _split(codes, labels)
    return Dataset(
        name="table", kind="tabular", features=features, classes=("no", "yes"),
        train=train, validation=validation, test=test,
        frequencies=tuple(np.bincount(c, minlength=s) / len(c) for c, s in zip(train.codes.T, sizes, strict=True)),
        candidates=tuple(np.arange(size, dtype=np.int32) for size in sizes),
    )  # fmt: skip


def make_text(seed: int = 0, width: int = 5, words: int = 9) -> Dataset:
    """Return short sentences of a small vocabulary; the last code is the mask token."""
    rng = np.random.default_rng(seed)
    size = N_TRAIN + 2 * N_TEST
    codes = rng.integers(0, words - 1, (size, width)).astype(np.int32)
    codes[np.arange(width) >= rng.integers(2, width + 1, size)[:, None]] = ABSENT
    train, validation, test = _split(codes, rng.integers(0, 2, size))
    values = (*(f"word{i}" for i in range(words - 1)), "<unknown>")
    words_used = train.codes[train.codes != ABSENT]
    frequency = np.bincount(words_used, minlength=words) / len(words_used)
    decode = [" ".join(values[code] for code in row if code != ABSENT) for row in codes.tolist()]
    texts = np.split(np.array(decode, dtype=object), [N_TRAIN, N_TRAIN + N_TEST])
    train, validation, test = (
        replace(split, texts=tuple(lines)) for split, lines in zip((train, validation, test), texts, strict=True)
    )
    return Dataset(
        name="text", kind="text", features=tuple(Feature(f"word {j}", values, kind="token") for j in range(width)),
        classes=("no", "yes"), train=train, validation=validation, test=test, frequencies=(frequency,) * width,
        candidates=(np.arange(words - 1, dtype=np.int32),) * width, mask_code=words - 1,
    )  # fmt: skip


def make_linear(dataset: Dataset, seed: int = 0, dimension: int = 2) -> LinearModel:
    """Return a model with random embeddings and weights; the features of a text share one table."""
    rng = np.random.default_rng(seed)
    tables = [rng.normal(size=(len(feature.values), dimension)) for feature in dataset.features]
    tables = [tables[0]] * dataset.n_features if dataset.padded else tables
    weights = rng.normal(size=(dataset.n_features, dimension))
    means = np.zeros(weights.shape)
    for j, (table, column) in enumerate(zip(tables, dataset.train.codes.T, strict=True)):
        means[j] = table[column[column != ABSENT]].mean(axis=0)
    bias = -float((means * weights).sum())
    return LinearModel(bias, weights, tuple(tables), means)


@dataclass(frozen=True)
class _Chances(Probabilistic):
    """Probabilities of several classes, from pairs of features: no sum of effects."""

    tables: Floats  # (C, M, M, V, V)

    @staticmethod
    def make(dataset: Dataset) -> _Chances:
        size = max(len(feature.values) for feature in dataset.features)
        shape = (len(dataset.classes), dataset.n_features, dataset.n_features, size, size)
        return _Chances(np.random.default_rng(0).normal(size=shape))

    def predict_proba(self, codes: Codes) -> Floats:
        logits = np.zeros((len(codes), len(self.tables)))
        for i in range(codes.shape[1]):
            for j in range(i + 1):
                logits += self.tables[:, i, j][:, codes[:, i], codes[:, j]].T
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class _Labels(Classifier):
    """The classes of another model, without its probabilities."""

    model: LinearModel

    def predict(self, codes: Codes) -> Ints:
        return (self.model.predict_positive(codes) > 0.5).astype(np.int64)


def _split(codes: Codes, labels: Ints) -> tuple[Split, Split, Split]:
    ids = np.arange(len(codes))
    ends = [slice(0, N_TRAIN), slice(N_TRAIN, N_TRAIN + N_TEST), slice(N_TRAIN + N_TEST, None)]
    first, second, third = (Split(ids[part], codes[part], labels[part]) for part in ends)
    return first, second, third
