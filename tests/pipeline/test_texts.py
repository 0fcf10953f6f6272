"""A text model made elsewhere reads the original strings."""

import json

import pandas as pd

from tests import inside

SCORE = """
import json
import pathlib

LOG = pathlib.Path(__file__).with_name("seen.json")


def predict_proba(texts):
    seen = set(json.loads(LOG.read_text())) if LOG.exists() else set()
    LOG.write_text(json.dumps(sorted(seen | set(texts))))
    return [0.9 if "Good" in text else 0.2 for text in texts]
"""


DATASET = """\
_target_: cfeval_cli.dataset.text.Text
name: own
classes: [bad, good]
tokens: words
search_words: null
corpora:
  - _target_: cfeval_cli.dataset.text.TextTable
    file: {_target_: cfeval_cli.dataset.sources.DataFile, name: own.csv}
"""


def run(folder, score, rows, *overrides):
    """A run of a function on texts with labels."""
    (folder / "score.py").write_text(score)
    (folder / "conf" / "dataset").mkdir(parents=True)
    (folder / "conf" / "dataset" / "own.yaml").write_text(DATASET)
    pd.DataFrame(rows, columns=["text", "label"]).to_csv(folder / "own.csv", index=False)
    (folder / "run").mkdir()
    return inside.run(
        folder / "run", "dataset=own", f"data_dir={folder}", "model=function",
        f"model.path={folder / 'score.py'}:predict_proba", "explainer=[random,omission]", "metric=[c,validity]",
        *overrides, defaults=["cache=off", "n_jobs=1", "figures=[]", "report=false", "resamples=100",
                           "explainer_stability=0"],
        folder=folder / "conf",
    )  # fmt: skip


def test_a_function_reads_the_original_texts(tmp_path):
    moods = ["Good,  very Good!", "so-so (really)", "DULL: avoid"]
    rows = [(f" {moods[i % 3]} Rare{i}th.", int(i % 3 == 0)) for i in range(60)]
    run(tmp_path, SCORE, rows)
    received = set(json.loads((tmp_path / "seen.json").read_text()))
    assert {text for text, _ in rows} <= received  # the accuracy is measured on all of them
    instances = pd.read_parquet(tmp_path / "run" / "instances.parquet").set_index("instance")
    for i, line in instances.iterrows():
        assert line["text"] == rows[i][0] and line["predicted"] == rows[i][1]
        assert f"Rare{i}th" in line["words"] and f"Rare{i}th" in line["values"]
    assert json.loads((tmp_path / "run" / "dataset.json").read_text())["spellings"]["separators"][0] == " "


ENDS = "def predict_proba(texts):\n    return [0.9 if text.endswith('END!') else 0.1 for text in texts]\n"


def test_words_behind_max_tokens_reach_the_model(tmp_path):
    """Also when words before them are removed or replaced."""
    rows = [(f"{'one two three four five six'[: 9 + i % 19]} secret{i} more END!", i % 2) for i in range(60)]
    folder = run(tmp_path, ENDS, rows, "+dataset.max_tokens=2", "training=0", "k=1")
    instances = pd.read_parquet(folder / "instances.parquet")
    assert (instances["predicted_probability"] == 0.9).all() and (instances["predicted"] == 1).all()
    assert instances["text"].tolist() == [rows[i][0] for i in instances["instance"]]
    assert instances["words"].map(len).eq(2).all()
    explained = pd.read_parquet(folder / "explanations.parquet").query("explainer == 'omission'")
    assert explained["scores"].map(lambda scores: (abs(scores) < 1e-12).all()).all()
    # what is stored of the texts of others is no more than the words that are features
    stored = (folder / "dataset.json").read_text()
    assert any(f"secret{i}" in stored for i in instances["instance"])
    assert not any(f"secret{i} " in stored for i in set(range(60)) - set(instances["instance"]))
