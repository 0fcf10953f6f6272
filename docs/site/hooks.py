"""What mkdocs calls: pages made from the README, the examples, conf/ and docstrings, and links that lead there."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
_MEASURED = (".md", ".png")
sys.path.insert(0, str(Path(__file__).parent))

import reference  # noqa: E402  beside this file


def on_files(files: Files, config: Any) -> Files:
    """The site's pages that are no files of docs/."""
    copied = {"index.md": ROOT / "README.md", "examples.md": ROOT / "examples" / "README.md"}
    copied |= {"contributing.md": ROOT / "CONTRIBUTING.md"}
    copied |= {f"benchmarks/{path.name}": path for path in (ROOT / "benchmarks").iterdir() if path.suffix in _MEASURED}
    for name, path in copied.items():
        files.append(File.generated(config, name, abs_src_path=str(path)))
    for name, text in (("reference.md", reference.components(ROOT / "conf")), ("api.md", reference.api())):
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links of the repository as links of the site; files that are no pages are named only."""
    if page.file.src_uri in ("index.md", "contributing.md"):
        markdown = markdown.replace("](docs/", "](").replace("](examples/README.md)", "](examples.md)")
        markdown = markdown.replace("](CONTRIBUTING.md)", "](contributing.md)")
    for there, here in (("](../examples/README.md)", "](examples.md)"), ("](../benchmarks/", "](benchmarks/")):
        markdown = markdown.replace(there, here)
    if page.file.src_uri == "examples.md":
        markdown = markdown.replace("](../docs/", "](")
    return re.sub(r"\[([^\]]+)\]\((?:[\w./]*/)?[\w.]+\.(?:py|ipynb|cff|toml)\)", r"`\1`", markdown)
