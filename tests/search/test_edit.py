import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.search.edit import erased, explained
from cfeval_cli.types import ABSENT, NONE, Access, Case
from tests.problems import gate, problems


@given(problems(absent=0.3), st.integers(0, 99), st.booleans(), st.sampled_from([ABSENT, 1]))
def test_erasing_touches_the_named_features_or_all_others_and_never_padding(problem, seed, keep, value):
    dataset, model = problem
    codes = dataset.test.codes
    rng = np.random.default_rng(seed)
    features = np.array([[0, rng.choice(np.flatnonzero(row != ABSENT))] for row in codes])
    features[features[:, 0] == features[:, 1], 1] = NONE
    case = Case(
        dataset,
        gate(model, Access.LABEL),
        codes,
        model.labels(codes),
        None,
        features,
        2,
        np.ones(len(codes), bool),
        {},
        {},
    )
    result = erased(case, value, keep=keep)
    for i, row in enumerate(codes):
        named = set(features[i]) - {NONE}
        assert explained(codes, features)[i].tolist() == [j in named for j in range(dataset.width)]
        for j, code in enumerate(row):
            removed = (j in named) != keep
            assert result[i, j] == (code if code == ABSENT or not removed else value)
