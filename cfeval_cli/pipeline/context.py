"""The context of a run: what all stages after training share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cfeval_cli.core import (
    Access,
    Cache,
    Dataset,
    EvaluationCache,
    FittedDistance,
    FittedRemoval,
    Floats,
    HasEmbeddings,
    Ints,
    Ledger,
    LedgerKey,
    Model,
    ModelClient,
    ModelSpec,
    Rows,
    Split,
)
from cfeval_cli.core.fingerprint import hash_data_and_model
from cfeval_cli.core.scratch import Scratch
from cfeval_cli.pipeline.model_checks import compute_predictions
from cfeval_cli.pipeline.sampling import compute_class_weights, select_by_class
from cfeval_cli.seeding import make_stream
from cfeval_cli.settings.plan import Plan
from cfeval_cli.settings.run_settings import RunSettings


@dataclass(frozen=True)
class RunContext:
    """A trained model, the instances to be explained, and the fitted components of a plan."""

    plan: Plan
    dataset: Dataset
    model: Model
    spec: ModelSpec
    instances: Split  # to be explained
    rows: Rows  # the same instances with the predictions of the model
    probabilities: Floats | None  # (N, C); None if the model gives labels only
    distances: Mapping[Access, FittedDistance]  # by level of the search
    removals: Mapping[str, FittedRemoval]  # by name
    subject_hash: str | None  # of data and model, a part of cache keys; None: results are not cached
    cache: Cache  # of this run, in front of the cache that all runs share
    weights: Floats | None = None  # (N,) so that the instances represent the test set; None: all count the same
    ledger: Ledger = field(default_factory=Ledger)
    # Predictions that several metrics use.
    evaluation_cache: EvaluationCache = field(default_factory=EvaluationCache)
    scratch: Scratch = field(default_factory=Scratch)  # files for arrays that grow with the number of instances

    def open_client(self, access: Access, key: LedgerKey) -> ModelClient:
        """Return the model as a component may use it; its evaluations are counted in the ledger."""
        return self.ledger.open_client(self.model, access, key, padded=self.dataset.padded)

    def compute_importance(self, name: str) -> Floats:
        """Return the importance (N, M) of each feature of each instance under one definition of the truth."""
        truth = self.plan.truths[name]
        client = Ledger().open_client(self.model, truth.access, LedgerKey("truth", name), padded=self.dataset.padded)
        return truth.compute_masked_importance(self.dataset, client, self.rows)


def create_context(
    plan: Plan, dataset: Dataset, model: Model, cache: Cache | None = None, scratch: Scratch | None = None
) -> RunContext:
    """Select the instances to be explained, predict them, and fit distances and removals."""
    explained = predict_explained_instances(dataset, model, plan.settings)
    instances, labels, probabilities = explained.instances, explained.labels, explained.probabilities
    predicted_probability = None if probabilities is None else probabilities[np.arange(len(labels)), labels]
    return RunContext(
        plan=plan,
        dataset=dataset,
        model=model,
        spec=ModelSpec.from_model(dataset, model),
        instances=instances,
        rows=Rows(instances.ids, instances.codes, labels, predicted_probability),
        probabilities=probabilities,
        distances={level: plan.distance.fit(dataset, model, level) for level in plan.levels},
        removals={name: fit_removal(plan, dataset, model, name, Ledger()) for name in plan.removals},
        subject_hash=hash_data_and_model(dataset, model),
        cache=cache or plan.cache,
        weights=explained.weights,
        scratch=scratch or Scratch(),
    )


@dataclass(frozen=True)
class PredictedInstances:
    """Instances with the predictions of a model."""

    instances: Split
    labels: Ints  # (N,)
    probabilities: Floats | None  # (N, C); None if the model gives labels only
    weights: Floats | None = None  # (N,) so that the instances represent the test set; None: all count the same


def predict_explained_instances(dataset: Dataset, model: Model, settings: RunSettings) -> PredictedInstances:
    """Select the instances to be explained, with the smallest number of each predicted class, and predict them."""
    if not is_sampled_by_class(dataset, settings):
        instances = select_explained_instances(dataset, settings.seed, settings.n_explain)
        return PredictedInstances(instances, *compute_predictions(model, dataset, instances.codes))
    labels, probabilities = compute_predictions(model, dataset, dataset.test.codes)
    order = make_stream(settings.seed, "instances.by_class").permutation(len(labels))
    positions = select_by_class(labels, order, settings.n_explain or len(labels), settings.min_per_class)
    return PredictedInstances(
        dataset.test.take(positions),
        labels[positions],
        None if probabilities is None else probabilities[positions],
        compute_class_weights(labels, positions),
    )


def is_sampled_by_class(dataset: Dataset, settings: RunSettings) -> bool:
    """Return whether the instances to be explained depend on the predictions of the model."""
    n_explain = settings.n_explain
    return settings.min_per_class > 0 and n_explain is not None and n_explain < len(dataset.test)


def select_explained_instances(dataset: Dataset, seed: int, n_explain: int | None) -> Split:
    """Return the test set, or a random sample of it."""
    if n_explain is None:
        return dataset.test
    positions = make_stream(seed, "instances").choice(len(dataset.test), n_explain, replace=False)
    return dataset.test.take(np.sort(positions))


def fit_removal(plan: Plan, dataset: Dataset, model: Model, name: str, ledger: Ledger) -> FittedRemoval:
    """Return a removal fitted to a model, or with the reason why it does not apply."""
    removal = plan.removals[name]
    if name in plan.absent.removals:
        return FittedRemoval(removal, None, plan.absent.removals[name])
    access = Access.GRADIENT if isinstance(model, HasEmbeddings) else Access.LABEL
    client = ledger.open_client(model, access, LedgerKey("removal", name), padded=dataset.padded)
    return FittedRemoval(removal, removal.fit(dataset, client))


def index_without_copy(positions: Ints, size: int) -> Ints | slice:
    """Return a slice if the positions are all of `size` rows, because indexing with a slice copies nothing."""
    return positions if len(positions) < size else slice(None)
