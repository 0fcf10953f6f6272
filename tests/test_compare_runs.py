"""benchmarks/compare_runs.py: columns of the reference that are rows with another key today."""

import json
from pathlib import Path

import pandas as pd
import pytest

from cfeval_cli.results.schema import TABLES
from tests.scripts import load_script

ROOT = Path(__file__).parents[1]
RULES = {
    "keys": {"correlations.csv": {"subset": "all"}, "tau_resamples.parquet": {"subset": "all"}},
    "columns": {
        name: {"tau_without_controls": {"column": "tau", "where": {"subset": "without_controls"}}}
        for name in ("correlations.csv", "tau_resamples.parquet")
    },
    "values": {"coefficient": {"tau_without_controls": {"coefficient": "tau", "subset": "without_controls"}}},
}


@pytest.fixture(scope="module")
def compare_runs():
    return load_script("compare_runs")


OLD = pd.DataFrame({"metric": ["c", "dfr"], "tau": [0.5, 0.25], "tau_without_controls": [-1.0, float("nan")]})
NEW = pd.DataFrame(
    {
        "metric": ["c", "dfr", "c"],
        "subset": ["all", "all", "without_controls"],
        "tau": [0.5, 0.25, -1.0],
    }
)


def count_differences(compare_runs, folder, new):
    new.to_csv(folder / "correlations.csv", index=False)
    mapping = compare_runs.Mapping(RULES)
    compared, lines = compare_runs.compare_tables("correlations.csv", OLD, folder, mapping)
    assert compared == 4
    return len(lines)


def test_an_old_column_is_compared_with_rows_of_its_subset(compare_runs, tmp_path):
    assert count_differences(compare_runs, tmp_path, NEW) == 0
    for row in range(3):
        changed = NEW.copy()
        changed.loc[row, "tau"] += 1e-6
        assert count_differences(compare_runs, tmp_path, changed) == 1
        assert count_differences(compare_runs, tmp_path, NEW.drop(index=row)) == 1  # only a missing value needs no row
    another = pd.DataFrame({"metric": ["dfr"], "subset": ["without_controls"], "tau": [0.0]})
    assert count_differences(compare_runs, tmp_path, pd.concat([NEW, another])) == 1  # the old value was missing


def test_a_reference_that_has_the_key_is_compared_as_it_is(compare_runs, tmp_path):
    NEW.to_csv(tmp_path / "correlations.csv", index=False)
    changed = NEW.assign(tau=[0.5, 0.25, 1.0])
    mapping = compare_runs.Mapping(RULES)
    compared, lines = compare_runs.compare_tables("correlations.csv", changed, tmp_path, mapping)
    assert compared == 3 and lines == ["c/without_controls tau: 1.0 became -1.0"]


def test_a_value_of_a_key_can_be_several_keys_today(compare_runs):
    old = pd.DataFrame({"metric": "c", "coefficient": ["tau", "tau_without_controls", "rho"]})
    rules = RULES | {"keys": {"seeds_correlations.csv": {"subset": "all"}}}
    keys = compare_runs.Mapping(rules).translate_keys("seeds_correlations.csv", old)
    assert keys["coefficient"].tolist() == ["tau", "tau", "rho"]
    assert keys["subset"].tolist() == ["all", "without_controls", "all"]


def test_digests_of_old_columns_are_those_of_rows_of_their_subset(compare_runs, tmp_path):
    keys = {"metric": "c", "variant": "label", "truth": "signed", "agreement": "recall"}
    old = pd.DataFrame({"draw": [0, 1], **keys, "tau": [0.5, 0.25], "tau_without_controls": [-1.0, 1.0]})
    digests = compare_runs.digest("tau_resamples.parquet", old)
    new = pd.DataFrame({"draw": [0, 1, 0, 1], **keys, "subset": ["all"] * 2 + ["without_controls"] * 2})
    for taus, differences in (([0.5, 0.25, -1.0, 1.0], 0), ([0.5, 0.25, 1.0, -1.0], 1), ([0.25, 0.5, -1.0, 1.0], 1)):
        new.assign(tau=taus).to_parquet(tmp_path / "tau_resamples.parquet")
        _, lines = compare_runs.compare_digests(digests, tmp_path, compare_runs.Mapping(RULES))
        assert len(lines) == differences


def test_an_unmapped_file_or_column_of_the_reference_is_an_error(compare_runs, tmp_path):
    NEW.to_csv(tmp_path / "correlations.csv", index=False)
    mapping = compare_runs.Mapping(RULES)
    _, lines = compare_runs.compare_tables("correlations.csv", OLD.assign(place=0.5), tmp_path, mapping)
    assert lines == ["place: there is no column place in correlations.csv"]
    _, lines = compare_runs.compare_tables("noise.csv", OLD, tmp_path, mapping)
    assert lines == ["is neither in KEYS nor in mapping.json"]


def list_reference_columns():
    """Return each table of the reference with its columns, those of digests without the positions in lists."""
    outputs = ROOT / "benchmarks" / "reference" / "outputs"
    for path in sorted(outputs.rglob("*.csv")):
        if path.name != "digests.csv":
            yield path.name, list(pd.read_csv(path, nrows=0))
        else:
            for name, rows in pd.read_csv(path).groupby("table"):
                yield str(name), sorted({column.partition(".")[0] for column in rows["column"]})


def test_each_column_of_the_reference_is_a_column_of_todays_tables(compare_runs):
    mapping = compare_runs.Mapping.load()
    sweep_tables = (ROOT / "docs" / "run-folder.md").read_text().partition("\n## The sweep folder\n")[2]
    n_columns = 0
    for name, columns in list_reference_columns():
        assert mapping.get_table(name) in compare_runs.KEYS, name
        targets = filter(None, (mapping.get_target(name, column) for column in columns))
        for target in targets:
            n_columns += 1
            assert target.table in compare_runs.KEYS
            if target.table in TABLES:
                TABLES[target.table].check_columns([*TABLES[target.table].keys, target.column])
            else:
                section = sweep_tables.partition(f"### {target.table}")[2].partition("\n#")[0]
                assert f"`{target.column}`" in section, (target.table, target.column)
    assert n_columns > 1000


def test_each_rule_of_the_mapping_is_used(compare_runs):
    rules = json.loads((ROOT / "benchmarks" / "reference" / "mapping.json").read_text())
    columns = {}
    for name, header in list_reference_columns():
        columns.setdefault(name, set()).update(header)
    assert set(rules["tables"]) | set(rules["keys"]) | set(rules["columns"]) - {"*"} <= set(columns)
    for name, targets in rules["columns"].items():
        assert set(targets) <= (set().union(*columns.values()) if name == "*" else columns[name])
    for name, keys in rules["keys"].items():
        assert set(keys) <= set(compare_runs.KEYS[rules["tables"].get(name, name)])
