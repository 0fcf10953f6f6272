"""Every test file that the docs name exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_test_file_named_in_the_docs_exists():
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        if page.name == "CHANGELOG.md":  # which names files of earlier versions
            continue
        for name in re.findall(r"[\w/]*\btest_\w+\.py", page.read_text(encoding="utf-8")):
            assert name in files or any(file.endswith(f"/{name}") for file in files), f"{page}: there is no {name}"
