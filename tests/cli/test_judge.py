"""The command `cfeval judge check`."""

import pytest

from cfeval_cli.cli import judge
from cfeval_cli.errors import UserError


def test_check_writes_regret_and_shows_where(toy, make_run, tmp_path, capsys):
    settings = ("explainer=[random,omission,lime]", "model=tree", "+dataset.split=[0.6,0.2,0.2]", "n_explain=60")
    run = make_run(toy, *settings, "metric=[c,recall]", "resamples=0")
    judge.main(["check", str(run), "--into", str(tmp_path / "out")])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["regret.md", "regret.parquet"]
    output = capsys.readouterr().out
    assert output.startswith("Verdict: mean regret 0.000 by the answer")
    assert "1 run on 1 data set" in output
    assert output.count("cheapest not significantly worse") == 1  # one table


def test_missing_action_or_run_is_reported(tmp_path):
    with pytest.raises(UserError, match=r"contains a run\.json"):
        judge.main(["check", str(tmp_path)])
    with pytest.raises(SystemExit):
        judge.main([])
