"""What a page says."""

from __future__ import annotations

import re


def text_of(html: str) -> str:
    """What a page says, without its markup, its scripts and its pictures."""
    html = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", html, flags=re.S)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))
