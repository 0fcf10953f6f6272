"""Recomputes metrics.csv from a run folder with nothing of cfeval: only NumPy, pandas and docs/run-folder.md."""

import json
from math import exp

import numpy as np
import pandas as pd


def sigmoid(z):
    return 1 / (1 + exp(-z)) if z >= 0 else exp(z) / (1 + exp(z))


class Box:
    """The stored model, in the words of the documentation."""

    def __init__(self, path):
        with np.load(path, allow_pickle=False) as file:
            self.bias, self.w, self.mean = float(file["bias"]), file["weights"], file["means"]
            spans = zip(file["starts"], file["sizes"], strict=True)
            self.e = [file["embeddings"][start : start + size] for start, size in spans]

    def vector(self, j, v):
        """The embedding of a code; one that has been moved is its own."""
        return v if isinstance(v, np.ndarray) else self.e[j][v]

    def p(self, row):
        """P(1|x); a feature that is None is padding, or deleted."""
        there = ((j, v) for j, v in enumerate(row) if v is not None)
        return sigmoid(self.bias + sum(float(self.w[j] @ self.vector(j, v)) for j, v in there))


def gold(box, definition, row, label, mask):
    """Features by importance; the mask is no value that a feature could have instead, and padding is no feature."""
    sign = 1 if label == 1 else -1
    scores = {}
    for j, v in enumerate(row):
        if v is None:
            continue
        c = [float(e @ box.w[j]) for e in box.e[j]]
        scores[j] = {
            "signed": sign * c[v],
            "absolute": abs(c[v]),
            "centered": sign * (c[v] - float(box.mean[j] @ box.w[j])),
            "contrast": max(sign * (c[v] - other) for u, other in enumerate(c) if u not in (v, mask)),
        }[definition]
    return sorted(scores, key=lambda j: (-scores[j], j))


def distance(box, row, edited, access):
    """Euclidean: one-hot with label access, between embeddings with more."""
    if access == "label":
        return sum(2 for a, b in zip(row, edited, strict=True) if a != b) ** 0.5
    squared = 0.0
    for j, (a, b) in enumerate(zip(row, edited, strict=True)):
        if a is not b:
            squared += float(((box.e[j][a] - box.vector(j, b)) ** 2).sum())
    return squared**0.5


def recompute(folder):
    """{(metric, variant, explainer): value} for everything with a value.

    All but the variant `marginal`, which takes the values of training rows, and a run folder does not have those.
    """
    box = Box(folder / "model.npz")
    k = json.loads((folder / "run.json").read_text())["settings"]["k"]
    mask = json.loads((folder / "dataset.json").read_text())["unknown"]
    rows = {}
    for instance in pd.read_parquet(folder / "instances.parquet").itertuples():
        rows[instance.instance] = [None if c == -1 else int(c) for c in instance.codes]
    yhat = {i: int(box.p(row) > 0.5) for i, row in rows.items()}
    kept = {i: box.p(row) if yhat[i] == 1 else 1 - box.p(row) for i, row in rows.items()}

    def of_class(i, row):
        return box.p(row) if yhat[i] == 1 else 1 - box.p(row)

    sums = {}

    def add(key, numerator, denominator=1.0):
        before = sums.get(key, (0.0, 0.0))
        sums[key] = (before[0] + numerator, before[1] + denominator)

    for told in pd.read_parquet(folder / "explanations.parquet").itertuples():
        named = [int(j) for j in told.features][:k]
        add(("coverage", "all", told.explainer), float(len(named) == k))
        if len(named) < k:
            continue
        i, row = told.instance, rows[told.instance]
        for how in ("del",) if mask is None else ("del", "mask"):
            value = None if how == "del" else mask
            without = [value if j in named and v is not None else v for j, v in enumerate(row)]
            only = [v if j in named or v is None else value for j, v in enumerate(row)]
            add(("comprehensiveness", how, told.explainer), kept[i] - of_class(i, without))
            add(("sufficiency", how, told.explainer), kept[i] - of_class(i, only))
            add(("dfr", how, told.explainer), float((box.p(without) > 0.5) != yhat[i]))
        for definition in ("signed", "absolute", "centered", "contrast"):
            common = len(set(gold(box, definition, row, yhat[i], mask)[:k]) & set(named))
            add(("recall", definition, told.explainer), common / k)
            add(("hit", definition, told.explainer), float(common > 0))
    for found in pd.read_parquet(folder / "counterfactuals.parquet").itertuples():
        i, row = found.instance, rows[found.instance]
        edited = list(row)
        if found.codes is None:
            for j, v in zip(found.features, found.vectors, strict=True):
                edited[j] = np.array(v)
            add(("converged", found.access, found.explainer), float(found.converged))
        else:
            for j, v in zip(found.features, found.codes, strict=True):
                edited[j] = int(v)
        flip = float((box.p(edited) > 0.5) != yhat[i])
        far = distance(box, row, edited, found.access)
        key = (found.access, found.explainer)
        add(("validity", *key), flip)
        add(("proximity", *key), far)
        add(("c", *key), flip, far)
        if found.access != "label":
            add(("validity_soft", *key), kept[i] - of_class(i, edited))
            add(("c_soft", *key), kept[i] - of_class(i, edited), far)
    return {key: a / b for key, (a, b) in sums.items()}
