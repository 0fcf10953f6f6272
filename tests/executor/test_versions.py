"""Versions are those of what is installed, sources those of what is not; a change of either is seen."""

import importlib.metadata
import platform

import numpy as np

import cfeval_cli
from cfeval_cli.executor import versions


def test_what_cfeval_runs_with_is_needed_and_what_it_is_developed_with_is_not():
    names = versions.needed(["lightgbm", "json", "cfeval_cli", "__main__"])
    assert {"Python", "cfeval", "numpy", "torch", "distributed", "lightgbm"} <= set(names)
    assert not {"pytest", "ruff", "mypy", "mkdocs", "json", "cfeval_cli", "__main__"} & set(names)


def test_versions_are_told_and_what_is_not_there_is_missing():
    told = versions.told(["Python", "cfeval", "numpy", "scikit-learn", "sklearn", "nowhere_at_all"])
    assert told["numpy"] == np.__version__ and platform.python_version().startswith(told["Python"])
    assert told["cfeval"].startswith(f"{cfeval_cli.__version__} (source ") and told["nowhere_at_all"] == "missing"
    assert told["scikit-learn"] == told["sklearn"] == importlib.metadata.version("scikit-learn")


def test_a_file_of_ones_own_is_known_by_its_source(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "of_my_own.py").write_text("a = 1\n")
    (tmp_path / "of_mine").mkdir()
    (tmp_path / "of_mine" / "__init__.py").write_text("")
    (tmp_path / "of_mine" / "part.py").write_text("a = 1\n")
    before = versions.told(["of_my_own", "of_mine"])
    versions._told.cache_clear()
    assert versions.told(["of_my_own", "of_mine"]) == before and before["of_mine"].startswith("source ")
    (tmp_path / "of_my_own.py").write_text("a = 2\n")
    (tmp_path / "of_mine" / "part.py").write_text("a = 2\n")
    versions._told.cache_clear()
    after = versions.told(["of_my_own", "of_mine"])
    assert after["of_my_own"] != before["of_my_own"] and after["of_mine"] != before["of_mine"]
