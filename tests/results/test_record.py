"""run.json is read into typed entries, and the first entry that no run writes is named."""

import json

import pytest

from cfeval_cli.results.record import RunRecord, SettingsEntry, parse_record
from cfeval_cli.settings.run_settings import RunSettings


def test_record_is_unchanged_by_reading_and_writing(toy, make_run):
    record = json.loads((make_run(toy, "explainer=[random,lr]", "n_explain=20") / "run.json").read_text())
    parsed_record = parse_record(record)
    assert parsed_record.settings.k == record["settings"]["k"] and parsed_record.data.name == "toy"
    assert {name: entry.title for name, entry in parsed_record.metrics.items()} == {
        name: facts["title"] for name, facts in record["metrics"].items()
    }
    assert json.dumps(parsed_record.to_dict()) == json.dumps(record)
    assert not parsed_record.model_extra and not parsed_record.settings.model_extra
    assert parsed_record.questions == {"shapley": "contribution", "contrast": "change"}
    assert parsed_record.arbitrary_removals == {"del"}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ([], "run.json is not an object"),
        ({}, "run.json: status is missing"),
        ({"status": "complete", "settings": {"seed": -1}}, "settings.seed must be at least 0, not -1"),
        ({"status": "complete", "settings": {"k": True}}, "settings.k must be a whole number, not True"),
        ({"status": "complete", "explainers": {"a": 1}}, "explainers.a must be a word, not 1"),
        ({"status": "complete", "majority": {"test": 2.0}}, "majority.test must be at most 1"),
        ({"status": "complete", "accuracy": {"train": 1.0}}, "accuracy.test is missing"),
        ({"status": "complete", "warnings": "x" * 1000}, "warnings must be a list such as [a,b], not 'xxx"),
    ],
)
def test_an_entry_that_no_run_writes_is_named(record, message):
    with pytest.raises(ValueError) as error_info:
        parse_record(record)
    assert message in str(error_info.value) and len(str(error_info.value)) < 200


def test_missing_entries_of_a_running_record_have_defaults():
    assert parse_record({"status": "running"}) == RunRecord(status="running")


def test_settings_in_the_record_are_those_of_a_run_on_which_results_depend():
    without_results = {"report", "redo", "strict", "data_dir"}
    assert set(SettingsEntry.model_fields) == set(RunSettings.model_fields) - without_results | {"truth"}
