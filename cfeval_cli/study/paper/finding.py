"""A finding of the audit, and the ranks and correlations that its checks compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from cfeval_cli.report.published import DATASETS, EXPLAINERS, Figure, Series
from cfeval_cli.statistics.ranking import compute_rank_correlations, compute_ranks

Kind = Literal["misprint", "table", "text"]
KINDS: dict[Kind, str] = {
    "misprint": "Misprints",
    "table": "Figures that contradict other figures of the tables",
    "text": "Statements of the text that contradict figures",
}

COUNTERFACTUAL = ("validity", "proximity", "c", "validity_soft", "c_soft")
ERASURE = ("comprehensiveness", "sufficiency", "dfr")


@dataclass(frozen=True)
class Finding:
    """A contradiction between figures or statements of the paper."""

    id: str
    kind: Kind
    table: str  # 1, 2, 3, text, or several: 1 and 2
    dataset: str  # empty: all
    row: str
    column: str
    printed: str
    recomputed: str
    meaning: str

    @property
    def place(self) -> str:
        """The table, dataset, row and column."""
        name = {"text": "Text", "1": "Table 1", "2": "Table 2", "3": "Table 3"}.get(self.table, f"Tables {self.table}")
        return ", ".join(part for part in (name, DATASETS.get(self.dataset, ""), self.row, self.column) if part)


Result = Finding | None  # None: a check that passed


def rank_values(series: Series) -> dict[str, float]:
    """Rank the explainers by the printed values; a smaller distance is better, although no arrow is printed."""
    values = np.array([figure.value for figure in series.figures.values()])
    return dict(zip(series.figures, compute_ranks(values, series.better or "lower").tolist(), strict=True))


def get_printed_ranks(series: Series) -> dict[str, float]:
    """Return the printed ranks; where none are printed, those of the values."""
    ranking = {name: float(figure.rank) for name, figure in series.figures.items() if figure.rank is not None}
    return ranking if len(ranking) == len(series.figures) else rank_values(series)


def correlate(ranking: Mapping[str, float], truth: Mapping[str, float]) -> dict[str, float]:
    """Compute τ and ρ of two rankings of the same explainers."""
    sides = [compute_ranks(np.array([side[name] for name in ranking]), "lower")[None] for side in (ranking, truth)]
    tau, rho = compute_rank_correlations(*sides)
    return {"tau": float(tau[0, 0]), "rho": float(rho[0, 0])}


def list_swapped_pairs(ranking: Mapping[str, float], truth: Mapping[str, float]) -> list[str]:
    """List the pairs of explainers that two rankings order in opposite ways."""
    return [
        f"{EXPLAINERS[a]}/{EXPLAINERS[b]}"
        for a, b in combinations(ranking, 2)
        if (ranking[a] - ranking[b]) * (truth[a] - truth[b]) < 0
    ]


def count_pairs(items: Iterable[object]) -> int:
    """Count the unordered pairs of items."""
    return len(list(combinations(items, 2)))


def write_figures(figures: Iterable[Figure]) -> str:
    """Write figures as printed, one after the other."""
    return " ".join(figure.printed for figure in figures)


def write_ranks(ranking: Mapping[str, float], names: Iterable[str]) -> str:
    """Write the ranks of some explainers; of all explainers without their names."""
    names = list(names)
    if names == list(ranking):
        return " ".join(f"{rank:g}" for rank in ranking.values())
    return ", ".join(f"{EXPLAINERS[name]} {ranking[name]:g}" for name in names)


def join(names: Iterable[str]) -> str:
    """Join names in their order, without repetition."""
    return ", ".join(dict.fromkeys(names))
