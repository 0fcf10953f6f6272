"""Compare the values of run folders with reference outputs: `make compare`.

    compare_runs.py run INTO [SETTING ...]    compute the reference experiments into a folder
    compare_runs.py digest RUNS INTO          write the reference outputs of computed experiments, to be committed
    compare_runs.py compare OLD NEW           compare computed experiments, or reference outputs, with computed ones

Rows are joined on their keys. Two numbers are equal if they differ by at most 1e-9 * max(1, |a|), and NaN equals NaN.
The exit code is 1 if a value differs.

benchmarks/reference/mapping.json maps the names of the reference to today's; a new reference needs none:

    folders, tables    {old: new}
    keys               {table: {key: value}}: a key that the reference lacks, and its value in the rows of the reference
    columns            {table: {old: new}}, null for a column that was removed, or
                       {table: {old: {"column": new, "where": {key: value}}}}: the old column is the new one in the rows
                       with these keys; a row may be absent where the old value is missing
    values             {key: {old: new}}, or {key: {old: {key: value}}} where one old value is several keys today

Large tables are committed as digests: for each group of rows and each column the number of values, their sum, and a sum
in which each value has a weight of its own, so that values that change places are noticed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd

HERE = Path(__file__).parent / "reference"
TOLERANCE = 1e-9
COMMON = ["cache=off", "figures=[]", "report=false"]
TRUTHS = "truth=[shapley,contrast,signed,absolute]"  # all that the reference has
EXPERIMENTS = {
    "table1_adults": ["experiment=table1_adults"],
    "table1_movie_reviews": ["experiment=table1_movie_reviews"],
    "table3": ["experiment=table3"],
    "heloc_judges": [
        "dataset=heloc", "model=estimator", "explainer=[random,omission,lime,shap]", "judge=[logistic,tree]",
        "n_explain=100", "k=2", TRUTHS,
    ],
    "sweep": ["--multirun", "dataset=adults", "seed=0,1,2", "n_explain=200", "k=2", TRUTHS],
}  # fmt: skip

# The columns that identify a row of each table, as far as a table has them; the instance and the settings that vary in
# a sweep are keys as well.
KEYS = {
    "metrics.csv": ["metric", "variant", "explainer"],
    "correlations.csv": ["metric", "variant", "family", "truth", "agreement", "subset"],
    "differences.csv": ["family", "truth", "agreement", "subset", "metric", "variant", "than_metric", "than_variant"],
    "bounds.csv": ["metric", "variant"],
    "invariance.csv": ["metric", "variant", "truth", "agreement", "subset"],
    "instance_agreement.csv": ["metric", "variant", "truth", "agreement", "subset"],
    "metric_agreement.csv": ["metric", "variant", "other_metric", "other_variant"],
    "explainer_stability.csv": ["explainer"],
    "explainer_stability_metrics.csv": ["explainer", "metric", "variant"],
    "scores.parquet": ["explainer", "metric", "variant"],
    "explanations.parquet": ["explainer"],
    "explanations_again.parquet": ["explainer"],
    "counterfactuals.parquet": ["explainer", "access"],
    "counterfactuals_again.parquet": ["explainer", "access"],
    "instances.parquet": [],
    "truth.parquet": ["truth"],
    "tau_resamples.parquet": ["draw", "metric", "variant", "truth", "agreement", "subset"],
    "seeds_metrics.csv": ["metric", "variant", "explainer"],
    "seeds_correlations.csv": ["metric", "variant", "family", "truth", "agreement", "subset", "coefficient"],
    "stability.csv": ["metric", "variant", "subset", "key"],
}
NUMBERED = ("instance", "draw")  # keys that do not make groups of their own in digests
TEXT = {"values", "text", "words", "vectors"}  # columns that repeat others, or are compared through them


def main() -> None:
    """Run one of the three commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    run = actions.add_parser("run")
    run.add_argument("into", type=Path)
    run.add_argument("--only", nargs="*", choices=EXPERIMENTS, default=list(EXPERIMENTS))
    run.add_argument("--cfeval", default=str(Path(sys.executable).parent / "cfeval"), help="the command to run")
    run.add_argument("overrides", nargs="*", metavar="SETTING", help="further settings, such as data_dir=FOLDER")
    digest = actions.add_parser("digest")
    digest.add_argument("runs", type=Path)
    digest.add_argument("into", type=Path)
    compare = actions.add_parser("compare")
    compare.add_argument("old", type=Path)
    compare.add_argument("new", type=Path)
    arguments = parser.parse_args()
    if arguments.action == "run":
        compute(arguments.into, arguments.only, arguments.cfeval, arguments.overrides)
    elif arguments.action == "digest":
        write_digests(arguments.runs, arguments.into)
    else:
        sys.exit(1 if report(arguments.old, arguments.new) else 0)


def compute(into: Path, names: list[str], command: str, overrides: list[str]) -> None:
    """Run the reference experiments, each into a folder of its own."""
    for name in names:
        words = [word for word in EXPERIMENTS[name] if word != "--multirun"]
        swept = "--multirun" in EXPERIMENTS[name]
        place = [f"hydra.{'sweep' if swept else 'run'}.dir={(into / name).absolute()}"]
        flags = ["--multirun"] if swept else []
        subprocess.run([command, "run", *flags, *words, *COMMON, *place, *overrides], check=True)


def folders(root: Path) -> dict[str, Path]:
    """Return the folders of all runs and sweeps below a folder, by their place in it; judges are runs too."""
    parents = {path.parent for name in ("metrics.csv", "seeds_metrics.csv") for path in root.rglob(name)}
    marks = ("run.json", "digests.csv", "seeds_metrics.csv")
    return {
        str(folder.relative_to(root)): folder
        for folder in sorted(parents)
        if any((folder / mark).exists() for mark in marks)
    }


def read_table(path: Path) -> pd.DataFrame:
    """Return a table of a run, with lists as columns of their own: scores.0, scores.1 and so on."""
    table = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    table = table.astype(dict.fromkeys(table.select_dtypes("category"), object))
    for column in [name for name in table if name not in TEXT]:
        lists = table[column].map(lambda cell: isinstance(cell, np.ndarray | list))
        if lists.any():
            width = int(table[column][lists].map(len).max())
            cells = np.full((len(table), width), np.nan)
            for row, cell in zip(np.flatnonzero(lists), table[column][lists], strict=True):
                cells[row, : len(cell)] = cell
            parts = pd.DataFrame(cells, columns=[f"{column}.{i}" for i in range(width)], index=table.index)
            table = pd.concat([table.drop(columns=column), parts], axis=1)
    return table.drop(columns=[name for name in table if name in TEXT])


def make_set_keys(name: str, table: pd.DataFrame) -> list[str]:
    """Return the key columns of a table."""
    settings = [column for column in table if column.startswith("setting.")]
    return [*settings, *(key for key in [*KEYS[name], "instance"] if key in table)]


def digest(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return the number, the sum and the weighted sum of each column in each group of rows."""
    keys = make_set_keys(name, table)
    groups = [key for key in keys if key not in NUMBERED]
    values = [column for column in table if column not in keys]
    number = next(key for key in NUMBERED if key in table)
    weights = table[number].map(lambda one: crc32(str(one).encode()) / 2**32)
    rows = []
    for group, part in table.groupby(groups, sort=True, dropna=False) if groups else [((), table)]:
        label = "/".join(map(str, group if isinstance(group, tuple) else (group,)))
        for column in values:
            cells = part[column]
            if cells.dtype == object or isinstance(cells.dtype, pd.StringDtype):
                cells = cells.map(lambda one: np.nan if pd.isna(one) else crc32(str(one).encode()) / 2**32)
            numbers = cells.astype("Float64").astype(float)
            if numbers.notna().any():
                sums = [numbers.sum(), (numbers * weights[part.index]).sum()]
                rows.append((name, label, column, int(numbers.notna().sum()), *sums))
    return pd.DataFrame(rows, columns=["table", "group", "column", "n", "total", "weighted"])


def write_digests(runs: Path, into: Path) -> None:
    """Write the tables of runs as CSV, and the digests of their large tables."""
    for place, folder in folders(runs).items():
        target = into / place
        target.mkdir(parents=True, exist_ok=True)
        parts = []
        for name in KEYS:
            if (folder / name).exists() and name.endswith(".csv"):
                (target / name).write_bytes((folder / name).read_bytes())
            elif (folder / name).exists():
                parts.append(digest(name, read_table(folder / name)))
        if parts:
            pd.concat(parts).to_csv(target / "digests.csv", index=False)


class Mapping:
    """How the names of the reference are written today."""

    def __init__(self, rules: dict[str, Any]) -> None:
        self._rules = rules

    def place(self, place: str) -> str:
        """Return the folder of a run."""
        return str(self._rules.get("folders", {}).get(place, place))

    def table(self, name: str) -> str:
        """Return the file of a table."""
        return str(self._rules.get("tables", {}).get(name, name))

    def column(self, name: str, column: str) -> tuple[str | None, dict[str, Any]]:
        """Return the column, and the keys of the rows of the new table that have it; None for a removed column."""
        rules = self._rules.get("columns", {}).get(name, {}) | {}
        rule = rules.get(column, self._rules.get("columns", {}).get("*", {}).get(column, column))
        return (rule, {}) if rule is None or isinstance(rule, str) else (rule["column"], dict(rule["where"]))

    def new_keys(self, name: str, columns: Collection[str]) -> dict[str, Any]:
        """Return the keys that a table of the reference lacks, with their value in its rows."""
        keys = self._rules.get("keys", {}).get(name, {})
        return {key: value for key, value in keys.items() if key not in columns}

    def value(self, column: str, value: Any) -> Any:
        """Return a cell of a key column; a dictionary if it is several keys now."""
        return self._rules.get("values", {}).get(column, {}).get(str(value), value)

    def keys(self, name: str, old: pd.DataFrame) -> pd.DataFrame:
        """Return the keys of the rows of a table as the new table has them."""
        new_keys, rows = self.new_keys(name, old.columns), []
        columns = {key: self.column(name, key)[0] for key in make_set_keys(name, old)}
        columns = {key: target for key, target in columns.items() if target is not None}
        for cells in old[list(columns)].itertuples(index=False, name=None):
            row = dict(new_keys)
            for (key, target), cell in zip(columns.items(), cells, strict=True):
                today = self.value(key, cell)
                row |= today if isinstance(today, dict) else {target: today}
            rows.append(row)
        return pd.DataFrame(rows, index=old.index, columns=[*new_keys, *columns.values()])


def report(old: Path, new: Path) -> int:
    """Print what differs between two sets of runs; return the number of differing or missing values."""
    mapping = Mapping(json.loads((HERE / "mapping.json").read_text()) if (HERE / "mapping.json").exists() else {})
    there, compared, wrong = folders(new), 0, 0
    before = folders(old)
    if not before:
        raise SystemExit(f"{old} has no runs.")
    for place, folder in before.items():
        other = there.get(mapping.place(place))
        if other is None:
            print(f"{place}: no such run")
            wrong += 1
            continue
        for name in [one for one in KEYS if (folder / one).exists()]:
            n, lines = compare_tables(name, read_table(folder / name), other / mapping.table(name), mapping)
            compared, wrong = compared + n, wrong + len(lines)
            for line in lines[:20]:
                print(f"{place}/{name}: {line}")
            if len(lines) > 20:
                print(f"{place}/{name}: and {len(lines) - 20:,} more")
        if (folder / "digests.csv").exists():
            n, lines = compare_digests(pd.read_csv(folder / "digests.csv"), other, mapping)
            compared, wrong = compared + n, wrong + len(lines)
            for line in lines[:20]:
                print(f"{place}: {line}")
    print(f"{compared:,} values compared, {wrong:,} differ or are missing")
    return wrong


def compare_tables(name: str, old: pd.DataFrame, path: Path, mapping: Mapping) -> tuple[int, list[str]]:
    """Compare each column of a table with its column of today; return the number of values and the differences."""
    if not path.exists():
        return 0, [f"{path.name} is missing"]
    new = read_table(path)
    keys, keyed = make_set_keys(name, old), mapping.keys(name, old)
    compared, lines = 0, []
    for column in [column for column in old if column not in keys]:
        target, where = mapping.column(name, column)
        if target is None:
            continue
        if target not in new:
            lines.append(f"{column}: there is no column {target}")
            continue
        left = keyed.assign(**where, **{"value": old[column]})
        joined = left.merge(new[[*keyed.columns, target]].rename(columns={target: "new"}), how="left",
                            on=list(keyed.columns), indicator=True, validate="one_to_one")  # fmt: skip
        compared += len(joined)
        lost = joined["_merge"] != "both"
        if where:
            lost &= joined["value"].notna()
        same = equal(joined["value"], joined["new"])
        for row in joined[lost | ~same].to_dict("records"):
            label = "/".join(str(row[key]) for key in keyed.columns)
            became = "no row" if row["_merge"] != "both" else row["new"]
            lines.append(f"{label} {column}: {row['value']} became {became}")
    return compared, lines


def compare_digests(old: pd.DataFrame, folder: Path, mapping: Mapping) -> tuple[int, list[str]]:
    """Compare the digests of large tables with those of tables of today."""
    compared, lines = 0, []
    for name, rows in old.groupby("table"):
        path = folder / mapping.table(str(name))
        if not path.exists():
            lines.append(f"{path.name} is missing")
            continue
        table = read_table(path)
        back = {mapping.column(str(name), key)[0]: key for key in [*KEYS[str(name)], "instance"]}
        table = table.rename(columns={new: key for new, key in back.items() if new is not None})
        new_keys = mapping.new_keys(str(name), ())
        groups = [key for key in KEYS[str(name)] if key not in {*NUMBERED, *new_keys}] or [""]
        digests: dict[str, pd.DataFrame] = {}  # of the rows that an old column stands for
        for row in rows.itertuples():
            column, where = mapping.column(str(name), str(row.column))
            if column is None:
                continue
            where = new_keys | where
            if str(where) not in digests:
                part = table
                for key, value in where.items():
                    part = part[part[key] == value].drop(columns=key)
                digests[str(where)] = digest(str(name), part).set_index(["group", "column"])
            today = digests[str(where)]
            parts = ["" if pd.isna(row.group) else str(row.group)]
            group = "/".join(
                str(mapping.value(key, part)) for key, part in zip(groups, parts[0].split("/"), strict=True)
            )
            compared += 1
            if (group, column) not in today.index:
                lines.append(f"{name} {group} {row.column} is missing")
                continue
            found = today.loc[(group, column)]
            same = row.n == found["n"] and all(
                abs(before - now) <= TOLERANCE * max(1.0, abs(before), row.n)
                for before, now in ((row.total, found["total"]), (row.weighted, found["weighted"]))
            )
            if not same:
                lines.append(f"{name} {group} {column}: sum {row.total!r} became {found['total']!r}")
    return compared, lines


def equal(old: pd.Series, new: pd.Series) -> pd.Series:
    """Return which values are equal: numbers to the tolerance, everything else as text; missing equals missing."""
    both = pd.isna(old) & pd.isna(new)
    a, b = pd.to_numeric(old, errors="coerce"), pd.to_numeric(new, errors="coerce")
    a, b = a.astype(float), b.astype(float)
    with np.errstate(invalid="ignore"):
        close = ((a - b).abs() <= TOLERANCE * np.maximum(1.0, a.abs())) | (a == b)
    return both | close | (old.astype(str) == new.astype(str))


if __name__ == "__main__":
    main()
