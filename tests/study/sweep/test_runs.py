"""Which runs of a sweep are compared, and what they have in common."""

import pandas as pd

from cfeval_cli.results.locations import PAGE_FILE
from cfeval_cli.study.sweep.conclusion import write_conclusion
from cfeval_cli.study.sweep.page import find_report
from cfeval_cli.study.sweep.read import parse_overrides
from cfeval_cli.study.sweep.runs import Sweep, SweepRun, collect_taus, merge_records
from cfeval_cli.study.sweep.tables import build_run_cells
from tests.records import make_metric, make_record


def make_run(name, seed, status="complete", **settings):
    record = make_record(status=status, settings={"seed": seed, **settings})
    return SweepRun(name, record, {"hydra.run.dir": "x", "k": "7"})


def test_duplicates_and_incomplete_runs_are_excluded_with_reason():
    runs = [make_run("0", 0, k=1), make_run("1", 1, k=1), make_run("2", 0, k=1), make_run("3", 0, "failed")]
    sweep = Sweep.from_runs([*runs, make_run("4", 0, k=2)])
    assert [run.name for run in sweep.runs] == ["0", "1", "4"]
    assert sweep.describe_excluded() == "2 (same settings and seed as 0), 3 (failed)"
    assert sweep.varied == ["k"] and [len(runs) for runs in sweep.groups.values()] == [2, 1]
    assert sweep.encode_settings().tolist() == [[0, 0], [0, 1], [1, 0]]


def test_merged_record_has_explainers_metrics_and_removals_of_all_runs():
    removal = {"name": "x", "title": "x"}
    records = [
        make_record(explainers={"a": "A"}, metrics={"c": make_metric("C")}, search="disc.", removals={"del": removal}),
        make_record(explainers={"b": "B"}, metrics={"d": make_metric("D")}, search="cont.", removals={"mask": removal}),
    ]
    merged = merge_records([SweepRun(str(i), record, {}) for i, record in enumerate(records)])
    assert set(merged.explainers) == {"a", "b"} and set(merged.metrics) == {"c", "d"}
    assert merged.search == "disc. / cont." and set(merged.removals) == {"del", "mask"}


def test_only_reports_below_the_sweep_are_linked(tmp_path):
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / PAGE_FILE).touch()
    assert find_report("0", tmp_path) == f"0/{PAGE_FILE}"
    assert find_report("../elsewhere", tmp_path) == "" and find_report("1", tmp_path) == ""


def test_runs_without_correlations_are_inconclusive():
    record = make_record(settings={"truth": ["signed"], "agreement": "recall"})
    columns = ["metric", "variant", "family", "truth", "agreement", "subset", "explainers", "tau", "not_identifiable"]
    sweep = Sweep([SweepRun("0", record, {}, correlations=pd.DataFrame(columns=columns))], [])
    assert collect_taus(sweep).empty
    assert write_conclusion(sweep, pd.DataFrame()).headline.startswith("Inconclusive")


def test_overrides_are_parsed_and_removed_keys_marked():
    overrides = ["k=1", "+metric.c.x=a=b", "++seed=2", "~metric.hit"]
    assert parse_overrides(overrides) == {"k": "1", "metric.c.x": "a=b", "seed": "2", "metric.hit": "removed"}


def test_row_of_a_run_has_formatted_cells_and_dashes_for_missing_values():
    line = {"folder": "0", "seed": pd.NA, "setting.k": "1", "status": "failed", "test_accuracy": 0.8125}
    assert [cell.text for cell in build_run_cells(line)] == ["–", "1", "failed", "81.25%"]
