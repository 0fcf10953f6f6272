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


def test_a_function_reads_the_original_texts(tmp_path):
    (tmp_path / "score.py").write_text(SCORE)
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    (tmp_path / "conf" / "dataset" / "own.yaml").write_text(
        "_target_: cfeval_cli.dataset.text.Text\nname: own\nclasses: [bad, good]\ntokens: words\nsearch_words: null\n"
        "corpora:\n  - _target_: cfeval_cli.dataset.text.Table\n"
        "    file: {_target_: cfeval_cli.dataset.sources.File, name: own.csv}\n"
    )
    moods = ["Good,  very Good!", "so-so (really)", "DULL: avoid"]
    rows = [(f" {moods[i % 3]} Rare{i}th.", int(i % 3 == 0)) for i in range(60)]
    pd.DataFrame(rows, columns=["text", "label"]).to_csv(tmp_path / "own.csv", index=False)
    (tmp_path / "run").mkdir()
    inside.run(
        tmp_path / "run", "dataset=own", f"data_dir={tmp_path}", "model=function",
        f"model.path={tmp_path / 'score.py'}:predict_proba", "explainer=[random,omission]", "metric=[c,validity]",
        usual=["cache=off", "n_jobs=1", "figures=[]", "report=false", "resamples=100", "noise=0"],
        folder=tmp_path / "conf",
    )  # fmt: skip
    seen = set(json.loads((tmp_path / "seen.json").read_text()))
    assert {text for text, _ in rows} <= seen  # the accuracy is measured on all of them
    instances = pd.read_parquet(tmp_path / "run" / "instances.parquet").set_index("instance")
    for i, line in instances.iterrows():
        assert line["text"] == rows[i][0] and line["predicted"] == rows[i][1]
        assert f"Rare{i}th" in line["words"] and f"Rare{i}th" in line["values"]
    assert json.loads((tmp_path / "run" / "dataset.json").read_text())["spellings"]["separators"][0] == " "
