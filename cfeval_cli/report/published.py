"""The figures that the paper prints, as data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

FILE = Path(__file__).with_name("published.csv")
TEXT = "text"  # in the column `table`: a figure of the text
QUOTE = "quote"  # there too: words of the text in LaTeX, which figures or other words contradict
DATASETS = {"adults": "Adults", "movie_reviews": "Movie Reviews"}
EXPLAINERS = {
    "random": "Random", "omission": "Omission", "lime": "LIME", "anchor": "Anchor",
    "decision_boundary": "DecisionBoundary", "lr": "LR",
}  # fmt: skip
TRUTH = ("recall", "signed")  # the row that the paper calls GroundTruth

Better = Literal["higher", "lower"]
Pair = tuple[str, str]  # metric and variant
Key = tuple[str, str]  # table and dataset
_MAX_PRINTING_ERROR = 1e-12


@dataclass(frozen=True)
class Figure:
    """One printed number."""

    printed: str
    corrected: str  # without misprints; empty if nothing was computed
    rank: int | None = None  # printed beside the number
    rank_text: str = ""
    bold: bool = False  # of a value its rank, of a coefficient the number itself

    @property
    def value(self) -> float:
        """The number; NaN if nothing was computed."""
        return float(self.corrected) if self.corrected else math.nan

    @property
    def bounds(self) -> tuple[float, float]:
        """The range of the exact number. The paper rounds some digits and truncates others."""
        unit = 10.0 ** int(Decimal(self.corrected).as_tuple().exponent)
        ends = self.value - math.copysign(unit / 2, self.value), self.value + math.copysign(unit, self.value)
        return min(ends), max(ends)

    def allows(self, low: float, high: float | None = None) -> bool:
        """Return whether an exact number, or some number of an interval, could have been printed so."""
        lowest, highest = self.bounds
        return lowest - _MAX_PRINTING_ERROR <= (low if high is None else high) and low <= highest + _MAX_PRINTING_ERROR


@dataclass(frozen=True)
class Series:
    """The values of one metric for all explainers: a row of Table 1 or a column of Table 3."""

    table: str
    dataset: str
    k: int  # features in an explanation
    title: str  # as printed
    metric: str
    variant: str
    better: Better | None  # by the printed arrow
    figures: Mapping[str, Figure]  # by explainer, in the order of the table

    @property
    def pair(self) -> Pair:
        """The metric and the variant."""
        return self.metric, self.variant

    @property
    def key(self) -> Key:
        """The table and the dataset."""
        return self.table, self.dataset

    @property
    def name(self) -> str:
        """The name in the ids of findings."""
        return f"{self.table}.{self.dataset}.{self.metric}_{self.variant}"


@dataclass(frozen=True)
class Coefficient:
    """A printed τ or ρ of Table 2 or 3."""

    table: str
    dataset: str
    title: str
    metric: str
    variant: str
    printed_variant: str  # by the title of the row or column
    kind: Literal["tau", "rho"]
    figure: Figure

    @property
    def pair(self) -> Pair:
        """The metric and the variant."""
        return self.metric, self.variant

    @property
    def symbol(self) -> str:
        """The Greek letter."""
        return "τ" if self.kind == "tau" else "ρ"

    @property
    def name(self) -> str:
        """The name in the ids of findings."""
        return f"{self.table}.{self.dataset}.{self.metric}_{self.variant}.{self.kind}"

    @property
    def source(self) -> Key:
        """The table, and the dataset, that has the values."""
        return ("3" if self.table == "3" else "1"), self.dataset


@dataclass(frozen=True)
class Published:
    """All printed figures."""

    series: tuple[Series, ...]
    coefficients: tuple[Coefficient, ...]
    texts: Mapping[tuple[str, str, str], Figure]  # by dataset, metric and variant
    quotes: Mapping[Pair, str] = field(default_factory=dict)  # by topic

    def list_series(self, key: Key) -> list[Series]:
        """Return the series of a table and dataset, in their order."""
        return [series for series in self.series if series.key == key]

    def find_series(self, key: Key, pair: Pair) -> Series | None:
        """Return the first series of a metric and variant."""
        return next((series for series in self.list_series(key) if series.pair == pair), None)

    def find_truth(self, key: Key) -> Series | None:
        """Return the agreement of the explainers with the ground truth."""
        return self.find_series(key, TRUTH)

    @property
    def keys(self) -> list[Key]:
        """The tables and datasets that have series."""
        return list(dict.fromkeys(series.key for series in self.series))

    def find_coefficient(self, table: str, dataset: str, pair: Pair, kind: str) -> Figure | None:
        """Return a printed τ or ρ."""
        wanted = (table, dataset, pair, kind)
        matches = (
            coefficient.figure
            for coefficient in self.coefficients
            if (coefficient.table, coefficient.dataset, coefficient.pair, coefficient.kind) == wanted
        )
        return next(matches, None)

    def list_class_sizes(self, dataset: str) -> list[Figure]:
        """Return the numbers of rows by class; empty if the text does not state them."""
        sizes = [self.texts.get((dataset, "rows", name)) for name in ("positive", "negative")]
        return [size for size in sizes if size is not None]

    def count_test_instances(self, dataset: str) -> int | None:
        """Return the stated share of the stated rows; None if the text does not state them."""
        rows, share = self.texts.get((dataset, "rows", "all")), self.texts.get(("", "share", "test"))
        return None if rows is None or share is None else int(rows.value * share.value)


def load_figures(path: Path = FILE) -> pd.DataFrame:
    """Read one row for each figure and each quote.

    `printed` and `rank_text` are characters. `corrected` is `value` as text, with its significant digits. `variant` is
    the variant of the values, `printed_variant` that of the printed title.
    """
    import pandas as pd

    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    frame["corrected"] = frame["value"]
    for name in ("value", "line", "k", "printed_rank"):
        frame[name] = pd.to_numeric(frame[name], errors="coerce")
    frame["bold"] = frame["bold"] == "yes"
    return frame


def parse_figures(frame: pd.DataFrame) -> Published:
    """Return the figures of a table as `load_figures` reads it."""
    series: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    coefficients: list[Coefficient] = []
    texts: dict[tuple[str, str, str], Figure] = {}
    quotes: dict[Pair, str] = {}
    for row in (dict(zip(frame.columns, line, strict=True)) for line in frame.itertuples(index=False, name=None)):
        if row["table"] == TEXT:
            texts[row["dataset"], row["metric"], row["variant"]] = _make_figure(row)
        elif row["table"] == QUOTE:
            quotes[row["metric"], row["variant"]] = row["printed"]
        elif row["coefficient"]:
            coefficients.append(_make_coefficient(row))
        else:
            # Two rows of Table 1 have the same title, and are identified by their lines.
            line = row["line"] if row["table"] == "1" else row["column"]
            series.setdefault((row["table"], row["dataset"], line), []).append(row)
    return Published(tuple(map(_make_series, series.values())), tuple(coefficients), texts, quotes)


def _make_series(rows: Sequence[Mapping[str, Any]]) -> Series:
    first = rows[0]
    return Series(
        first["table"], first["dataset"], int(first["k"]), _get_title(first), first["metric"], first["variant"],
        first["better"] or None, {row["explainer"]: _make_figure(row) for row in rows},
    )  # fmt: skip


def _make_coefficient(row: Mapping[str, Any]) -> Coefficient:
    return Coefficient(
        row["table"], row["dataset"], _get_title(row), row["metric"], row["variant"], row["printed_variant"],
        row["coefficient"], _make_figure(row),
    )  # fmt: skip


def _get_title(row: Mapping[str, Any]) -> str:
    """Return the title of a metric; Table 3 has the metrics in its columns."""
    return str(row["column"] if row["table"] == "3" else row["row"])


def _make_figure(row: Mapping[str, Any]) -> Figure:
    rank = None if math.isnan(row["printed_rank"]) else int(row["printed_rank"])
    return Figure(row["printed"], row["corrected"], rank, row["rank_text"], bool(row["bold"]))
