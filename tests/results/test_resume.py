"""Whether results in a folder are those of the run that is about to start."""

import pytest

from cfeval_cli.results.record import RunRecord
from cfeval_cli.results.resume import has_same_overrides, is_same_run, merge_earlier_record


@pytest.mark.parametrize(
    ("overrides", "is_same"),
    [(["k=1", "n_jobs=2"], True), (["++executor=dask", "k=1"], True), (["k=2"], False), (["k=1", "seed=1"], False)],
)
def test_only_overrides_that_results_depend_on_are_compared(overrides, is_same):
    record = RunRecord(status="complete", overrides=["k=1", "n_jobs=1", "cache=none"])
    assert has_same_overrides(record, overrides) == is_same


def test_record_without_overrides_is_of_another_run():
    assert not has_same_overrides(RunRecord(status="complete"), [])


def test_run_is_the_same_if_its_inputs_are_known_and_equal():
    assert is_same_run(RunRecord(status="running", inputs="a"), "a")
    assert is_same_run(RunRecord(status="running"), "a")  # killed before its inputs were known
    assert not is_same_run(RunRecord(status="running", inputs="a"), "b")
    assert not is_same_run(RunRecord(status="running", inputs=None), None)


def test_start_and_command_of_the_first_attempt_are_kept():
    earlier = RunRecord(status="stopped", started="then", command=["x"], resumed_at=["later"], inputs="a")
    record = merge_earlier_record(RunRecord(status="running", started="now", command=["y"], overrides=["k=1"]), earlier)
    assert (record.status, record.started, record.command, record.overrides) == ("running", "then", ["x"], ["k=1"])
    assert record.resumed_at[0] == "later" and len(record.resumed_at) == 2
    assert record.model_fields_set == {"status", "started", "command", "overrides", "resumed_at"}
