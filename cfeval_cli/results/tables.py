"""The rows of the result tables, built from what the pipeline computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfeval_cli.core import (
    NO_FEATURE,
    Access,
    Counterfactuals,
    Dataset,
    ExplainerResult,
    Floats,
    Ints,
    Ledger,
    Rows,
    Split,
    TruthEstimate,
)
from cfeval_cli.results.record import ExplainedEntry
from cfeval_cli.statistics.scores import Scores

ROWS_PER_GROUP = 1 << 17  # at most, of a table with lists
SCALAR_ROWS_PER_GROUP = 1 << 20  # at most, of a table without lists

FrameBuilders = list[Callable[[], pd.DataFrame]]  # one for each row group

_T = TypeVar("_T")


def make_instances_builders(
    dataset: Dataset, instances: Split, rows: Rows, probabilities: Floats | None
) -> FrameBuilders:
    """Return builders of instances.parquet."""
    nothing = np.full(len(instances), np.nan)
    is_binary = probabilities is not None and probabilities.shape[1] == 2
    names = [(*feature.values, "") for feature in dataset.features]
    words = dataset.split_words(instances)
    columns: dict[str, Any] = {
        "instance": instances.ids,
        "label": instances.labels,
        "predicted": rows.predicted_classes,
        "probability": probabilities[:, 1] if is_binary and probabilities is not None else nothing,
        "predicted_probability": nothing if rows.probability is None else rows.probability,
        "codes": instances.codes,
    }

    def build(part: slice) -> pd.DataFrame:
        frame = {name: column[part] for name, column in columns.items()}
        codes = frame["codes"]
        frame["codes"] = list(codes)
        frame["values"] = [[name[code] for name, code in zip(names, row, strict=True)] for row in codes]
        if instances.texts is not None:
            frame["text"] = instances.texts[part]
        if words is not None:
            frame["words"] = words[part]
        return pd.DataFrame(frame)

    return [partial(build, part) for part in _split_rows(len(instances), ROWS_PER_GROUP)]


def build_training(train: Split) -> dict[str, Any]:
    """Return the columns of training.parquet, in the order in which the rows are drawn from."""
    return {"instance": train.ids, "label": train.labels, "codes": _to_list_column(train.codes)}


def build_truth_groups(ids: Ints, truth: Mapping[str, TruthEstimate]) -> Iterator[dict[str, Any]]:
    """Yield the columns of truth.parquet by row groups."""
    for estimates, part in _split_components(truth, len(ids)):
        yield _build_truth(ids[part], estimates, part)


def _build_truth(ids: Ints, truth: Mapping[str, TruthEstimate], part: slice) -> dict[str, Any]:
    importance = np.concatenate([estimate.importance[part] for estimate in truth.values()])
    errors = [
        np.zeros(len(ids)) if estimate.standard_error is None else estimate.standard_error[part]
        for estimate in truth.values()
    ]
    return {
        "instance": np.tile(ids, len(truth)),
        "truth": np.repeat(list(truth), len(ids)),
        "importance": _to_list_column(np.where(np.isfinite(importance), importance, np.nan)),
        "error": np.concatenate(errors),
    }


def make_explanations_builders(ids: Ints, results: Mapping[str, ExplainerResult]) -> FrameBuilders:
    """Return builders of explanations.parquet."""
    return [partial(build_explanations, ids, *group) for group in _split_components(results, len(ids))]


def build_explanations(ids: Ints, results: Mapping[str, ExplainerResult], part: slice = slice(None)) -> pd.DataFrame:
    """Return rows of explanations.parquet, of some of the instances."""
    explanations = {name: result.explanation.take(part) for name, result in results.items()}
    positions, ids = range(len(ids))[part], ids[part]
    features = [_drop_missing(explanation.features) for explanation in explanations.values()]
    return pd.DataFrame(
        {
            "instance": np.tile(ids, len(explanations)),
            "explainer": np.repeat(list(explanations), len(ids)),
            "features": [row for rows in features for row in rows],
            "scores": [
                scores[: len(row)]
                for rows, explanation in zip(features, explanations.values(), strict=True)
                for row, scores in zip(rows, explanation.scores, strict=True)
            ],
            "fault": pd.array([result.failures.get(i) for result in results.values() for i in positions], "str"),
        }
    )


def make_counterfactuals_builders(
    ids: Ints, selected: Mapping[str, Ints], counterfactuals: Mapping[str, Mapping[Access, Counterfactuals]]
) -> FrameBuilders:
    """Return builders of counterfactuals.parquet; `selected` has the features (N, k) that each explainer selects."""
    is_explained = {name: (selected[name] != NO_FEATURE).any(axis=1) for name in counterfactuals}
    ids_by_explainer = {name: ids if mask.all() else ids[mask] for name, mask in is_explained.items()}
    parts = [
        (ids_by_explainer[name], name, level, result)
        for name, by_level in counterfactuals.items()
        for level, result in by_level.items()
    ]
    has_beam = any(part[-1].count_beam_searches() for part in parts)
    if sum(len(part[0]) for part in parts) <= ROWS_PER_GROUP:
        return [
            lambda: pd.concat([_build_counterfactuals(*part, has_beam=has_beam) for part in parts], ignore_index=True)
        ]

    def build(ids: Ints, name: str, level: Access, result: Counterfactuals, rows: slice) -> pd.DataFrame:
        return _build_counterfactuals(ids[rows], name, level, result.take(rows), has_beam=has_beam)

    return [partial(build, *part, rows) for part in parts for rows in _split_rows(len(part[0]), ROWS_PER_GROUP)]


def _build_counterfactuals(
    ids: Ints, explainer: str, level: Access, result: Counterfactuals, *, has_beam: bool
) -> pd.DataFrame:
    features = _drop_missing(result.features)
    empty = [None] * len(ids)
    codes, vectors = result.codes, result.vectors
    columns: dict[str, Any] = {
        "instance": ids,
        "explainer": explainer,
        "access": level.name.lower(),
        "features": features,
        "codes": empty if codes is None else [row[edited] for row, edited in zip(codes, features, strict=True)],
        "vectors": empty
        if vectors is None
        else [list(row[: len(edited)]) for row, edited in zip(vectors, features, strict=True)],
        "label": result.labels,
        "flipped": result.flipped,
        "probability": np.full(len(ids), np.nan) if result.probability is None else result.probability,
        "distance": result.distance,
        "converged": pd.array(empty if result.converged is None else result.converged.tolist(), dtype="boolean"),
        "steps": pd.array(empty if result.steps is None else result.steps.tolist(), dtype="Int64"),
    }
    if has_beam:
        columns["exhaustive"] = result.is_exhaustive
    return pd.DataFrame(columns)


def make_scores_builders(scores: Scores) -> FrameBuilders:
    """Return builders of scores.parquet."""
    parts = _split_rows(len(scores), SCALAR_ROWS_PER_GROUP)
    return [partial(scores.to_frame, part.start, part.stop) for part in parts]


def build_costs(ledger: Ledger, explained: Mapping[str, ExplainedEntry]) -> pd.DataFrame:
    """Return costs.csv: the time and the model evaluations of each component."""
    lines = []
    for key in list(ledger.n_evaluations):
        access = "" if key.access is None else key.access.name.lower()
        n_reused = explained[key.name].n_cached if key.part == "explainer" else ""
        cost = ledger.get_cost(key)
        amounts = (round(cost.seconds, 4), cost.n_evaluations, round(cost.model_seconds, 4), round(cost.calls))
        lines.append((key.part, key.name, access, n_reused, *amounts))
    columns = ["part", "name", "access", "n_cached", "seconds", "model_rows", "model_seconds", "model_calls"]
    return pd.DataFrame(lines, columns=columns)


def _to_list_column(rows: NDArray[Any]) -> Any:
    """Return an Arrow column with the rows (n, M) as its cells."""
    import pyarrow as pa

    kind, dtype = (pa.ListArray, np.int32) if rows.size < 1 << 31 else (pa.LargeListArray, np.int64)
    return kind.from_arrays(pa.array(np.arange(len(rows) + 1, dtype=dtype) * rows.shape[1]), pa.array(rows.ravel()))


def _split_rows(size: int, max_rows: int) -> list[slice]:
    """Split a number of rows into groups, at least one."""
    return [slice(start, min(size, start + max_rows)) for start in range(0, max(1, size), max_rows)]


def _split_components(components: Mapping[str, _T], size: int) -> list[tuple[Mapping[str, _T], slice]]:
    """Return all components in one row group if they have few rows, else groups of one component each."""
    if size * len(components) <= ROWS_PER_GROUP:
        return [(components, slice(None))]
    return [
        ({name: component}, part)
        for name, component in components.items()
        for part in _split_rows(size, ROWS_PER_GROUP)
    ]


def _drop_missing(features: Ints) -> list[Ints]:
    return [row[row != NO_FEATURE] for row in features]
