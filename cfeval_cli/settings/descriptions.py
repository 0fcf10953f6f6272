"""The descriptions of settings and components, which are comments in the configs.

Users read and copy the configs, so each description is a comment beside its setting. YAML parsers discard comments;
this module is the only one that reads them from the text.
"""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path

_COMMENTED_SETTING = re.compile(r"^\s*(\w+):[^#\n]*#\s*(.+)$", re.MULTILINE)


def read_header(file: Path) -> list[str]:
    """Return the comment lines at the beginning of a config, without directives of Hydra."""
    lines = takewhile(lambda line: line.startswith("#"), file.read_text(encoding="utf-8").splitlines())
    return [line.lstrip("# ").strip() for line in lines if not line.startswith("# @package")]


def find_comments(text: str) -> dict[str, str]:
    """Return the comment behind each setting of a config, or of a dataclass."""
    return dict(_COMMENTED_SETTING.findall(text))
