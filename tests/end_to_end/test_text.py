"""Texts from end to end, and every search on every kind of data."""

import json

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.errors import UserError
from tests import inside
from tests.conftest import SMALL_RUN

TRAINED = ("model.learning_rate.text=0.03", "model.max_epochs=6")  # as accurate as the default, in fewer epochs


def test_k_beyond_a_sentence_lowers_coverage_and_padding_is_never_named(toy_text, make_run):
    folder = make_run(toy_text, "explainer=[random,omission,lr]", *TRAINED, "search=exact", "k=5", "metric=[c,recall]")
    lengths = pd.read_parquet(folder / "instances.parquet")["codes"].map(lambda c: int((c != -1).sum()))
    metrics = pd.read_csv(folder / "metrics.csv").query("metric == 'c'")
    assert 0 < (lengths >= 5).mean() < 1
    assert metrics["coverage"].to_numpy() == pytest.approx((lengths >= 5).mean())
    assert (metrics["n"] == (lengths >= 5).sum()).all()
    explanations = pd.read_parquet(folder / "explanations.parquet")
    assert (explanations["features"].map(len).to_numpy() == np.tile(lengths, 3)).all()


def test_a_search_without_convergence_is_reported(toy_text, make_run):
    settings = ["search=continuous", "search.steps=2", "search.restarts=1", "n_explain=20", "metric=[c,recall]"]
    folder = make_run(toy_text, "explainer=[random,lr]", *TRAINED, *settings)
    metrics = pd.read_csv(folder / "metrics.csv").query("metric == 'converged'")
    assert (metrics["value"] < 0.9).all()
    assert "Converged (gradient)" in (folder / "tables.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search=continuous", "search.alpha=0"], "search: alpha must be a number over 0"),
        (["dataset.search_words=0"], "dataset: search_words must be a whole number of at least 2"),
        (["dataset.embedding.path=broken.txt"], "broken.txt, line 2: expected a word and 2 numbers"),
        (["dataset.embedding.path=nowhere.txt"], "dataset.embedding.path=nowhere.txt cannot be read"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(toy_text, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.txt").write_text("the 1 2\nfilm 1\n")
    (tmp_path / "run").mkdir()
    with pytest.raises(UserError, match=message):
        inside.run(tmp_path / "run", *toy_text.arguments[2:], *SMALL_RUN, *arguments, folder=toy_text.folder / "conf")
    assert [path.name for path in sorted(tmp_path.rglob("*"))] == ["broken.txt", "run"]


def test_a_partial_copy_is_noted_on_screen_in_the_record_and_in_every_caption(toy_text, tmp_path, caplog):
    caplog.set_level("INFO")
    conf = tmp_path / "conf" / "dataset"
    conf.mkdir(parents=True)
    text = (toy_text.folder / "conf" / "dataset" / "toy_text.yaml").read_text()
    corpus_config = """\
  - _target_: cfeval_cli.dataset.text.Lines
    rows: 900
    negative: {_target_: cfeval_cli.dataset.sources.DataFile, name: whole.neg}
    positive: {_target_: cfeval_cli.dataset.sources.DataFile, name: whole.pos}
"""
    (conf / "toy_text.yaml").write_text(text.replace("corpora:\n", f"corpora:\n{corpus_config}"))
    little = [*SMALL_RUN, *TRAINED, "explainer=[random,lr]", "n_explain=10", "search=exact", "metric=[c,recall]"]
    little += ["truth=[signed]", "resamples=0"]
    (tmp_path / "run").mkdir()
    folder = inside.run(tmp_path / "run", *toy_text.arguments[2:], *little, folder=tmp_path / "conf")
    assert "an incomplete copy, 400 of 900 sentences; put whole.neg and whole.pos into" in caplog.text
    data = json.loads((folder / "run.json").read_text())["data"]
    assert (data["complete"], data["rows_read"], data["rows_whole"]) == (False, 400, 900)
    for name in ("tables.md", "tables.tex"):
        assert (folder / name).read_text().count("an incomplete copy: 400 of 900 rows") == 2
