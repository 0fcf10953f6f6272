"""The numbers that docs/reliability.md states."""

import re
from pathlib import Path

from tests.hostile.amounts import AMOUNTS

HERE = Path(__file__).parent


def test_at_least_ten_thousand_inputs_are_generated_and_every_kind_is_used_once():
    assert sum(slow for _, slow in AMOUNTS.values()) >= 10_000
    used = [
        kind for path in HERE.glob("test_*.py") for kind in re.findall(r'^@inputs\("(.+)"\)$', path.read_text(), re.M)
    ]
    assert sorted(used) == sorted(AMOUNTS)


def test_the_table_in_the_documentation_has_these_amounts():
    text = (HERE.parents[1] / "docs" / "reliability.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    told = {row[0]: row[2] for row in rows if row[0] in AMOUNTS}
    assert told == {kind: f"{fast:,} / {slow:,}" for kind, (fast, slow) in AMOUNTS.items()}
