"""Pages of several parts, each of which a script of its own makes anew."""

from __future__ import annotations

import re


def parts(path):
    """What a page has: its title, and the text below each heading."""
    text = path.read_text() if path.exists() else ""
    first, *rest = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return first.strip(), dict(zip(rest[::2], (one.strip() for one in rest[1::2]), strict=True))


def put(path, title, heading, text):
    """The page with another text below one heading, and the others as they were."""
    _, told = parts(path)
    told[heading] = text.strip()
    path.write_text("\n\n".join([f"# {title}", *(f"## {name}\n\n{one}" for name, one in told.items())]) + "\n")
