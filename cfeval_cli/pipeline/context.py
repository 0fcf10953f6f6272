"""What all stages after training share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cfeval_cli.core import (
    Access,
    AnswerCache,
    Cache,
    Codes,
    Dataset,
    FittedDistance,
    FittedRemoval,
    Floats,
    HasEmbeddings,
    Ints,
    Ledger,
    Model,
    ModelClient,
    ModelSpec,
    Probabilistic,
    Rows,
    Split,
)
from cfeval_cli.core.fingerprint import of_subject
from cfeval_cli.core.scratch import Scratch, slabs
from cfeval_cli.pipeline.model_checks import AT_ONCE, answers
from cfeval_cli.seeding import make_stream
from cfeval_cli.settings.plan import Plan


@dataclass(frozen=True)
class Study:
    """A trained model, the instances to be explained, and who is to do what with them."""

    plan: Plan
    dataset: Dataset
    model: Model
    spec: ModelSpec
    instances: Split  # to be explained
    rows: Rows  # the same, with what the model predicts
    probabilities: Floats | None  # (N, C), of a model that gives them
    measures: Mapping[Access, FittedDistance]  # the distance at each level of the search
    removals: Mapping[str, FittedRemoval]  # by name
    identity: str | None  # a hash of data and model, by which finished work is found again
    cache: Cache  # of this run, over what all runs share
    ledger: Ledger = field(default_factory=Ledger)
    memory: AnswerCache = field(default_factory=AnswerCache)  # what metrics asked about these instances
    scratch: Scratch = field(default_factory=Scratch)  # where what grows with their number is put aside

    def open_client(self, access: Access, component: str) -> ModelClient:
        """The model as a component may see it."""
        return self.ledger.open_client(self.model, access, component, padded=self.dataset.padded)

    def truth(self, name: str) -> Floats:
        """How much each feature of each instance truly matters (N, M), under one definition."""
        truth = self.plan.truths[name]
        client = Ledger().open_client(self.model, truth.access, f"truth.{name}", padded=self.dataset.padded)
        return truth.known(self.dataset, client, self.rows)


def to_explain(dataset: Dataset, seed: int, n_explain: int | None) -> Split:
    """All of the test set, or a seeded sample."""
    if n_explain is None:
        return dataset.test
    rows = make_stream(seed, "instances").choice(len(dataset.test), n_explain, replace=False)
    return dataset.test.take(np.sort(rows))


def prepare(
    plan: Plan, dataset: Dataset, model: Model, cache: Cache | None = None, scratch: Scratch | None = None
) -> Study:
    """Choose the instances and predict them."""
    instances = to_explain(dataset, plan.settings.seed, plan.settings.n_explain)
    labels, probabilities = predicted(model, dataset, instances.codes)
    kept = None if probabilities is None else probabilities[np.arange(len(labels)), labels]
    return Study(
        plan=plan,
        dataset=dataset,
        model=model,
        spec=ModelSpec.from_model(dataset, model),
        instances=instances,
        rows=Rows(instances.ids, instances.codes, labels, kept),
        probabilities=probabilities,
        measures={level: plan.distance.fit(dataset, model, level) for level in plan.levels},
        removals={name: removed(plan, dataset, model, name, Ledger()) for name in plan.removals},
        identity=of_subject(dataset, model),
        cache=cache or plan.cache,
        scratch=scratch or Scratch(),
    )


def removed(plan: Plan, dataset: Dataset, model: Model, name: str, ledger: Ledger) -> FittedRemoval:
    """One way to remove features, ready for a model, or with the reason why there is none."""
    way = plan.removals[name]
    if name in plan.absent.removals:
        return FittedRemoval(way, None, plan.absent.removals[name])
    most = Access.GRADIENT if isinstance(model, HasEmbeddings) else Access.LABEL
    return FittedRemoval(
        way, way.fit(dataset, ledger.open_client(model, most, f"removal.{name}", padded=dataset.padded))
    )


def predicted(model: Model, dataset: Dataset, codes: Codes) -> tuple[Ints, Floats | None]:
    """Classes (n,) and, of a model that gives them, probabilities (n, C), if they are what they should be."""
    told = np.concatenate([answers(model, dataset, codes[slab]) for slab in slabs(len(codes), AT_ONCE)])
    return np.argmax(told, axis=1).astype(np.int64), told if isinstance(model, Probabilistic) else None
