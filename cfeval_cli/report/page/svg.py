"""Figures as elements of a page, in the colours of the page and with unique ids."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

from cfeval_cli.report.plots import COLOURS, GRID, INK

_PALETTE = {colour.lower(): f"var(--c{i})" for i, colour in enumerate(COLOURS)} | {
    "#000000": "var(--ink)",
    INK: "var(--faint)",
    GRID: "var(--line)",
    "#ffffff": "var(--paper)",
}


def make_inline_svg(text: str, name: str, title: str, caption: str) -> Markup:
    """Return an SVG file as an element of a page, with a title and a description for screen readers."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r"<style[^>]*>.*?</style>", "", text, flags=re.S)
    used_ids = set(re.findall(r'(?:url\(#|href="#)([^")]+)', text))
    text = re.sub(r' id="([^"]*)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used_ids else "", text)
    text = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", text)
    text = re.sub(r"#[0-9a-fA-F]{6}\b", lambda m: _PALETTE.get(m[0].lower(), m[0]), text)
    text = re.sub(r"\s*font-family:[^;\"]*;?", "", text)
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", text)
    text = re.sub(r">\s+<", ">\n<", text)
    view_box = re.search(r'viewBox="([^"]*)"', text)
    head = (
        f'<svg role="img" viewBox="{view_box[1] if view_box else ""}" aria-labelledby="{name}-title {name}-desc" '
        f'xmlns:xlink="http://www.w3.org/1999/xlink"><title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-desc">{escape(caption)}</desc>'
    )
    # matplotlib escapes all text of a figure
    return Markup(head + text[text.index(">") + 1 :])  # noqa: S704
