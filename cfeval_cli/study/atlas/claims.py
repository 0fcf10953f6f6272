"""Claims about metrics, each a test that is fixed in claims.json before the runs, and its answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.core import Floats
from cfeval_cli.statistics.bootstrap import compute_percentile_interval
from cfeval_cli.statistics.hierarchical import (
    MIN_FACTOR_LEVELS,
    CrossedValues,
    FactorLevels,
    compute_resampling_p_value,
    list_factor_levels,
)
from cfeval_cli.statistics.hypothesis_tests import adjust_holm
from cfeval_cli.study.atlas.summary import RUN, SURE, WHOLE, Summary, by_run, differences

HOLDS, FAILS, OPEN = "holds", "does not hold", "open"
_ASKED = ("contribution", "change")


@dataclass(frozen=True)
class Figure:
    """What a claim is decided by: positive if it holds."""

    value: float
    drawn: Floats  # (B,) when data sets, judges, truths and seeds are drawn again
    rows: int
    sets: int
    judges: int
    shown: float  # the figure that the claim speaks of, and its interval
    ends: tuple[float, float]

    @property
    def known(self) -> bool:
        """Whether anything is to be said of other data sets and judges."""
        return min(self.sets, self.judges) >= MIN_FACTOR_LEVELS and not np.isnan(self.value)


@dataclass(frozen=True)
class Claim:
    """A claim and its answer."""

    name: str
    of: str
    text: str
    limit: float
    figure: Figure
    p: float  # after Holm's correction over all claims

    @property
    def verdict(self) -> str:
        """Holds, does not hold, or open."""
        if not self.figure.known or not self.p < SURE:
            return OPEN
        return HOLDS if self.figure.value > 0 else FAILS


def fixed() -> list[dict[str, Any]]:
    """The claims, as they were fixed."""
    text = resources.files("cfeval_cli.study.atlas").joinpath("claims.json").read_text(encoding="utf-8")
    told: list[dict[str, Any]] = json.loads(text)["claims"]
    return told


def answered(summary: Summary) -> list[Claim]:
    """Each claim with its answer."""
    every = fixed()
    found = [_TESTS[claim["test"]](summary.rows, claim) for claim in every]
    raw = np.array([compute_resampling_p_value(one.drawn) if one.known else 1.0 for one in found])
    return [
        Claim(told["name"], told["of"], told["text"], told["limit"], figure, float(p))
        for told, figure, p in zip(every, found, adjust_holm(raw), strict=True)
    ]


def _chosen(rows: pd.DataFrame, which: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Metrics by name; no variant that depends on a constant that no prediction depends on."""
    mine = rows[~rows["arbitrary"] & rows["metric"].isin(which["metric"])]
    return list(dict.fromkeys(zip(mine["metric"], mine["variant"], strict=True)))


def _asked(rows: pd.DataFrame, claim: Mapping[str, Any]) -> pd.DataFrame:
    questions = [claim["question"]] if "question" in claim else list(_ASKED)
    mine = rows[rows["question"].isin(questions)]
    return mine[~mine["circular"]] if claim.get("clean") else mine


def _figure(cells: CrossedValues, limit: float = 0.0, sign: float = 1.0) -> Figure:
    """Of a mean that must be above a limit, or with the other sign below it."""
    mean, drawn = cells.mean(), cells.drawn()
    low, high = compute_percentile_interval(drawn, 0.95)
    return Figure(
        sign * (mean - limit),
        sign * (drawn - limit),
        cells.rows,
        cells.sets,
        cells.judges,
        mean,
        (float(low), float(high)),
    )


def _difference(rows: pd.DataFrame, claim: Mapping[str, Any]) -> Figure:
    """The mean of some metrics less that of others, in the same runs."""
    mine, name = _asked(rows, claim), claim["figure"]
    gaps = differences(by_run(mine, name), _chosen(mine, claim["one"]), _chosen(mine, claim["two"]), name)
    return _figure(CrossedValues.of(gaps, name), claim["limit"])


def _moves(rows: pd.DataFrame, claim: Mapping[str, Any]) -> Figure:
    """How far the figure of some metrics is from that of others, whichever is larger."""
    mine, name = _asked(rows, claim), claim["figure"]
    gaps = differences(by_run(mine, name), _chosen(mine, claim["one"]), _chosen(mine, claim["two"]), name)
    return _figure(CrossedValues.of(gaps.assign(**{name: gaps[name].abs()}), name), claim["limit"])


def _interaction(rows: pd.DataFrame, claim: Mapping[str, Any]) -> Figure:
    """How much larger the lead of some metrics over others is for contribution than for change, in the same run."""
    mine, name = _asked(rows, claim), claim["figure"]
    sides = []
    for question in _ASKED:
        part = mine[mine["question"] == question]
        gaps = differences(by_run(part, name), _chosen(part, claim["one"]), _chosen(part, claim["two"]), name)
        sides.append(gaps.groupby(["data", "judge", "seed", "k"])[name].mean())
    both = pd.concat(sides, axis=1, join="inner", keys=list(_ASKED)).dropna()
    gaps = (both[_ASKED[0]] - both[_ASKED[1]]).rename(name).reset_index().assign(truth="")
    return _figure(CrossedValues.of(gaps, name), claim["limit"])


def _best(rows: pd.DataFrame, claim: Mapping[str, Any]) -> Figure:
    """How far the mean of some metrics is above the highest of all others."""
    mine, name = _asked(rows, claim), claim["figure"]
    chosen = _chosen(mine, claim["one"])
    among, others = list_factor_levels(mine), [pair for pair in _complete(mine) if pair not in chosen]
    figures = by_run(mine, name)
    gaps = [CrossedValues.of(differences(figures, chosen, [pair], name), name, among) for pair in others]
    return _least(gaps, len(mine), among)


def _reaches(rows: pd.DataFrame, claim: Mapping[str, Any]) -> Figure:
    """How far the highest mean of all metrics is below a limit."""
    mine, name = _asked(rows, claim), claim["figure"]
    among = list_factor_levels(mine)
    cells = [CrossedValues.of(_of(mine, pair), name, among) for pair in _complete(mine)]
    below = [CrossedValues(claim["limit"] - one.values, one.rows) for one in cells]
    found = _least(below, len(mine), among)
    ends = (claim["limit"] - found.ends[1], claim["limit"] - found.ends[0])
    return Figure(found.value, found.drawn, found.rows, found.sets, found.judges, claim["limit"] - found.shown, ends)


def _opposed(rows: pd.DataFrame, claim: Mapping[str, Any]) -> Figure:
    """The share of the pairs of metrics, of those that lean to one side, that lean to opposite sides."""
    mine, name = _asked(rows, claim), claim["figure"]
    mine = mine[~mine["arbitrary"]]
    leaning = mine.assign(up=mine[name] > 0, down=mine[name] < 0)
    counts = leaning.groupby(RUN)[["up", "down"]].sum().astype(float)
    pairs = (counts["up"] + counts["down"]) * (counts["up"] + counts["down"] - 1) / 2
    opposite = (counts["up"] * counts["down"] / pairs.where(pairs > 0)).rename(name).reset_index()
    return _figure(CrossedValues.of(opposite, name), claim["limit"])


def _least(cells: Sequence[CrossedValues], rows: int, among: FactorLevels) -> Figure:
    """The lowest of several means, in what is given and in every draw."""
    if not cells:
        return Figure(float("nan"), np.zeros(0), rows, 0, 0, float("nan"), (float("nan"), float("nan")))
    value = min(one.mean() for one in cells)
    drawn = np.stack([one.drawn() for one in cells]).min(axis=0)
    low, high = compute_percentile_interval(drawn, 0.95)
    sets, judges = min(one.sets for one in cells), min(one.judges for one in cells)
    return Figure(value, drawn, rows, sets, judges, value, (float(low), float(high)))


def _complete(mine: pd.DataFrame) -> list[tuple[str, str]]:
    """The metrics that have nearly all cells, and depend on no constant."""
    cells = mine.groupby(RUN).ngroups
    many = mine[~mine["arbitrary"]].groupby(["metric", "variant"], sort=False).size()
    return [pair for pair, size in zip(many.index.tolist(), many.tolist(), strict=True) if size >= WHOLE * cells]


def _of(mine: pd.DataFrame, pair: tuple[str, str]) -> pd.DataFrame:
    return mine[(mine["metric"] == pair[0]) & (mine["variant"] == pair[1])]


_TESTS: dict[str, Callable[[pd.DataFrame, Mapping[str, Any]], Figure]] = {
    "difference": _difference,
    "interaction": _interaction,
    "best": _best,
    "moves": _moves,
    "none reaches": _reaches,
    "opposed": _opposed,
}
