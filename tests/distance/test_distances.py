from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT, NO_FEATURE, Access, BlackBox, ModelSpec, Probabilistic
from cfeval_cli.core.space import Embedding, OneHot, choose_space
from cfeval_cli.distance.constant import Constant
from cfeval_cli.distance.cosine import Cosine
from cfeval_cli.distance.euclidean import Euclidean
from cfeval_cli.distance.mahalanobis import Mahalanobis
from cfeval_cli.errors import UserError
from cfeval_cli.search.discrete import Discrete
from cfeval_cli.search.exact import Exact
from tests.problems import make_dataset, make_linear, make_mixed, problems

SPACES = st.sampled_from(["embedding", "onehot", "scaled"])


def compute_vector(dataset, model, space, row):
    """Return the vector of a row by its definition."""
    parts = []
    for j, code in enumerate(row):
        size = len(dataset.features[j].values)
        table = model.tables[j] if space == "embedding" else np.eye(size)
        if space == "scaled" and dataset.features[j].is_ordered:
            table = np.arange(size, dtype=float)[:, None]
        if space == "scaled" and dataset.features[j].kind == "number":
            table = scale_numbers(dataset, j)
        parts.append(np.zeros(table.shape[1]) if code == ABSENT else table[code])
    return np.concatenate(parts)


def scale_numbers(dataset, j):
    """Return the vectors of a number: units of the median deviation; missing values are √2 away from the median."""
    feature = dataset.features[j]
    values = [feature.numbers[code] for code in dataset.train.codes[:, j] if code != feature.missing_code]
    median = (
        sorted(values)[len(values) // 2] if len(values) % 2 else sum(sorted(values)[len(values) // 2 - 1 :][:2]) / 2
    )
    deviations = [abs(x - median) for x in values]
    unit = np.median(deviations) or np.std(values) or 1.0
    table = [[(x - median) / unit, 0.0] for x in feature.numbers]
    if feature.missing_code is None:
        return np.array(table)[:, :1]
    table[feature.missing_code] = [0.0, 2**0.5]
    return np.array(table)


def make_some_ordered(dataset, rng):
    """Return the dataset with random features declared as ordered."""
    features = tuple(replace(feature, is_ordered=bool(rng.random() < 0.5)) for feature in dataset.features)
    return replace(dataset, features=features)


def define_distance(distance, dataset, model, space):
    """Return a function that computes the distance of two vectors by its definition."""
    if isinstance(distance, Euclidean):
        return lambda a, b: np.linalg.norm(a - b)
    if isinstance(distance, Cosine):
        return lambda a, b: 1 - a @ b / (np.linalg.norm(a) * np.linalg.norm(b)) if a.any() and b.any() else 1.0
    if isinstance(distance, Constant):
        return lambda a, b: distance.value
    rows = np.stack([compute_vector(dataset, model, space, row) for row in dataset.train.codes])
    middle = rows - rows.mean(axis=0)
    spread = middle.T @ middle / (len(rows) - 1)
    size = len(spread)
    shrunk = (1 - distance.shrinkage) * spread + distance.shrinkage * np.trace(spread) / size * np.eye(size)
    return lambda a, b: np.sqrt((a - b) @ np.linalg.solve(shrunk, a - b))


@given(
    problems(n=8, absent=0.2), SPACES, st.sampled_from([Euclidean, Cosine, Mahalanobis, Constant]), st.integers(0, 99)
)
def test_distances_equal_their_definitions(problem, space, kind, seed):
    dataset, model = problem
    rng = np.random.default_rng(seed)
    if space == "scaled" and seed % 2:  # bins are never absent
        dataset = make_some_ordered(make_dataset([len(f.values) for f in dataset.features], n=8, seed=seed), rng)
    elif space == "scaled":
        dataset = make_mixed(seed, n=8, categories=seed % 3, numbers=2, missing=0.3 * (seed % 4 > 1))
    distance = Constant(2.5) if kind is Constant else kind(space=space)
    if kind is Mahalanobis and not dataset.train.codes.std(axis=0).any():
        return
    measure = distance.fit(dataset, model, Access.GRADIENT)
    expected = define_distance(distance, dataset, model, space)
    codes = dataset.test.codes
    k = int(rng.integers(1, dataset.n_features + 1))
    features = rng.permutation(dataset.n_features)[:k]
    sizes = [len(dataset.features[j].values) for j in features]
    values = np.stack([rng.integers(0, size, 5) for size in sizes], axis=1).astype(np.int32)
    matrix = measure.compute_distance_matrix(codes, features, values)
    for c, new in enumerate(values):
        edited = codes.copy()
        edited[:, features] = new
        between = measure.compute_distances(codes, edited)
        for i, row in enumerate(codes):
            a, b = (compute_vector(dataset, model, space, r) for r in (row, edited[i]))
            assert between[i] == pytest.approx(expected(a, b), abs=1e-9)
            assert matrix[i, c] == pytest.approx(expected(a, b), abs=1e-6)


def test_numbers_with_zero_median_distance_are_scaled_by_their_deviation():
    numbers = np.array([0.0, 1.0, 5.0])
    codes = np.array([[0], [0], [0], [0], [2]], dtype=np.int32)
    dataset = make_dataset([3], n=5)
    feature = replace(dataset.features[0], kind="number", numbers=numbers)
    dataset = replace(dataset, features=(feature,), train=replace(dataset.train, codes=codes))
    measure = Euclidean("scaled").fit(dataset, make_linear(dataset), Access.LABEL)
    # the deviation of 0, 0, 0, 0, 5 is 2
    assert measure.compute_distances(codes[:1], codes[4:]) == pytest.approx(5 / 2)
    constant = replace(dataset, train=replace(dataset.train, codes=codes[:1].repeat(5, axis=0)))
    assert Euclidean("scaled").fit(constant, None, Access.LABEL).compute_distances(
        codes[:1], codes[4:]
    ) == pytest.approx(5)
    large = replace(dataset, features=(replace(feature, numbers=numbers * 1e300),))
    assert Euclidean("scaled").fit(large, None, Access.LABEL).compute_distances(codes[:1], codes[4:]) == pytest.approx(
        5 / 2
    )


@given(problems(n=8, absent=0.2), st.sampled_from([Euclidean, Cosine, Mahalanobis, Constant]), st.integers(0, 99))
def test_distances_of_moved_embeddings_equal_the_definitions(problem, kind, seed):
    dataset, model = problem
    rng = np.random.default_rng(seed)
    distance = Constant(2.5) if kind is Constant else kind(space="embedding")
    if kind is Mahalanobis and not dataset.train.codes.std(axis=0).any():
        return
    measure = distance.fit(dataset, model, Access.GRADIENT)
    expected = define_distance(distance, dataset, model, "embedding")
    codes = dataset.test.codes
    k = int(rng.integers(1, dataset.n_features + 1))
    features = np.stack([rng.permutation(dataset.n_features)[:k] for _ in codes])
    if k > 1:
        features[::2, -1] = NO_FEATURE
    vectors = rng.normal(size=(len(codes), k, 2))
    distances = measure.compute_embedding_distances(codes, features, vectors)
    for i, row in enumerate(codes):
        before = compute_vector(dataset, model, "embedding", row)
        after = before.copy().reshape(-1, 2)
        for position, j in enumerate(features[i]):
            if j != NO_FEATURE:
                after[j] = vectors[i, position]
        assert distances[i] == pytest.approx(expected(before, after.ravel()), abs=1e-9)


def test_one_hot_space_refuses_moved_embeddings():
    dataset = make_dataset([3, 3])
    measure = Euclidean("onehot").fit(dataset, make_linear(dataset), Access.GRADIENT)
    with pytest.raises(UserError, match=r"distance\.space=onehot"):
        measure.compute_embedding_distances(dataset.test.codes, np.zeros((20, 1), int), np.zeros((20, 1, 2)))


def test_distance_of_one_change_is_the_square_root_of_two_with_label_access():
    dataset = make_dataset([3, 4, 5])
    model = make_linear(dataset)
    codes = dataset.test.codes
    edited = codes.copy()
    edited[:, 1] = (edited[:, 1] + 1) % 4
    assert Euclidean().fit(dataset, model, Access.LABEL).compute_distances(codes, edited) == pytest.approx(
        2**0.5, abs=0
    )
    distances = Euclidean().fit(dataset, model, Access.PROBABILITY).compute_distances(codes, edited)
    gaps = model.tables[1][codes[:, 1]] - model.tables[1][edited[:, 1]]
    assert distances == pytest.approx(np.linalg.norm(gaps, axis=1))


def test_spaces_without_vectors_or_of_too_many_dimensions_are_refused():
    dataset = make_dataset([3, 3])
    model = make_linear(dataset)

    class ModelWithoutEmbeddings(Probabilistic):
        def predict_proba(self, codes):
            raise AssertionError

    with pytest.raises(UserError, match=r"distance\.space"):
        Euclidean("embedding").fit(dataset, ModelWithoutEmbeddings(), Access.PROBABILITY)
    with pytest.raises(UserError, match="mahalanobis"):
        Mahalanobis("onehot").fit(make_dataset([3000, 3000], n=2), model, Access.LABEL)


def test_auto_chooses_embeddings_unless_labels_or_a_black_box_are_given():
    dataset = make_dataset([3, 3])
    model = make_linear(dataset)

    class ModelWithProbabilitiesOnly(Probabilistic):
        def predict_proba(self, codes):
            raise AssertionError

    for access in (Access.LABEL, Access.PROBABILITY, Access.GRADIENT):
        assert isinstance(
            choose_space(Euclidean("auto"), dataset, model, access), OneHot if access == Access.LABEL else Embedding
        )
        assert isinstance(choose_space(Euclidean("auto"), dataset, ModelWithProbabilitiesOnly(), access), OneHot)
        assert isinstance(choose_space(Euclidean("embedding"), dataset, model, access), Embedding)
        assert isinstance(choose_space(Euclidean("onehot"), dataset, model, access), OneHot)


def test_inapplicable_distances_are_refused_before_training():
    dataset = make_dataset([3, 3])
    black_box, linear_model = ModelSpec(dataset, BlackBox), ModelSpec(dataset, type(make_linear(dataset)))
    for kind in (Euclidean, Cosine, Mahalanobis):
        assert "distance.space=embedding needs embeddings" in kind("embedding").not_applicable_reason(
            black_box, Discrete()
        )
        assert "cannot measure edited embeddings" in kind("onehot").not_applicable_reason(linear_model, Exact())
        assert (
            kind("auto").not_applicable_reason(black_box, Discrete()) is None
            and kind("embedding").not_applicable_reason(linear_model, Exact()) is None
        )
    assert Constant().not_applicable_reason(black_box, Discrete()) is None


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: Euclidean("flat"), "space"),
        (lambda: Cosine("flat"), "space"),
        (lambda: Mahalanobis("flat"), "space"),
        (lambda: Mahalanobis(shrinkage=0), "shrinkage"),
        (lambda: Constant(0), "value"),
    ],
)
def test_message_names_the_invalid_setting(make, key):
    with pytest.raises(ValueError, match=key):
        make()


def test_mahalanobis_of_a_single_number_is_in_units_of_its_deviation():
    dataset = make_mixed(0, n=30, categories=0, numbers=1)
    table = scale_numbers(dataset, 0)[:, 0]
    deviation = np.std(table[dataset.train.codes[:, 0]], ddof=1)
    fitted = Mahalanobis(space="scaled").fit(dataset, None, Access.PROBABILITY)
    first, last = (np.array([[code]], dtype=np.int32) for code in (0, len(table) - 1))
    expected = abs(table[0] - table[-1]) / deviation
    assert fitted.compute_distances(first, last) == pytest.approx([expected])
