"""The command `cfeval judge check`."""

import pytest

from cfeval_cli.cli import judge
from cfeval_cli.errors import UserError


def test_check_writes_regret_and_shows_where(toy, make_run, tmp_path, capsys):
    run = make_run(toy, "explainer=[random,omission,decision_boundary]", "model=tree")
    judge.main(["check", str(run), "--into", str(tmp_path / "out")])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["regret.md", "regret.parquet"]
    output = capsys.readouterr().out
    assert output.startswith("Verdict: mean regret 0.000 by the metric-based ranking")
    assert "1 run of judges on 1 data set" in output
    assert output.count("mean rank over all metrics") == 1  # one table


def test_missing_action_or_run_is_reported(tmp_path):
    with pytest.raises(UserError, match=r"contains a run\.json"):
        judge.main(["check", str(tmp_path)])
    with pytest.raises(SystemExit):
        judge.main([])
