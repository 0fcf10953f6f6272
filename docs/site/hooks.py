"""Hooks of mkdocs: pages made from the README, the examples, conf/ and docstrings, and links to them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
_BENCHMARK_SUFFIXES = (".md", ".png")
sys.path.insert(0, str(Path(__file__).parent))

import reference  # noqa: E402  in the folder of this file


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not files of docs/."""
    sources = {"index.md": ROOT / "README.md", "examples.md": ROOT / "examples" / "README.md"}
    sources |= {"contributing.md": ROOT / "CONTRIBUTING.md"}
    benchmarks = [path for path in (ROOT / "benchmarks").iterdir() if path.suffix in _BENCHMARK_SUFFIXES]
    sources |= {f"benchmarks/{path.name}": path for path in benchmarks}
    for name, path in sources.items():
        files.append(File.generated(config, name, abs_src_path=str(path)))
    for name, text in (("reference.md", reference.write_components(ROOT / "conf")), ("api.md", reference.write_api())):
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace links of the repository by links of the site, and links to files that are not pages by their names."""
    if page.file.src_uri in ("index.md", "contributing.md"):
        markdown = markdown.replace("](docs/", "](").replace("](examples/README.md)", "](examples.md)")
        markdown = markdown.replace("](CONTRIBUTING.md)", "](contributing.md)")
    for link, page_link in (("](../examples/README.md)", "](examples.md)"), ("](../benchmarks/", "](benchmarks/")):
        markdown = markdown.replace(link, page_link)
    if page.file.src_uri == "examples.md":
        markdown = markdown.replace("](../docs/", "](")
    return re.sub(r"\[([^\]]+)\]\((?:[\w./]*/)?[\w.]+\.(?:py|ipynb|cff|toml)\)", r"`\1`", markdown)
