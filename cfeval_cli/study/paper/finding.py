"""What a check of the paper's figures gives, and the few things that all checks need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cfeval_cli.statistics.ranking import agreement, ranks
from cfeval_cli.study.paper.published import DATASETS, EXPLAINERS, Figure, Series

Kind = Literal["typo", "contradiction", "arithmetic", "method", "claim", "significance", "note"]
KINDS: dict[Kind, str] = {
    "typo": "Characters that cannot be meant",
    "contradiction": "Figures that contradict each other",
    "arithmetic": "Figures that do not follow from those they are computed from",
    "method": "Definitions, listings and references that cannot be followed as they stand",
    "claim": "What the text says, against the tables",
    "significance": "What could be chance",
    "note": "Worth knowing",
}

CE = ("validity", "proximity", "c", "validity_soft", "c_soft")  # the counterfactual metrics
ERASURE = ("comprehensiveness", "sufficiency", "dfr")
SHARES = ("validity", "dfr", "recall")  # with k = 1, these are so many instances out of all


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be, or that a reader should know."""

    id: str
    kind: Kind
    table: str  # 1, 2, 3 or text; several are joined by +
    dataset: str  # empty: all
    row: str
    column: str
    printed: str
    recomputed: str
    meaning: str  # for the paper's claims, in a sentence

    @property
    def where(self) -> str:
        """As one would point at it."""
        return ", ".join(part for part in (self.table, DATASETS.get(self.dataset, ""), self.row, self.column) if part)


Result = Finding | None  # None: a comparison that found nothing


def ranked(series: Series) -> dict[str, float]:
    """Ranks from the values; a distance, for which the paper prints no arrow, is better small."""
    values = np.array([figure.value for figure in series.figures.values()])
    return dict(zip(series.figures, ranks(values, series.better or "lower").tolist(), strict=True))


def printed_ranks(series: Series) -> dict[str, float]:
    """Ranks as printed; from the values where none are."""
    printed = {name: figure.rank for name, figure in series.figures.items()}
    return ranked(series) if None in printed.values() else {name: float(rank or 0) for name, rank in printed.items()}


def correlate(ours: Mapping[str, float], theirs: Mapping[str, float]) -> dict[str, float]:
    """τ and ρ of the ranks of the same explainers."""
    sides = [ranks(np.array([side[name] for name in ours]), "lower")[None] for side in (ours, theirs)]
    tau, rho = agreement(*sides)
    return {"tau": float(tau[0, 0]), "rho": float(rho[0, 0])}


def show(number: float, like: Figure | None = None) -> str:
    """With four digits after the point, or as many as a printed figure has."""
    digits = 4 if like is None else max(1, len(like.meant.partition(".")[2]))
    return f"{number:.{digits}f}"


def places(some: Mapping[str, float], names: Iterable[str]) -> str:
    """Explainers and their ranks; if all are meant, the ranks in the order of the row."""
    names = list(names)
    if names == list(some):
        return " ".join(f"{rank:g}" for rank in some.values())
    return ", ".join(f"{EXPLAINERS[name]} {some[name]:g}" for name in names)


def listed(names: Iterable[str]) -> str:
    """Titles, in their order, without repetition."""
    return ", ".join(dict.fromkeys(names))
