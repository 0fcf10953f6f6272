"""The working directory is added to the path only for modules of classes in the user's settings."""

import sys

import pytest

from cfeval_cli.core.imports import make_importable
from cfeval_cli.model.skops import Skops


@pytest.fixture
def working_directory(tmp_path, monkeypatch):
    (tmp_path / "only_here.py").touch()
    (tmp_path / "package_here").mkdir()
    (tmp_path / "numpy.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return str(tmp_path)


@pytest.mark.parametrize("name", ["numpy.array", "json.loads", "not_here.Thing", "", ".relative", "no/name.X"])
def test_path_is_unchanged_for_other_names(working_directory, name):
    make_importable(name)
    assert working_directory not in sys.path


@pytest.mark.parametrize("name", ["only_here.Thing", "package_here.module.Thing"])
def test_modules_in_the_working_directory_can_be_imported(working_directory, name):
    make_importable(name)
    make_importable(name)
    assert (
        sys.path[-1] == working_directory and sys.path.count(working_directory) == 1 and "only_here" not in sys.modules
    )


def test_trusted_types_can_be_in_the_working_directory(working_directory):
    Skops("model.skops", trusted=("only_here.Thing",))
    assert sys.path[-1] == working_directory
