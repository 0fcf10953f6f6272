"""What the benchmarks share: a composed plan, its data and its trained white box."""

from __future__ import annotations

from functools import cache

from cfeval_cli.core import ModelSpec
from cfeval_cli.core.ranking import find_top_k
from cfeval_cli.pipeline import explain as explain_stage
from cfeval_cli.pipeline.context import create_context
from cfeval_cli.pipeline.search import find_instances_with_features, search_counterfactuals
from cfeval_cli.settings import build, compose


def build_plan(name, *overrides):
    """Return the plan of `cfeval run dataset=name …` in one process; CFEVAL_DATA is another data folder than data/."""
    with compose.open_packaged_configs():
        defaults = [] if any(text.startswith("n_jobs=") for text in overrides) else ["n_jobs=1", "cache=off"]
        return build.build_plan(compose.compose_run([f"dataset={name}", "truth=[signed]", *defaults, *overrides]))


@cache
def load_trained_model(name):
    """Load the data and train the model, once in a process."""
    plan = build_plan(name, "search=continuous")  # a search that refuses nothing
    dataset = plan.dataset.load(plan.settings.data_dir, plan.settings.seed)
    return dataset, plan.model.fit(dataset, plan.settings.seed)


def create_study(name, *overrides):
    """Return the context of all stages after training."""
    return create_plan_context(build_plan(name, *overrides), *load_trained_model(name))


def create_plan_context(plan, dataset, model):
    """Return the context of a plan."""
    return create_context(plan.restrict_to(ModelSpec(dataset, type(model))), dataset, model)


def select_reference_features(study, k):
    """Return the k features (n, k) that LR selects."""
    return find_top_k(study.compute_importance("signed"), k)


def explain_instances(study, name):
    """Return the explanations of one explainer."""
    return explain_stage.explain_instances(study, name, {}, lambda _: None).explanation


def find_counterfactuals(study, name, features):
    """Search counterfactuals for selected features."""
    explained_rows = find_instances_with_features(features)
    rows = study.rows.take(explained_rows)
    return search_counterfactuals(study, rows, features[explained_rows], name, lambda _: None, use_cache=False)
