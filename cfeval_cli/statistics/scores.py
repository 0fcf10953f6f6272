"""Tidy scores, read as arrays without copying all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cfeval_cli.types import Floats, Ints

Row = tuple[str, str]  # metric and variant


@dataclass(frozen=True)
class Part:
    """The scores of one metric, variant and explainer."""

    numerator: Floats
    denominator: Floats
    places: Ints  # of its instances among all, ascending

    def sorted(self) -> Part:
        """By place; without a copy if it is so already, as parts of a run are."""
        if (np.diff(self.places) > 0).all():
            return self
        order = np.argsort(self.places, kind="stable")
        return Part(self.numerator[order], self.denominator[order], self.places[order])


@dataclass(frozen=True)
class Scores:
    """Numerator and denominator by row (metric and variant), explainer and instance."""

    parts: Mapping[tuple[Row, str], Part]
    size: int  # instances

    @staticmethod
    def of(frame: pd.DataFrame) -> Scores:
        """From a table like scores.parquet; the instances are numbered in the order of a part that has all of them."""
        labels = [frame[name].astype("category").cat for name in ("metric", "variant", "explainer")]
        names, codes = [label.categories.tolist() for label in labels], [label.codes.to_numpy() for label in labels]
        key = np.zeros(len(frame), dtype=np.int64)
        for some, code in zip(names, codes, strict=True):
            key = key * len(some) + code
        starts = np.flatnonzero(np.diff(key, prepend=-1))
        ids = frame["instance"].to_numpy()
        if len(starts) > len(pd.unique(key)):  # parts are in pieces
            return Scores.of(frame.iloc[np.lexsort((ids, key))])
        numerator, denominator = (frame[name].to_numpy(float) for name in ("numerator", "denominator"))
        spans = list(zip(starts.tolist(), [*starts[1:].tolist(), len(key)], strict=True))
        longest = slice(*max(spans, key=lambda span: span[1] - span[0]))
        everyone = pd.Index(ids[longest])  # coverage, if nothing else, is told of all
        if len(everyone) < len(pd.unique(ids)):
            everyone = pd.Index(np.sort(pd.unique(ids)))
        parts, last = {}, (ids[:0], ids[:0])
        for start, end in spans:
            metric, variant, explainer = (some[code[start]] for some, code in zip(names, codes, strict=True))
            if not np.array_equal(last[0], ids[start:end]):  # mostly the same instances as in the part before
                last = (ids[start:end], everyone.get_indexer(pd.Index(ids[start:end])))
            part = Part(numerator[start:end], denominator[start:end], last[1])
            parts[(metric, variant), explainer] = part.sorted()
        return Scores(parts, len(everyone))

    def without(self, cells: pd.DataFrame) -> Scores:
        """The same without some metrics, variants and explainers."""
        gone = set(cells[["metric", "variant", "explainer"]].itertuples(index=False, name=None))
        kept = {key: part for key, part in self.parts.items() if (*key[0], key[1]) not in gone}
        return Scores(kept, self.size)

    def columns(self, explainer: str, rows: list[Row]) -> Floats:
        """Numerators, then denominators (N, 2R) of one explainer, zero where it has no score."""
        both = np.zeros((2, len(rows), self.size))
        for place, row in enumerate(rows):
            part = self.parts.get((row, explainer))
            if part is not None:
                both[0, place, part.places], both[1, place, part.places] = part.numerator, part.denominator
        return both.reshape(2 * len(rows), self.size).T

    def values(self, start: int, stop: int, rows: list[Row], explainers: list[str]) -> Floats:
        """The score (n, R, E) of some instances, each by itself; NaN where there is none."""
        result = np.full((min(stop, self.size) - start, len(rows), len(explainers)), np.nan)
        for i, row in enumerate(rows):
            for j, explainer in enumerate(explainers):
                part = self.parts.get((row, explainer))
                if part is not None:
                    first, last = np.searchsorted(part.places, (start, stop))
                    numerator, denominator = part.numerator[first:last], part.denominator[first:last]
                    ratio = np.full(last - first, np.nan)
                    np.divide(numerator, denominator, out=ratio, where=denominator != 0)
                    result[part.places[first:last] - start, i, j] = ratio
        return result
