"""What the README and the page on settings tell users to do, done word for word."""

import re
import shlex
from pathlib import Path

from tests.inside import composed

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text() + (ROOT / "docs" / "settings.md").read_text()


def test_every_command_that_is_shown_is_one_that_hydra_composes():
    shown = re.findall(r"^cfeval run (.*?)(?:\s+#.*)?$", README, re.M)
    assert len(shown) >= 8
    for line in shown:
        arguments = [a for a in shlex.split(line) if a != "--multirun"]
        if "install=bash" in line or "--help" in arguments:
            continue  # run for real in test_cli.py
        # a sweep's lists are not values of a single run
        arguments = [re.sub(r"^([\w.]+=)(\w+)(,\w+)+$", r"\1\2", re.sub(r"=range\(\d+\)$", "=1", a)) for a in arguments]
        arguments = [a for a in arguments if a not in ("--cfg", "job")]  # which is tried in test_cli.py
        # `loans` is a table of the user's own, see test_your_own.py
        composed(*[a.replace("dataset=loans", "dataset=adults") for a in arguments])


def test_the_readme_is_read_in_a_minute_or_two_and_its_picture_is_small():
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 900
    (picture,) = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", text)
    assert (ROOT / picture).stat().st_size < 150_000


def test_the_table_beside_others_is_that_of_its_page_which_says_what_was_read():
    rows = re.findall(r"^\|.*\|$", (ROOT / "README.md").read_text(), re.M)
    page = (ROOT / "docs" / "comparison.md").read_text()
    assert len(rows) == 9 and rows == re.findall(r"^\|.*\|$", page, re.M)
    for name in re.findall(r"\w+ \d[\w.]*", rows[0]):
        assert f"**{name}**" in page


def test_every_make_target_that_is_shown_exists():
    lines = re.findall(r"^([a-z0-9 -]+):", (ROOT / "Makefile").read_text(), re.M)
    shown = set(re.findall(r"(?:`|<code>|^)make ([a-z0-9-]+)", README, re.M))
    assert {"run", "test", "paper"} <= shown <= {target for line in lines for target in line.split()}
