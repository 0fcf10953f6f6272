"""The runs of an atlas: their list, durations and progress."""

import json

from cfeval_cli.study.atlas.runs import (
    AtlasProgress,
    AtlasRun,
    describe_failure,
    estimate_seconds,
    format_duration,
    is_complete,
    list_runs,
)


def write_record(folder, run, status="complete"):
    (folder / run.folder).mkdir(parents=True, exist_ok=True)
    (folder / run.folder / "run.json").write_text(json.dumps({"status": status}))


def test_runs_with_a_later_k_come_after_those_whose_cache_they_use():
    runs = list_runs(["pima", "german"], ["atlas_tree", "atlas_mlp"], [0, 1], [1, 3])
    assert len(runs) == len(set(runs)) == 16 and [run.k for run in runs] == ([1] * 4 + [3] * 4) * 2
    assert str(runs[0].folder) == "pima/atlas_tree/0-1"


def test_durations_are_estimated_by_share_of_instances_and_cores():
    measured_run, unmeasured_run = AtlasRun("pima", "atlas_tree", 0, 1), AtlasRun("nowhere", "atlas_nobody", 0, 1)
    assert measured_run.estimate_seconds(1.0) > AtlasRun("pima", "atlas_tree", 0, 3).estimate_seconds(1.0) > 0
    assert unmeasured_run.estimate_seconds(1.0) > 0
    expected = (measured_run.estimate_seconds(1.0) + unmeasured_run.estimate_seconds(1.0)) / 4
    assert estimate_seconds([measured_run, unmeasured_run], 0.5, 2) == expected
    assert [format_duration(seconds) for seconds in (3, 600, 9000)] == ["a minute", "10 min", "2.5 h"]


def test_progress_is_read_from_folders(tmp_path):
    runs = list_runs(["pima"], ["atlas_tree"], [0, 1, 2, 3], [1])
    write_record(tmp_path, runs[0])
    clock = [100.0]
    progress = AtlasProgress(runs, tmp_path, 1.0, 1, lambda: clock[0])
    assert progress.n_complete == 1 and not progress.update()
    write_record(tmp_path, runs[1])
    write_record(tmp_path, runs[2], "failed")
    clock[0] += 600  # one of three pending runs took ten minutes
    estimate = runs[0].estimate_seconds(1.0)
    pending = format_duration(2 * estimate * (600 + 0.15 * estimate) / (1.15 * estimate))
    assert progress.update() and progress.describe() == f"2 of 4 runs, about {pending} left"
    assert [is_complete(tmp_path, run) for run in runs] == [True, True, False, False]


def test_estimate_of_remaining_time_is_robust_to_one_slow_run(tmp_path):
    runs = list_runs(["pima"], ["atlas_tree"], range(100), [1])
    clock = [0.0]
    progress = AtlasProgress(runs, tmp_path, 1.0, 1, lambda: clock[0])
    total, seconds_per_run = estimate_seconds(runs, 1.0, 1), runs[0].estimate_seconds(1.0)
    clock[0] += 10 * seconds_per_run
    write_record(tmp_path, runs[0])
    assert progress.update()
    pending = format_duration(
        99 * seconds_per_run * (10 * seconds_per_run + total / 20) / (seconds_per_run + total / 20)
    )
    assert progress.describe().endswith(f"about {pending} left")
    for run in runs[1:50]:
        write_record(tmp_path, run)
    clock[0] = 10 * total / 2  # each run was as slow
    assert progress.update()
    assert progress.describe().endswith(f"about {format_duration(total / 2 * 5.05 / 0.55)} left")


def test_failure_is_described_by_last_line_of_log(tmp_path):
    run = AtlasRun("pima", "atlas_tree", 0, 1)
    assert "before anything was computed" in describe_failure(tmp_path, run)
    write_record(tmp_path, run, "failed")
    (tmp_path / run.folder / "run.log").write_text("one\nFailure: no \x1b[2Jroom\n")
    reason = describe_failure(tmp_path, run)
    assert reason.startswith("it is not complete: Failure: no ") and "\x1b" not in reason
