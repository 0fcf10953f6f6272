"""The docs: valid links, a complete reference, and a site that builds strictly."""

import importlib.util
import re
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md"))]
PAGES += [ROOT / folder / "README.md" for folder in ("examples", "outputs")]


@pytest.fixture(scope="module")
def reference():
    """Return the module that writes the reference, with one shared result for all tests."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "site" / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.write_components = cache(module.write_components)
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_reference_has_every_component_with_its_settings(reference):
    text = reference.write_components(ROOT / "conf")
    for path in sorted((ROOT / "conf").glob("*/*.yaml")):
        part = text.partition(f"\n### {path.parent.name}: {path.stem}\n")[2].partition("\n### ")[0]
        assert part, path
        node = yaml.safe_load(path.read_text())
        components = [value for value in node.values() if isinstance(value, dict) and "_target_" in value]
        settings = node if "_target_" in node or not components else components[0]
        assert all(f"| `{key}` |" in part for key in settings if key not in ("_target_", "defaults")), path
        target = settings.get("_target_")
        assert f"`{target}`: " in part if target else "Made of" in part or "| setting |" in part


def test_reference_has_the_python_interface(reference):
    text = reference.write_api()
    assert "label: str," in text and "name: str = 'data'," in text and "| `counterfactuals` | A row for" in text
    assert "### Metric" in text and "| `score` | Yield a score for each variant" in text


def test_site_builds_strictly_and_loads_nothing_from_other_hosts(reference, tmp_path, monkeypatch):
    pytest.importorskip("mkdocs")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    monkeypatch.setattr(sys, "path", [*sys.path])  # the hooks add their folder
    monkeypatch.setitem(sys.modules, "reference", reference)
    # as `mkdocs build --strict` does: a warning raises an error
    build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(tmp_path)))
    pages = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*.html")}
    assert {"index.html", "start.html", "reference.html", "api.html", "run-folder.html", "python.html"} <= set(pages)
    loaded = [
        url for page in pages.values() for url in re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="([^"]+)"', page)
    ]
    assert loaded and not [url for url in loaded if url.startswith(("http", "//"))]
