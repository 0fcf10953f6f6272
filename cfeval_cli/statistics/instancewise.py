"""Agreement instance by instance: thousands of small comparisons instead of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from cfeval_cli.statistics.bootstrap import ratios, sums
from cfeval_cli.statistics.correlation import Family
from cfeval_cli.statistics.ranking import ranks
from cfeval_cli.statistics.resampled import Bootstrap, Resampled
from cfeval_cli.statistics.scores import Scores
from cfeval_cli.types import Floats, Ints

COLUMNS = [
    "metric", "variant", "better", "gold", "agreement", "instances", "tau", "tau_low", "tau_high", "ordered", "d",
    "d_low", "d_high",
]  # fmt: skip

_BLOCK = 1 << 22  # pairs of explainers held at once


def lines(scores: Scores, drawn: Resampled, family: Family, how: Bootstrap) -> Iterator[dict[str, Any]]:
    """Rows of instance_agreement.csv: its order of an instance's explainers and the gold's."""
    if len(family.explainers) < 2 or not family.judged or not family.truths:
        return
    counted = _Pairs.of(scores, drawn, family)
    makers = [partial(counted.columns, t) for t in range(len(family.truths))]
    resampled = sums(makers, scores.size, how.resamples, how.seed)
    real = [ratios(counted.columns(t).sum(axis=0)) for t in range(len(family.truths))]
    many = (counted.pairs > 0).sum(axis=0) >= how.least  # (J, T)
    spreads = [how.spread(ratios(one), np.tile(many[:, t], 2)) for t, one in enumerate(resampled)]
    size = len(family.judged)
    for j, row in enumerate(family.judged):
        for t, truth in enumerate(family.truths):
            if np.isnan(real[t][j]):
                continue
            low, high, _ = spreads[t]
            yield {
                "metric": drawn.rows[row][0], "variant": drawn.rows[row][1], "better": drawn.better[row],
                "gold": truth.gold, "agreement": truth.agreement,
                "instances": int((counted.pairs[:, j, t] > 0).sum()),
                "tau": real[t][j], "tau_low": low[j], "tau_high": high[j],
                "ordered": int((counted.ordered[:, j, t] > 0).sum()),
                "d": real[t][size + j], "d_low": low[size + j], "d_high": high[size + j],
            }  # fmt: skip


@dataclass(frozen=True)
class _Pairs:
    """Pairs of explainers, counted for each instance, metric and truth (N, J, T)."""

    gain: Ints  # concordant less discordant
    pairs: Ints  # with scores on both sides
    ordered: Ints  # those of them that the truth does not tie

    @staticmethod
    def of(scores: Scores, drawn: Resampled, family: Family) -> _Pairs:
        """By slabs of instances, so that memory stays bounded."""
        first, second = np.triu_indices(len(family.explainers), 1)
        numbers = [*family.judged, *(truth.row for truth in family.truths if truth.row is not None)]
        rows, names = [drawn.rows[row] for row in numbers], [drawn.explainers[e] for e in family.explainers]
        lower = np.array([drawn.better[row] == "lower" for row in numbers])[:, None]
        size, counts = len(family.judged), ([], [], [])  # type: tuple[int, tuple[list[Ints], ...]]
        step = max(1, _BLOCK // (len(rows) * len(first)))
        for start in range(0, scores.size, step):
            values = scores.values(start, start + step, rows, names)
            places = ranks(np.where(lower, values, -values), "lower")
            signs = np.sign(places[..., first] - places[..., second]).astype(np.float32)
            there = ~np.isnan(signs)
            signs, both = np.where(there, signs, np.float32(0)), there.astype(np.float32)
            truth, present = (side[:, size:].swapaxes(-1, -2) for side in (signs, both))
            found = (signs[:, :size] @ truth, both[:, :size] @ present, both[:, :size] @ np.abs(truth))
            for kept, part in zip(counts, found, strict=True):
                kept.append(part.astype(np.int16 if len(first) < 1 << 15 else np.int32))
        return _Pairs(*(np.concatenate(kept) for kept in counts))

    def columns(self, t: int) -> Floats:
        """Numerators, then denominators (N, 4J): of the mean τ, and of d over all pairs that the truth orders."""
        gain, pairs, ordered = (of[:, :, t].astype(float) for of in (self.gain, self.pairs, self.ordered))
        return np.concatenate([gain / np.maximum(pairs, 1), gain, pairs > 0, ordered], axis=1)
