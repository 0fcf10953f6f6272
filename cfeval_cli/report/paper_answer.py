"""How the results of one of the paper's experiments differ from the paper's tables, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from cfeval_cli.report.published import (
    DATASETS,
    EXPLAINERS,
    TRUTH,
    Key,
    Pair,
    Published,
    Series,
    load_figures,
    parse_figures,
)
from cfeval_cli.report.recommendation import AnswerText
from cfeval_cli.report.titles import make_metric_title
from cfeval_cli.report.wording import join_names
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.ranking import compute_ranks
from cfeval_cli.statistics.run_statistics import RunStatistics
from cfeval_cli.statistics.subsets import select_subset

EXPERIMENTS: dict[Key, str] = {
    ("1", "adults"): "table1_adults",
    ("1", "movie_reviews"): "table1_movie_reviews",
    ("3", "adults"): "table3",
}
# settings that the paper defines: the experiments set them, or leave them at their defaults
PAPER_SETTINGS = {"support": "own", "incomplete": "skip", "agreement": "recall", "access": "gradient"}
_K = {"1": 1, "3": 2}
_REQUIRED_LEVELS = {"adults": {"label", "probability"}, "movie_reviews": {"gradient"}}  # of the search
_REQUIRED_EXPLAINERS = {"1": set(EXPLAINERS), "3": {"random", "lime", "anchor", "lr"}}
_ROUNDING = 1e-9
_Rows = Mapping[Pair, pd.Series]  # values by explainer


def identify_experiment(record: RunRecord) -> Key | None:
    """Return the table and dataset of the paper that a run repeats, by what it computed; None for other runs."""
    for table, dataset in EXPERIMENTS:
        if (
            record.data.name == dataset
            and record.settings.k == _K[table]
            # the paper's LIME, like the package, orders features by their absolute weights
            and record.explainer_settings.get("lime", {}).get("order") == "absolute"
            and _REQUIRED_LEVELS[dataset] <= set(record.levels)
            and _REQUIRED_EXPLAINERS[table] <= set(record.explainers)
        ):
            return table, dataset
    return None


def write_paper_answer(statistics: RunStatistics, record: RunRecord) -> AnswerText | None:
    """Write how a run differs from the paper's table; None for a run with other definitions than the paper's."""
    key = identify_experiment(record)
    settings = record.settings
    if key is None or any(getattr(settings, name) != value for name, value in PAPER_SETTINGS.items()):
        return None
    published, truth = parse_figures(load_figures()), (TRUTH[0], settings.truth[0])
    lines = statistics.metrics[statistics.metrics["quality_level"].isna()]
    values: dict[Pair, pd.Series] = {
        (str(metric), str(variant)): rows.set_index("explainer")["value"].dropna()
        for (metric, variant), rows in lines.groupby(["metric", "variant"], sort=False)
    }
    values[TRUTH] = values.get(truth, pd.Series(dtype=float))
    n_equal, n_ranks = _count_equal_ranks(published, key, values)
    place = f"Table {key[0]} ({DATASETS[key[1]]})"
    return AnswerText(
        f"Paper: {n_equal} of the {n_ranks} ranks in {place} are reproduced",
        _compare_orders(published.find_truth(key), values[TRUTH], record),
        [*_compare_taus(published, key, statistics, record), *_compare_runs(published, key, record)],
        [],
    )


def _count_equal_ranks(published: Published, key: Key, values: _Rows) -> tuple[int, int]:
    """Return how many ranks are equal, and how many are compared: of metrics with values for the same explainers."""
    n_equal = n_ranks = 0
    for pair in dict.fromkeys(series.pair for series in published.list_series(key)):
        series = published.find_series(key, pair)
        if series is None or pair not in values:
            continue
        paper = {name: figure.value for name, figure in series.figures.items()}
        own = values[pair]
        if not set(paper) <= set(own.index) or np.isnan(list(paper.values())).any():
            continue
        sides = (np.array(list(paper.values())), own[list(paper)].to_numpy(float))
        ranks = [compute_ranks(side, series.better or "lower") for side in sides]
        n_equal += int((ranks[0] == ranks[1]).sum())
        n_ranks += len(paper)
    return n_equal, n_ranks


def _compare_orders(series: Series | None, own: pd.Series, record: RunRecord) -> str:
    """Write the order of the explainers by the ground truth, in this run and in the paper."""
    if series is None or own.empty:
        return ""
    paper = pd.Series({name: figure.value for name, figure in series.figures.items()})
    own = own[[name for name in paper.index if name in own.index]]
    orders = [list(side.sort_values(ascending=False, kind="stable").index) for side in (own, paper)]
    titles = [", ".join(record.explainers.get(name, EXPLAINERS[name]) for name in order) for order in orders]
    if orders[0] == orders[1]:
        return f"order by the ground truth, as in the paper: {titles[0]}"
    return f"order by the ground truth: {titles[0]}; in the paper: {titles[1]}"


def _compare_taus(published: Published, key: Key, statistics: RunStatistics, record: RunRecord) -> list[str]:
    """Write the metrics with the highest τ in the paper, and those with the highest τ in this run."""
    lines = select_subset(statistics.correlations)
    lines = lines[(lines["truth"] == record.settings.truth[0]) & (lines["agreement"] == TRUTH[0])]
    own: dict[Pair, float] = dict(zip(zip(lines["metric"], lines["variant"], strict=True), lines["tau"], strict=True))
    taus: dict[Pair, tuple[float, float]] = {
        coefficient.pair: (coefficient.figure.value, own.get(coefficient.pair, np.nan))
        for coefficient in published.coefficients
        if (coefficient.table, coefficient.dataset, coefficient.kind) == ("3" if key[0] == "3" else "2", key[1], "tau")
    }
    taus = {pair: both for pair, both in taus.items() if not np.isnan(both).any()}
    if not taus:
        return []
    paper_best, own_best = (_find_highest({pair: both[side] for pair, both in taus.items()}) for side in (0, 1))
    paper_titles, own_titles = (_join_titles(pairs, record) for pairs in (paper_best, own_best))
    text = (
        f"Over all {int(lines['explainers'].max())} explainers, the highest τ with the ground truth in the paper is "
        f"that of {paper_titles} ({_write_taus(paper_best, taus, 0)}; here {_write_taus(paper_best, taus, 1)})"
    )
    if paper_titles == own_titles:
        return [f"{text}, as in this run."]
    return [
        f"{text}, in this run that of {own_titles} ({_write_taus(own_best, taus, 1)}; in the paper "
        f"{_write_taus(own_best, taus, 0)})."
    ]


def _find_highest(values: Mapping[Pair, float]) -> list[Pair]:
    highest = max(values.values())
    return [pair for pair, value in values.items() if highest - value < _ROUNDING]


def _join_titles(pairs: Sequence[Pair], record: RunRecord) -> str:
    return join_names([make_metric_title(*pair, record).plain for pair in pairs])


def _write_taus(pairs: Sequence[Pair], taus: Mapping[Pair, tuple[float, float]], side: int) -> str:
    """Write the τ of some metrics; one number if they are equal."""
    return join_names(list(dict.fromkeys(f"{taus[pair][side]:.2f}" for pair in pairs)))


def _compare_runs(published: Published, key: Key, record: RunRecord) -> list[str]:
    """Write the accuracy of both models, and whether the run explains fewer instances than the experiment."""
    printed = published.texts.get((key[1], "accuracy", "test"))
    notes = []
    if printed is not None:
        accuracy = 100 * record.accuracy["test"]
        notes.append(
            f"The model has a test accuracy of {accuracy:.1f} %, that of the paper {100 * printed.value:.1f} %."
        )
    if record.settings.n_explain is not None:
        notes.append(f"This run explains a sample of {record.instances:,} test instances, the paper all of them.")
    notes.append("`cfeval paper compare` compares each value, and tests the paper's claims over several seeds.")
    return notes
