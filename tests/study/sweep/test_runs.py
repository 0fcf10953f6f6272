"""Which runs belong together, and how they are shown."""

import pandas as pd

from cfeval_cli.study.sweep import answer, page, runs, tables
from cfeval_cli.study.sweep.runs import Run, Sweep
from tests.records import make_metric, make_record


def made(name, seed, status="complete", **settings):
    record = make_record(status=status, settings={"seed": seed, **settings})
    return Run(name, record, {"hydra.run.dir": "x", "k": "7"})


def test_runs_that_would_count_twice_or_did_not_end_are_named():
    sweep = Sweep.of(
        [made("0", 0, k=1), made("1", 1, k=1), made("2", 0, k=1), made("3", 0, "failed"), made("4", 0, k=2)]
    )
    assert [run.name for run in sweep.runs] == ["0", "1", "4"]
    assert sweep.left_out == "2 (same settings and seed as 0), 3 (failed)"
    assert sweep.keys == ["k"] and [len(runs) for runs in sweep.groups.values()] == [2, 1]
    assert sweep.numbered.tolist() == [[0, 0], [0, 1], [1, 0]]


def test_what_is_merged_for_titles_has_all_explainers_metrics_and_removals():
    removal = {"name": "x", "title": "x"}
    records = [
        make_record(explainers={"a": "A"}, metrics={"c": make_metric("C")}, search="disc.", removals={"del": removal}),
        make_record(explainers={"b": "B"}, metrics={"d": make_metric("D")}, search="cont.", removals={"mask": removal}),
    ]
    both = tables.merged([Run(str(i), record, {}) for i, record in enumerate(records)])
    assert set(both.explainers) == {"a", "b"} and set(both.metrics) == {"c", "d"}
    assert both.search == "disc. / cont." and set(both.removals) == {"del", "mask"}


def test_only_reports_below_the_sweep_are_linked(tmp_path):
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "report.html").touch()
    assert page._link("0", tmp_path) == "0/report.html"
    assert page._link("../elsewhere", tmp_path) == "" and page._link("1", tmp_path) == ""


def test_runs_without_correlations_tell_nothing():
    record = make_record(settings={"gold": ["signed"], "agreement": "recall"})
    nothing = pd.DataFrame(columns=[*runs._COLUMNS, "agreement"])
    said = answer.say(Sweep([Run("0", record, {}, correlations=nothing)], []), pd.DataFrame())
    assert said.headline.startswith("These runs cannot tell")
