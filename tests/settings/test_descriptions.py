"""Descriptions of components and settings, read from the comments of configs."""

from cfeval_cli.settings.descriptions import find_comments, read_header


def test_header_has_the_first_comment_lines_without_directives(tmp_path):
    (tmp_path / "own.yaml").write_text("# @package _global_\n# First.\n# Second.\nk: 2  # of features\n# Not this.\n")
    assert read_header(tmp_path / "own.yaml") == ["First.", "Second."]
    (tmp_path / "own.yaml").write_text("k: 2  # of features\n")
    assert read_header(tmp_path / "own.yaml") == []


def test_comments_are_found_behind_settings_of_configs_and_dataclasses():
    assert find_comments("k: 2    # number of features\ntables:\n  metrics: null # all\nseed: 0\n# seed: no\n") == {
        "k": "number of features",
        "metrics": "all",
    }
    assert find_comments("class A:\n    gives: str = 'auto'  # labels or probabilities\n") == {
        "gives": "labels or probabilities"
    }
