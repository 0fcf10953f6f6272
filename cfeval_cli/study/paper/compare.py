"""The comparison of the paper with runs of cfeval: every cell of its tables, and every claim."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.core import Floats
from cfeval_cli.core.files import as_csv, refuse_linked_path
from cfeval_cli.errors import UserError
from cfeval_cli.report.table import Table
from cfeval_cli.statistics.ranking import compute_ranks
from cfeval_cli.study.paper import comparison_tables, document
from cfeval_cli.study.paper.audit import audit_paper
from cfeval_cli.study.paper.published import Better, Pair, Published, load, read
from cfeval_cli.study.paper.verdicts import Verdict, Word, judge, list_truths
from cfeval_cli.study.paper.views import Computed, Printed, computed
from cfeval_cli.study.run_folders import write_texts

CELLS = [
    "table", "dataset", "metric", "variant", "explainer", "coefficient", "truth", "seeds", "cfeval", "deviation",
    "paper", "difference", "cfeval_rank", "paper_rank",
]  # fmt: skip
VERDICTS = [
    "claim", "text", "scope", "truth", "verdict", "seeds", "holds_in", "low", "high", "p", "p_holm", "tests", "needed",
    "by_paper_figures", "figures",
]  # fmt: skip
_COUNTED: dict[Word, tuple[str, str]] = {  # of one claim, and of several
    "holds": ("holds", "hold"), "does not hold": ("does not hold", "do not hold"),
    "refuted": ("is refuted", "are refuted"), "open": ("is open", "are open"),
    "not computed": ("is not computed", "are not computed"),
}  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """The cells, the verdicts and the tables of a comparison."""

    cells: pd.DataFrame
    verdicts: list[Verdict]
    tables: list[Table]

    @property
    def answer(self) -> str:
        """Count the verdicts under the first truth."""
        truth = self.verdicts[0].truth
        verdicts = [one for one in self.verdicts if one.truth == truth]
        counts = {word: sum(one.word == word for one in verdicts) for word in _COUNTED}
        text = ", ".join(f"{count} {_COUNTED[word][count != 1]}" for word, count in counts.items() if count)
        seeds = max(one.seeds for one in verdicts)
        return f"of the paper's {len(verdicts)} claims {text} (truth: {truth}, {seeds} seed{'s' * (seeds != 1)})"

    @property
    def brief(self) -> Table:
        """Build the table of claims for the screen."""
        return comparison_tables.build_brief(self.verdicts)


def compare(folders: Sequence[Path], into: Path, tables: Sequence[str] = ("1", "2", "3")) -> Comparison:
    """Compare the paper with run folders; write paper.csv, claims.csv, paper.md, paper.tex and paper.html."""
    refuse_linked_path(into)
    published, views = read(load()), computed(folders)
    if not any(view.runs for view in views):
        raise UserError("none of the folders has a run of the paper's experiments.")
    cells = pd.DataFrame([*_list_values(published, views), *_list_coefficients(published, views)], columns=CELLS)
    verdicts = judge(published, views)
    built = comparison_tables.build_tables(published, cells, views, tables)
    built.append(comparison_tables.build_claims(verdicts))
    # the audit is a detail: it is in the files, and `cfeval paper audit` shows it
    built += [replace(table, detail=True) for table in audit_paper().build_tables()]
    lines = pd.DataFrame([_describe_verdict(verdict) for verdict in verdicts], columns=VERDICTS)
    write_texts(into, {"paper.csv": as_csv(cells), "claims.csv": as_csv(lines), **document.write(built)})
    return Comparison(cells, verdicts, built)


def _describe_verdict(verdict: Verdict) -> dict[str, Any]:
    low, high = verdict.interval
    return {
        "claim": verdict.claim.id, "text": verdict.claim.text, "scope": verdict.claim.scope, "truth": verdict.truth,
        "verdict": verdict.word, "seeds": verdict.seeds, "holds_in": verdict.holds_in, "low": low, "high": high,
        "p": verdict.p, "p_holm": verdict.corrected, "tests": verdict.tests, "needed": verdict.needed or "",
        "by_paper_figures": {None: "not printed", True: "holds", False: "does not hold"}[verdict.printed],
        "figures": "; ".join(f"{name} {value:.4f}" for name, value in verdict.figures.items()),
    }  # fmt: skip


def _list_values(published: Published, views: Sequence[Computed]) -> Iterator[dict[str, Any]]:
    """List the values of explainers in Tables 1 and 3."""
    paper = Printed(published)
    for series in published.series:
        key, pair = (series.table, series.dataset), series.pair
        paper_ranks = paper.ranked(key, pair)
        for truth in list_truths(views):
            values = [view.values(key, pair) for view in views if view.truth == truth and key in view.runs]
            seeds = {name: np.array([one[name] for one in values if name in one]) for name in series.figures}
            cfeval_ranks = _rank_means(seeds, series.better or "lower")
            for name, figure in series.figures.items():
                yield {
                    **_locate(series.table, series.dataset, pair, truth), "explainer": name, "coefficient": "",
                    **_summarise(seeds[name], figure.value),
                    "cfeval_rank": cfeval_ranks[name], "paper_rank": paper_ranks[name],
                }  # fmt: skip


def _rank_means(seeds: Mapping[str, Floats], better: Better) -> dict[str, float]:
    means = np.array([values.mean() if len(values) else np.nan for values in seeds.values()])
    return dict(zip(seeds, compute_ranks(means, better).tolist(), strict=True))


def _list_coefficients(published: Published, views: Sequence[Computed]) -> Iterator[dict[str, Any]]:
    """List τ and ρ of Tables 2 and 3."""
    for one in published.coefficients:
        for truth in list_truths(views):
            values = [view.coefficient(one.source, one.pair, one.kind) for view in views if view.truth == truth]
            yield {
                **_locate(one.table, one.dataset, one.pair, truth), "explainer": "", "coefficient": one.kind,
                **_summarise(np.array([value for value in values if not isnan(value)]), one.figure.value),
            }  # fmt: skip


def _locate(table: str, dataset: str, pair: Pair, truth: str) -> dict[str, str]:
    return {"table": table, "dataset": dataset, "metric": pair[0], "variant": pair[1], "truth": truth}


def _summarise(values: Floats, paper: float) -> dict[str, float]:
    mean = float(values.mean()) if len(values) else np.nan
    deviation = float(values.std(ddof=1)) if len(values) > 1 else np.nan
    return {"seeds": len(values), "cfeval": mean, "deviation": deviation, "paper": paper, "difference": mean - paper}
