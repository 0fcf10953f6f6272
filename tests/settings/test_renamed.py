"""Settings and options that were renamed or removed are refused with their new form."""

import re

import pytest
from omegaconf import OmegaConf

from cfeval_cli.errors import UserError
from cfeval_cli.settings import compose
from cfeval_cli.settings.build import build_plan, instantiate_node
from cfeval_cli.settings.renamed import describe_renamed_setting


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("gold=contrast", "`gold` was replaced by `truth`: use truth=[contrast]."),
        ("gold=[centered,contrast]", "`gold` was replaced by `truth`: use truth=[shapley,contrast]."),
        ("truth=[centered]", "`centered` was replaced by `shapley`: use truth=[shapley]."),
        ("explainer=[nearest_gold]", "`nearest_gold` was replaced by `nearest_truth`: use explainer=[nearest_truth]."),
        ("noise=20", "`noise` was renamed: use explainer_stability=20."),
        ("metric.pgi.draws=7", "`metric.pgi.draws` was renamed: use metric.pgi.removal.draws=7."),
        ("explainer=[ladder]", "`ladder` was replaced by `graded`: use explainer=[graded]."),
        (
            "explainer.ladder.rungs=21",
            "`explainer.ladder.rungs` was renamed: use explainer.graded.quality_levels=21.",
        ),
        ("metric.aopc.longest=7", "`metric.aopc.longest` was renamed: use metric.aopc.max_features=7."),
        ("metric.dfr.only=[zero]", "`metric.dfr.only` was renamed: use metric.dfr.removals=[zero]."),
        (
            "explainer.omission.ways.marginal.draws=20",
            "`explainer.omission.ways.marginal.draws` was renamed: use explainer.omission.removals.marginal.draws=20.",
        ),
        (
            "explainer.lr.gold=contrast",
            "`explainer.lr.gold` was removed: the explainer uses the first truth of the run, truth=[contrast].",
        ),
    ],
)
def test_override_of_renamed_setting_is_refused_with_its_new_form(override, message):
    with compose.open_packaged_configs(), pytest.raises(Exception) as error_info:
        compose.compose_run([override])
    assert compose.explain_hydra_error(error_info.value, [override]) == message


def test_renamed_setting_of_a_users_own_config_is_refused_with_its_new_form():
    with compose.open_packaged_configs():
        cfg = compose.compose_run(["+gold=[contrast,signed]"])
    with pytest.raises(UserError, match=r"use truth=\[contrast,signed\]\."):
        build_plan(cfg)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["+explainer.ladder.gold=signed"], "the explainer uses the first truth of the run, truth=[signed]."),
        (
            ["explainer=[lr]", "+explainer.lr.gold=signed"],
            "the explainer uses the first truth of the run, truth=[signed].",
        ),
        (["metric=[dfr]", "+metric.dfr.only=[zero]"], "use metric.dfr.removals=[zero]."),
    ],
)
def test_renamed_setting_that_is_added_is_refused_with_its_new_form(overrides, message):
    with compose.open_packaged_configs():
        cfg = compose.compose_run(overrides)
    with pytest.raises(UserError, match=re.escape(message)):
        build_plan(cfg)


def test_renamed_class_of_a_users_own_config_is_refused_with_its_new_name():
    node = OmegaConf.create({"_target_": "cfeval_cli.dataset.sources.File", "name": "loans.csv"})
    with pytest.raises(UserError, match=r"renamed: use `_target_: cfeval_cli\.dataset\.sources\.DataFile`"):
        instantiate_node(node)


def test_other_settings_have_no_new_form():
    assert describe_renamed_setting("k", "2") is None
