"""A model is tried on a few rows before it is believed: whoever made it, and in whatever way."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from cfeval_cli.core import Access, Codes, Dataset, Floats, Ints, Ledger, Model, ModelSpec, Probabilistic, Rows
from cfeval_cli.core.scratch import slabs
from cfeval_cli.errors import Failure
from cfeval_cli.model.outside import FEW, BadAnswer, as_probabilities, asked, blamed, of_row
from cfeval_cli.pipeline.time_limit import TimeLimitExceeded, limit_time
from cfeval_cli.seeding import make_stream
from cfeval_cli.settings.plan import Plan

log = logging.getLogger("cfeval")

_ALIKE = 1e-5  # answers to one row may differ by so much: small numbers sum up in another order among other rows
_SAME = 1e-6  # an answer at the end of a run may differ by so much from that at the start
_SAME_FLOAT32 = 1e-4  # likewise, if the answers are float32 numbers
MAX_ROWS_PER_CALL = 1 << 16  # rows that are put before the model at once
_ALONE = 5  # rows that are also asked about one by one


def determine_model_spec(plan: Plan, dataset: Dataset) -> ModelSpec:
    """What the model will be able to answer; some must be tried for that."""
    with _limited(plan.settings.timeout_model):
        return ModelSpec.from_settings(dataset, plan.model)


def check_model(model: Model, dataset: Dataset, seed: int, patience: float | None) -> None:
    """Refuse a model whose answers are none, or are not the same for the same row."""
    some = make_stream(seed, "trust").permutation(len(dataset.test))[:FEW]
    codes = dataset.test.codes[np.sort(some)]
    backwards, alone = np.arange(len(codes))[::-1], np.arange(min(_ALONE, len(codes)))
    with _limited(patience):
        first = evaluate_model(model, dataset, codes)
        _compare(first, evaluate_model(model, dataset, codes), codes, dataset, "asked twice")
        _compare(first[backwards], evaluate_model(model, dataset, codes[backwards]), codes[backwards], dataset,
                 "asked in another order")  # fmt: skip
        single = np.concatenate([evaluate_model(model, dataset, codes[row][None]) for row in alone])
        _compare(first[alone], single, codes[alone], dataset, "asked among other rows, and alone")


def evaluate_model(model: Model, dataset: Dataset, codes: Codes) -> Floats:
    """Probabilities (n, C); of a model that tells classes only, 1 for the class."""
    likely = isinstance(model, Probabilistic)
    client = Ledger().open_client(model, Access.PROBABILITY if likely else Access.LABEL, "model", padded=dataset.padded)
    ask: Callable[[Codes], Floats | Ints] = client.predict_proba if likely else client.predict_labels
    told = asked(ask, codes, dataset, "the model")
    try:
        if likely:
            return _probabilities(told, len(codes), dataset)
        return np.eye(len(dataset.classes))[_labels(told, len(codes), dataset)]
    except BadAnswer as bad:
        raise Failure(blamed("the model", bad, codes, dataset)) from bad


def compute_predictions(model: Model, dataset: Dataset, codes: Codes) -> tuple[Ints, Floats | None]:
    """Return the predicted classes (n,), and the probabilities (n, C) unless the model gives labels only."""
    batches = slabs(len(codes), MAX_ROWS_PER_CALL)
    probabilities = np.concatenate([evaluate_model(model, dataset, codes[batch]) for batch in batches])
    labels = np.argmax(probabilities, axis=1).astype(np.int64)
    return labels, probabilities if isinstance(model, Probabilistic) else None


def _probabilities(told: Floats | Ints, size: int, dataset: Dataset) -> Floats:
    """One number for each class, of every row: here one alone is not taken for P(1)."""
    if told.ndim != 2 or told.shape[1] != len(dataset.classes):
        raise BadAnswer(
            f"gives probabilities of shape {told.shape} for {size} rows, where {dataset.name} has "
            f"{len(dataset.classes)} classes: one column for each is wanted"
        )
    return as_probabilities(told, size, dataset.classes)


def _labels(told: Floats | Ints, size: int, dataset: Dataset) -> Ints:
    """Numbers of classes."""
    most = len(dataset.classes) - 1
    if told.shape != (size,):
        raise BadAnswer(f"predicts {told.shape} classes for {size} rows: one for each is wanted")
    outside = (told < 0) | (told > most)
    if outside.any():
        row = int(outside.argmax())
        raise BadAnswer(f"predicts the class {told[row]}, where a number from 0 to {most} is wanted", row)
    return told.astype(np.int64)


def get_tolerance(probabilities: Floats | None) -> float:
    """Return by how much a repeated answer may differ; float32 models sum in less precise numbers."""
    # the last column, since that of class 0 may be computed from it, as 1 - P(1), in float64
    single = probabilities is not None and (probabilities[:, -1] == probabilities[:, -1].astype(np.float32)).all()
    return _SAME_FLOAT32 if single else _SAME


def check_unchanged(
    model: Model, dataset: Dataset, rows: Rows, probabilities: Floats | None, batch_size: int = MAX_ROWS_PER_CALL
) -> None:
    """Evaluate the explained instances again, in the same batches; Failure if a label or a probability has changed."""
    tolerance = get_tolerance(probabilities)
    for start in range(0, len(rows), batch_size):
        part = slice(start, start + batch_size)
        again = evaluate_model(model, dataset, rows.codes[part])
        labels = again.argmax(axis=1)
        changed = labels != rows.labels[part]
        if probabilities is not None:
            changed |= np.abs(again - probabilities[part]).max(axis=1) > tolerance
        if changed.any():
            row = int(changed.argmax())
            old, new = rows.labels[start + row], labels[row]
            first, second = dataset.classes[old], dataset.classes[new]
            values = [f"class {first} and then class {second}"] if old != new else []
            if probabilities is not None:
                most = int(np.abs(again[row] - probabilities[start + row]).argmax())
                pair = f"{probabilities[start + row, most]:.8g} and then {again[row, most]:.8g}"
                values.append(f"P({dataset.classes[most]}) = {pair}")
            difference = "changed" if probabilities is None else f"changed class or differ by more than {tolerance:g}"
            raise Failure(
                f"the model changed during the run: for instance {rows.ids[start + row]} it gave {', '.join(values)}; "
                f"{int(changed.sum()):,} of {len(labels):,} instances {difference}. A model must "
                "give the same answer to the same row: it must not keep state or learn between calls."
            )


def find_accuracy_warnings(accuracy: Mapping[str, float], dataset: Dataset) -> list[str]:
    """What is to be doubted of a model that is right less often than a guess: a word for people, no reason to end."""
    chance = 1 / len(dataset.classes)
    if accuracy["test"] >= chance:
        return []
    told = (
        f"the model is right for {accuracy['test']:.1%} of the test rows, less often than a guess ({chance:.1%}). "
        f"Are its classes in another order than {', '.join(dataset.classes)}?"
    )
    log.warning("%s", told)
    return [told]


def _compare(first: Floats, again: Floats, codes: Codes, dataset: Dataset, when: str) -> None:
    apart = np.abs(first - again).max(axis=1, initial=0.0)
    if (apart > _ALIKE).any():
        row = int(apart.argmax())
        before, after = (", ".join(f"{p:.6g}" for p in told[row]) for told in (first, again))
        raise Failure(
            f"the model changes its answers: {when}, it gives {before} and then {after} for "
            f"{of_row(dataset, codes[row])}. What is to be explained must give the same answer to the same row."
        )


@contextmanager
def _limited(seconds: float | None) -> Iterator[None]:
    try:
        with limit_time(seconds):
            yield
    except TimeLimitExceeded:
        raise Failure(
            f"the model gave no answer to {FEW} rows within {seconds:g} s. If it needs more time, set timeout_model."
        ) from None
