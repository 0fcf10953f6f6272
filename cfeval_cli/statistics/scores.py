"""Scores by metric, variant and explainer: arrays, of which a slab of instances is read at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfeval_cli.core import Bools, Floats, Ints
from cfeval_cli.core.scratch import Scratch

MetricKey = tuple[str, str]  # metric and variant
ScoreKey = tuple[MetricKey, str]  # and explainer


@dataclass(frozen=True)
class ScoreSeries:
    """The scores of one metric, variant and explainer."""

    numerator: Floats
    denominator: Floats
    places: Ints  # of its instances among all, ascending
    common: Bools | None = None  # which of them all explainers cover; None: all
    only: bool = False  # whether no others count

    def __len__(self) -> int:
        return len(self.places)

    @property
    def many(self) -> int:
        """How many count."""
        return len(self) if self.common is None or not self.only else int(self.common.sum())

    def sorted(self) -> ScoreSeries:
        """By place; without a copy if it is so already, as parts of a run are."""
        if (np.diff(self.places) > 0).all():
            return self
        order = np.argsort(self.places, kind="stable")
        return ScoreSeries(self.numerator[order], self.denominator[order], self.places[order])

    def counted(self, start: int = 0, stop: int | None = None) -> tuple[Floats, Floats, Ints]:
        """Numerators, denominators and places of what counts, of the instances from one place to another."""
        part = slice(None)
        if stop is not None:
            part = slice(*np.searchsorted(self.places, (start, stop)).tolist())
        found = self.numerator[part], self.denominator[part], self.places[part]
        if self.common is None or not self.only:
            return found
        mine = self.common[part]
        return found[0][mine], found[1][mine], found[2][mine]


@dataclass(frozen=True)
class Scores:
    """Numerator and denominator by row (metric and variant), explainer and instance."""

    parts: Mapping[ScoreKey, ScoreSeries]  # in the order of scores.parquet
    ids: Ints  # (N,) of the instances
    scratch: Scratch = field(default_factory=Scratch)  # where what grows with them is put aside

    @property
    def size(self) -> int:
        """Instances."""
        return len(self.ids)

    def __len__(self) -> int:
        return sum(map(len, self.parts.values()))

    @staticmethod
    def of(frame: pd.DataFrame | Scores) -> Scores:
        """From a table like scores.parquet; the instances are numbered in the order of a part that has all of them."""
        if isinstance(frame, Scores):
            return frame
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
        longest = slice(*max(spans, key=lambda span: span[1] - span[0], default=(0, 0)))
        everyone = pd.Index(ids[longest])  # coverage, if nothing else, is told of all
        if len(everyone) < len(pd.unique(ids)):
            everyone = pd.Index(np.sort(pd.unique(ids)))
        parts, last = {}, (ids[:0], ids[:0])
        for start, end in spans:
            metric, variant, explainer = (some[code[start]] for some, code in zip(names, codes, strict=True))
            if not np.array_equal(last[0], ids[start:end]):  # mostly the same instances as in the part before
                last = (ids[start:end], everyone.get_indexer(pd.Index(ids[start:end])))
            part = ScoreSeries(numerator[start:end], denominator[start:end], last[1])
            parts[(metric, variant), explainer] = part.sorted()
        return Scores(parts, everyone.to_numpy())

    def marked(self, common: Mapping[ScoreKey, Bools]) -> Scores:
        """The same, with what is common where not all are."""
        return replace(self, parts={key: replace(part, common=common.get(key)) for key, part in self.parts.items()})

    @property
    def shared(self) -> Scores | None:
        """Those that are common only, among the instances that have any; None if all are."""
        if all(part.common is None for part in self.parts.values()):
            return None
        return replace(self, parts={key: replace(part, only=True) for key, part in self.parts.items()}).numbered()

    def numbered(self) -> Scores:
        """The same among the instances that have any score that counts: the others are nobody's."""
        if any(part.many == self.size for part in self.parts.values()):
            return self
        there = np.zeros(self.size, dtype=bool)
        for part in self.parts.values():
            there[part.counted()[2]] = True
        if there.all():
            return self
        place = np.maximum(np.cumsum(there) - 1, 0)
        moved = {id(part.places): place[part.places] for part in self.parts.values()}  # which parts share
        parts = {key: replace(part, places=moved[id(part.places)]) for key, part in self.parts.items()}
        return replace(self, parts=parts, ids=self.ids[there])

    def without(self, cells: pd.DataFrame) -> Scores:
        """The same without some metrics, variants and explainers."""
        gone = set(cells[["metric", "variant", "explainer"]].itertuples(index=False, name=None))
        kept = {key: part for key, part in self.parts.items() if (*key[0], key[1]) not in gone}
        return replace(self, parts=kept)

    def columns(self, explainer: str, rows: list[MetricKey], some: slice = slice(None)) -> Floats:
        """Numerators, then denominators (n, 2R) of one explainer for some instances, zero where it has no score."""
        start, stop, _ = some.indices(self.size)
        both = np.zeros((2, len(rows), stop - start))
        for place, row in enumerate(rows):
            part = self.parts.get((row, explainer))
            if part is not None:
                numerator, denominator, places = part.counted(start, stop)
                both[0, place, places - start], both[1, place, places - start] = numerator, denominator
        self.scratch.release()
        return both.reshape(2 * len(rows), stop - start).T

    def values(self, start: int, stop: int, rows: list[MetricKey], explainers: list[str]) -> Floats:
        """The score (n, R, E) of some instances, each by itself; NaN where there is none."""
        result = np.full((min(stop, self.size) - start, len(rows), len(explainers)), np.nan)
        for i, row in enumerate(rows):
            for j, explainer in enumerate(explainers):
                part = self.parts.get((row, explainer))
                if part is not None:
                    numerator, denominator, places = part.counted(start, stop)
                    ratio = np.full(len(places), np.nan)
                    np.divide(numerator, denominator, out=ratio, where=denominator != 0)
                    result[places - start, i, j] = ratio
        self.scratch.release()
        return result

    def frame(self, start: int = 0, stop: int | None = None) -> pd.DataFrame:
        """Rows of scores.parquet, from one to another."""
        found, before = {}, 0
        for key, part in self.parts.items():
            first = min(max(0, start - before), len(part))
            last = len(part) if stop is None else min(max(0, stop - before), len(part))
            before += len(part)
            found[key] = slice(first, last)
        return self._table(found)

    def table(self, some: Ints) -> pd.DataFrame:
        """The same, of some instances, by their places."""
        return self._table({key: np.flatnonzero(np.isin(part.places, some)) for key, part in self.parts.items()})

    def _table(self, chosen: Mapping[ScoreKey, slice | Ints]) -> pd.DataFrame:
        columns: dict[str, list[NDArray[Any]]] = {
            "instance": [np.zeros(0, dtype=np.int64)], "numerator": [np.zeros(0)], "denominator": [np.zeros(0)],
            "common": [np.zeros(0, dtype=bool)],
        }  # fmt: skip
        for key, some in chosen.items():
            part = self.parts[key]
            places = part.places[some]
            columns["instance"].append(self.ids[places])
            columns["numerator"].append(part.numerator[some])
            columns["denominator"].append(part.denominator[some])
            columns["common"].append(np.ones(len(places), dtype=bool) if part.common is None else part.common[some])
            if not isinstance(some, slice):  # of scattered rows, which bring all that lies near them into memory
                self.scratch.release()
        sizes = [len(part) for part in columns["instance"][1:]]

        def column(labels: list[str]) -> pd.Categorical[str]:
            names = list(dict.fromkeys(labels))
            codes = np.array([names.index(label) for label in labels], dtype=np.int16)
            return pd.Categorical.from_codes(np.repeat(codes, sizes), pd.Index(names))

        told = pd.DataFrame(
            {
                "instance": np.concatenate(columns["instance"]),
                "explainer": column([name for _, name in chosen]),
                "metric": column([row[0] for row, _ in chosen]),
                "variant": column([row[1] for row, _ in chosen]),
                "numerator": np.concatenate(columns["numerator"]),
                "denominator": np.concatenate(columns["denominator"]),
                "common": np.concatenate(columns["common"]),
            },
            copy=False,
        )
        self.scratch.release()
        return told
