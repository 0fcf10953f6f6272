"""Tables as one document: Markdown, LaTeX and HTML."""

from __future__ import annotations

import html as markup
from collections.abc import Sequence

from cfeval_cli.errors import visible
from cfeval_cli.report.tables import Table

_TITLE = "Counterfactual evaluation: the paper's tables, and ours"

_LATEX = r"""\documentclass{{article}}
\usepackage[margin=2cm]{{geometry}}
\usepackage{{booktabs,graphicx}}
\begin{{document}}
{body}
\end{{document}}
"""

_HTML = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 100rem; padding: 0 1rem; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; white-space: nowrap; }}
th, td {{ padding: .25rem .6rem; text-align: right; }}
th:first-child, td:first-child {{ text-align: left; white-space: normal; min-width: 12rem; }}
thead th {{ border-bottom: 2px solid; }}
tbody {{ border-bottom: 1px solid #8888; }}
caption {{ text-align: left; font-weight: bold; padding: .5rem 0; }}
p.note {{ font-size: 13px; opacity: .8; max-width: 60rem; }}
</style>
<h1>{title}</h1>
{body}
</html>
"""


def write(tables: Sequence[Table]) -> dict[str, str]:
    """The texts of paper.md, paper.tex and paper.html."""
    return {
        "paper.md": f"# {_TITLE}\n\n" + "\n".join(table.markdown() for table in tables),
        "paper.tex": _LATEX.format(body="\n".join(table.latex() for table in tables)),
        "paper.html": _HTML.format(title=escape(_TITLE), body="\n".join(map(html, tables))),
    }


def escape(text: str) -> str:
    """Text as HTML shows it."""
    return markup.escape(visible(text))


def html(table: Table) -> str:
    """One table; everything in it is text."""

    def row(cells: Sequence[tuple[str, bool]], tag: str) -> str:
        texts = (f"<b>{escape(text)}</b>" if bold else escape(text) for text, bold in cells)
        return "<tr>" + "".join(f"<{tag}>{text}</{tag}>" for text in texts) + "</tr>"

    head = row([(cell.text, False) for cell in table.header], "th")
    bodies = (
        "<tbody>" + "\n".join(row([(cell.text, cell.bold) for cell in line], "td") for line in block) + "</tbody>"
        for block in table.blocks
    )
    notes = "\n".join(f'<p class="note">{escape(note)}</p>' for note in table.notes)
    caption = f"<caption>{escape(table.title)}</caption>"
    return f'<div class="wide"><table>{caption}<thead>{head}</thead>\n{"".join(bodies)}</table></div>\n{notes}'
