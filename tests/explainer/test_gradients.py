"""Both explainers by gradients: baselines by removal, the logit of ŷ, and models without logits."""

import numpy as np
import pytest
import torch

from cfeval_cli.core import ABSENT, Access, Batch, BlackBox, HasGradient, ModelSpec, Probabilistic
from cfeval_cli.explainer.gradient_input import GradientInput
from cfeval_cli.explainer.gradients import GradientExplainer
from cfeval_cli.explainer.integrated_gradients import IntegratedGradients
from cfeval_cli.model.linear import LinearModel
from tests.problems import ALL_REMOVALS, densify, make_dataset, open_client

BOTH = [GradientInput, IntegratedGradients]


class Bent(Probabilistic, HasGradient):
    """Three classes, two layers: embeddings, then probabilities that are not a sum of effects."""

    def __init__(self, dataset, seed=0, dim=3):
        rng = np.random.default_rng(seed)
        self.tables = [rng.normal(size=(len(feature.values), dim)) for feature in dataset.features]
        if dataset.padded:
            self.tables = [self.tables[0]] * dataset.n_features
        self.first = torch.as_tensor(rng.normal(size=(dataset.n_features * dim, 5)))
        self.second = torch.as_tensor(rng.normal(size=(5, 3)))

    def embed_values(self, feature, codes):
        return np.where((codes == ABSENT)[:, None], 0.0, self.tables[feature][codes])

    def inner(self, vectors):
        return torch.tanh(vectors.flatten(1) @ self.first) @ self.second

    def predict_proba_embedded(self, vectors):
        return torch.softmax(self.inner(vectors), dim=1)

    def predict_proba(self, codes):
        vectors = np.stack([self.embed_values(j, codes[:, j]) for j in range(codes.shape[1])], axis=1)
        return self.predict_proba_embedded(torch.as_tensor(vectors)).numpy()


def bent(dataset, rows=6):
    model = Bent(dataset)
    codes = dataset.test.codes[:rows]
    labels = model.predict_proba(codes).argmax(axis=1)
    return model, Batch(dataset.test.ids[:rows], codes, labels, seed=0, component="explainer.x")


def against_the_others(model, label):
    """The logit of a class minus the mean of the others, for captum; softmax determines logits up to a constant."""

    def forward(vectors):
        logits = model.inner(vectors)
        return logits[:, label] - logits[:, [c for c in range(3) if c != label]].mean(dim=1)

    return forward


def by_hand(dataset, model, codes, removal):
    """The embeddings of an instance, and of what stands in its place, with weights."""
    embeddings = np.stack([model.embed_values(j, codes[j : j + 1])[0] for j in range(dataset.n_features)])
    if removal == "zero":
        starts, weights = [np.zeros_like(embeddings)], [1.0]
    elif removal == "mean":
        means = [f @ t for f, t in zip(dataset.frequencies, model.tables, strict=True)]
        starts, weights = [np.stack(means)], [1.0]
    elif removal == "mask":
        starts, weights = [np.stack([table[dataset.mask] for table in model.tables])], [1.0]
    else:
        rows, weights = ALL_REMOVALS["marginal"].fit(dataset, None).sample(np.arange(dataset.n_features))
        starts = [np.stack([t[v] for t, v in zip(model.tables, row, strict=True)]) for row in rows]
    is_present = (codes != ABSENT)[:, None]
    return embeddings, [np.where(is_present, start, 0.0) for start in starts], weights


@pytest.mark.parametrize("explainer", BOTH)
@pytest.mark.parametrize("seed", [0, 1])
def test_model_without_logits_is_explained_by_log_probabilities(explainer, seed):
    """Integrated gradients sum to the difference that they explain; gradient times input is a difference quotient."""
    dataset = make_dataset([3, 2, 4, 5], n=30, seed=seed)
    model, batch = bent(dataset)
    explanation = densify(explainer(ALL_REMOVALS, "zero").fit(dataset, open_client(model, Access.GRADIENT))(batch), 4)
    for i, codes in enumerate(batch.codes):
        forward = against_the_others(model, int(batch.predicted_classes[i]))
        embeddings, (start,), _ = by_hand(dataset, model, codes, "zero")
        ends = forward(torch.as_tensor(np.stack([embeddings, start]))).numpy()
        if explainer is IntegratedGradients:
            assert explanation[i].sum() == pytest.approx(ends[0] - ends[1], abs=1e-6)
            continue
        for j in range(4):
            near = np.stack([embeddings, embeddings])
            near[:, j] *= np.array([[1 + 1e-5], [1 - 1e-5]])
            up, down = forward(torch.as_tensor(near)).numpy()
            assert explanation[i, j] == pytest.approx((up - down) / 2e-5, abs=1e-6)


@pytest.mark.parametrize("explainer", BOTH)
def test_a_removal_that_does_not_apply_is_refused(explainer):
    table = make_dataset([3, 2])
    with pytest.raises(ValueError, match=r"removal=mask: toy has no mask token. Use removal=auto"):
        explainer(ALL_REMOVALS, "mask").check(ModelSpec(table, LinearModel))
    for removal in ("auto", "zero", "mean", "marginal"):
        explainer(ALL_REMOVALS, removal).check(ModelSpec(table, LinearModel))
    reason = explainer(ALL_REMOVALS).not_applicable_reason(ModelSpec(table, BlackBox))
    assert "needs gradients in the embeddings" in reason
    with pytest.raises(ValueError, match="removal must be one of"):
        explainer(ALL_REMOVALS, "burn")


def test_base_class_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        GradientExplainer()
