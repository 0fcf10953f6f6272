"""Scores by metric, variant and explainer, as arrays that are read in parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    positions: Ints  # of the scored instances in Scores.ids, ascending
    is_common: Bools | None = None  # whether every explainer scores the instance; None: all instances are common
    common_only: bool = False  # whether instances that are not common are left out

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def n_included(self) -> int:
        """The number of instances in the mean: all, or the common ones."""
        return len(self) if self.is_common is None or not self.common_only else int(self.is_common.sum())

    def sort(self) -> ScoreSeries:
        """Return a new series sorted by position, without `is_common`, which is set later; itself if it is sorted."""
        if (np.diff(self.positions) > 0).all():
            return self
        order = np.argsort(self.positions, kind="stable")
        return ScoreSeries(self.numerator[order], self.denominator[order], self.positions[order])

    def select_included(self, start: int = 0, stop: int | None = None) -> tuple[Floats, Floats, Ints]:
        """Return numerators, denominators and positions of the included instances, from position `start` to `stop`."""
        part = slice(None)
        if stop is not None:
            part = slice(*np.searchsorted(self.positions, (start, stop)).tolist())
        arrays = self.numerator[part], self.denominator[part], self.positions[part]
        if self.is_common is None or not self.common_only:
            return arrays
        mask = self.is_common[part]
        return arrays[0][mask], arrays[1][mask], arrays[2][mask]


@dataclass(frozen=True)
class Scores:
    """The scores of a run."""

    series: Mapping[ScoreKey, ScoreSeries]  # in the order of scores.parquet
    ids: Ints  # (N,) of the instances
    scratch: Scratch = field(default_factory=Scratch)  # where large arrays are kept

    @property
    def n_instances(self) -> int:
        """The number of instances."""
        return len(self.ids)

    def __len__(self) -> int:
        return sum(map(len, self.series.values()))

    @staticmethod
    def from_frame(frame: pd.DataFrame) -> Scores:
        """Return the scores of a table like scores.parquet.

        The order of the instances is that of the longest series if it has every instance; otherwise they are sorted
        by id.
        """
        labels = [frame[name].astype("category").cat for name in ("metric", "variant", "explainer")]
        names, codes = [label.categories.tolist() for label in labels], [label.codes.to_numpy() for label in labels]
        key = np.zeros(len(frame), dtype=np.int64)
        for categories, code in zip(names, codes, strict=True):
            key = key * len(categories) + code
        starts = np.flatnonzero(np.diff(key, prepend=-1))
        ids = frame["instance"].to_numpy()
        is_scattered = len(starts) > len(pd.unique(key))
        if is_scattered:
            return Scores.from_frame(frame.iloc[np.lexsort((ids, key))])
        numerator, denominator = (frame[name].to_numpy(float) for name in ("numerator", "denominator"))
        spans = list(zip(starts.tolist(), [*starts[1:].tolist(), len(key)], strict=True))
        longest = slice(*max(spans, key=lambda span: span[1] - span[0], default=(0, 0)))
        all_ids = pd.Index(ids[longest])  # coverage, if no other metric, has a score for each instance
        if len(all_ids) < len(pd.unique(ids)):
            all_ids = pd.Index(np.sort(pd.unique(ids)))
        series, last_ids, positions = {}, ids[:0], ids[:0]
        for start, end in spans:
            metric, variant, explainer = (
                categories[code[start]] for categories, code in zip(names, codes, strict=True)
            )
            if not np.array_equal(last_ids, ids[start:end]):  # most series have the instances of the previous series
                last_ids = ids[start:end]
                positions = all_ids.get_indexer(pd.Index(last_ids))
            part = ScoreSeries(numerator[start:end], denominator[start:end], positions)
            series[(metric, variant), explainer] = part.sort()
        return Scores(series, all_ids.to_numpy())

    def with_common(self, common: Mapping[ScoreKey, Bools]) -> Scores:
        """Return the scores with a mask of the common instances for each series in `common`; others have none."""
        return replace(
            self, series={key: replace(part, is_common=common.get(key)) for key, part in self.series.items()}
        )

    def select_common(self) -> Scores | None:
        """Return the scores of common instances only; None if every instance of every series is common."""
        if all(part.is_common is None for part in self.series.values()):
            return None
        series = {key: replace(part, common_only=True) for key, part in self.series.items()}
        return replace(self, series=series).drop_unscored_instances()

    def drop_unscored_instances(self) -> Scores:
        """Return the scores without the instances that no series includes."""
        if any(part.n_included == self.n_instances for part in self.series.values()):
            return self
        is_scored = np.zeros(self.n_instances, dtype=bool)
        for part in self.series.values():
            is_scored[part.select_included()[2]] = True
        if is_scored.all():
            return self
        new_positions = np.maximum(np.cumsum(is_scored) - 1, 0)
        # Series share their arrays of positions.
        moved = {id(part.positions): new_positions[part.positions] for part in self.series.values()}
        series = {key: replace(part, positions=moved[id(part.positions)]) for key, part in self.series.items()}
        return replace(self, series=series, ids=self.ids[is_scored])

    def drop(self, cells: pd.DataFrame) -> Scores:
        """Return the scores without some metrics, variants and explainers."""
        dropped = set(cells[["metric", "variant", "explainer"]].itertuples(index=False, name=None))
        series = {key: part for key, part in self.series.items() if (*key[0], key[1]) not in dropped}
        return replace(self, series=series)

    def stack_columns(self, explainer: str, metrics: Sequence[MetricKey], part: slice = slice(None)) -> Floats:
        """Return R columns of numerators, then R of denominators (n, 2R), of an explainer; zero without a score."""
        start, stop, _ = part.indices(self.n_instances)
        columns = np.zeros((2, len(metrics), stop - start))
        for i, metric in enumerate(metrics):
            series = self.series.get((metric, explainer))
            if series is not None:
                numerator, denominator, positions = series.select_included(start, stop)
                columns[0, i, positions - start], columns[1, i, positions - start] = numerator, denominator
        self.scratch.release()
        return columns.reshape(2 * len(metrics), stop - start).T

    def compute_values(self, start: int, stop: int, metrics: Sequence[MetricKey], explainers: Sequence[str]) -> Floats:
        """Return the score (n, R, E) of each instance from one position to another; NaN where there is none."""
        values = np.full((min(stop, self.n_instances) - start, len(metrics), len(explainers)), np.nan)
        for i, metric in enumerate(metrics):
            for j, explainer in enumerate(explainers):
                series = self.series.get((metric, explainer))
                if series is not None:
                    numerator, denominator, positions = series.select_included(start, stop)
                    ratio = np.full(len(positions), np.nan)
                    np.divide(numerator, denominator, out=ratio, where=denominator != 0)
                    values[positions - start, i, j] = ratio
        self.scratch.release()
        return values

    def to_frame(self, start: int = 0, stop: int | None = None) -> pd.DataFrame:
        """Return rows of scores.parquet, from one to another."""
        parts, before = {}, 0
        for key, series in self.series.items():
            first = min(max(0, start - before), len(series))
            last = len(series) if stop is None else min(max(0, stop - before), len(series))
            before += len(series)
            parts[key] = slice(first, last)
        return self._build_frame(parts)

    def select_frame(self, positions: Ints) -> pd.DataFrame:
        """Return the rows of scores.parquet of some instances, given by their positions."""
        return self._build_frame(
            {key: np.flatnonzero(np.isin(series.positions, positions)) for key, series in self.series.items()}
        )

    def _build_frame(self, parts: Mapping[ScoreKey, slice | Ints]) -> pd.DataFrame:
        columns: dict[str, list[NDArray[Any]]] = {
            "instance": [np.zeros(0, dtype=np.int64)], "numerator": [np.zeros(0)], "denominator": [np.zeros(0)],
            "common": [np.zeros(0, dtype=bool)],
        }  # fmt: skip
        for key, part in parts.items():
            series = self.series[key]
            positions = series.positions[part]
            columns["instance"].append(self.ids[positions])
            columns["numerator"].append(series.numerator[part])
            columns["denominator"].append(series.denominator[part])
            columns["common"].append(
                np.ones(len(positions), dtype=bool) if series.is_common is None else series.is_common[part]
            )
            if not isinstance(part, slice):  # scattered rows bring all that lies near them into memory
                self.scratch.release()
        sizes = [len(ids) for ids in columns["instance"][1:]]

        def repeat(labels: list[str]) -> pd.Categorical[str]:
            categories = list(dict.fromkeys(labels))
            codes = np.array([categories.index(label) for label in labels], dtype=np.int16)
            return pd.Categorical.from_codes(np.repeat(codes, sizes), pd.Index(categories))

        frame = pd.DataFrame(
            {
                "instance": np.concatenate(columns["instance"]),
                "explainer": repeat([name for _, name in parts]),
                "metric": repeat([metric for (metric, _), _ in parts]),
                "variant": repeat([variant for (_, variant), _ in parts]),
                "numerator": np.concatenate(columns["numerator"]),
                "denominator": np.concatenate(columns["denominator"]),
                "common": np.concatenate(columns["common"]),
            },
            copy=False,
        )
        self.scratch.release()
        return frame
