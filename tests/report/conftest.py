"""The text of a page."""

from __future__ import annotations

import re


def text_of(html: str) -> str:
    """Return the text of a page without markup, scripts and figures."""
    html = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", html, flags=re.S)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))
