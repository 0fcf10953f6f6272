"""Compare the values of run folders with reference outputs: `make compare`.

    compare_runs.py run INTO [SETTING ...]    compute the reference experiments into a folder
    compare_runs.py digest RUNS INTO          write the reference outputs of computed experiments, to be committed
    compare_runs.py compare OLD NEW           compare computed experiments, or reference outputs, with computed ones

Rows are joined on their keys. Two numbers are equal if they differ by at most 1e-9 * max(1, |a|), and NaN equals NaN.
The exit code is 1 if a value differs.

benchmarks/reference/mapping.json maps the names of the reference to today's; a new reference needs none. A file or a
column of the reference that has no counterpart today is an error, unless the mapping says that it was removed:

    tables     {old: new}
    keys       {old table: {key: value}}: a key that the reference lacks, and its value in the rows of the reference
    columns    {old table, or "*" for all: {old: new}}, null for a column that was removed, or
               {"column": new, "where": {key: value}, "table": new}: the old column is the new one in the rows with
               these keys, of another table if there is one; a row may be absent where the old value is missing
    values     {new column: {old: new}}, or {new column: {old: {key: value}}} where one old value is several keys today

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
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pandas as pd

REFERENCE_FOLDER = Path(__file__).parent / "reference"
CHANGES_FILE = REFERENCE_FOLDER / "changes.txt"
TOLERANCE = 1e-9
COMMON = ["cache=off", "figures=[]", "report=false"]
TRUTHS = "truth=[shapley,contrast,signed,absolute]"  # all that the reference has
METRICS = "metric=[core,naopc]"
EXPERIMENTS = {
    "table1_adults": ["experiment=table1_adults"],
    "table1_movie_reviews": ["experiment=table1_movie_reviews"],
    "table3": ["experiment=table3"],
    "heloc_judges": [
        "dataset=heloc", "model=estimator", "explainer=[random,omission,lime,shap]", "judge=[logistic,tree]",
        "n_explain=100", "k=2", "min_per_class=0", "bounds=2000", TRUTHS, METRICS,
    ],
    "sweep": ["--multirun", "dataset=adults", "seed=0,1,2", "n_explain=200", "k=2", TRUTHS, METRICS],
}  # fmt: skip

# The columns that identify a row of each table, as far as a table has them; the instance and the settings that vary in
# a sweep are keys as well.
KEYS = {
    "metrics.csv": ["metric", "variant", "explainer"],
    "correlations.csv": ["metric", "variant", "family", "truth", "agreement", "subset"],
    "differences.csv": ["family", "truth", "agreement", "subset", "metric", "variant", "than_metric", "than_variant"],
    "bounds.csv": ["metric", "variant"],
    "bounds_truth.csv": ["metric", "variant", "truth"],
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
    "stability_truth.csv": ["metric", "variant", "subset", "truth"],
}
NOT_COMPARED = {"costs.csv", "digests.csv", "sweep.csv", "training.parquet"}  # times, digests, folders and the data
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


def list_keys(name: str, columns: Collection[str]) -> list[str]:
    """Return the key columns of a table among some columns."""
    settings = [column for column in columns if column.startswith("setting.")]
    return [*settings, *(key for key in [*KEYS[name], "instance"] if key in columns)]


def digest(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return the number, the sum and the weighted sum of each column in each group of rows."""
    keys = list_keys(name, list(table))
    groups = [key for key in keys if key not in NUMBERED]
    values = [column for column in table if column not in keys]
    number = next(key for key in NUMBERED if key in table)
    weights = table[number].map(lambda cell: crc32(str(cell).encode()) / 2**32)
    rows = []
    for group, part in table.groupby(groups, sort=True, dropna=False) if groups else [((), table)]:
        label = "/".join(map(str, group if isinstance(group, tuple) else (group,)))
        for column in values:
            cells = part[column]
            if cells.dtype == object or isinstance(cells.dtype, pd.StringDtype):
                cells = cells.map(lambda cell: np.nan if pd.isna(cell) else crc32(str(cell).encode()) / 2**32)
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


class Target(NamedTuple):
    """The column of today that has the values of a column of the reference."""

    table: str
    column: str
    where: dict[str, Any]  # the keys of its rows


class Mapping:
    """The names of today for the names of the reference."""

    def __init__(self, rules: dict[str, Any]) -> None:
        self._rules = rules

    @staticmethod
    def load(file: Path = REFERENCE_FOLDER / "mapping.json") -> Mapping:
        """Read a mapping; without a file all names are those of today."""
        return Mapping(json.loads(file.read_text()) if file.exists() else {})

    def get_table(self, name: str) -> str:
        """Return the file of a table."""
        return str(self._rules.get("tables", {}).get(name, name))

    def get_target(self, name: str, column: str) -> Target | None:
        """Return the counterpart of a column; None if it was removed."""
        columns = self._rules.get("columns", {})
        rule = (columns.get("*", {}) | columns.get(name, {})).get(column, column)
        if rule is None or isinstance(rule, str):
            return None if rule is None else Target(self.get_table(name), rule, {})
        return Target(rule.get("table", self.get_table(name)), rule["column"], dict(rule["where"]))

    def get_new_keys(self, name: str, columns: Collection[str] = ()) -> dict[str, Any]:
        """Return the keys that a table of the reference lacks, with their value in its rows."""
        keys = self._rules.get("keys", {}).get(name, {})
        return {key: value for key, value in keys.items() if key not in columns}

    def translate(self, column: str, value: Any) -> Any:
        """Return the value of today; a dictionary if it is several keys now."""
        return self._rules.get("values", {}).get(column, {}).get(str(value), value)

    def translate_keys(self, name: str, old: pd.DataFrame) -> pd.DataFrame:
        """Return the keys of the rows of a table as the new table has them."""
        new_keys, rows = self.get_new_keys(name, old.columns), []
        targets = {column: self.get_target(name, column) for column in old}
        names = {column: target.column for column, target in targets.items() if target and not target.where}
        keys = list_keys(self.get_table(name), names.values())
        columns = {key: column for column, key in names.items() if key in keys}
        for cells in old[[columns[key] for key in keys]].itertuples(index=False, name=None):
            row = dict(new_keys)
            for key, cell in zip(keys, cells, strict=True):
                value = self.translate(key, cell)
                row |= value if isinstance(value, dict) else {key: value}
            rows.append(row)
        return pd.DataFrame(rows, index=old.index, columns=[*new_keys, *keys])


def report(old: Path, new: Path) -> int:
    """Print what differs between two sets of runs; return the number of differing or missing values."""
    mapping, expected = Mapping.load(), read_expected_changes()
    new_folders, compared, wrong = folders(new), 0, 0
    old_folders = folders(old)
    if not old_folders:
        raise SystemExit(f"{old} has no runs.")
    for run, folder in old_folders.items():
        if run not in new_folders:
            print(f"{run}: no such run")
            wrong += 1
            continue
        results = {}
        for file in sorted(folder.iterdir()):
            if file.suffix in (".csv", ".parquet") and file.name not in NOT_COMPARED:
                results[file.name] = compare_tables(file.name, read_table(file), new_folders[run], mapping)
        if (folder / "digests.csv").exists():
            digests = pd.read_csv(folder / "digests.csv")
            results["digests.csv"] = compare_digests(digests, new_folders[run], mapping)
        for name, (n, all_lines) in results.items():
            changes = {f"{run}/{name}: {line}" for line in all_lines}
            lines = sorted(changes - expected)
            expected -= changes
            compared, wrong = compared + n, wrong + len(lines)
            print("\n".join(lines[:20]), end="\n" if lines else "")
            if len(lines) > 20:
                print(f"{run}/{name}: and {len(lines) - 20:,} more")
    for line in sorted(expected):
        print(f"{CHANGES_FILE.name} lists a change that did not occur: {line}")
    wrong += len(expected)
    print(f"{compared:,} values compared, {wrong:,} differ or are missing, apart from those in {CHANGES_FILE.name}")
    return wrong


def read_expected_changes() -> set[str]:
    """Return the differences that are meant; lines that start with # are the reasons."""
    lines = CHANGES_FILE.read_text().splitlines() if CHANGES_FILE.exists() else []
    return {line for line in lines if line and not line.startswith("#")}


def compare_tables(name: str, old: pd.DataFrame, folder: Path, mapping: Mapping) -> tuple[int, list[str]]:
    """Compare each column of a table with its counterpart; return the number of values and the differences."""
    if mapping.get_table(name) not in KEYS:
        return 0, ["is neither in KEYS nor in mapping.json"]
    keyed, tables, compared, lines = mapping.translate_keys(name, old), {}, 0, []
    for column in old:
        target = mapping.get_target(name, column)
        if target is None or target.column in keyed:
            continue
        if target.table not in tables:
            path = folder / target.table
            tables[target.table] = read_table(path) if path.exists() else pd.DataFrame()
        new = tables[target.table]
        if target.column not in new:
            lines.append(f"{column}: there is no column {target.column} in {target.table}")
            continue
        values = [mapping.translate(target.column, value) for value in old[column]]
        expected = keyed.assign(**target.where, value=values)
        keys = list_keys(target.table, expected.columns)
        # columns of another table can have been repeated in several rows
        relation = "one_to_one" if target.table == mapping.get_table(name) else "many_to_one"
        joined = expected.merge(new[[*keys, target.column]].rename(columns={target.column: "new"}), how="left", on=keys,
                            indicator=True, validate=relation)  # fmt: skip
        compared += len(joined)
        is_lost = joined["_merge"] != "both"
        if target.where:
            is_lost &= joined["value"].notna()
        is_same = equal(joined["value"], joined["new"])
        for row in joined[is_lost | ~is_same].to_dict("records"):
            label = "/".join(str(row[key]) for key in keyed.columns)
            became = "no row" if row["_merge"] != "both" else row["new"]
            lines.append(f"{label} {column}: {row['value']} became {became}")
    return compared, lines


def compare_digests(old: pd.DataFrame, folder: Path, mapping: Mapping) -> tuple[int, list[str]]:
    """Compare the digests of large tables with those of today's tables."""
    compared, lines = 0, []
    for name, rows in old.groupby("table"):
        file = mapping.get_table(str(name))
        if not (folder / file).exists():
            lines.append(f"{file} is missing")
            continue
        table = read_table(folder / file)
        new_keys = mapping.get_new_keys(str(name))
        groups = [key for key in KEYS[file] if key not in {*NUMBERED, *new_keys}] or [""]
        digests: dict[str, pd.DataFrame] = {}  # of the rows that replace an old column
        for row in rows.itertuples():
            target = mapping.get_target(str(name), str(row.column))
            if target is None:
                continue
            where = new_keys | target.where
            if str(where) not in digests:
                part = table
                for key, value in where.items():
                    part = part[part[key] == value].drop(columns=key)
                digests[str(where)] = digest(file, part).set_index(["group", "column"])
            label = "" if pd.isna(row.group) else str(row.group)
            cells = zip(groups, label.split("/"), strict=True)
            group = "/".join(str(mapping.translate(key, cell)) for key, cell in cells)
            compared += 1
            if (group, target.column) not in digests[str(where)].index:
                lines.append(f"{name} {group} {row.column} is missing")
                continue
            sums = digests[str(where)].loc[(group, target.column)]
            is_same = row.n == sums["n"] and all(
                abs(before - now) <= TOLERANCE * max(1.0, abs(before), row.n)
                for before, now in ((row.total, sums["total"]), (row.weighted, sums["weighted"]))
            )
            if not is_same:
                lines.append(f"{name} {group} {row.column}: sum {row.total!r} became {sums['total']!r}")
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
