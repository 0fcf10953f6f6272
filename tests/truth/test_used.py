import numpy as np

from cfeval_cli.core import BlackBox, ModelSpec
from cfeval_cli.model.external import ProbabilityModel
from cfeval_cli.model.tree import Tree
from cfeval_cli.truth.used import UsedFeatures
from tests.problems import make_dataset, open_client
from tests.truth.models import predict_test_rows


def test_features_left_out_of_training_are_not_used():
    dataset = make_dataset([3, 3, 3, 3], n=40, seed=1)
    settings = Tree(blind=["f1"], min_leaf=1)
    model = settings.fit(dataset, 0)
    result = UsedFeatures().compute_importance(dataset, open_client(model), predict_test_rows(dataset, model))
    assert result.shape == (40, 4) and np.array_equal(result, np.tile(model.get_used_features().astype(float), (40, 1)))
    assert not result[:, 1].any() and UsedFeatures().question == "either"
    assert (
        UsedFeatures().not_applicable_reason(ModelSpec.from_settings(dataset, settings)) is None
        and ModelSpec.from_model(dataset, model).blind
    )


def test_reason_for_models_trained_with_all_features():
    dataset = make_dataset([3, 2])
    for spec in (ModelSpec.from_settings(dataset, Tree()), ModelSpec(dataset, BlackBox, blind=True)):
        assert "model.blind" in UsedFeatures().not_applicable_reason(spec)
    assert UsedFeatures().not_applicable_reason(ModelSpec(dataset, ProbabilityModel, blind=True)) is None
