"""How `make docs` builds the site: Sphinx reads the Markdown pages of the repository where they lie.

The source folder is the repository, so that links between pages, benchmarks and files are the same here and in the repository.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import site_pages  # noqa: E402  # it lies beside this file

import perfaudit  # noqa: E402

project = "perfaudit"
author = "the authors of perfaudit"
copyright = "the authors of perfaudit, Apache-2.0"
version = release = perfaudit.__version__

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
root_doc = "docs/index"
include_patterns = ["docs/**", "benchmarks/*.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
exclude_patterns = ["docs/_extra/**", "**/whole/**"]
suppress_warnings = [
    "myst.header",  # a page of benchmarks/ may begin with a table and a small heading
    "misc.highlighting_failure",  # a block of sh with placeholders such as <commit>
]
nitpicky = True

html_theme = "furo"  # no web font, no tracker: pages need no network
html_title = f"perfaudit {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_extra"]  # the page at the top, which leads to the first one
html_show_sourcelink = False
html_copy_source = False
html_last_updated_fmt = None


def _write_generated(app: Any) -> None:  # Any: sphinx.application.Sphinx, which a type checker without it does not know
    """The pages that are made of the code, beside those that people wrote; git ignores them."""
    folder = HERE / "rules"
    folder.mkdir(exist_ok=True)
    pages = {folder / f"{id_}.md": text for id_, text in site_pages.rule_pages().items()}
    for stale in set(folder.glob("*.md")) - set(pages):
        stale.unlink()
    pages[HERE / "commands.md"] = site_pages.commands_page()
    for path, text in pages.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _as_on_the_site(app: Any, name: str, content: list[str]) -> None:
    if name == "docs/rules":
        content[0] = site_pages.rules_index(content[0])
    elif not name.startswith("docs/rules/"):
        content[0] = site_pages.linked_rules(content[0])


def setup(app: Any) -> None:
    app.connect("builder-inited", _write_generated)
    app.connect("source-read", _as_on_the_site)
