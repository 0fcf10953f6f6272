"""What the README and the page on settings tell users to do, done word for word."""

import json
import re
import shlex
from pathlib import Path
from textwrap import wrap

import pandas as pd
import pytest

from cfeval_cli.report import plots, recommendation, verdict
from cfeval_cli.results.recommendation import parse_recommendation
from cfeval_cli.statistics.run_statistics import RunStatistics
from cfeval_cli.statistics.small_rankings import drop_small_rankings
from tests.conftest import find_only_run, run_cfeval
from tests.end_to_end import readme_excerpts
from tests.inside import compose_config
from tests.records import make_record

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text() + (ROOT / "docs" / "settings.md").read_text()


def test_every_shown_command_is_composed_by_hydra():
    commands = re.findall(r"^cfeval run (.*?)(?:\s+#.*)?$", README, re.M)
    assert len(commands) >= 8
    for line in commands:
        arguments = [a for a in shlex.split(line) if a != "--multirun"]
        if "install=bash" in line or "--help" in arguments:
            continue  # run for real in test_cli.py
        # a sweep's lists are not values of a single run
        arguments = [re.sub(r"^([\w.]+=)(\w+)(,\w+)+$", r"\1\2", re.sub(r"=range\(\d+\)$", "=1", a)) for a in arguments]
        arguments = [a for a in arguments if a not in ("--cfg", "job")]  # which is tried in test_cli.py
        # `loans` is a table of the user's own, see test_your_own.py
        compose_config(*[a.replace("dataset=loans", "dataset=adults") for a in arguments])


def test_the_readme_is_read_in_a_minute_or_two_and_its_picture_is_small():
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 900
    (picture,) = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", text)
    assert (ROOT / picture).stat().st_size < 150_000


def test_the_comparison_table_equals_that_of_its_page():
    rows = re.findall(r"^\|.*\|$", (ROOT / "README.md").read_text(), re.M)
    page = (ROOT / "docs" / "comparison.md").read_text()
    assert len(rows) == 9 and rows == re.findall(r"^\|.*\|$", page, re.M)
    for name in re.findall(r"\w+ \d[\w.]*", rows[0]):
        assert f"**{name}**" in page


def test_every_shown_make_target_exists():
    lines = re.findall(r"^([a-z0-9 -]+):", (ROOT / "Makefile").read_text(), re.M)
    commands = set(re.findall(r"(?:`|<code>|^)make ([a-z0-9-]+)", README, re.M))
    assert {"run", "test", "paper"} <= commands <= {target for line in lines for target in line.split()}


def read_block(words):
    """Return the first command of the README block with this beginning, and its documented output."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    (place,) = (i for i, (kind, body) in enumerate(blocks) if kind == "sh" and body.startswith(words))
    assert blocks[place + 1][0] == ""
    return blocks[place][1].splitlines()[0].partition("#")[0].strip(), blocks[place + 1][1]


def lines_of(sentence):
    """As a screen of 80 columns shows it."""
    return "\n".join(wrap(sentence, 80, break_long_words=False, break_on_hyphens=False)) + "\n"


def parse_figure(svg):
    """The words of a figure, and all its numbers."""
    text = re.sub(r"<(metadata|style)>.*?</\1>|<!DOCTYPE.*?>", "", svg.decode(), flags=re.S)
    text = re.sub(r'(id="|href="#|url\(#)\w+', r"\1", text)  # hashes of coordinates
    words = re.sub(r"-?\d+(\.\d+)?(e-?\d+)?", "#", text)
    return words, [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", text)]


def check_figures_are_equal(first, second):
    words, numbers = parse_figure(first)
    assert words == parse_figure(second)[0] and numbers == pytest.approx(parse_figure(second)[1], abs=0.05)


def load_excerpt(name):
    return json.loads((readme_excerpts.PLACE / name).read_text())


def test_the_shown_recommendation_follows_from_the_stored_results():
    expected = load_excerpt("pima.json")
    advice = parse_recommendation(expected["recommendation"])
    record = make_record(**expected["record"])
    description = recommendation.describe_recommendation(advice, record, expected["features"])
    paragraphs = "".join(map(lines_of, description.paragraphs))
    assert read_block("cfeval run dataset=pima")[1] == paragraphs


@pytest.fixture(scope="module")
def adults_excerpt():
    """Of the differences between metrics only those that are none: with four explainers no other one could count."""
    names = ("metrics", "correlations", "differences", "instance_agreement")
    read = [pd.read_csv(readme_excerpts.PLACE / f"adults_{name}.csv") for name in names]
    return RunStatistics(*read, metric_agreement=pd.DataFrame()), make_record(**load_excerpt("adults.json")["record"])


def test_the_shown_verdict_follows_from_the_stored_results(adults_excerpt):
    expected = lines_of(f"Metrics: {verdict.write_verdict(*adults_excerpt).headline}.")
    assert read_block("cfeval run dataset=adults")[1] == expected


def test_the_picture_is_drawn_from_the_stored_results(adults_excerpt):
    statistics, record = adults_excerpt
    statistics = drop_small_rankings(statistics)
    with plots.apply_style():
        figure = plots.draw_correlations(statistics.correlations, record)
    check_figures_are_equal(figure.render("svg"), (ROOT / "docs" / "pictures" / "adults.svg").read_bytes())
    assert "figures/correlations.svg` of `make run`" in README


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pima", "adults"])
def test_the_commands_print_the_shown_output(name, adults, tmp_path):
    command, block = read_block(f"cfeval run dataset={name}")
    words = [*shlex.split(command)[1:], "cache=off", "report=false", f"data_dir={adults}"]
    process = run_cfeval(*words, "figures=[svg]", cwd=tmp_path, env={"COLUMNS": "80"})
    lines = [line for line in process.stdout.splitlines() if not line.startswith("Results:")]  # which ends with a path
    assert block in process.stdout and max(map(len, lines)) <= 80
    folder = find_only_run(tmp_path)
    for file, body in getattr(readme_excerpts, f"extract_{name}")(folder).items():
        assert body == (readme_excerpts.PLACE / file).read_text()
    if name == "adults":
        picture = (ROOT / "docs" / "pictures" / "adults.svg").read_bytes()
        check_figures_are_equal((folder / "figures" / "correlations.svg").read_bytes(), picture)
