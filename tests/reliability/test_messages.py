"""Messages and logs hold no rows of data, which may be personal."""

import re

import pandas as pd
import pytest

from cfeval_cli.dataset.cells import Layout
from cfeval_cli.dataset.describe import describe_file
from cfeval_cli.errors import UserError, excerpt_error

ROW = ("< 0 DM", 24, "critical (other, existing)", 1169.0)
SERIES = pd.Series(ROW, index=["status", "months", "history", "amount"])
ADULTS = "39, State-gov, 77516, Bachelors, <=50K\n50, Self-emp, 83311, Masters, >50K\n" * 20
MODEL = """\
calls = 0

def f(rows):
    global calls
    calls += 1
    if calls > 30:
        raise KeyError(tuple(rows.iloc[0]))
    return [0.2 + 0.1 * (len(str(size)) % 7) for size in rows["size"]]
"""


@pytest.mark.parametrize(
    "error",
    [
        KeyError(ROW), KeyError(str(ROW)), ValueError(f"bad: {list(ROW)}"), ValueError(f"bad: {dict(SERIES)}"),
        ValueError(f"bad: {SERIES.to_numpy()}"), ValueError(f"bad: {SERIES}"), ValueError(SERIES.to_frame().T),
        ValueError(next(SERIES.to_frame().T.itertuples())), ValueError(" ".join(map(str, ROW * 3))),
    ],
)  # fmt: skip
def test_an_excerpt_of_an_error_holds_no_row(error):
    text = excerpt_error(error)
    assert len(text) < 100 and not all(str(value) in text for value in ROW)


def test_neither_the_screen_nor_the_log_of_a_run_has_a_row(toy, tmp_path):
    (tmp_path / "score.py").write_text(MODEL)
    words = ["model=function", "model.path=score.py:f", "explainer=[random,omission]", "n_explain=20"]
    process = toy.run(*words, "hydra.run.dir=run", cwd=tmp_path, code=1)
    log = (tmp_path / "run" / "run.log").read_text()
    assert re.search(r"raised KeyError: … for (the row \d+|a row) .*, at score\.py:7\.", process.stderr)
    assert "Traceback" in log and 'score.py", line 7, in f' in log and "raise KeyError(tuple(rows.iloc[0]))" in log
    for text in (process.stdout, process.stderr, log):
        assert not re.search(r"'(round|square|flat)'", text)


def test_a_file_without_a_header_is_not_quoted(tmp_path):
    path = tmp_path / "nohdr.csv"
    path.write_text(ADULTS)
    with pytest.raises(UserError, match=r"Its first line has 5 cells, and may be a row of data\. If that is no header"):
        describe_file(path, "income")
    layouts = (Layout(header=True), Layout(["a", "b", "c", "d", "income"], header=True))
    messages = []
    for layout in layouts:
        with pytest.raises(UserError, match="Its first line has 5 cells") as refusal:
            layout.read(path, ["income"])
        messages.append(str(refusal.value))
    path.write_text("39 State-gov 77516\n50 Self-emp 83311\n")
    with pytest.raises(UserError, match=r"divide nothing in its first line \(18 characters\)") as refusal:
        describe_file(path, "income")
    assert not any("State-gov" in text for text in (*messages, str(refusal.value)))


def test_the_columns_of_a_file_with_a_header_are_named(tmp_path):
    path = tmp_path / "hdr.csv"
    path.write_text(f"age,work,weight,school,income\n{ADULTS}")
    with pytest.raises(
        UserError, match=r"has no column label\. Its first line has age, work, weight, school, income\."
    ):
        describe_file(path, "label")
