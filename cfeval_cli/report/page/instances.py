"""Some instances with all that was said and done about them, as compact as a browser can unfold it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.core import ABSENT, NO_FEATURE, Codes, Floats, Ints
from cfeval_cli.core.ranking import top
from cfeval_cli.report.titles import name_truths
from cfeval_cli.results.read import Results

MOST = 300  # instances
_BYTES = 2_500_000  # that they may take
_EXPLAINERS = 12
_FEATURES = 30  # of an explanation, the most important ones
_CELLS = 20_000_000  # distances that are computed at once


def select_spread(probability: Floats, most: int) -> Ints:
    """Some instances, spread evenly over what the model predicts, in the order of the file."""
    order = np.argsort(probability, kind="stable")
    some = np.linspace(0, len(order) - 1, min(most, len(order))).round().astype(int)
    return np.asarray(np.sort(order[some]))


def build_browser(results: Results, named: Sequence[int] = ()) -> dict[str, Any]:
    """Return what the page's instance browser is given, the named instances included: names once, then numbers."""
    names = results.shown[:_EXPLAINERS]
    levels = list(results.record.levels)
    ids, likely = results.predicted["instance"].to_numpy(), _likely(results.predicted)
    always = np.flatnonzero(np.isin(ids, named))
    rows = np.union1d(select_spread(likely, MOST), always)
    made = _made(results, ids[rows].tolist(), names, levels)
    size = len(json.dumps(made["instances"], ensure_ascii=False).encode())
    if size > _BYTES:
        rows = np.union1d(select_spread(likely, max(1, int(len(rows) * _BYTES / size))), always)
        made = _made(results, ids[rows].tolist(), names, levels)
    return made


def _likely(known: pd.DataFrame) -> Floats:
    """What the model predicts, as one number: P(1|x) of two classes, P(ŷ|x) of more, the class if that is all."""
    for name in ("probability", "predicted_probability"):
        if known[name].notna().all():
            return known[name].to_numpy(float)
    return known["predicted"].to_numpy(float)


def _made(results: Results, ids: Sequence[int], names: Sequence[str], levels: Sequence[str]) -> dict[str, Any]:
    data, record = results.described, results.record
    chosen = results.told("instances.parquet", ids)
    words: dict[str, int] = {}

    def word(feature: int, code: int) -> int:
        return words.setdefault(data.value(feature, code), len(words))

    def own(line: Mapping[Any, Any], there: Ints, row: Codes) -> list[int]:
        """Return the values; of a text the original words, which the model's vocabulary may not have."""
        written = line.get("words")
        if written is not None and len(written) == len(there):
            return [words.setdefault(str(token), len(words)) for token in written]
        return [word(int(j), int(row[j])) for j in there]

    codes = np.stack(chosen["codes"].to_list()).astype(np.int32)
    golds = _golds(results, ids)
    told = _by_instance(results.told("explanations.parquet", ids))
    edits = results.told("counterfactuals.parquet", ids)
    found = _by_instance(_near(edits, dict(zip(ids, codes, strict=True)), results.embeddings))
    instances = []
    for i, (number, line) in enumerate(zip(ids, chosen.to_dict("records"), strict=True)):
        there = np.flatnonzero(codes[i] != ABSENT)
        instances.append(
            {
                "id": number,
                "true": line["label"],
                "said": line["predicted"],
                "p": _short(line["predicted_probability"], 4),
                "at": [] if len(there) == data.width else there.tolist(),
                "v": own(line, there, codes[i]),
                "u": [] if data.unknown is None else np.flatnonzero(codes[i] == data.unknown).tolist(),
                "gold": {name: [int(j) for j in top[i] if j != NO_FEATURE] for name, top in golds.items()},
                "e": [_explained(told.get((number, name))) for name in names],
                "c": [[_edited(found.get((number, name, level)), word) for level in levels] for name in names],
            }
        )
    return {
        "kind": data.kind,
        "classes": list(data.classes),
        "features": list(data.features),
        "explainers": [record.explainers[name] for name in names],
        "effects": [bool(record.effects.get(name, True)) for name in names],
        "left": len(results.record.explainers) - len(names),
        "levels": levels,
        "golds": list(golds),
        "k": record.settings.k,
        "total": record.instances,
        "moved": results.moved,
        "words": list(words),
        "instances": instances,
    }


def _golds(results: Results, ids: Sequence[int]) -> dict[str, Ints]:
    """The k gold features (n, k) under each definition, the leading one first; none if no truth is known."""
    settings = results.record.settings
    if "truth.parquet" not in results.record.files:
        return {}
    golds, truth = {}, results.told("truth.parquet", ids)
    for name in name_truths(truth["truth"], results.record):
        lines = truth[truth["truth"] == name].set_index("instance")["importance"].loc[list(ids)]
        golds[name] = top(np.stack(lines.to_list()).astype(float), settings.k)
    return golds


def _by_instance(frame: pd.DataFrame) -> dict[tuple[Any, ...], dict[Any, Any]]:
    """Rows by instance and explainer, and by level if there are several."""
    keys = [name for name in ("instance", "explainer", "access") if name in frame]
    return {tuple(line[key] for key in keys): line for line in frame.to_dict("records")}


def _explained(line: Mapping[Any, Any] | None) -> list[Any]:
    """Features and scores in turn, the most important first; a reason instead if there is none."""
    if line is None:
        return []
    fault = line.get("fault")
    if isinstance(fault, str) and fault:
        return [fault]
    pairs = zip(line["features"][:_FEATURES], line["scores"][:_FEATURES], strict=True)
    return [number for feature, score in pairs for number in (int(feature), _short(score, 3))]


def _edited(line: Mapping[Any, Any] | None, word: Any) -> list[Any] | None:
    """Features, their new values, the new label, P(ŷ), distance and whether the search came to rest."""
    if line is None:
        return None
    features = [int(feature) for feature in line["features"]]
    codes = line["near"] if line["codes"] is None else line["codes"]
    values = (
        [] if codes is None else [word(f, int(c)) if c != ABSENT else -1 for f, c in zip(features, codes, strict=True)]
    )
    rested = None if pd.isna(line["converged"]) else int(line["converged"])
    return [features, values, int(line["label"]), _short(line["probability"], 4), _short(line["distance"], 4), rested]


def _near(frame: pd.DataFrame, codes: Mapping[int, Codes], embeddings: Sequence[Floats] | None) -> pd.DataFrame:
    """With the value whose embedding is nearest to each moved one, since a vector says nothing to a reader.

    Of several it is the instance's own, if that is one of them: numbers share embeddings.
    """
    mine = frame.copy()
    mine["near"] = None
    moved = mine[mine["vectors"].notna()]
    if embeddings is None or moved.empty:
        return mine
    features = np.concatenate([*moved["features"]]).astype(int)
    vectors = np.array([vector for row in moved["vectors"] for vector in row], dtype=float)
    own = np.concatenate([codes[i][j.astype(int)] for i, j in zip(moved["instance"], moved["features"], strict=True)])
    nearest = np.zeros(len(features), dtype=int)
    tables = {id(embeddings[j]): embeddings[j] for j in np.unique(features)}
    for key, table in tables.items():
        rows = np.array([i for i, j in enumerate(features) if id(embeddings[j]) == key])
        square = (table**2).sum(axis=1)
        for some in np.array_split(rows, max(1, -(-len(rows) * len(table) // _CELLS))):
            gaps = square - 2 * vectors[some] @ table.T
            keeps = gaps[np.arange(len(some)), own[some]] <= gaps.min(axis=1)
            nearest[some] = np.where(keeps, own[some], gaps.argmin(axis=1))
    ends = np.cumsum([len(row) for row in moved["features"]])[:-1]
    mine.loc[moved.index, "near"] = pd.Series(np.split(nearest, ends), index=moved.index)
    return mine


def _short(value: float, digits: int) -> float | int | None:
    """A number of so many digits; none if there is none."""
    if pd.isna(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() else short
