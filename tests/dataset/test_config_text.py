"""The config of a dataset, written from the description of its file."""

import pandas as pd
import pytest
from omegaconf import OmegaConf

from cfeval_cli.dataset import config_text
from cfeval_cli.dataset.config_text import describe_class_counts, format_config
from cfeval_cli.dataset.describe import describe_file
from cfeval_cli.errors import UserError


def write(folder, columns):
    path = folder / "table.csv"
    pd.DataFrame(columns).to_csv(path, index=False)
    return describe_file(path, "y")


def test_config_has_every_setting_and_the_kind_of_each_column(tmp_path):
    columns = {"amount": ["1.5", "2.5", "?", "4"] * 5, "no": ["a", "b", "b", "a"] * 5, "y": ["good", "bad"] * 10}
    description = write(tmp_path, columns)
    config = OmegaConf.to_container(OmegaConf.create("\n".join(format_config(description, "mine", tmp_path))))
    assert config["name"] == "mine" and config["file"]["name"] == "table.csv"
    assert config["features"] == {"amount": "number", "no": "category"}
    assert config["label"] == "y" and config["classes"] == ["bad", "good"] and config["missing"] == ["?"]
    assert config["immutable"] == [] and config["only"] is None and config["split"] == [0.8, 0.1, 0.1]
    assert describe_class_counts(description) == "bad: 10, good: 10 of 20 rows"


def test_interpolation_is_reported(tmp_path):
    description = write(tmp_path, {"x": [1, 2] * 10, "y": ["${k}", "b", "b", "${k}"] * 5})
    with pytest.raises(UserError, match="cannot stand in a config"):
        list(format_config(description, "mine", tmp_path))


def test_numbers_and_texts_are_valid_yaml():
    for value in ("yes", "No", "null", "1", "1e3", "a: b", "", "é", "a", 3, 0.5, -9.0):
        assert OmegaConf.create(f"x: {config_text._format_scalar(value)}").x == value
