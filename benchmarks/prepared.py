"""What the benchmarks share: a composed plan, its data and its trained white box."""

from __future__ import annotations

from functools import cache

from cfeval_cli import config, configs, pipeline
from cfeval_cli.gold import importance, top


def plan(name, *overrides):
    """The plan of `cfeval run dataset=name …`; CFEVAL_DATA names another data folder than data/."""
    with configs.opened():
        return config.plan(configs.run([f"dataset={name}", *overrides]))


@cache
def trained(name):
    """Data and model, loaded and trained once in a process."""
    made = plan(name, "search=continuous")  # a search that refuses nothing
    dataset = made.dataset.load(made.data_dir, made.seed)
    return dataset, made.model.fit(dataset, made.seed)


def study(name, *overrides):
    """All that the stages after training need."""
    return pipeline.prepare(plan(name, *overrides), *trained(name))


def gold_features(study, k):
    """The k features (n, k) that LR names."""
    return top(importance("signed", study.model, study.dataset, study.instances.codes, study.labels), k)


# One explainer, and the search for the features that it named, without a display of how far they are.


def explain(study, name):
    return pipeline.explain(study, name, lambda _: None)


def find(study, name, features):
    return pipeline.find(study, name, features, lambda _: None)
