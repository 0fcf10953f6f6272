"""The numbers that docs/reliability.md states."""

import re
from pathlib import Path

from tests.hostile.amounts import AMOUNTS

HERE = Path(__file__).parent


def test_at_least_ten_thousand_inputs_are_generated_and_every_kind_is_used():
    assert sum(slow for _, slow in AMOUNTS.values()) >= 10_000
    used = [
        kind
        for path in HERE.glob("test_*.py")
        for kind in re.findall(r'^@parametrize_seeds\("(.+)"\)$', path.read_text(), re.M)
    ]
    assert sorted(used) == sorted(AMOUNTS)


def test_documented_amounts_are_correct():
    text = (HERE.parents[1] / "docs" / "reliability.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    documented = {row[0]: row[2] for row in rows if row[0] in AMOUNTS}
    assert documented == {kind: f"{fast:,} / {slow:,}" for kind, (fast, slow) in AMOUNTS.items()}
