"""The user's own folder of configs, and folders of runs that start in the same second."""

import pytest
from omegaconf import OmegaConf

from cfeval_cli.cli import callbacks
from cfeval_cli.cli.own_configs import (
    find_conf_folder,
    find_own_folder,
    get_config_dir,
    has_clash,
    is_own_config,
    list_used_configs,
)
from cfeval_cli.errors import UserError
from cfeval_cli.settings import compose


def test_config_dir_is_read_from_the_command_line():
    for words, expected in ((["--config-dir", "a"], "a"), (["--config-dir=b"], "b"), (["-cd", "c"], "c"), ([], None)):
        assert get_config_dir(words) == expected


def test_time_stamped_folder_is_made_new_and_a_chosen_folder_is_not(tmp_path):
    OmegaConf.register_new_resolver("now", lambda form: "then", replace=True)
    folders = [callbacks.claim_folder(OmegaConf.create({"dir": f"{tmp_path}/${{now:%H}}"})) for _ in range(3)]
    assert [path.name for path in folders] == ["then", "then-2", "then-3"] and all(path.is_dir() for path in folders)
    assert callbacks.claim_folder(OmegaConf.create({"dir": str(tmp_path / "own")})) is None
    assert not (tmp_path / "own").exists()


def own(folder, *files, body="_target_: x.Y\n"):
    """A folder of configs of a user's own."""
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(body)
    return folder


def test_conf_folder_of_the_user_is_found_but_not_that_of_a_clone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_conf_folder() is None
    own(tmp_path, "conf/app.yaml", "conf/servers/web.yaml")  # of something else
    assert find_conf_folder() is None
    own(tmp_path, "conf/dataset/mine.yaml")
    assert find_conf_folder() == find_own_folder([]) == str(tmp_path / "conf")
    assert find_own_folder(["--config-dir", "other"]) == "other"
    monkeypatch.chdir(compose.get_package_folder().parent)
    assert compose.get_package_folder().name == "conf" and find_conf_folder() is None
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / "conf").symlink_to(compose.get_package_folder())
    monkeypatch.chdir(tmp_path / "clone")
    assert find_conf_folder() is None


def test_config_of_the_user_cannot_replace_a_packaged_one(tmp_path):
    folder = own(tmp_path, "dataset/mine.yaml", "explainer/lime.yaml", "dataset/wine.yaml", "search/near.yaml")
    packaged = compose.get_package_folder() / "dataset" / "wine.yaml"
    (tmp_path / "dataset" / "wine.yaml").write_bytes(packaged.read_bytes())  # as in a clone beside an installed package
    assert is_own_config("dataset/mine", str(folder)) and not is_own_config("dataset/wine", str(folder))
    assert not is_own_config("dataset/adults", str(folder))
    assert has_clash(str(folder)) and not has_clash(str(own(tmp_path / "new", "dataset/mine.yaml")))
    own(tmp_path, "explainer/many.yaml", body="defaults: [omission, few]\n")
    own(tmp_path, "explainer/few.yaml", body="few: {_target_: x.Few}\n")
    with compose.open_packaged_configs():
        names = list_used_configs(["dataset=mine", "explainer=[random,many]"], str(folder))
        assert sorted(names) == ["dataset/mine", "explainer/few", "explainer/many"]  # what others name counts too
        assert list_used_configs(["dataset=wine", "explainer=[random]"], str(folder)) == []
        with pytest.raises(UserError) as error:
            list_used_configs([], str(folder))
    assert str(tmp_path / "explainer" / "lime.yaml") in str(error.value)
    assert str(compose.get_package_folder() / "explainer" / "lime.yaml") in str(error.value)
