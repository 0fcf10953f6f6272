"""The page on a table of one's own: its yaml, as it is printed."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from hydra.utils import instantiate

from cfeval_cli.dataset.tabular import TabularData
from cfeval_cli.dataset.text import Text
from cfeval_cli.settings import compose

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text()
LOANS, BY_COLUMN, BY_FILES, REVIEWS, VECTORS = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("loans.csv", "loans_2022.csv"):
        lines = ["default;home;part;income;children;age"]
        for i in range(80):
            income = "" if i % 9 == 0 else f"{rng.lognormal(3, 1):.2f}"
            cells = (i % 3 == 0, rng.choice(["own", "rent"]), 2019 + i % 4, income, i % 4 or -9, 20 + i % 50)
            lines.append(";".join(str(int(cell) if isinstance(cell, bool) else cell) for cell in cells))
        (tmp_path / name).write_text("\n".join(lines))
    return tmp_path


@pytest.mark.parametrize(("options", "sizes"), [("", (64, 8, 8)), (BY_COLUMN, (40, 20, 20)), (BY_FILES, (64, 16, 80))])
def test_the_yaml_of_the_page_reads_the_described_splits(folder, options, sizes):
    data = instantiate(yaml.safe_load(LOANS + options), _convert_="all").load(folder, 0)
    assert [(f.name, f.kind, f.missing_code is not None) for f in data.features] == [
        ("age", "number", False),
        ("income", "number", True),
        ("home", "category", False),
        ("children", "category", True),
    ]
    assert tuple(len(split) for split in (data.train, data.validation, data.test)) == sizes
    assert data.classes == ("0", "1") and data.train.labels.mean() == pytest.approx(1 / 3, abs=0.1)


@pytest.mark.parametrize(("kind", "example"), [(TabularData, LOANS), (Text, REVIEWS + VECTORS)])
def test_every_setting_is_on_the_page(kind, example):
    settings = set(kind.__dataclass_fields__) - {"reference"}
    assert {
        name for name in settings if f"`{name}" in PAGE or f"{name}:" in example or f"@{name}:" in example
    } == settings


def test_the_texts_of_the_page_are_read_with_their_labels(tmp_path):
    moods = {1: "Très mauvais, dull!", 5: "Good. Don't miss it"}
    lines = ["review\tstars", *(f"{moods[stars]} {i}\t{stars}" for i in range(20) for stars in moods)]
    (tmp_path / "reviews.tsv").write_text("\n".join(lines))
    data = instantiate(yaml.safe_load(REVIEWS), _convert_="all").load(tmp_path, 0)
    assert len(data.train) == 32 and data.classes == ("bad", "good") and data.pretrained is None
    labels = {text.rsplit(" ", 1)[0]: label for text, label in zip(data.train.texts, data.train.labels, strict=True)}
    assert labels == {"Très mauvais, dull!": 0, "Good. Don't miss it": 1}


def test_vectors_are_two_lines(tmp_path):
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "reviews.yaml").write_text(VECTORS + REVIEWS)
    with compose.open_packaged_configs():
        config = compose.compose_run(["dataset=reviews"], str(tmp_path))
    glove = instantiate(config.dataset.embedding, _convert_="all")
    assert glove.list_files()[0].name == "glove_6B_50d_emb.npy" and config.dataset.name == "reviews"
