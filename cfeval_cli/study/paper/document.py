"""Tables as one document: Markdown, LaTeX and HTML."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import escape

from cfeval_cli.report.render.html import render_html, render_notes
from cfeval_cli.report.render.latex import render_latex
from cfeval_cli.report.render.markdown import render_markdown
from cfeval_cli.report.table import Table

_TITLE = "Counterfactual evaluation: paper and cfeval"

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
        "paper.md": f"# {_TITLE}\n\n" + "\n".join(map(render_markdown, tables)),
        "paper.tex": _LATEX.format(body="\n".join(map(render_latex, tables))),
        "paper.html": _HTML.format(title=escape(_TITLE), body="\n".join(map(html, tables))),
    }


def html(table: Table) -> str:
    """Write one table with its caption and notes."""
    return f'<div class="wide">{render_html(table, caption=True)}</div>\n{render_notes(table)}'
