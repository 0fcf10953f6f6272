"""`run`: an experiment from settings in this process."""

import os
import warnings

import pytest

from cfeval_cli import run
from cfeval_cli.api.session import check_paths
from cfeval_cli.errors import UserError

SETTINGS = {
    "dataset": "toy", "explainer": ["random", "omission"], "metric": ["c", "recall"], "n_explain": 10, "k": 2,
    "cache": "off", "n_jobs": 1, "figures": [], "report": False, "resamples": 100, "bounds": 0,
    "explainer_stability": 0,
    "reparametrisations": 0, "judge": [],
}  # fmt: skip
CHANGES_WITH_TIME = {"run.json", "run.log", "costs.csv", "costs.md"}


@pytest.fixture
def settings(toy):
    return {**SETTINGS, "data_dir": str(toy.folder / "data")}


def test_run_writes_the_same_bytes_as_the_command(toy, settings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results = run(settings, config_dir=toy.folder / "conf")
    assert results.folder.parent.parent.name == "outputs"
    words = [f"{key}={value}".replace(" ", "").replace("'", "") for key, value in SETTINGS.items() if key != "dataset"]
    toy.run(*words, "hydra.run.dir=command", cwd=tmp_path)
    names = {path.name for path in (tmp_path / "command").iterdir() if path.is_file()} - CHANGES_WITH_TIME
    assert names == {path.name for path in results.folder.iterdir() if path.is_file()} - CHANGES_WITH_TIME
    assert {"metrics.csv", "correlations.csv", "tables.md"} <= names
    for name in names:
        assert (tmp_path / "command" / name).read_bytes() == (results.folder / name).read_bytes(), name


def test_environment_is_restored_after_a_run(toy, settings, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = dict(os.environ)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(settings, config_dir=toy.folder / "conf", into=tmp_path / "here")
    assert dict(os.environ) == before and (tmp_path / "here" / "run.json").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kk": 1}, "there is no setting 'kk'. Did you mean k?"),
        ({"explainer": ["lmie"]}, "there is no explainer 'lmie'. Did you mean lime?"),
        ({"k": 9}, "k=9 exceeds the 4 features of toy"),
    ],
)
def test_invalid_setting_is_one_message_and_leaves_no_results(toy, settings, tmp_path, changes, message):
    with pytest.raises(UserError) as error:
        run({**settings, **changes}, config_dir=toy.folder / "conf", into=tmp_path / "here")
    assert message in str(error.value)
    assert not list(tmp_path.rglob("run.json"))


def test_folder_name_that_is_not_utf8_is_refused():
    check_paths(None)
    with pytest.raises(UserError, match="is not valid UTF-8"):
        check_paths("runs/\udce9")
