import numpy as np
import pytest
import torch

from cfeval_cli.errors import Failure, UserError
from cfeval_cli.model.gate import Ledger, probability_of
from cfeval_cli.types import NONE, Access
from tests.problems import make_dataset, make_linear

DATASET = make_dataset([3, 2])
MODEL = make_linear(DATASET)
CODES = DATASET.test.codes

# the first features of row 1, or both of row 4, set to values
EDITS = (
    CODES,
    np.array([[0, NONE]] * 2 + [[1, 0]] * 18),
    np.array([1, 4, 4]),
    np.array([[2, -1], [1, 0], [0, 2]], np.int32),
)

CALLS = {
    Access.LABEL: [
        lambda g: g.labels(CODES),
        lambda g: g.edited_labels(*EDITS),
    ],
    Access.PROBABILITY: [
        lambda g: g.proba(CODES),
        lambda g: g.edited_proba(*EDITS),
    ],
    Access.GRADIENT: [
        lambda g: g.embed(CODES),
        lambda g: g.vectors(0, CODES[:, 0]),
        lambda g: g.pick(CODES[:, 0] * 0, CODES[:, 0]),
        lambda g: g.proba_embedded(TENSOR),
    ],
    Access.WHITE_BOX: [lambda g: g.effects(CODES), lambda g: g.value_effects(0), lambda g: g.mean_effects()],
}
TENSOR = torch.as_tensor(MODEL.embed(CODES))


@pytest.mark.parametrize("level", list(Access))
def test_a_gate_lets_through_its_level_and_no_more(level):
    gate = Ledger().gate(MODEL, level, "someone")
    for needed, calls in CALLS.items():
        for call in calls:
            if needed <= level:
                call(gate)
            else:
                with pytest.raises(Failure, match="someone"):
                    call(gate)


def test_every_row_is_counted_on_the_askers_account():
    ledger = Ledger()
    gate = ledger.gate(MODEL, Access.GRADIENT, "a")
    gate.labels(CODES)
    gate.proba(CODES[:3])
    gate.edited_proba(*EDITS)
    gate.proba_embedded(TENSOR)
    ledger.gate(MODEL, Access.LABEL, "b")
    assert ledger.rows == {"a": 20 + 3 + 3 + 20, "b": 0}


def test_a_model_without_cheap_edits_gets_whole_rows_and_one_without_access_is_refused():
    class Plain:
        access = Access.PROBABILITY
        labels, proba = MODEL.labels, MODEL.proba

    gate = Ledger().gate(Plain(), Access.PROBABILITY, "a")
    fast = MODEL.edited_proba(*EDITS)
    assert gate.edited_proba(*EDITS) == pytest.approx(fast)
    assert (gate.edited_labels(*EDITS) == (fast > 0.5)).all()
    with pytest.raises(UserError, match=r"b needs gradient access.*probability"):
        Ledger().gate(Plain(), Access.GRADIENT, "b")


def test_moving_embeddings_is_the_same_cheaply_and_by_whole_rows_and_is_counted():
    class Plain:
        access = Access.GRADIENT
        embed, vectors, proba_embedded = MODEL.embed, MODEL.vectors, MODEL.proba_embedded

    rng = np.random.default_rng(0)
    features = np.array([[1, 0]] * 10 + [[0, NONE]] * 10)
    vectors = rng.normal(size=(5, 2, 2))
    rows = np.array([0, 3, 11, 19, 3])
    ledger = Ledger()
    results = []
    for model in (MODEL, Plain()):
        results.append(ledger.gate(model, Access.GRADIENT, "a").slope(CODES, features)(rows, vectors))
    assert results[0][0] == pytest.approx(results[1][0]) and results[0][1] == pytest.approx(results[1][1])
    assert (results[0][1][2:4, 1] == 0).all()  # a feature that is not named is not moved
    whole = MODEL.embed(CODES[rows])
    for i, row in enumerate(rows):
        for place, j in enumerate(features[row]):
            if j != NONE:
                whole[i, j] = vectors[i, place]
    assert results[0][0] == pytest.approx(MODEL.proba_embedded(torch.as_tensor(whole)).numpy())
    assert ledger.rows["a"] == 10
    with pytest.raises(UserError, match="search=exact has a closed form for linear models only"):
        ledger.gate(Plain(), Access.GRADIENT, "a").line(CODES)


def test_the_probability_of_the_given_class():
    assert probability_of(np.array([1, 0]), np.array([0.9, 0.9])) == pytest.approx([0.9, 0.1])
    table = probability_of(np.array([1, 0]), np.array([[0.9, 0.2], [0.9, 0.2]]))
    assert table == pytest.approx(np.array([[0.9, 0.2], [0.1, 0.8]]))
