"""Instances with their explanations and counterfactuals, as data for the instance browser of a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.core import ABSENT, NO_FEATURE, Codes, Floats, Ints
from cfeval_cli.core.ranking import find_top_k
from cfeval_cli.report.titles import name_truths
from cfeval_cli.results.read import StoredRun

MAX_INSTANCES = 300
_MAX_EXPLAINERS = 12
_MAX_FEATURES = 30  # of an explanation, the most important ones
_MAX_DISTANCES = 20_000_000  # computed at once

_Row = Mapping[Any, Any]  # of a data frame


@dataclass(frozen=True)
class ShownExplanation:
    """The features of an explanation with their scores, the most important first, or the reason why it is missing."""

    features: Sequence[int] = ()
    scores: Sequence[float | None] = ()
    missing_reason: str = ""


@dataclass(frozen=True)
class ShownCounterfactual:
    """The edit that a search found, and what the model predicts after it."""

    features: Sequence[int]
    values: Sequence[int | None]  # numbers of names of values, None where a feature is removed; empty if not known
    label: int
    probability: float | None  # of the class that was predicted before the edit
    distance: float | None
    converged: bool | None  # None of a search that does not iterate


@dataclass(frozen=True)
class ShownInstance:
    """One instance: its values, its prediction, its reference features, its explanations and counterfactuals."""

    id: int
    label: int | None
    predicted: int
    probability: float | None
    features: Sequence[int]  # that the instance has; empty if it has all
    values: Sequence[int]  # numbers of names of values, for each of these features
    unknown: Sequence[int]  # features whose value is not in the vocabulary of the model
    reference: Mapping[str, Sequence[int]]  # the k most important features by each ground truth
    explanations: Sequence[ShownExplanation]  # one for each explainer
    counterfactuals: Sequence[Sequence[ShownCounterfactual | None]]  # for each explainer, one for each access level


@dataclass(frozen=True)
class InstanceBrowser:
    """All that the instance browser shows. Names stand here once; instances refer to them by number."""

    kind: str
    classes: Sequence[str]
    features: Sequence[str]
    value_names: Sequence[str]
    explainers: Sequence[str]
    has_effects: Sequence[bool]  # whether the scores of each explainer are effects, which have a sign and a size
    n_hidden_explainers: int
    access_levels: Sequence[str]
    truths: Sequence[str]
    k: int
    n_instances: int  # of the run
    moves_embeddings: bool
    instances: Sequence[ShownInstance]

    def to_dict(self) -> dict[str, Any]:
        """Return the content as plain values, which the page has as JSON."""
        return asdict(self)

    def get_features(self, instance: ShownInstance) -> Sequence[int]:
        """Return the features that an instance has."""
        return instance.features or range(len(instance.values))


def select_spread(probability: Floats, count: int) -> Ints:
    """Return the rows of at most so many instances, spread evenly over the predictions, in the order of the rows."""
    order = np.argsort(probability, kind="stable")
    places = np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(int)
    return np.asarray(np.sort(order[places]))


def build_browser(results: StoredRun, required_ids: Sequence[int] = ()) -> InstanceBrowser:
    """Build the browser of some instances, the required ones among them."""
    ids, predictions = results.predictions["instance"].to_numpy(), _summarize_predictions(results.predictions)
    required = np.flatnonzero(np.isin(ids, required_ids))

    rows = np.union1d(select_spread(predictions, MAX_INSTANCES), required)
    return _build(results, ids[rows].tolist())


def _summarize_predictions(predicted: pd.DataFrame) -> Floats:
    """Return each prediction as one number: P(1|x) of two classes, P(ŷ|x) of more, the class without probabilities."""
    for name in ("probability", "predicted_probability"):
        if predicted[name].notna().all():
            return predicted[name].to_numpy(float)
    return predicted["predicted"].to_numpy(float)


def _build(results: StoredRun, ids: Sequence[int]) -> InstanceBrowser:
    data, record = results.data, results.record
    explainers, levels = results.displayed_explainers[:_MAX_EXPLAINERS], list(record.levels)
    numbers: dict[str, int] = {}  # of the names of values

    def number_name(name: str) -> int:
        return numbers.setdefault(name, len(numbers))

    def number_value(feature: int, code: int) -> int:
        return number_name(data.get_name(feature, code))

    rows = results.read_rows("instances", ids)
    codes = np.stack(rows["codes"].to_list()).astype(np.int32)
    reference = _find_reference_features(results, ids)
    explanations = _index_rows(results.read_rows("explanations", ids))
    edits = results.read_rows("counterfactuals", ids)
    counterfactuals = _index_rows(_add_nearest(edits, dict(zip(ids, codes, strict=True)), results.embeddings))
    instances = []
    for i, (number, row) in enumerate(zip(ids, rows.to_dict("records"), strict=True)):
        present = np.flatnonzero(codes[i] != ABSENT)
        words = row.get("words")  # of a text: the vocabulary of the model may lack them
        if words is not None and len(words) == len(present):
            values = [number_name(str(word)) for word in words]
        else:
            values = [number_value(int(j), int(codes[i][j])) for j in present]
        instances.append(
            ShownInstance(
                id=number,
                label=row["label"],
                predicted=row["predicted"],
                probability=_round(row["predicted_probability"], 4),
                features=[] if len(present) == len(data.features) else present.tolist(),
                values=values,
                unknown=[] if data.unknown is None else np.flatnonzero(codes[i] == data.unknown).tolist(),
                reference={
                    name: [int(j) for j in features[i] if j != NO_FEATURE] for name, features in reference.items()
                },
                explanations=[_make_explanation(explanations.get((number, name))) for name in explainers],
                counterfactuals=[
                    [_make_counterfactual(counterfactuals.get((number, name, level)), number_value) for level in levels]
                    for name in explainers
                ],
            )
        )
    return InstanceBrowser(
        kind=data.kind,
        classes=data.classes,
        features=data.feature_names,
        value_names=list(numbers),
        explainers=[record.explainers[name] for name in explainers],
        has_effects=[bool(record.effects.get(name, True)) for name in explainers],
        n_hidden_explainers=len(record.explainers) - len(explainers),
        access_levels=levels,
        truths=list(reference),
        k=record.settings.k,
        n_instances=record.instances,
        moves_embeddings=results.moves_embeddings,
        instances=instances,
    )


def _find_reference_features(results: StoredRun, ids: Sequence[int]) -> dict[str, Ints]:
    """Return the k most important features (n, k) by each ground truth, the leading one first; none without a truth."""
    if not results.has_table("truth"):
        return {}
    rows = results.read_rows("truth", ids)
    features = {}
    for name in name_truths(rows["truth"], results.record):
        importance = rows[rows["truth"] == name].set_index("instance")["importance"].loc[list(ids)]
        features[name] = find_top_k(np.stack(importance.to_list()).astype(float), results.record.settings.k)
    return features


def _index_rows(frame: pd.DataFrame) -> dict[tuple[Any, ...], _Row]:
    """Return rows by instance and explainer, and by access level if there are several."""
    keys = [name for name in ("instance", "explainer", "access") if name in frame]
    return {tuple(row[key] for key in keys): row for row in frame.to_dict("records")}


def _make_explanation(row: _Row | None) -> ShownExplanation:
    if row is None:
        return ShownExplanation()
    fault = row.get("fault")
    if isinstance(fault, str) and fault:
        return ShownExplanation(missing_reason=fault)
    features = [int(feature) for feature in row["features"][:_MAX_FEATURES]]
    return ShownExplanation(features, [_round(score, 3) for score in row["scores"][:_MAX_FEATURES]])


def _make_counterfactual(row: _Row | None, number_value: Callable[[int, int], int]) -> ShownCounterfactual | None:
    if row is None:
        return None
    features = [int(feature) for feature in row["features"]]
    codes = row["nearest"] if row["codes"] is None else row["codes"]
    pairs = [] if codes is None else list(zip(features, map(int, codes), strict=True))
    return ShownCounterfactual(
        features=features,
        values=[None if code == ABSENT else number_value(feature, code) for feature, code in pairs],
        label=int(row["label"]),
        probability=_round(row["probability"], 4),
        distance=_round(row["distance"], 4),
        converged=None if pd.isna(row["converged"]) else bool(row["converged"]),
    )


def _add_nearest(frame: pd.DataFrame, codes: Mapping[int, Codes], embeddings: Sequence[Floats] | None) -> pd.DataFrame:
    """Add the code whose embedding is nearest to each moved embedding, since readers cannot read a vector.

    Values can share an embedding. The code of the instance itself comes first then.
    """
    edits = frame.copy()
    edits["nearest"] = None
    moved = edits[edits["vectors"].notna()]
    if embeddings is None or moved.empty:
        return edits
    features = np.concatenate([*moved["features"]]).astype(int)
    vectors = np.array([vector for row in moved["vectors"] for vector in row], dtype=float)
    own = np.concatenate([codes[i][j.astype(int)] for i, j in zip(moved["instance"], moved["features"], strict=True)])
    nearest = np.zeros(len(features), dtype=int)
    tables = {id(embeddings[j]): embeddings[j] for j in np.unique(features)}
    for key, table in tables.items():
        rows = np.array([i for i, j in enumerate(features) if id(embeddings[j]) == key])
        squared_norms = (table**2).sum(axis=1)
        for chunk in np.array_split(rows, max(1, -(-len(rows) * len(table) // _MAX_DISTANCES))):
            gaps = squared_norms - 2 * vectors[chunk] @ table.T
            is_own = gaps[np.arange(len(chunk)), own[chunk]] <= gaps.min(axis=1)
            nearest[chunk] = np.where(is_own, own[chunk], gaps.argmin(axis=1))
    ends = np.cumsum([len(row) for row in moved["features"]])[:-1]
    edits.loc[moved.index, "nearest"] = pd.Series(np.split(nearest, ends), index=moved.index)
    return edits


def _round(value: float, digits: int) -> float | int | None:
    """Return a number with so many significant digits; None if it is missing."""
    if pd.isna(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() else rounded
