"""Run folders are found by their record."""

from cfeval_cli.results.locations import RECORD, find_records, has_record


def test_records_of_runs_and_of_their_judges_are_found(tmp_path):
    folders = [tmp_path / "0", tmp_path / "0" / "judges" / "tree", tmp_path / "1"]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / RECORD).touch()
    records = find_records(tmp_path)
    assert records == sorted(records) and {record.parent for record in records} == set(folders)
    assert all(map(has_record, folders)) and not has_record(tmp_path)
