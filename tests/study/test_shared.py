"""What several studies share: run folders, packaged definitions, and lists in sentences."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from cfeval_cli.errors import UserError
from cfeval_cli.study.definitions import load_definitions
from cfeval_cli.study.run_folders import find_run_folders, report_damage, write_texts
from cfeval_cli.study.words import join_first_names, write_count, write_range


def test_run_folders_are_found_below_and_judges_only_on_request(tmp_path):
    for name in ("b", "a/judges/tree", "a"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / name / "run.json").touch()
    names = [path.relative_to(tmp_path.resolve()).as_posix() for path in find_run_folders([tmp_path, tmp_path / "b"])]
    assert names == ["a", "b"]
    assert len(find_run_folders([tmp_path], with_judges=True)) == 3
    with pytest.raises(UserError, match="there is no folder"):
        find_run_folders([tmp_path / "c"])


def test_any_error_of_damaged_files_becomes_one_message():
    with pytest.raises(UserError, match=r"^run 3 is damaged: a b\.$"), report_damage("run 3 is damaged"):
        raise LookupError("a\n b")
    with pytest.raises(UserError, match="run 3 is damaged: nowhere: No such file"), report_damage("run 3 is damaged"):
        Path("nowhere").read_text()


def test_texts_replace_earlier_files(tmp_path):
    for text in ("earlier", "later"):
        write_texts(tmp_path / "into", {"a.md": text})
    assert [path.read_text() for path in (tmp_path / "into").iterdir()] == ["later"]


def test_packaged_definitions_are_validated():
    with pytest.raises(ValidationError):
        load_definitions("cfeval_cli.study.atlas", "seconds.json", dict[str, int])


def test_long_lists_are_cut_and_counts_have_plurals():
    assert join_first_names(["a", "b", "c"], 2) == "a, b and c"
    assert join_first_names(["a", "b", "c", "d"], 2) == "a, b and 2 more"
    assert (write_count(1, "run"), write_count(2000, "run")) == ("1 run", "2,000 runs")
    assert (write_range([0.25, 0.5], "{:.2f}"), write_range([0.5, 0.501], "{:.1f}")) == ("0.25 to 0.50", "0.5")
