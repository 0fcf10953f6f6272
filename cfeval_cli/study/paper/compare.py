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
from cfeval_cli.core.files import format_csv, refuse_linked_path
from cfeval_cli.errors import UserError
from cfeval_cli.report.page.build import render_template
from cfeval_cli.report.published import Better, Pair, Published, load_figures, parse_figures
from cfeval_cli.report.render.latex import render_latex
from cfeval_cli.report.render.markdown import render_markdown
from cfeval_cli.report.table import Table
from cfeval_cli.statistics.ranking import compute_ranks
from cfeval_cli.study.paper import comparison_tables
from cfeval_cli.study.paper.audit import audit_paper
from cfeval_cli.study.paper.claims import ClaimVerdict, Outcome, evaluate_claims, list_truths
from cfeval_cli.study.paper.views import ComputedView, read_views, view_published
from cfeval_cli.study.run_folders import write_texts

CELLS = [
    "table", "dataset", "metric", "variant", "explainer", "coefficient", "truth", "seeds", "cfeval", "deviation",
    "paper", "difference", "cfeval_rank", "paper_rank",
]  # fmt: skip
VERDICTS = [
    "claim", "text", "scope", "truth", "verdict", "seeds", "holds_in", "low", "high", "p", "p_holm", "tests", "needed",
    "by_paper_figures", "figures",
]  # fmt: skip
_PHRASES: dict[Outcome, tuple[str, str]] = {  # singular and plural
    "holds": ("holds", "hold"), "does not hold": ("does not hold", "do not hold"),
    "refuted": ("is refuted", "are refuted"), "open": ("is open", "are open"),
    "not computed": ("is not computed", "are not computed"),
}  # fmt: skip

_TITLE = "Counterfactual evaluation: paper and cfeval"
_LATEX = r"""\documentclass{{article}}
\usepackage[margin=2cm]{{geometry}}
\usepackage{{booktabs,graphicx}}
\begin{{document}}
{body}
\end{{document}}
"""


@dataclass(frozen=True)
class Comparison:
    """The cells, the verdicts and the tables of a comparison."""

    cells: pd.DataFrame
    verdicts: list[ClaimVerdict]
    tables: list[Table]

    @property
    def answer(self) -> str:
        """Count the verdicts under the first truth."""
        truth = self.verdicts[0].truth
        verdicts = [verdict for verdict in self.verdicts if verdict.truth == truth]
        counts = {outcome: sum(verdict.outcome == outcome for verdict in verdicts) for outcome in _PHRASES}
        text = ", ".join(f"{count} {_PHRASES[outcome][count != 1]}" for outcome, count in counts.items() if count)
        seeds = max(verdict.seeds for verdict in verdicts)
        return f"of the paper's {len(verdicts)} claims {text} (truth: {truth}, {seeds} seed{'s' * (seeds != 1)})"

    @property
    def brief(self) -> Table:
        """Build the table of claims for the screen."""
        return comparison_tables.build_brief(self.verdicts)


def compare(folders: Sequence[Path], into: Path, tables: Sequence[str] = ("1", "2", "3")) -> Comparison:
    """Compare the paper with run folders; write paper.csv, claims.csv, paper.md, paper.tex and paper.html."""
    refuse_linked_path(into)
    published, views = parse_figures(load_figures()), read_views(folders)
    if not any(view.records for view in views):
        raise UserError("none of the folders has a run of the paper's experiments.")
    cells = pd.DataFrame([*_list_values(published, views), *_list_coefficients(published, views)], columns=CELLS)
    verdicts = evaluate_claims(published, views)
    document = comparison_tables.build_tables(published, cells, views, tables)
    document.append(comparison_tables.build_claims(verdicts))
    # the screen does not show the audit, which has a command of its own
    document += [replace(table, is_supplementary=True) for table in audit_paper().build_tables()]
    lines = pd.DataFrame([_describe_verdict(verdict) for verdict in verdicts], columns=VERDICTS)
    comparison = Comparison(cells, verdicts, document)
    texts = {
        "paper.csv": format_csv(cells),
        "claims.csv": format_csv(lines),
        **render_documents(document, comparison.answer),
    }
    write_texts(into, texts)
    return comparison


def render_documents(tables: Sequence[Table], headline: str) -> dict[str, str]:
    """Return the texts of paper.md, paper.tex and paper.html."""
    return {
        "paper.md": f"# {_TITLE}\n\n" + "\n".join(map(render_markdown, tables)),
        "paper.tex": _LATEX.format(body="\n".join(map(render_latex, tables))),
        "paper.html": render_template("paper.html", tables, [], title=_TITLE, headline=headline),
    }


def _describe_verdict(verdict: ClaimVerdict) -> dict[str, Any]:
    low, high = verdict.interval
    return {
        "claim": verdict.claim.id, "text": verdict.claim.text, "scope": verdict.claim.scope, "truth": verdict.truth,
        "verdict": verdict.outcome, "seeds": verdict.seeds, "holds_in": verdict.holds_in, "low": low, "high": high,
        "p": verdict.p, "p_holm": verdict.p_holm, "tests": verdict.tests, "needed": verdict.n_required_seeds or "",
        "by_paper_figures": {None: "not printed", True: "holds", False: "does not hold"}[verdict.printed],
        "figures": "; ".join(f"{name} {value:.4f}" for name, value in verdict.figures.items()),
    }  # fmt: skip


def _list_values(published: Published, views: Sequence[ComputedView]) -> Iterator[dict[str, Any]]:
    """List the values of explainers in Tables 1 and 3."""
    paper = view_published(published)
    for series in published.series:
        key, pair = series.key, series.pair
        paper_ranks = paper.rank_explainers(key, pair)
        for truth in list_truths(views):
            values = [view.values.get((key, pair), {}) for view in views if view.truth == truth and key in view.records]
            seeds = {
                name: np.array([by_name[name] for by_name in values if name in by_name]) for name in series.figures
            }
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


def _list_coefficients(published: Published, views: Sequence[ComputedView]) -> Iterator[dict[str, Any]]:
    """List τ and ρ of Tables 2 and 3."""
    for coefficient in published.coefficients:
        key, pair, kind = coefficient.source, coefficient.pair, coefficient.kind
        for truth in list_truths(views):
            values = [view.get_coefficient(key, pair, kind) for view in views if view.truth == truth]
            yield {
                **_locate(coefficient.table, coefficient.dataset, pair, truth), "explainer": "", "coefficient": kind,
                **_summarise(np.array([value for value in values if not isnan(value)]), coefficient.figure.value),
            }  # fmt: skip


def _locate(table: str, dataset: str, pair: Pair, truth: str) -> dict[str, str]:
    return {"table": table, "dataset": dataset, "metric": pair[0], "variant": pair[1], "truth": truth}


def _summarise(values: Floats, paper: float) -> dict[str, float]:
    mean = float(values.mean()) if len(values) else np.nan
    deviation = float(values.std(ddof=1)) if len(values) > 1 else np.nan
    return {"seeds": len(values), "cfeval": mean, "deviation": deviation, "paper": paper, "difference": mean - paper}
