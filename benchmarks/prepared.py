"""What the benchmarks share: a composed plan, its data and its trained white box."""

from __future__ import annotations

from functools import cache

from cfeval_cli.core import ModelSpec
from cfeval_cli.core.ranking import find_top_k
from cfeval_cli.pipeline import explain as explain_stage
from cfeval_cli.pipeline.context import create_context
from cfeval_cli.pipeline.search import find_instances_with_features, search_counterfactuals
from cfeval_cli.settings import build, compose


def plan(name, *overrides):
    """The plan of `cfeval run dataset=name …`, in one process; CFEVAL_DATA names another data folder than data/."""
    with compose.open_packaged_configs():
        alone = [] if any(text.startswith("n_jobs=") for text in overrides) else ["n_jobs=1", "cache=off"]
        return build.build_plan(compose.compose_run([f"dataset={name}", "truth=[signed]", *alone, *overrides]))


@cache
def trained(name):
    """Data and model, loaded and trained once in a process."""
    made = plan(name, "search=continuous")  # a search that refuses nothing
    dataset = made.dataset.load(made.settings.data_dir, made.settings.seed)
    return dataset, made.model.fit(dataset, made.settings.seed)


def study(name, *overrides):
    """All that the stages after training need."""
    return ready(plan(name, *overrides), *trained(name))


def ready(made, dataset, model):
    """The same of a plan."""
    return create_context(made.restrict_to(ModelSpec(dataset, type(model))), dataset, model)


def reference_features(study, k):
    """The k features (n, k) that LR names."""
    return find_top_k(study.compute_importance("signed"), k)


# One explainer, and the search for the features that it named, without a display of how far they are.


def explain(study, name):
    return explain_stage.explain_instances(study, name, {}, lambda _: None).explanation


def find(study, name, features):
    used = find_instances_with_features(features)
    component = f"search.{name}.{{level}}"
    rows = study.rows.take(used)
    return search_counterfactuals(study, rows, features[used], component, lambda _: None, use_cache=False)
