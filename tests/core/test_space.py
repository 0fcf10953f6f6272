import numpy as np
import pytest

from cfeval_cli.core import Access, BlackBox, ModelSpec, Probabilistic
from cfeval_cli.core.space import Embedding, OneHot, Scaled, choose_space
from cfeval_cli.distance.euclidean import Euclidean
from cfeval_cli.errors import UserError
from cfeval_cli.search.continuous import Continuous
from cfeval_cli.search.discrete import Discrete
from tests.problems import make_dataset, make_linear

DATASET = make_dataset([3, 2])
MODEL = make_linear(DATASET)


class ConstantModel(Probabilistic):
    def predict_proba(self, codes):
        return np.full((len(codes), 2), 0.5)


def test_auto_chooses_the_space_by_access_and_model():
    assert isinstance(choose_space(Euclidean("auto"), DATASET, MODEL, Access.LABEL), OneHot)
    assert isinstance(choose_space(Euclidean("auto"), DATASET, MODEL, Access.PROBABILITY), Embedding)
    assert isinstance(choose_space(Euclidean("auto"), DATASET, ConstantModel(), Access.PROBABILITY), Scaled)
    assert isinstance(choose_space(Euclidean("scaled"), DATASET, MODEL, Access.PROBABILITY), Scaled)
    assert not isinstance(choose_space(Euclidean("auto"), DATASET, MODEL, Access.LABEL), Scaled)
    assert isinstance(choose_space(Euclidean("embedding"), DATASET, MODEL, Access.LABEL), Embedding)
    assert isinstance(choose_space(Euclidean("onehot"), DATASET, MODEL, Access.GRADIENT), OneHot)
    with pytest.raises(UserError, match="needs a model with embeddings"):
        choose_space(Euclidean("embedding"), DATASET, ConstantModel(), Access.PROBABILITY)


def test_inapplicable_spaces_are_refused_before_training():
    linear_model, black_box = ModelSpec(DATASET, type(MODEL)), ModelSpec(DATASET, BlackBox)
    assert "cannot measure edited embeddings" in Euclidean("onehot").not_applicable_reason(linear_model, Continuous())
    assert (
        Euclidean("onehot").not_applicable_reason(linear_model, Discrete()) is None
        and Euclidean().not_applicable_reason(black_box, Discrete()) is None
    )
    assert "needs embeddings, which this model (a black box)" in Euclidean("embedding").not_applicable_reason(
        black_box, Discrete()
    )
