"""The help pages of `cfeval run`."""

import pytest
import yaml

from cfeval_cli.cli.usage import SETTINGS, build_help_page, find_help_topic
from cfeval_cli.errors import UserError
from cfeval_cli.settings import compose

CONF = compose.get_package_folder()
GROUPS = sorted(path.name for path in CONF.iterdir() if path.is_dir() and any(path.glob("*.yaml")))


def test_overview_fits_a_screen_and_names_every_group():
    lines = build_help_page("", 80, None)
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert set(GROUPS) <= set(" ".join(lines).split()) and "cfeval run --help settings" in "\n".join(lines)


@pytest.mark.parametrize("group", GROUPS)
def test_page_of_a_group_lists_each_option_with_description_and_settings(group):
    text = build_help_page(group, 80, None)
    words = " ".join(" ".join(text).split())
    assert max(map(len, text)) <= 80
    for file in (CONF / group).glob("*.yaml"):
        comments = [line[2:] for line in file.read_text().splitlines() if line.startswith("# ")]
        comment = next(line for line in comments if not line.startswith("@package"))
        assert f"{file.stem}: {' '.join(comment.split())}" in words
        content = yaml.safe_load(file.read_text())
        inner = content.get(file.stem)
        alone = isinstance(inner, dict) and "_target_" in inner
        for key, value in (inner if alone else content).items():
            if group != "experiment" and key not in ("_target_", "defaults") and isinstance(value, int | float):
                default = str(value).lower() if isinstance(value, bool) else value
                assert f"{group}.{f'{file.stem}.' * alone}{key}={default}" in words


def test_page_of_settings_lists_every_key_of_run_yaml():
    text = build_help_page(SETTINGS, 80, None)
    assert max(map(len, text)) <= 80
    content = yaml.safe_load((CONF / "run.yaml").read_text())
    for key, value in content.items():
        if key not in ("defaults", "hydra"):
            names = [f"{key}.{name}=" for name in value] if isinstance(value, dict) else [f"{key}="]
            assert all(any(line.startswith(name) for line in text) for name in names), key
    words = " ".join(" ".join(text).split())
    assert "k=1 number of features that each explanation selects" in words


def test_metrics_of_the_user_are_listed(tmp_path):
    (tmp_path / "metric").mkdir()
    (tmp_path / "metric" / "mine.yaml").write_text("# What I want.\nmine:\n  _target_: mine.Mine\n  depth: 3\n")
    text = "\n".join(build_help_page("metric", 80, str(tmp_path)))
    assert "\nmine: What I want.\n    metric.mine.depth=3" in text


def test_unknown_topic_is_refused_with_the_valid_ones():
    message = r"no help on 'datset'. Did you mean dataset\? There is: dataset, explainer, model"
    with pytest.raises(UserError, match=message):
        build_help_page("datset", 80, None)


def test_help_topic_is_read_from_the_command_line():
    assert (
        find_help_topic(["k=2"]) is None
        and find_help_topic(["k=2", "--help"]) == ""
        and find_help_topic(["-h", "--quiet", "model"]) == "model"
    )


def test_datasets_of_the_user_are_listed(tmp_path):
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "loans.yaml").write_text("# Loans.\n_target_: x.Y\nlabel: default\n")
    text = "\n".join(build_help_page("dataset", 80, str(tmp_path)))
    assert "loans: Loans.\n    dataset.label=default" in text and "\npima: Pima" in text
