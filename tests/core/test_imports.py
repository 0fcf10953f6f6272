"""The working directory is searched for the modules of classes that the user names, and for nothing else."""

import sys

import pytest

from cfeval_cli.core.imports import make_importable
from cfeval_cli.model.skops import Skops


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "only_here.py").touch()
    (tmp_path / "package_here").mkdir()
    (tmp_path / "numpy.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return str(tmp_path)


@pytest.mark.parametrize("name", ["numpy.array", "json.loads", "not_here.Thing", "", ".relative", "no/name.X"])
def test_other_names_add_nothing(here, name):
    make_importable(name)
    assert here not in sys.path


@pytest.mark.parametrize("name", ["only_here.Thing", "package_here.module.Thing"])
def test_a_module_that_is_only_in_the_working_directory_can_be_imported(here, name):
    make_importable(name)
    make_importable(name)
    assert sys.path[-1] == here and sys.path.count(here) == 1 and "only_here" not in sys.modules


def test_types_that_the_user_trusts_can_be_there(here):
    Skops("model.skops", trusted=("only_here.Thing",))
    assert sys.path[-1] == here
