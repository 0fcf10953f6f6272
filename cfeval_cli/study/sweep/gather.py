"""A sweep in one table: what several runs say together.

Reads run.json, metrics.csv and correlations.csv of each run, and nothing else: no component is made from what lies in
a folder. docs/run-folder.md documents every file and column that is written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.core import Floats
from cfeval_cli.core.files import as_csv, refuse_linked_path
from cfeval_cli.errors import UserError, escape_controls
from cfeval_cli.report.render.latex import render_latex
from cfeval_cli.report.render.markdown import render_markdown
from cfeval_cli.report.table import Table
from cfeval_cli.report.titles import list_truth_metrics
from cfeval_cli.results import validation as checked
from cfeval_cli.results.record import RunRecord, SettingsEntry
from cfeval_cli.statistics.correlation import TAU_RESAMPLES_COLUMNS
from cfeval_cli.statistics.metrics_over_seeds import COLUMNS, compare_metrics_over_seeds
from cfeval_cli.statistics.ranking_stability import ANY_SETTING, RankingStability, RunPairs
from cfeval_cli.statistics.seeds import aggregate_over_seeds
from cfeval_cli.statistics.subsets import ALL_EXPLAINERS, WITHOUT_CONTROLS, select_subset
from cfeval_cli.study.run_folders import find_run_folders, read_table, report_damage, write_texts
from cfeval_cli.study.sweep import brief
from cfeval_cli.study.sweep import tables as report
from cfeval_cli.study.sweep.answer import Answer, say
from cfeval_cli.study.sweep.runs import Run, Sweep, ranked_alike, taus
from cfeval_cli.study.sweep.tables import merged

NAME = "report.html"
RESAMPLES = "tau_resamples.parquet"

_RECORD = (
    "status", "settings", "explainers", "metrics", "removals", "search", "setup", "data", "accuracy", "instances",
)  # fmt: skip
_SETTINGS = ("seed", "k", "gold", "agreement", "incomplete")
_METRICS = ["metric", "variant", "explainer", "rung", "control", "value", "value_se", "n", "better", "moves"]
_COEFFICIENTS = ("tau", "rho")
_CORRELATIONS = ["metric", "variant", "family", "gold", "agreement", "subset", "explainers"]
_CORRELATIONS += [f"{name}{end}" for name in _COEFFICIENTS for end in ("", "_se")]
_CORRELATIONS += ["moves"]
_STABILITY = ["metric", "variant", "subset", "key", "pairs", "left_out", "tau", "tau_lowest", "same", "same_best"]
# parts of the keys of random streams, which never change
_STREAMS = {ALL_EXPLAINERS: "tau", WITHOUT_CONTROLS: "tau_without_controls"}


@dataclass(frozen=True)
class Gathered:
    """What was written, and what was left out."""

    folder: Path
    sweep: Sweep
    tables: list[Table]
    frames: Mapping[str, pd.DataFrame]  # by the names of their files
    page: Path | None = None  # the report

    @cached_property
    def answer(self) -> Answer:
        """What the runs say together."""
        return say(self.sweep, self.frames["seeds_correlations"])

    @cached_property
    def brief(self) -> Table:
        """One table for a screen."""
        return brief.of_sweep(self.sweep, *self.frames.values())


def gather(
    folders: Sequence[Path], into: Path, lost: Mapping[Path, Sequence[str]] | None = None, *, page: bool = False
) -> Gathered:
    """Read the runs in some folders and write what they say together, as a page too if that is wanted.

    `lost` has the overrides of jobs that failed so early that they left no folder.
    """
    refuse_linked_path(into)
    if (into / "run.json").exists():
        raise UserError(f"{into} is the folder of a run, whose own tables would be lost: name another with --into.")
    into = into.resolve()
    runs = [read_run(path, _name(path, into)) for path in find_run_folders(folders)]
    for path, overrides in (lost or {}).items():
        assigned = _assigned(overrides)
        settings = SettingsEntry(seed=int(assigned["seed"])) if assigned.get("seed", "").isdigit() else SettingsEntry()
        runs.append(Run(_name(path, into), RunRecord(status="failed", settings=settings), assigned))
    sweep = Sweep.of(sorted(runs, key=lambda run: _natural(run.name)))
    if not sweep.runs:
        raise UserError(f"no run is complete. Not gathered: {sweep.left_out}.")
    frames = {
        "sweep": _lines(sweep),
        "seeds_metrics": _seeds_metrics(sweep),
        "seeds_correlations": _seeds_correlations(sweep),
        "stability": _stability(sweep),
    }
    tables = report.make(sweep, *frames.values())
    texts = {f"{name}.csv": as_csv(frame) for name, frame in frames.items()}
    texts |= {"tables.md": "\n".join(map(render_markdown, tables))}
    texts |= {"tables.tex": "\n".join(map(render_latex, tables))}
    write_texts(into, texts)
    done = Gathered(into, sweep, tables, frames, into / NAME if page else None)
    if page:
        from cfeval_cli.study.sweep import page as pages  # here: it draws, which not everyone waits for

        pages.write(sweep, frames["sweep"], done.answer, tables, into)
    return done


def _name(path: Path, into: Path) -> str:
    return escape_controls(Path(os.path.relpath(path.resolve(), into)).as_posix())


def _natural(name: str) -> list[str | int]:
    """2 comes before 10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def read_run(path: Path, name: str) -> Run:
    """Read a run folder under the name that the sweep shows."""
    record = checked.read(path)
    with report_damage(f"{path} cannot be gathered"):
        if record.overrides is None:
            raise ValueError("run.json has no overrides")
        overrides = _assigned(record.overrides)
        if record.status != "complete":
            return Run(name, record, overrides)
        checked.tells(record, (*_RECORD, *(f"settings.{key}" for key in _SETTINGS)))
        metrics = _read_table(path, record, "metrics.csv", _METRICS)
        correlations = _read_table(path, record, "correlations.csv", _CORRELATIONS)
        checked.check_tables(record, metrics, correlations)
        return Run(name, record, overrides, metrics, correlations, _draws(path, record))


def _draws(path: Path, record: RunRecord) -> pd.DataFrame:
    """τ in resamples of the run's instances, if it has any."""
    if RESAMPLES not in record.files:
        return pd.DataFrame(columns=TAU_RESAMPLES_COLUMNS)
    table = pd.read_parquet(path / RESAMPLES, columns=TAU_RESAMPLES_COLUMNS)
    numbers = {"draw": "int64", "tau": "float64"}
    table = table.astype({**dict.fromkeys(TAU_RESAMPLES_COLUMNS, "str"), **numbers})
    if table.duplicated([name for name in TAU_RESAMPLES_COLUMNS if name != "tau"]).any() or (table["draw"] < 0).any():
        raise ValueError(f"{RESAMPLES} has two lines of the same draw")
    return table


def _read_table(path: Path, record: RunRecord, name: str, columns: list[str]) -> pd.DataFrame:
    table = read_table(path, record, name, columns)
    # pandas groups Python strings in half the time, among so few rows
    return pd.DataFrame(table[columns]).astype({of: object if of in checked.WORDS else float for of in columns})


def _assigned(overrides: Sequence[str]) -> dict[str, str]:
    """Key and value of each override: key=value, +key=value, ++key=value; ~key takes something out."""
    split = (override.partition("=") for override in overrides)
    return {key.lstrip("+~"): "removed" if key.startswith("~") else value for key, _, value in split}


def _lines(sweep: Sweep) -> pd.DataFrame:
    """Rows of sweep.csv."""
    runs = [(run, "complete") for run in sweep.runs] + sweep.others
    return pd.DataFrame(
        [
            {
                "folder": run.name,
                "seed": run.seed,
                **sweep.columns(run),
                "status": why,
                "test_accuracy": run.record.accuracy.get("test"),
                "instances": run.record.instances or None,
            }
            for run, why in sorted(runs, key=lambda one: _natural(one[0].name))
        ]
    ).astype({"seed": "Int64", "instances": "Int64"})


def _stacked(sweep: Sweep, what: str) -> pd.DataFrame:
    """The metrics or the correlations of all runs, with the number of the run and of its group."""
    places = {values: place for place, values in enumerate(sweep.groups)}
    frames: list[pd.DataFrame] = [
        getattr(run, what).assign(run=number, group=places[sweep.values(run)]) for number, run in enumerate(sweep.runs)
    ]
    return pd.concat(frames, ignore_index=True)


def _with_settings(sweep: Sweep, found: pd.DataFrame) -> pd.DataFrame:
    """Groups by the settings that make them, instead of by their numbers."""
    found = found.sort_values("group", kind="stable", ignore_index=True)
    of_group = pd.DataFrame([sweep.columns(runs[0]) for runs in sweep.groups.values()])
    settings = of_group.iloc[found["group"]].reset_index(drop=True)
    return pd.concat([settings, found.drop(columns="group")], axis=1)


def _seeds_metrics(sweep: Sweep) -> pd.DataFrame:
    rows = _stacked(sweep, "metrics")
    by = ["metric", "variant", "explainer"]
    rungs = rows.drop_duplicates(by).set_index(by)["rung"]
    found = aggregate_over_seeds(rows, ["group", *by], "value", "value_se")
    found.insert(4, "rung", rungs.loc[pd.MultiIndex.from_frame(found[by])].to_numpy())
    found["moves"] = _moving(rows, ["group", *by], "moves")
    return _with_settings(sweep, found)


def _moving(rows: pd.DataFrame, by: Sequence[str], name: str) -> pd.Series:
    """For each key, in its first order, in how many runs other parameters of the model move it; empty if none tried."""
    return rows.groupby(list(by), sort=False)[name].sum(min_count=1).reset_index(drop=True).astype("Int64")


def _seeds_correlations(sweep: Sweep) -> pd.DataFrame:
    rows = _stacked(sweep, "correlations")
    by = ["group", "metric", "variant", "family", "gold", "agreement"]
    keys = [*by, "subset"]
    tau, rho = (
        aggregate_over_seeds(some, keys, name, f"{name}_se").assign(coefficient=name)
        for name, some in zip(_COEFFICIENTS, (rows, select_subset(rows)), strict=True)
    )
    tau["moves"], rho["moves"] = _moving(rows, keys, "moves"), pd.array([pd.NA] * len(rho), "Int64")
    found = pd.concat([tau, rho], ignore_index=True)
    # all of a metric together
    found = found.iloc[np.argsort(found.groupby(by, sort=False).ngroup(), kind="stable")].reset_index(drop=True)
    found.insert(len(keys), "coefficient", found.pop("coefficient"))
    found = _together(sweep, _with_ranked(sweep, found))
    return _with_settings(sweep, found[[*found.columns.drop(["moves", "ranked"]), "moves", "ranked"]])


def _together(sweep: Sweep, found: pd.DataFrame) -> pd.DataFrame:
    """What seeds and, within them, instances say of each mean τ, under the agreement that the runs lead with."""
    found = found.assign(**dict.fromkeys(COLUMNS, np.nan))
    for place, group in enumerate(sweep.groups.values()):
        if len(group) < 2:
            continue
        # by seed, so that it does not matter what the folders are called
        runs = sorted(group, key=lambda run: run.record.settings.seed)
        mine = (found["group"] == place) & (found["family"] == "explainers") & (found["coefficient"] != "rho")
        mine &= found["agreement"] == runs[0].record.settings.agreement
        mine &= ~found["metric"].isin(list_truth_metrics(merged(runs)))
        for (gold, subset), lines in found[mine].groupby(["gold", "subset"], sort=False):
            pairs = pd.MultiIndex.from_frame(lines[["metric", "variant"]])
            values = np.stack([_by_pair(run.correlations, run, str(gold), str(subset), pairs)[0] for run in runs])
            draws = [_by_pair(run.draws, run, str(gold), str(subset), pairs) for run in runs]
            told = compare_metrics_over_seeds(
                values, draws, f"{gold}.{_STREAMS[str(subset)]}", lines["ranked"].tolist()
            )
            found.loc[lines.index, COLUMNS] = told[COLUMNS].to_numpy()
    return found


def _with_ranked(sweep: Sweep, found: pd.DataFrame) -> pd.DataFrame:
    """The lines with whom each metric ranks, of the explainers: the same in all seeds, or one after the other."""
    found = found.assign(ranked="")
    mine = found[found["family"] == "explainers"]
    for (place, gold, subset), lines in mine.groupby(["group", "gold", "subset"], sort=False):
        runs = list(sweep.groups.values())[int(str(place))]
        pairs = zip(lines["metric"], lines["variant"], strict=True)
        found.loc[lines.index, "ranked"] = ranked_alike(runs, str(gold), pairs, controls=subset == ALL_EXPLAINERS)
    return found


def _by_pair(table: pd.DataFrame, run: Run, gold: str, subset: str, pairs: pd.MultiIndex) -> Floats:
    """The τ of each metric in a column: a row for each resample, or one for the run itself."""
    mine = (table["gold"] == gold) & (table["agreement"] == run.record.settings.agreement)
    mine &= table["subset"] == subset
    mine = mine & (table["family"] == "explainers") if "family" in table else mine
    lines = np.flatnonzero(mine)
    drawn = table["draw"].to_numpy()[lines] if "draw" in table else np.zeros(len(lines), dtype=int)
    rows, places = np.unique(drawn, return_inverse=True)
    columns = pairs.get_indexer(pd.MultiIndex.from_arrays([table[of].to_numpy()[lines] for of in pairs.names]))
    wide = np.full((len(rows), len(pairs) + 1), np.nan)  # the last is for metrics that are not asked about: -1
    wide[places, columns] = table["tau"].to_numpy(float)[lines]
    return wide[:, :-1]


def _stability(sweep: Sweep) -> pd.DataFrame:
    pairs = RunPairs.of(sweep.numbered)
    varied = [*sweep.keys, "seed"]
    chosen = {key: pairs.only(place) for place, key in enumerate(varied) if pairs.differ[:, place].any()}
    if len(pairs.one):
        chosen[ANY_SETTING] = np.ones(len(pairs.one), dtype=bool)
    rows = _stacked(sweep, "metrics")
    rows = rows[(rows["better"] != "none") & rows["rung"].isna()]
    controls = {str(name) for name in rows.loc[rows["control"] == 1, "explainer"]}
    truths = _truths(sweep)
    lines = []
    for (metric, variant), mine in rows.groupby(["metric", "variant"], sort=False):
        values = mine.pivot(index="run", columns="explainer", values="value").reindex(range(len(sweep.runs)))
        by_subset = {ALL_EXPLAINERS: values, WITHOUT_CONTROLS: values.drop(columns=controls & set(values))}
        for subset, of_subset in by_subset.items():
            likeness = RankingStability.of(of_subset.to_numpy(float), mine["better"].iloc[0], pairs)
            ranges = truths.get((metric, variant, subset), {})
            for key, some in chosen.items():
                names = {"metric": metric, "variant": variant, "subset": subset, "key": key}
                lines.append({**names, **likeness.line(some), **ranges})
    golds = dict.fromkeys(gold for run in sweep.runs for gold in run.record.settings.gold)
    ends = [end for gold in golds for end in report.range_columns(gold)]
    return pd.DataFrame(lines, columns=[*_STABILITY, *ends])


def _truths(sweep: Sweep) -> dict[Any, dict[str, float]]:
    """For each metric and subset how far τ with a truth that a run leads with goes up and down over the runs."""
    rows = taus(sweep)
    rows = rows[rows["family"] == "explainers"]
    ranges: dict[Any, dict[str, float]] = {}
    for (metric, variant, subset, gold), tau in rows.groupby(["metric", "variant", "subset", "gold"])["tau"]:
        lowest, highest = report.range_columns(str(gold))
        ranges.setdefault((metric, variant, subset), {}).update({lowest: float(tau.min()), highest: float(tau.max())})
    return ranges
