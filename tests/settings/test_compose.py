"""The packaged configs, outside a run."""

import pytest
from hydra.errors import ConfigCompositionException
from omegaconf import OmegaConf

from cfeval_cli.settings import compose
from tests import inside


def test_options_and_settings_of_the_package_and_of_a_users_own_folder(tmp_path):
    own = str(tmp_path)
    (tmp_path / "explainer").mkdir()
    (tmp_path / "explainer" / "mine.yaml").write_text("mine: {_target_: mine.Mine, depth: 3}\n")
    with compose.packaged_configs():
        assert {"adults", "movie_reviews", "wine"} <= set(compose.list_options("dataset"))
        assert "mine" in compose.list_options("explainer", own)
        assert "mine" not in compose.list_options("explainer")
        known = compose.list_settings(own)
        assert {"k", "search.pick", "explainer.lime.n_samples", "explainer.mine.depth"} <= set(known)
        every = [f"{group}=[{','.join(compose.list_options(group, own))}]" for group in ("explainer", "metric")]
        composed = OmegaConf.to_container(compose.compose_run([*every, "k=3"], own), resolve=False)
        assert set(known) == set(compose._list_keys(composed, "")) and composed["k"] == 3  # as Hydra would, at length
    assert compose.list_default_options("explainer") == list(inside.composed().explainer)
    assert compose.list_default_options("search") == ["discrete"]


@pytest.mark.parametrize(("key", "close"), [("dataset.only.age", ""), ("dataset.features.agee", " Did you mean age?")])
def test_an_entry_of_a_mapping_is_offered_with_a_plus(key, close):
    parent, _, name = key.rpartition(".")
    with compose.packaged_configs():
        assert (
            compose.explain_unknown_setting(key, [f"{key}=up"])
            == f"{parent} has no {name!r}.{close} To add it, write +{key}=…"
        )


def test_a_setting_that_the_yaml_of_a_class_lacks_is_offered_with_a_plus():
    overrides = ["model=estimator", "model.estimator.max_iter=5", "hydra.run.dir=x"]
    with compose.packaged_configs():
        advice = compose.explain_unknown_setting("model.estimator.max_iter", overrides)
        assert advice.endswith("write +model.estimator.max_iter=…") and "HistGradientBoostingClassifier" in advice
        for key in ("model.encodr", "kk", "nothing.at.all"):
            assert compose.explain_unknown_setting(key, overrides) == ""
        assert compose.explain_unknown_setting("model.estimator.x", ["model=nonesuch", "kk=1"]) == ""


def test_an_unknown_setting_is_compared_with_those_of_the_composed_config():
    error = ConfigCompositionException("Could not override 'model.encodr'.")
    message = compose.explain_hydra_error(error, ["model=estimator", "model.encodr=native"])
    assert message.startswith("model has no setting 'encodr'. Did you mean encoder? There is: estimator, encoder, ")
