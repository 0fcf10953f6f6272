"""What is read of the configs outside a run, and folders that two runs of one second would share."""

import sys

from omegaconf import OmegaConf

from cfeval_cli.commands import callbacks, configs


def test_options_and_settings_of_the_package_and_of_a_users_own_folder(tmp_path):
    (tmp_path / "explainer").mkdir()
    (tmp_path / "explainer" / "mine.yaml").write_text("mine: {_target_: mine.Mine, depth: 3}\n")
    with configs.opened():
        assert {"adults", "movie_reviews", "wine"} <= set(configs.options("dataset"))
        assert "mine" in configs.options("explainer", str(tmp_path)) and "mine" not in configs.options("explainer")
        known = configs.settings(str(tmp_path))
        assert {"k", "search.pick", "explainer.lime.n_samples", "explainer.mine.depth"} <= set(known)
        assert configs.run(["k=3"]).k == 3


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
