"""The tables of a sweep as data frames; docs/run-folder.md documents every file and column."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cfeval_cli.core import Floats
from cfeval_cli.report.titles import list_truth_metrics
from cfeval_cli.statistics.metrics_over_seeds import COLUMNS, compare_metrics_over_seeds
from cfeval_cli.statistics.ranking_stability import ANY_SETTING, RankingStability, RunPairs
from cfeval_cli.statistics.seeds import aggregate_over_seeds
from cfeval_cli.statistics.subsets import ALL_EXPLAINERS, WITHOUT_CONTROLS, select_subset
from cfeval_cli.study.sweep.runs import (
    RankedExplainers,
    Sweep,
    SweepRun,
    collect_taus,
    list_ranked_explainers,
    merge_records,
)

_STABILITY = ["metric", "variant", "subset", "key", "pairs", "left_out", "tau", "tau_lowest", "same", "same_best"]
# parts of the keys of random streams, which never change
_STREAM_NAMES = {"shapley": "centered"}  # keys of random streams are frozen: the former name of this truth
_STREAMS = {ALL_EXPLAINERS: "tau", WITHOUT_CONTROLS: "tau_without_controls"}


@dataclass(frozen=True)
class SweepFrames:
    """The tables that a sweep writes; each field is the name of a file."""

    sweep: pd.DataFrame
    seeds_metrics: pd.DataFrame
    seeds_correlations: pd.DataFrame
    stability: pd.DataFrame
    stability_truth: pd.DataFrame

    def get_files(self) -> dict[str, pd.DataFrame]:
        """Return the tables by name, with text instead of objects."""
        correlations = self.seeds_correlations
        return {**vars(self), "seeds_correlations": correlations.assign(ranked=correlations["ranked"].map(str))}


def compute_frames(sweep: Sweep) -> SweepFrames:
    """Compute all tables of a sweep."""
    return SweepFrames(
        _list_runs(sweep),
        _aggregate_metrics(sweep),
        _aggregate_correlations(sweep),
        _compute_stability(sweep),
        _compute_tau_ranges(sweep),
    )


def sort_key(name: str) -> list[str | int]:
    """Return a sort key that places folder 2 before folder 10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def index_tau_ranges(ranges: pd.DataFrame) -> dict[tuple[str, str, str], tuple[float, float]]:
    """Return lowest and highest τ by metric, variant and truth from the rows of stability_truth.csv of one subset."""
    keys = zip(ranges["metric"], ranges["variant"], ranges["truth"], strict=True)
    return dict(zip(keys, zip(ranges["tau_lowest"], ranges["tau_highest"], strict=True), strict=True))


def _list_runs(sweep: Sweep) -> pd.DataFrame:
    runs = [(run, "complete") for run in sweep.runs] + sweep.excluded
    return pd.DataFrame(
        [
            {
                "folder": run.name,
                "seed": run.seed,
                **sweep.make_columns(run),
                "status": status,
                "test_accuracy": run.record.accuracy.get("test"),
                "instances": run.record.instances or None,
            }
            for run, status in sorted(runs, key=lambda item: sort_key(item[0].name))
        ]
    ).astype({"seed": "Int64", "instances": "Int64"})


def _concatenate(sweep: Sweep, table: str) -> pd.DataFrame:
    """Concatenate the metrics or the correlations of all runs, with the numbers of the run and of its group."""
    groups = {values: number for number, values in enumerate(sweep.groups)}
    frames: list[pd.DataFrame] = [
        getattr(run, table).assign(run=number, group=groups[sweep.get_values(run)])
        for number, run in enumerate(sweep.runs)
    ]
    return pd.concat(frames, ignore_index=True)


def _replace_group_by_settings(sweep: Sweep, rows: pd.DataFrame) -> pd.DataFrame:
    """Replace the number of the group by the values of the varied settings."""
    rows = rows.sort_values("group", kind="stable", ignore_index=True)
    by_group = pd.DataFrame([sweep.make_columns(runs[0]) for runs in sweep.groups.values()])
    settings = by_group.iloc[rows["group"]].reset_index(drop=True)
    return pd.concat([settings, rows.drop(columns="group")], axis=1)


def _aggregate_metrics(sweep: Sweep) -> pd.DataFrame:
    rows = _concatenate(sweep, "metrics")
    keys = ["metric", "variant", "explainer"]
    levels = rows.drop_duplicates(keys).set_index(keys)["quality_level"]
    means = aggregate_over_seeds(rows, ["group", *keys], "value", "value_se")
    means.insert(4, "quality_level", levels.loc[pd.MultiIndex.from_frame(means[keys])].to_numpy())
    means["not_identifiable"] = _count_moves(rows, ["group", *keys])
    return _replace_group_by_settings(sweep, means)


def _count_moves(rows: pd.DataFrame, keys: Sequence[str]) -> pd.Series:
    """Count the runs in which a reparametrisation of the model changes the value, by key; empty if none was tried."""
    return (
        rows.groupby(list(keys), sort=False)["not_identifiable"].sum(min_count=1).reset_index(drop=True).astype("Int64")
    )


def _aggregate_correlations(sweep: Sweep) -> pd.DataFrame:
    rows = _concatenate(sweep, "correlations")
    metric_keys = ["group", "metric", "variant", "family", "truth", "agreement"]
    keys = [*metric_keys, "subset"]
    tau, rho = (
        aggregate_over_seeds(part, keys, name, f"{name}_se").assign(coefficient=name)
        for name, part in (("tau", rows), ("rho", select_subset(rows)))
    )
    tau["not_identifiable"], rho["not_identifiable"] = _count_moves(rows, keys), pd.array([pd.NA] * len(rho), "Int64")
    means = pd.concat([tau, rho], ignore_index=True)
    # the rows of a metric stand together
    by_metric = means.groupby(metric_keys, sort=False).ngroup()
    means = means.iloc[np.argsort(by_metric, kind="stable")].reset_index(drop=True)
    means.insert(len(keys), "coefficient", means.pop("coefficient"))
    means = _add_tests(sweep, _add_ranked_explainers(sweep, means))
    return _replace_group_by_settings(
        sweep, means[[*means.columns.drop(["not_identifiable", "ranked"]), "not_identifiable", "ranked"]]
    )


def _add_ranked_explainers(sweep: Sweep, means: pd.DataFrame) -> pd.DataFrame:
    """Add the explainers that each metric ranks."""
    means = means.assign(ranked=pd.Series([RankedExplainers()] * len(means), means.index, dtype=object))
    groups = list(sweep.groups.values())
    rows = means[means["family"] == "explainers"]
    for (group, truth, subset), lines in rows.groupby(["group", "truth", "subset"], sort=False):
        pairs = zip(lines["metric"], lines["variant"], strict=True)
        has_controls = subset == ALL_EXPLAINERS
        ranked = list_ranked_explainers(groups[int(str(group))], str(truth), pairs, controls=has_controls)
        means.loc[lines.index, "ranked"] = pd.Series(ranked, lines.index, dtype=object)
    return means


def _add_tests(sweep: Sweep, means: pd.DataFrame) -> pd.DataFrame:
    """Add intervals and tests of each mean τ over seeds and their instances, under the leading agreement."""
    means = means.assign(**dict.fromkeys(COLUMNS, np.nan))
    for number, group in enumerate(sweep.groups.values()):
        if len(group) < 2:
            continue
        # by seed, so that results do not depend on the names of folders
        runs = sorted(group, key=lambda run: run.record.settings.seed)
        is_tested = (means["group"] == number) & (means["family"] == "explainers") & (means["coefficient"] != "rho")
        is_tested &= means["agreement"] == runs[0].record.settings.agreement
        is_tested &= ~means["metric"].isin(list_truth_metrics(merge_records(runs)))
        for (truth, subset), lines in means[is_tested].groupby(["truth", "subset"], sort=False):
            pairs = pd.MultiIndex.from_frame(lines[["metric", "variant"]])
            by_run = [_pivot_taus(run.correlations, run, str(truth), str(subset), pairs)[0] for run in runs]
            draws = [_pivot_taus(run.draws, run, str(truth), str(subset), pairs) for run in runs]
            stream = f"{_STREAM_NAMES.get(str(truth), truth)}.{_STREAMS[str(subset)]}"
            tests = compare_metrics_over_seeds(np.stack(by_run), draws, stream, list(map(str, lines["ranked"])))
            means.loc[lines.index, COLUMNS] = tests[COLUMNS].to_numpy()
    return means


def _pivot_taus(table: pd.DataFrame, run: SweepRun, truth: str, subset: str, pairs: pd.MultiIndex) -> Floats:
    """Return τ with a column for each metric, and a row for each resample, or one row for the run itself."""
    is_wanted = (table["truth"] == truth) & (table["agreement"] == run.record.settings.agreement)
    is_wanted &= table["subset"] == subset
    is_wanted = is_wanted & (table["family"] == "explainers") if "family" in table else is_wanted
    lines = np.flatnonzero(is_wanted)
    draw = table["draw"].to_numpy()[lines] if "draw" in table else np.zeros(len(lines), dtype=int)
    draws, rows = np.unique(draw, return_inverse=True)
    columns = pairs.get_indexer(pd.MultiIndex.from_arrays([table[name].to_numpy()[lines] for name in pairs.names]))
    # get_indexer returns -1 for metrics that are not among the pairs: they go to a spare last column
    wide = np.full((len(draws), len(pairs) + 1), np.nan)
    wide[rows, columns] = table["tau"].to_numpy(float)[lines]
    return wide[:, :-1]


def _compute_stability(sweep: Sweep) -> pd.DataFrame:
    pairs = RunPairs.from_settings(sweep.encode_settings())
    settings = [*sweep.varied, "seed"]
    selected = {key: pairs.differ_only_in(place) for place, key in enumerate(settings) if pairs.differs[:, place].any()}
    if len(pairs.first):
        selected[ANY_SETTING] = np.ones(len(pairs.first), dtype=bool)
    rows = _concatenate(sweep, "metrics")
    rows = rows[(rows["better"] != "none") & rows["quality_level"].isna()]
    controls = {str(name) for name in rows.loc[rows["control"] == 1, "explainer"]}
    lines = []
    for (metric, variant), of_metric in rows.groupby(["metric", "variant"], sort=False):
        values = of_metric.pivot(index="run", columns="explainer", values="value").reindex(range(len(sweep.runs)))
        by_subset = {ALL_EXPLAINERS: values, WITHOUT_CONTROLS: values.drop(columns=controls & set(values))}
        for subset, of_subset in by_subset.items():
            stability = RankingStability.compute(of_subset.to_numpy(float), of_metric["better"].iloc[0], pairs)
            for key, is_selected in selected.items():
                names = {"metric": metric, "variant": variant, "subset": subset, "key": key}
                lines.append({**names, **stability.summarise(is_selected)})
    return pd.DataFrame(lines, columns=_STABILITY)


def _compute_tau_ranges(sweep: Sweep) -> pd.DataFrame:
    """Return the lowest and highest τ over the runs with each truth, by metric, variant and subset."""
    rows = collect_taus(sweep)
    rows = rows[rows["family"] == "explainers"]
    keys = ["metric", "variant", "subset", "truth"]
    return rows.groupby(keys, sort=False)["tau"].agg(tau_lowest="min", tau_highest="max").reset_index()
