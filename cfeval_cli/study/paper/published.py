"""The paper's own figures: as they are printed, and what they must have been."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

FILE = Path(__file__).with_name("published.csv")
TEXT = "text"  # in the column `table`: a figure of the text
QUOTE = "quote"  # there too: words of the text, as LaTeX has them, that figures or other words contradict
DATASETS = {"adults": "Adults", "movie_reviews": "Movie Reviews"}
EXPLAINERS = {
    "random": "Random", "omission": "Omission", "lime": "LIME", "anchor": "Anchor",
    "decision_boundary": "DecisionBoundary", "lr": "LR",
}  # fmt: skip
TRUTH = ("recall", "signed")  # the row that the paper calls GroundTruth

Better = Literal["higher", "lower"]
Pair = tuple[str, str]  # metric and variant
Key = tuple[str, str]  # table and dataset


@dataclass(frozen=True)
class Figure:
    """One printed number."""

    printed: str  # its very characters
    meant: str  # what they must have been; empty if they stand for nothing that was computed
    rank: int | None = None  # as printed beside it
    rank_text: str = ""
    bold: bool = False  # the rank; of a coefficient the number itself

    @property
    def value(self) -> float:
        """As a number; NaN if there is none."""
        return float(self.meant) if self.meant else math.nan

    @property
    def bounds(self) -> tuple[float, float]:
        """Between which the exact number was, whether its digits were rounded or cut off: the paper does both."""
        unit = 10.0 ** int(Decimal(self.meant).as_tuple().exponent)
        ends = self.value - math.copysign(unit / 2, self.value), self.value + math.copysign(unit, self.value)
        return min(ends), max(ends)

    def allows(self, low: float, high: float | None = None) -> bool:
        """Whether an exact number, or one of an interval, could have been printed so."""
        least, most = self.bounds
        return least - 1e-12 <= (low if high is None else high) and low <= most + 1e-12


@dataclass(frozen=True)
class Series:
    """What one metric says of all explainers: a row of Table 1, a column of Table 3."""

    table: str
    dataset: str
    k: int  # features in an explanation
    title: str  # as printed
    metric: str
    variant: str
    printed_variant: str
    better: Better | None  # as the printed arrow says
    figures: Mapping[str, Figure]  # by explainer, in the order of the table

    @property
    def pair(self) -> Pair:
        """Metric and variant."""
        return self.metric, self.variant

    @property
    def name(self) -> str:
        """For ids."""
        return f"{self.table}.{self.dataset}.{self.metric}_{self.variant}"


@dataclass(frozen=True)
class Coefficient:
    """A τ or ρ of Table 2 or 3."""

    table: str
    dataset: str
    title: str
    metric: str
    variant: str
    printed_variant: str
    kind: Literal["tau", "rho"]
    figure: Figure

    @property
    def pair(self) -> Pair:
        """Metric and variant."""
        return self.metric, self.variant

    @property
    def sign(self) -> str:
        """As one writes it."""
        return "τ" if self.kind == "tau" else "ρ"

    @property
    def name(self) -> str:
        """The name in the ids of findings."""
        return f"{self.table}.{self.dataset}.{self.metric}_{self.variant}.{self.kind}"

    @property
    def source(self) -> Key:
        """The table, and the dataset, that has the values behind it."""
        return ("3" if self.table == "3" else "1"), self.dataset


@dataclass(frozen=True)
class Published:
    """All figures, sorted out."""

    series: tuple[Series, ...]
    coefficients: tuple[Coefficient, ...]
    texts: Mapping[tuple[str, str, str], Figure]  # by dataset, metric and variant
    quotes: Mapping[Pair, str] = field(default_factory=dict)  # by what they are about

    def of(self, key: Key) -> list[Series]:
        """The series of a table and dataset, in their order."""
        return [series for series in self.series if (series.table, series.dataset) == key]

    def find(self, key: Key, pair: Pair) -> Series | None:
        """One series, if it is there; of several with the same name the first."""
        return next((series for series in self.of(key) if series.pair == pair), None)

    def truth(self, key: Key) -> Series | None:
        """What the others are judged by."""
        return self.find(key, TRUTH)

    @property
    def keys(self) -> list[Key]:
        """Tables and datasets that have series."""
        return list(dict.fromkeys((series.table, series.dataset) for series in self.series))

    def coefficient(self, table: str, dataset: str, pair: Pair, kind: str) -> Figure | None:
        """A τ or ρ, if it is printed."""
        for one in self.coefficients:
            if (one.table, one.dataset, one.pair, one.kind) == (table, dataset, pair, kind):
                return one.figure
        return None

    def list_class_sizes(self, dataset: str) -> list[Figure]:
        """List the numbers of rows by class; empty if the text does not state them."""
        sizes = [self.texts.get((dataset, "rows", name)) for name in ("positive", "negative")]
        return [size for size in sizes if size is not None]

    def count_test_instances(self, dataset: str) -> int | None:
        """Return the stated share of the stated rows; None if the text does not state them."""
        rows, share = self.texts.get((dataset, "rows", "all")), self.texts.get(("", "share", "test"))
        return None if rows is None or share is None else int(rows.value * share.value)


def load(path: Path = FILE) -> pd.DataFrame:
    """One row for each figure, and for each passage that is quoted.

    `printed` and `rank_text` are characters, `meant` is `value` as text, with the digits that count. `variant` is the
    one that the figure must belong to, `printed_variant` the one that the table says.
    """
    import pandas as pd

    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    frame["meant"] = frame["value"]
    for name in ("value", "line", "k", "printed_rank"):
        frame[name] = pd.to_numeric(frame[name], errors="coerce")
    frame["bold"] = frame["bold"] == "yes"
    return frame


def read(frame: pd.DataFrame) -> Published:
    """Sort the rows of `load` out."""
    series: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    coefficients: list[Coefficient] = []
    texts: dict[tuple[str, str, str], Figure] = {}
    quotes: dict[Pair, str] = {}
    for row in (dict(zip(frame.columns, line, strict=True)) for line in frame.itertuples(index=False, name=None)):
        label = row["column"] if row["table"] == "3" else row["row"]
        if row["table"] == TEXT:
            texts[row["dataset"], row["metric"], row["variant"]] = _figure(row)
        elif row["table"] == QUOTE:
            quotes[row["metric"], row["variant"]] = row["printed"]
        elif row["coefficient"]:
            coefficients.append(Coefficient(title=label, kind=row["coefficient"], figure=_figure(row), **_names(row)))
        else:
            # Table 1 has two rows of the same name; the columns of Table 3 differ in theirs
            line = row["line"] if row["table"] == "1" else label
            series.setdefault((row["table"], row["dataset"], line), []).append(row)
    return Published(tuple(map(_series, series.values())), tuple(coefficients), texts, quotes)


def _series(rows: Iterable[Mapping[str, Any]]) -> Series:
    rows = list(rows)
    first = rows[0]
    label = first["column"] if first["table"] == "3" else first["row"]
    figures = {row["explainer"]: _figure(row) for row in rows}
    return Series(title=label, k=int(first["k"]), better=first["better"] or None, figures=figures, **_names(first))


def _names(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("table", "dataset", "metric", "variant", "printed_variant")}


def _figure(row: Mapping[str, Any]) -> Figure:
    rank = None if math.isnan(row["printed_rank"]) else int(row["printed_rank"])
    return Figure(row["printed"], row["meant"], rank, row["rank_text"], bool(row["bold"]))
