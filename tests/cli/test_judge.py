"""`cfeval judge check`, as it is called."""

import sys

import pytest

from cfeval_cli.cli import judge
from cfeval_cli.errors import UserError


def test_check_reads_runs_writes_two_files_and_says_where(toy, made, tmp_path, monkeypatch, capsys):
    run = made(toy, "explainer=[random,omission,decision_boundary]", "model=tree")
    monkeypatch.setattr(sys, "argv", ["cfeval", "check", str(run), "--into", str(tmp_path / "out")])
    judge.main()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["regret.md", "regret.parquet"]
    said = capsys.readouterr().out
    assert said.startswith("Verdict: An explainer that the rule chooses") and "1 run of judges on 1 data set" in said
    assert said.count("the mean rank over all metrics") == 1  # one table


def test_an_action_and_a_run_are_needed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["cfeval", "check", str(tmp_path)])
    with pytest.raises(UserError, match="holds no run"):
        judge.main()
    monkeypatch.setattr(sys, "argv", ["cfeval"])
    with pytest.raises(SystemExit):
        judge.main()
