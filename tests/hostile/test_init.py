"""`cfeval init` refuses damaged files or writes a config that loads."""

import numpy as np
import pytest
import yaml
from hydra.utils import instantiate

from cfeval_cli.cli.init import init_dataset
from cfeval_cli.dataset.describe import describe_file
from cfeval_cli.errors import UserError
from tests.dataset.test_describe import table
from tests.hostile.mutations import list_names, mutate, parametrize_seeds


@parametrize_seeds(45, 600)
def test_damaged_files_are_refused_or_get_a_config_that_loads(tmp_path, seeds, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    frame = table()[["age", "income", "default", "home", "seen", "note"]]
    frame.to_parquet("a")
    bodies = [
        frame.to_csv(index=False).encode(),
        frame.to_csv(index=False, sep=";").encode(),
        (tmp_path / "a").read_bytes(),
    ]
    (tmp_path / "a").unlink()
    n_refused = n_described = 0
    for seed in seeds:
        (tmp_path / "a.csv").write_bytes(mutate(bodies[seed % 3], np.random.default_rng(seed), 3))
        try:
            init_dataset(
                "a.csv", "default", text=None, name=None, config_dir=None, data_dir=tmp_path / "data", force=True
            )
        except UserError as error:
            n_refused += 1
            assert "a.csv" in str(error) or "cannot stand in a config" in str(error), seed
        else:
            n_described += 1
            body = (tmp_path / "conf" / "dataset" / "a.yaml").read_text(encoding="utf-8")
            assert len(instantiate(yaml.safe_load(body), _convert_="all").load(tmp_path / "data", 0).test), seed
            (tmp_path / "conf" / "dataset" / "a.yaml").unlink()
        (tmp_path / "a.csv").unlink()
    assert n_refused and n_described and list_names(tmp_path) <= {"conf", "conf/dataset"}
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["a\x1b[2J", "a\u202eb", "=cmd()", "a" * 200])
def test_control_characters_in_columns_are_escaped(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    frame = table()[["default", "age", "branch"]].rename(columns={"age": name, "branch": f"{name}2"})
    frame.to_csv("a.csv", index=False)
    init_dataset("a.csv", "default", text=None, name=None, config_dir=None, data_dir=tmp_path, force=False)
    output, body = capsys.readouterr().out, (tmp_path / "conf" / "dataset" / "a.yaml").read_text(encoding="utf-8")
    assert "\x1b" not in output + body and "\u202e" not in output
    assert list(yaml.safe_load(body)["features"]) == [name]
    assert describe_file(tmp_path / "a.csv", "default").features[0].name == name
