"""The contract of models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cfeval_cli.core import (
    ABSENT,
    Access,
    BinaryModel,
    BlackBox,
    Bools,
    Classifier,
    Codes,
    Dataset,
    Fingerprinted,
    Floats,
    HasAdditiveEffects,
    HasArrays,
    HasEmbeddings,
    HasGradient,
    HasLeaves,
    HasLinearLogit,
    HasLogits,
    HasUsedFeatures,
    Ledger,
    LedgerKey,
    Model,
    ModelSpec,
    Probabilistic,
    Reparametrisable,
    Restorable,
    SupportsBatchedEmbedding,
    SupportsEdits,
    Trainable,
)
from cfeval_cli.core.client import apply_edits, embed_rows
from cfeval_cli.errors import UserError
from cfeval_cli.testing.problems import make_table, make_text
from cfeval_cli.testing.require import forbid_global_generator, require, require_array, require_equal

# Models of matrix products give a row other last digits in another batch.
_CLOSE = 1e-6


def check_model(model: Trainable, datasets: Sequence[Dataset] | None = None) -> None:
    """Check a model's predictions and every ability that it declares, after training on small data.

    Data that the settings refuse with a UserError are left out; all must not be refused.
    """
    name = type(model).__name__
    require(isinstance(model, Trainable), f"{name} must derive from cfeval_cli.core.Trainable.")
    refusals, n_checked = [], 0
    for dataset in (make_table(), make_text()) if datasets is None else datasets:
        about = f"{name} on {dataset.name}"
        try:
            spec = ModelSpec.from_settings(dataset, model)
            with forbid_global_generator(about):
                trained, second_model = model.fit(dataset, 3), model.fit(dataset, 3)
        except UserError as error:
            refusals.append(f"{dataset.name}: {error}")
            continue
        n_checked += 1
        derives = isinstance(trained, Classifier)
        require(derives, f"{about}: fit() must return a model that derives from cfeval_cli.core.Classifier.")
        require(
            spec.kind is BlackBox or isinstance(trained, spec.kind),
            f"{about}: fit() returns {type(trained).__name__}, and was to return {spec.kind.__name__}.",
        )
        codes = dataset.test.codes
        is_equal = np.array_equal(_predict(trained, codes), _predict(second_model, codes))
        require(is_equal, f"{about}: the same seed must give the same model.")
        _check_predictions(trained, dataset, about)
        _check_embeddings(trained, dataset, about)
        _check_white_box(trained, dataset, about)
        _check_storage(model, trained, dataset, about)
    require(n_checked, f"{name} refuses all data, pass others. {' '.join(refusals)}")


def _predict(model: Model, codes: Codes) -> Floats:
    """Return probabilities (n, C), or labels (n, 1) of a model that has no more."""
    if isinstance(model, Probabilistic):
        return np.asarray(model.predict_proba(codes))
    client = Ledger().open_client(model, Access.LABEL, LedgerKey("check_model"))
    return client.predict_labels(codes).astype(np.float64)[:, None]


def _check_predictions(model: Model, dataset: Dataset, name: str) -> None:
    codes, n, n_classes = dataset.test.codes, len(dataset.test), len(dataset.classes)
    before = codes.copy()
    predictions = _predict(model, codes)
    require((codes == before).all(), f"{name} changes the codes that it is given.")
    if isinstance(model, Probabilistic):
        require_array(predictions, (n, n_classes), "f", f"{name}: predict_proba()")
        require(
            (predictions >= 0).all() and (predictions <= 1).all(), f"{name}: probabilities must be between 0 and 1."
        )
        require(np.allclose(predictions.sum(axis=1), 1, atol=_CLOSE), f"{name}: probabilities must add up to 1.")
    labels = model.predict(codes)
    require_array(labels, (n,), "iu", f"{name}: predict()")
    require(((labels >= 0) & (labels < n_classes)).all(), f"{name}: predict() returns numbers that are no classes.")
    reverse, single = _predict(model, codes[::-1])[::-1], _predict(model, codes[2:3])
    require(np.allclose(predictions, reverse, atol=_CLOSE), f"{name} predicts otherwise in another order.")
    require(np.allclose(predictions[2:3], single, atol=_CLOSE), f"{name} predicts otherwise for a row alone.")
    if isinstance(model, BinaryModel):
        is_equal = np.allclose(model.predict_positive(codes), predictions[:, 1], atol=_CLOSE)
        require(is_equal, f"{name}: predict_positive() and predict_proba() disagree.")
    if isinstance(model, SupportsEdits):
        rows, features = np.arange(n), np.tile([0, 1], (n, 1))
        values = np.zeros((n, 2), dtype=np.int32)
        edited = model.predict_edited(codes, features, rows, values)
        expected = model.predict_positive(apply_edits(codes, features, rows, values))
        is_equal = np.allclose(edited, expected, atol=_CLOSE)
        require(is_equal, f"{name}: predict_edited() and predict_positive() disagree.")
    if isinstance(model, HasUsedFeatures):
        _check_used_features(model, model.get_used_features(), dataset, name)


def _check_used_features(model: Model, reads: Bools, dataset: Dataset, name: str) -> None:
    require_array(reads, (dataset.n_features,), "b", f"{name}: get_used_features()")
    for j in np.flatnonzero(~reads).tolist():
        edited = dataset.test.codes.copy()
        present = edited[:, j] != ABSENT
        edited[present, j] = (edited[present, j] + 1) % len(dataset.features[j].values)
        is_equal = np.allclose(_predict(model, edited), _predict(model, dataset.test.codes), atol=_CLOSE)
        require(is_equal, f"{name}: predictions depend on a feature that get_used_features() excludes.")


def _check_embeddings(model: Model, dataset: Dataset, name: str) -> None:
    if not isinstance(model, HasEmbeddings):
        return
    codes = dataset.test.codes
    absent_vector = model.embed_values(0, np.array([ABSENT], dtype=np.int32))
    require((absent_vector == 0).all(), f"{name}: the embedding of an absent feature must be zero.")
    embeddings = embed_rows(model, codes)
    require_array(embeddings, (*codes.shape, absent_vector.shape[1]), "f", f"{name}: embed_values()")
    if isinstance(model, SupportsBatchedEmbedding):
        rows, features = np.nonzero(codes != ABSENT)
        require_equal(model.embed_features(features, codes[rows, features]), embeddings[rows, features],
                      f"{name}: embed_features() and embed_values() disagree.")  # fmt: skip
    if not isinstance(model, HasGradient):
        return
    import torch

    vectors = torch.as_tensor(embeddings).requires_grad_()
    probabilities = model.predict_proba_embedded(vectors)
    is_equal = np.allclose(probabilities.detach().numpy(), _predict(model, codes), atol=_CLOSE)
    require(is_equal, f"{name}: predict_proba_embedded() of the embeddings of values and predict_proba() disagree.")
    probabilities[:, 0].sum().backward()
    require(vectors.grad is not None and bool(torch.isfinite(vectors.grad).all()), f"{name} has no finite gradient.")
    if isinstance(model, HasLogits):
        logits = model.compute_logits_embedded(torch.as_tensor(embeddings))
        is_equal = bool(torch.allclose(torch.softmax(logits, dim=1), probabilities.detach(), atol=_CLOSE))
        require(is_equal, f"{name}: compute_logits_embedded() and predict_proba_embedded() disagree.")


def _check_white_box(model: Model, dataset: Dataset, name: str) -> None:
    codes, labels = dataset.test.codes, np.zeros(len(dataset.test), dtype=np.int64)
    if isinstance(model, HasLinearLogit):
        expected = np.log(_predict(model, codes))
        is_equal = np.allclose(model.compute_logits(codes), expected[:, 1] - expected[:, 0], atol=_CLOSE)
        require(is_equal, f"{name}: compute_logits() and predict_proba() disagree.")
        require(
            np.asarray(model.get_slopes()).shape[0] == dataset.n_features,
            f"{name}: get_slopes() must have a row a feature.",
        )
    if isinstance(model, HasAdditiveEffects):
        effects = model.compute_effects(codes, labels)
        require_array(effects, codes.shape, "f", f"{name}: compute_effects()")
        for j, column in enumerate(codes.T):
            is_present = column != ABSENT
            expected = model.compute_value_effects(j, 0)[column[is_present]]
            message = f"{name}: compute_effects() and compute_value_effects() disagree."
            require_equal(effects[is_present, j], expected, message)
        require_array(
            model.compute_mean_effects(),
            (len(dataset.classes), dataset.n_features),
            "f",
            f"{name}.compute_mean_effects()",
        )
    if isinstance(model, HasLeaves):
        leaves = model.get_leaves()
        takes = np.stack([leaves.accepts(j, column) for j, column in enumerate(codes.T)]).all(axis=0)
        require((takes.sum(axis=1) == 1).all(), f"{name}: a row must fall into exactly one leaf.")
        is_equal = np.allclose(leaves.probabilities[takes.argmax(axis=1)], _predict(model, codes), atol=_CLOSE)
        require(is_equal, f"{name}: get_leaves() and predict_proba() disagree.")
    if isinstance(model, Reparametrisable):
        changes = model.list_changes(padded=dataset.padded)
        reparametrised = model.reparametrise(dataset, changes, np.random.default_rng(0))
        is_equal = np.allclose(_predict(reparametrised, codes), _predict(model, codes), atol=_CLOSE)
        require(is_equal, f"{name}: reparametrise() changes predictions.")


def _check_storage(settings: Trainable, model: Model, dataset: Dataset, name: str) -> None:
    for component in (settings, model):
        if isinstance(component, Fingerprinted):
            fingerprint = component.fingerprint()
            is_valid = fingerprint is None or isinstance(fingerprint, str)
            require(is_valid, f"{name}: fingerprint() must return a text or None, not {fingerprint!r}.")
    if isinstance(model, HasArrays) and isinstance(settings, Restorable):
        restored = settings.restore(model.to_arrays())
        codes = dataset.test.codes
        require_equal(_predict(restored, codes), _predict(model, codes), f"{name}: restore() returns another model.")
