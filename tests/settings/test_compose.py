"""The packaged configs, outside a run, and the messages about overrides that Hydra refuses."""

import pytest
from omegaconf import OmegaConf

from cfeval_cli.settings import compose
from tests import inside


def explain(*overrides):
    """Return the message about overrides that cannot be composed."""
    with compose.open_packaged_configs(), pytest.raises(Exception) as error_info:
        compose.compose_run(overrides)
    return compose.explain_hydra_error(error_info.value, overrides)


def test_options_include_those_of_a_users_own_folder(tmp_path):
    (tmp_path / "explainer").mkdir()
    (tmp_path / "explainer" / "mine.yaml").write_text("mine: {_target_: mine.Mine, depth: 3}\n")
    with compose.open_packaged_configs():
        assert {"adults", "movie_reviews", "wine"} <= set(compose.list_options("dataset"))
        assert "mine" in compose.list_options("explainer", str(tmp_path))
        assert "mine" not in compose.list_options("explainer")
        assert compose.compose_run(["explainer=[mine]"], str(tmp_path)).explainer.mine.depth == 3


def test_default_options_and_top_level_keys_are_those_of_the_composed_config():
    assert compose.list_default_options("explainer") == list(inside.compose_config().explainer)
    assert compose.list_default_options("search") == ["discrete"]
    assert {str(key) for key in inside.compose_config()} <= compose.list_top_level_keys()
    assert {"k", "fact", "explainer"} <= compose.list_top_level_keys()


PAPER = ["random", "omission", "lime", "anchor", "decision_boundary", "lr"]
OWN = ["random", "omission", "lime", "shap"]
MODELS = dict.fromkeys(("estimator", "function", "onnx", "skops"), (OWN, 3, 30))
MODELS |= dict.fromkeys(("logistic", "mlp", "tree", "additive", "distilled"), (PAPER, 1, 0))


def list_run_defaults(*overrides):
    """Return the explainers, k and the smallest number of instances of a class."""
    cfg = inside.compose_config(*overrides)
    return list(cfg.explainer), cfg.k, cfg.min_per_class


@pytest.mark.parametrize("model", sorted(MODELS))
def test_defaults_depend_on_the_model(model):
    assert set(MODELS) == {path.stem for path in (inside.CONF / "model").glob("*.yaml")}
    assert list_run_defaults(f"model={model}") == MODELS[model]
    assert list_run_defaults("judge=[additive,blind,logistic,tree]", f"model={model}") == MODELS[model]


@pytest.mark.parametrize("model", ["estimator", "logistic"])
def test_the_command_line_takes_precedence_over_the_model(model):
    words = ["k=2", f"model={model}", "explainer=[lr]", "min_per_class=5"]
    assert list_run_defaults(*words) == (["lr"], 2, 5)
    assert list_run_defaults(*words, "experiment=judges") == (["lr"], 2, 5)


def test_models_inside_another_set_no_defaults():
    inner = ["model@model.student=estimator", "model@model.teacher=onnx"]
    cfg = inside.compose_config("model=distilled", *inner)
    assert (list(cfg.explainer), cfg.k, cfg.min_per_class) == (PAPER, 1, 0)
    assert cfg.model.student._target_.endswith("Estimator") and cfg.model.teacher._target_.endswith("Onnx")


@pytest.mark.parametrize("experiment", sorted(path.stem for path in (inside.CONF / "experiment").glob("*.yaml")))
def test_a_model_does_not_change_the_settings_of_an_experiment(experiment):
    expected, own = (
        OmegaConf.to_container(inside.compose_config(f"experiment={experiment}", f"model={model}"), resolve=False)
        for model in ("logistic", "estimator")
    )
    assert expected.pop("model") != own.pop("model") and own == expected


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["dataset.only.age=up"], "dataset.only has no 'age'. To add it, write +dataset.only.age=…"),
        (["dataset.features.agee=up"], "dataset.features has no 'agee'. Did you mean age? To add it, write +dataset."),
        (["model=estimator", "model.estimator.max_iter=5"], "to give it one, write +model.estimator.max_iter=…"),
        (["model=estimator", "model.encodr=native"], "model has no setting 'encodr'. Did you mean encoder? There is: "),
        (["model.estimator.max_iter=5"], "is a setting of model 'estimator', which is not chosen: choose model=estima"),
        (
            ["explainer.graded.quality_levels=3"],
            "is a setting of explainer 'graded', which is not chosen: add it to explainer",
        ),
        (["kk=2"], "there is no setting 'kk'. Did you mean k? See cfeval run --cfg job."),
        (["kk=2", "nothing.at.all=3"], "there is no setting 'kk'. Did you mean k? See cfeval run --cfg job."),
        (["model=estimater"], "there is no model 'estimater'. Did you mean estimator? There is: additive, "),
    ],
)
def test_a_wrong_override_is_explained(overrides, message):
    assert message in explain(*overrides)
