"""Small random problems: tables of codes and white boxes with exact arithmetic, so that ties are real ties."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from cfeval_cli.core import (
    ABSENT,
    NO_FEATURE,
    Access,
    Batch,
    Dataset,
    Feature,
    FittedRemoval,
    Ledger,
    LedgerKey,
    ModelSpec,
    Rows,
    SearchTask,
    Split,
)
from cfeval_cli.distance.euclidean import Euclidean
from cfeval_cli.model.linear import LinearModel
from cfeval_cli.model.reparametrisation import compute_mean_vectors
from cfeval_cli.removal.marginal import Marginal
from cfeval_cli.removal.mask import Mask
from cfeval_cli.removal.mean import Mean
from cfeval_cli.removal.zero import Zero
from cfeval_cli.truth.absolute import Absolute
from cfeval_cli.truth.contrast import Contrast
from cfeval_cli.truth.shapley import Shapley
from cfeval_cli.truth.signed import Signed

TRUTHS = {truth.name: truth for truth in (Signed(), Shapley(), Contrast(), Absolute())}
REMOVALS = {removal.name: removal for removal in (Zero(), Mask(), Marginal())}
ALL_REMOVALS = REMOVALS | {"mean": Mean()}


def make_dataset(sizes, n=20, seed=0, unknown=None, absent=0.0):
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, size, 3 * n) for size in sizes], axis=1).astype(np.int32)
    if absent:
        is_absent = rng.random(codes.shape) < absent
        is_absent[:, 0] = False
        codes[is_absent] = ABSENT
    labels = rng.integers(0, 2, 3 * n)
    parts = [Split(np.arange(i, i + n), codes[i : i + n], labels[i : i + n]) for i in (0, n, 2 * n)]
    counts = [
        np.bincount(column[column != ABSENT], minlength=s) for column, s in zip(parts[0].codes.T, sizes, strict=True)
    ]
    return Dataset(
        name="toy",
        kind="tabular",
        features=tuple(Feature(f"f{j}", tuple(f"v{v}" for v in range(size))) for j, size in enumerate(sizes)),
        classes=("no", "yes"),
        train=parts[0],
        validation=parts[1],
        test=parts[2],
        frequencies=tuple(c / max(1, c.sum()) for c in counts),
        candidates=tuple(np.arange(size, dtype=np.int32) for size in sizes),
        mask_code=unknown,
    )


def make_mixed(seed=0, n=40, categories=2, numbers=2, missing=0.0, tried=5):
    """Return a table with numeric features: test values need not occur in training, and values can be missing."""
    rng = np.random.default_rng(seed)
    plain = make_dataset(rng.integers(2, 5, categories).tolist() or [2], n=n, seed=seed)
    codes = [np.concatenate([s.codes for s in (plain.train, plain.validation, plain.test)])] if categories else []
    features, candidates = list(plain.features[:categories]), list(plain.candidates[:categories])
    for j in range(numbers):
        shape = (rng.normal(3, 5, 3 * n), rng.integers(-4, 12, 3 * n), rng.exponential(50, 3 * n).round(1))[j % 3]
        values_by_code, column = np.unique(shape, return_inverse=True)
        is_missing = (rng.random(3 * n) < missing) if missing else np.zeros(3 * n, dtype=bool)
        names, last = [f"{x:g}" for x in values_by_code], None
        if is_missing.any():
            column, last = np.where(is_missing, len(values_by_code), column), len(values_by_code)
            values_by_code, names = np.append(values_by_code, np.nan), [*names, "missing"]
        values = np.unique(rng.choice(column[:n], tried))
        features.append(Feature(f"x{j}", tuple(names), kind="number", numbers=values_by_code, missing_code=last))
        candidates.append(values.astype(np.int32))
        codes.append(column[:, None].astype(np.int32))
    order = rng.permutation(len(features))  # numbers stand anywhere
    table = np.concatenate(codes, axis=1)[:, order]
    labels = rng.integers(0, 2, 3 * n)
    parts = [Split(np.arange(i, i + n), table[i : i + n], labels[i : i + n]) for i in (0, n, 2 * n)]
    features = tuple(features[j] for j in order)
    counts = [np.bincount(parts[0].codes[:, j], minlength=len(f.values)) for j, f in enumerate(features)]
    return Dataset(
        name="mixed",
        kind="tabular",
        features=features,
        classes=("no", "yes"),
        train=parts[0],
        validation=parts[1],
        test=parts[2],
        frequencies=tuple(count / n for count in counts),
        candidates=tuple(candidates[j] for j in order),
    )


def add_constraints(dataset, seed):
    """Return the dataset with random constraints on the changes of features."""
    rng = np.random.default_rng(seed)
    options = [("any", "none", "up", "down") if f.is_ordinal else ("any", "none") for f in dataset.features]
    features = [replace(f, allowed_change=str(rng.choice(o))) for f, o in zip(dataset.features, options, strict=True)]
    return replace(dataset, features=tuple(features))


def is_permitted(feature, own, new):
    """Return whether a constraint allows a change of value, by its definition."""
    if own == new or feature.allowed_change == "any":
        return True
    if feature.allowed_change == "none" or feature.missing_code in (own, new):
        return False
    numbers = range(len(feature.values)) if feature.numbers is None else feature.numbers
    return numbers[new] > numbers[own] if feature.allowed_change == "up" else numbers[new] < numbers[own]


def make_linear(dataset, seed=0, dim=2, scale=2, bias=None):
    """Return a model with integer embeddings and weights, so that every logit is exact."""
    rng = np.random.default_rng(seed)
    sizes = [len(feature.values) for feature in dataset.features]
    tables = tuple(rng.integers(-scale, scale + 1, (size, dim)).astype(float) for size in sizes)
    weights = rng.integers(-scale, scale + 1, (len(sizes), dim)).astype(float)
    means = np.stack([f @ t for f, t in zip(dataset.frequencies, tables, strict=True)])
    return LinearModel(float(rng.integers(-3, 4)) if bias is None else bias, weights, tables, means)


def open_client(model, access=Access.WHITE_BOX, *, padded=False):
    return Ledger().open_client(model, access, LedgerKey("test"), padded=padded)


def predict_labels(model, codes):
    """Return the classes that a model of two classes predicts."""
    return (model.predict_positive(codes) > 0.5).astype(int)


def get_class_proba(model, codes, of):
    """Return the probability of each row's class."""
    return np.where(of == 1, model.predict_positive(codes), 1 - model.predict_positive(codes))


def make_rows(dataset, model):
    """Return all test instances with the predictions of the model."""
    codes = dataset.test.codes
    classes = predict_labels(model, codes)
    return Rows(dataset.test.ids, codes, classes, get_class_proba(model, codes, classes))


def compute_importance(name, model, dataset, codes, classes):
    """Return the importance of each feature under a truth; -inf where the feature is absent."""
    return TRUTHS[name].compute_masked_importance(
        dataset, open_client(model), Rows(np.arange(len(codes)), codes, classes)
    )


def fit_removals(dataset, model, removals=None):
    """Return removals fitted to the data, or with the reason why they are not applicable."""
    spec = ModelSpec(dataset, type(model))
    reasons = {name: (removal, removal.not_applicable_reason(spec)) for name, removal in (removals or REMOVALS).items()}
    return {
        name: FittedRemoval(removal, None, no)
        if no
        else FittedRemoval(removal, removal.fit(dataset, open_client(model)))
        for name, (removal, no) in reasons.items()
    }


def make_batch(dataset, model, seed=0, component="explainer.test", rows=slice(None)):
    """Return test instances to be explained."""
    codes = dataset.test.codes[rows]
    return Batch(dataset.test.ids[rows], codes, predict_labels(model, codes), seed=seed, component=component)


@st.composite
def problems(draw, max_features=4, max_values=4, n=6, **options):
    sizes = draw(st.lists(st.integers(2, max_values), min_size=1, max_size=max_features))
    seed = draw(st.integers(0, 10_000))
    dataset = make_dataset(sizes, n=n, seed=seed, **options)
    return dataset, make_linear(dataset, seed=seed + 1)


def logit(model, row):
    """Return the logit of a row by its definition, for comparison with faster code."""
    total = model.bias
    for j, code in enumerate(row):
        if code != ABSENT:
            total += float(np.dot(model.weights[j], model.tables[j][code]))
    return total


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z)) if z >= 0 else np.exp(z) / (1.0 + np.exp(z))


def make_task(dataset, model, features, access, seed=0):
    """Return a search task of all test instances, with distances in embedding space."""
    codes = dataset.test.codes
    return SearchTask(
        dataset.test.ids,
        codes,
        predict_labels(model, codes),
        seed=seed,
        component="search",
        features=features,
        dataset=dataset,
        model=Ledger().open_client(model, access, LedgerKey("search")),
        distance=Euclidean("embedding").fit(dataset, model, access),
    )


def choose_features(dataset, k, seed):
    """Return k random features for each test instance."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.permutation(dataset.n_features)[:k] for _ in dataset.test.ids])


def make_text(width=5, words=8, n=20, seed=0):
    """Return sentences of one to `width` words of one vocabulary; the last word of it is the mask."""
    dataset = make_dataset([words] * width, n=n, seed=seed)
    rng = np.random.default_rng(seed)
    splits = []
    for split in (dataset.train, dataset.validation, dataset.test):
        short = np.arange(width) >= rng.integers(1, width + 1, n)[:, None]
        codes = np.where(short, ABSENT, np.minimum(split.codes, words - 2)).astype(np.int32)
        splits.append(replace(split, codes=codes, texts=tuple("" for _ in codes)))
    occurring = splits[0].codes[splits[0].codes != ABSENT]
    frequency, values = np.bincount(occurring, minlength=words) / len(occurring), np.arange(words - 1, dtype=np.int32)
    names = dataset.features[0].values
    return replace(
        dataset, kind="text", train=splits[0], validation=splits[1], test=splits[2], mask_code=words - 1,
        features=tuple(replace(feature, values=names) for feature in dataset.features),
        frequencies=(frequency,) * width, candidates=(values,) * width,
    )  # fmt: skip


def draw_linear(dataset, seed, dim, scale=1.0):
    """Return a model with real weights, which have no ties; texts share one table."""
    rng = np.random.default_rng(seed)
    sizes = [len(feature.values) for feature in dataset.features]
    tables = tuple(scale * rng.normal(size=(size, dim)) for size in sizes)
    if dataset.kind == "text":
        tables = (tables[0],) * len(sizes)
    weights = rng.normal(size=(len(sizes), dim))
    return LinearModel(float(rng.normal()), weights, tables, compute_mean_vectors(tables, dataset.train.codes))


def densify(explanation, width):
    """Return the scores (n, M) of an explanation by feature; NaN for features that are not selected."""
    scores = np.full((len(explanation), width), np.nan)
    rows, places = np.nonzero(explanation.features != NO_FEATURE)
    scores[rows, explanation.features[rows, places]] = explanation.scores[rows, places]
    return scores
