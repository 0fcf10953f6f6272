"""Explanations from files: every form, and every kind of invalid content."""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT, NO_FEATURE, Access, ModelSpec, NotExplained
from cfeval_cli.core.fingerprint import hash_component
from cfeval_cli.errors import UserError
from cfeval_cli.explainer.file import File
from cfeval_cli.explainer.scores import read_scores
from cfeval_cli.model.linear import LinearModel
from tests.problems import make_batch, make_dataset, make_linear, open_client

DATASET = make_dataset([3, 4, 2], n=12)
MODEL = make_linear(DATASET)
IDS = DATASET.test.ids
NAMES = [feature.name for feature in DATASET.features]
SUBJECT = ModelSpec(DATASET, LinearModel)
SCORES = np.random.default_rng(0).normal(size=(len(IDS), 3))


def wide(scores=SCORES):
    return pd.DataFrame(scores, columns=NAMES).assign(instance=IDS)


def long(scores=SCORES):
    return wide(scores).melt("instance", var_name="feature", value_name="score").dropna()


def write_file(tmp_path, frame, name="shap.csv", **options):
    path = tmp_path / name
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",", **options)
    return str(path)


def explain(settings, dataset=DATASET, rows=slice(None)):
    settings.check(ModelSpec(dataset, LinearModel))
    (first,) = settings.expand("file").values()
    return first.fit(dataset, open_client(MODEL, Access.NOTHING))(make_batch(dataset, MODEL, rows=rows))


def by_hand(scores, order):
    """Features of each row, the highest first."""
    size = abs if order == "absolute" else float
    return [sorted(np.flatnonzero(~np.isnan(row)).tolist(), key=lambda j, row=row: -size(row[j])) for row in scores]


@pytest.mark.parametrize("order", ["signed", "absolute"])
@pytest.mark.parametrize("name", ["shap.csv", "shap.tsv", "shap.parquet"])
@pytest.mark.parametrize("form", [wide, long])
def test_long_and_wide_tables_give_the_same_explanations(tmp_path, form, name, order):
    explanation = explain(File(write_file(tmp_path, form().sample(frac=1, random_state=1), name), order=order))
    assert explanation.features.tolist() == by_hand(SCORES, order)
    assert explanation.scores == pytest.approx(np.take_along_axis(SCORES, explanation.features, axis=1))


@given(st.lists(st.lists(st.one_of(st.none(), st.integers(-3, 3)), min_size=3, max_size=3), min_size=12, max_size=12))
def test_features_without_a_score_are_left_out_of_the_ranking(rows):
    scores = np.array([[np.nan if cell is None else cell for cell in row] for row in rows], dtype=float)
    with tempfile.TemporaryDirectory() as folder:
        explanation = explain(File(write_file(Path(folder), wide(scores))))
    for features, row in zip(explanation.features, by_hand(scores, "signed"), strict=True):
        assert [j for j in features if j != NO_FEATURE] == row


@pytest.mark.parametrize("separator", [";", ",", "\t"])
def test_separators_byte_order_marks_and_ids_as_floats_are_read(tmp_path, separator):
    text = wide().to_csv(index=False, sep=separator, float_format="%.6f")
    (tmp_path / "a.csv").write_text("\ufeff" + text, encoding="utf-8")
    assert explain(File(str(tmp_path / "a.csv"))).features.tolist() == by_hand(SCORES, "signed")
    frame = wide()
    frame["instance"] = frame["instance"].astype(float)
    assert explain(File(write_file(tmp_path, frame, "b.csv"))).features.tolist() == by_hand(SCORES, "signed")


def test_each_file_is_an_explainer_with_the_name_of_the_file(tmp_path):
    (tmp_path / "more").mkdir()
    paths = [
        write_file(tmp_path, wide(), name)
        for name in ("shap.csv", "my values (v2).parquet", "more/x.tsv", "more/y.csv")
    ]
    (tmp_path / "more" / "notes.txt").write_text("not a table")
    members = File([*paths[:2], str(tmp_path / "more")], order="absolute").expand("file")
    assert list(members) == ["shap", "my_values_v2_", "x", "y"]
    assert [first.title for first in members.values()] == ["shap", "my values (v2)", "x", "y"]
    assert all(first.order == "absolute" for first in members.values())
    assert list(File(str(tmp_path / "more")).expand("file")) == ["x", "y"]
    with pytest.raises(ValueError, match=r"two files would be called shap, the second is .*shap\.parquet"):
        File([paths[0], write_file(tmp_path, wide(), "shap.parquet")]).expand("file")


def test_file_with_the_name_of_another_explainer_is_refused(tmp_path):
    from tests.settings.test_build import plan

    path = write_file(tmp_path, wide(), "random.csv")
    with pytest.raises(UserError, match=r"random is also the name of another explainer. Rename one"):
        plan("explainer=[random,file]", f"explainer.file.path={path}")
    plan_of_files = plan(
        "explainer=[random,file]",
        f"explainer.file.path=[{write_file(tmp_path, wide(), 'a.csv')},{path}]",
        "~explainer.random",
    )
    assert list(plan_of_files.explainers) == ["a", "random"]


def test_changed_content_changes_the_fingerprint_and_the_explanations(tmp_path):
    path = write_file(tmp_path, wide())
    before, explanation = hash_component(File(path)), explain(File(path)).features
    write_file(tmp_path, wide(-SCORES * 3))
    assert hash_component(File(path)) != before is not None
    assert (explain(File(path)).features != explanation).any()


def cell(frame, row, column, value):
    frame = frame.astype({column: object})
    frame.loc[frame.index[row], column] = value
    return frame


BAD = [
    (lambda: cell(wide(), 2, "f1", "many"), r"scores of f1 that are not numbers: 1 \('many'\)", [2]),
    (lambda: cell(wide(), 2, "f1", "inf"), r"scores of f1 that are not numbers: 1 \('inf'\)", [2]),
    (lambda: cell(cell(wide(), 2, "f1", "x"), 3, "f1", "y"), r"that are not numbers: 2 \('x', 'y'\)", [2, 3]),
    (lambda: cell(wide(), 2, "instance", 99), r"instances that are not in the data: 1 \('99'\)", [2]),
    (lambda: cell(wide(), 2, "instance", 2.5), r"lines whose instance is not a whole number: 1 \('2.5'\)", [2]),
    (lambda: cell(wide(), 2, "instance", "second"), r"not a whole number: 1 \('second'\)", [2]),
    (lambda: cell(wide(), 2, "instance", IDS[3]), r"duplicate lines of an instance: 1 \('27'\)", [2, 3]),
    (lambda: wide().rename(columns={"f1": "F1"}), r"columns that are not features: 1 \('F1'; did you mean f1\?\)", []),
    (lambda: wide().assign(base=1.0), r"columns that are not features: 1 \('base'\)", []),
    (lambda: cell(long(), 2, "feature", "f00"), r"lines with an unknown feature: 1 \('f00'; did you mean f0\?\)", [2]),
    (lambda: cell(long(), 2, "score", "much"), r"lines whose score is not a number: 1 \('much'\)", [2]),
    (lambda: cell(long(), 2, "score", ""), "lines whose score is not a number: 1", [2]),
    (lambda: pd.concat([long(), long()[2:3]]), r"duplicate lines of an instance and a feature: 1 \('26 f0'\)", [2]),
]


@pytest.mark.parametrize("place", range(len(BAD)))
@pytest.mark.parametrize("name", ["bad.csv", "bad.parquet"])
def test_invalid_lines_are_counted_and_refused_or_left_out(tmp_path, place, name):
    make, message, invalid_rows = BAD[place]
    frame = make()
    if name.endswith("parquet"):
        frame = frame.astype({column: str for column in frame if frame[column].dtype == object})
    path = write_file(tmp_path, frame, name)
    with pytest.raises(ValueError, match=message + r".*Use invalid_lines=skip to leave them out"):
        File(path).check(SUBJECT)
    skips = File(path, invalid_lines="skip")
    for row in range(len(IDS)):
        if row in invalid_rows:
            with pytest.raises(NotExplained, match=r"bad\.(csv|parquet)"):
                explain(skips, rows=slice(row, row + 1))
        else:
            assert len(explain(skips, rows=slice(row, row + 1))) == 1
    explanation = explain(skips, rows=slice(5, 6))
    selected = {0, 1, 2} - ({1} if "F1" in frame else set())
    assert set(explanation.features[0].tolist()) - {NO_FEATURE} == selected


def test_instances_that_are_missing_are_not_explained(tmp_path):
    settings = File(write_file(tmp_path, wide()[3:]))
    assert len(explain(settings, rows=slice(3, None))) == len(IDS) - 3
    with pytest.raises(NotExplained, match=r"^not in shap\.csv$"):
        explain(settings, rows=slice(2, 4))


def test_rows_of_other_splits_are_ignored(tmp_path):
    extra = pd.concat([wide(), wide().assign(instance=DATASET.train.ids)])
    assert explain(File(write_file(tmp_path, extra))).features.tolist() == by_hand(SCORES, "signed")


def test_scores_behind_the_end_of_a_text_are_refused(tmp_path):
    texts = make_dataset([3, 4, 2], n=12, absent=0.4)
    is_present = texts.test.codes != ABSENT
    scores = np.where(is_present, SCORES, np.nan)
    explanation = explain(File(write_file(tmp_path, wide(scores))), texts)
    assert ((explanation.features != NO_FEATURE).sum(axis=1) == is_present.sum(axis=1)).all()
    row = int(np.flatnonzero(~is_present.all(axis=1))[0])
    with pytest.raises(NotExplained, match="behind the end of the text"):
        explain(File(write_file(tmp_path, wide(), "b.csv")), texts, slice(row, row + 1))


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        ("a.csv", b"", "cannot be read as a table"),
        ("a.csv", b"\xff\xfe\x00", "cannot be read as a table"),
        ("a.csv", b"id,f0\n1,2\n", "has no column instance"),
        ("a.csv", b"instances,f0\n1,2\n", "Did you mean instances"),
        ("a.csv", b"instance,x,y\n1,2,3\n", "has neither a column for a feature, such as 'f0'"),
        ("a.csv", b"instance\n1\n", "instance only"),
        ("a.csv", b"instance,f0\n1,2,3,4\n1,2\n", "cannot be read as a table|no column"),
        ("a.parquet", b"PAR1junk", "cannot be read as a table"),
        ("a.parquet", b"", "cannot be read as a table"),
    ],
)
def test_files_that_are_not_tables_of_scores_are_refused(tmp_path, name, body, message):
    (tmp_path / name).write_bytes(body)
    with pytest.raises((UserError, ValueError), match=message):
        File(str(tmp_path / name)).check(SUBJECT)


def test_table_without_lines_has_no_instances(tmp_path):
    for frame in (wide()[:0], long()[:0]):
        explanation = read_scores(tmp_path / write_file(tmp_path, frame), DATASET)
        assert len(explanation.instances) == 0 and not explanation.problems


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"path": None}, "path must be given"),
        ({"path": []}, "path must be given"),
        ({"path": [1]}, "path must be given"),
        ({"path": "a.csv", "order": "random"}, "order must be one of signed, absolute"),
        ({"path": "a.csv", "invalid_lines": "keep"}, "invalid_lines must be one of refuse, skip"),
    ],
)
def test_message_names_the_invalid_setting(settings, message):
    with pytest.raises(ValueError, match=message):
        File(**settings)


def test_missing_files_and_folders_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"there is no file or folder nowhere\.csv"):
        File("nowhere.csv").expand("file")
    with pytest.raises(ValueError, match=r"has no file of \.csv, \.tsv, \.parquet"):
        File(str(tmp_path)).expand("file")
    (tmp_path / "a.xlsx").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"is not one of \.csv, \.tsv, \.parquet"):
        File(str(tmp_path / "a.xlsx")).expand("file")
