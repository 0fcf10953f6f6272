"""What is read of the configs outside a run, and folders that two runs of one second would share."""

import sys

import pytest
from omegaconf import OmegaConf

from cfeval_cli.cli import callbacks, configs
from cfeval_cli.errors import UserError
from tests import inside


def test_options_and_settings_of_the_package_and_of_a_users_own_folder(tmp_path):
    (tmp_path / "explainer").mkdir()
    (tmp_path / "explainer" / "mine.yaml").write_text("mine: {_target_: mine.Mine, depth: 3}\n")
    with configs.opened():
        assert {"adults", "movie_reviews", "wine"} <= set(configs.options("dataset"))
        assert "mine" in configs.options("explainer", str(tmp_path)) and "mine" not in configs.options("explainer")
        known = configs.settings(str(tmp_path))
        assert {"k", "search.pick", "explainer.lime.n_samples", "explainer.mine.depth"} <= set(known)
        every = [f"{group}=[{','.join(configs.options(group, str(tmp_path)))}]" for group in ("explainer", "metric")]
        composed = OmegaConf.to_container(configs.run([*every, "k=3"], str(tmp_path)), resolve=False)
        assert set(known) == set(configs._keys(composed, "")) and composed["k"] == 3  # as Hydra would, at length
    assert configs.default("explainer") == list(inside.composed().explainer)
    assert configs.default("search") == ["discrete"]


@pytest.mark.parametrize(("key", "close"), [("dataset.only.age", ""), ("dataset.features.agee", " Did you mean age?")])
def test_an_entry_of_a_mapping_is_offered_with_a_plus(monkeypatch, key, close):
    monkeypatch.setattr(sys, "argv", ["cfeval", f"{key}=up"])
    parent, _, name = key.rpartition(".")
    with configs.opened():
        assert configs.offer(key) == f"{parent} has no {name!r}.{close} To add it, write +{key}=…"


def test_a_setting_of_somebody_elses_class_is_offered_with_a_plus(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["cfeval", "model=estimator", "model.estimator.max_iter=5", "hydra.run.dir=x"])
    with configs.opened():
        told = configs.offer("model.estimator.max_iter")
        assert told.endswith("write +model.estimator.max_iter=…") and "HistGradientBoostingClassifier" in told
        assert configs.offer("model.encodr") == configs.offer("kk") == configs.offer("nothing.at.all") == ""
        assert "model.encoder" in configs.chosen("model.estimator.max_iter")
        monkeypatch.setattr(sys, "argv", ["cfeval", "model=nonesuch", "kk=1"])
        assert configs.chosen("kk") == [] and configs.offer("model.estimator.x") == ""


def test_the_folder_that_the_command_line_names(monkeypatch):
    for words, expected in ((["--config-dir", "a"], "a"), (["--config-dir=b"], "b"), (["-cd", "c"], "c"), ([], None)):
        monkeypatch.setattr(sys, "argv", ["cfeval", *words])
        assert configs.config_dir() == expected


def test_a_folder_by_the_time_is_claimed_once_and_a_users_own_never(tmp_path):
    OmegaConf.register_new_resolver("now", lambda form: "then", replace=True)
    made = [callbacks.claim(OmegaConf.create({"dir": f"{tmp_path}/${{now:%H}}"})) for _ in range(3)]
    assert [path.name for path in made] == ["then", "then-2", "then-3"] and all(path.is_dir() for path in made)
    assert callbacks.claim(OmegaConf.create({"dir": str(tmp_path / "own")})) is None
    assert not (tmp_path / "own").exists()


def own(folder, *files, body="_target_: x.Y\n"):
    """A folder of configs of a user's own."""
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(body)
    return folder


def test_the_folder_conf_is_found_where_one_is_and_in_a_clone_it_is_the_packages_own(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["cfeval"])
    monkeypatch.chdir(tmp_path)
    assert configs.beside() is None
    own(tmp_path, "conf/app.yaml", "conf/servers/web.yaml")  # of something else
    assert configs.beside() is None
    own(tmp_path, "conf/dataset/mine.yaml")
    assert configs.beside() == configs.own() == str(tmp_path / "conf")
    monkeypatch.setattr(sys, "argv", ["cfeval", "--config-dir", "other"])
    assert configs.own() == "other"
    monkeypatch.chdir(configs.package().parent)
    assert configs.package().name == "conf" and configs.beside() is None
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / "conf").symlink_to(configs.package())
    monkeypatch.chdir(tmp_path / "clone")
    assert configs.beside() is None


def test_a_users_config_adds_a_name_and_never_takes_the_place_of_another(tmp_path):
    folder = own(tmp_path, "dataset/mine.yaml", "explainer/lime.yaml", "dataset/wine.yaml", "search/near.yaml")
    ours = configs.package() / "dataset" / "wine.yaml"
    (tmp_path / "dataset" / "wine.yaml").write_bytes(ours.read_bytes())  # as in a clone beside an installed package
    assert configs.adds("dataset/mine", str(folder)) and not configs.adds("dataset/wine", str(folder))
    assert not configs.adds("dataset/adults", str(folder))
    assert configs.clashes(str(folder)) and not configs.clashes(str(own(tmp_path / "new", "dataset/mine.yaml")))
    own(tmp_path, "explainer/many.yaml", body="defaults: [omission, few]\n")
    own(tmp_path, "explainer/few.yaml", body="few: {_target_: x.Few}\n")
    with configs.opened():
        used = configs.used(["dataset=mine", "explainer=[random,many]"], str(folder))
        assert sorted(used) == ["dataset/mine", "explainer/few", "explainer/many"]  # what others name counts too
        assert configs.used(["dataset=wine", "explainer=[random]"], str(folder)) == []
        with pytest.raises(UserError) as told:
            configs.used([], str(folder))
    assert str(tmp_path / "explainer" / "lime.yaml") in str(told.value)
    assert str(configs.package() / "explainer" / "lime.yaml") in str(told.value)
