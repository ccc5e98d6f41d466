"""The site: every page has its place, every link leads somewhere, and the generated pages say all that the code has.

`make docs` builds it with warnings as errors; these tests need no Sphinx.
"""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from perfaudit.cli.app import COMMANDS, application
from perfaudit.rules import all_rules

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
if not (ROOT / "benchmarks").exists():
    pytest.skip("the benchmarks are not in this distribution", allow_module_level=True)
sys.path.insert(0, str(DOCS))

import site_pages  # noqa: E402  # it lies there

GENERATED = {DOCS / "commands.md", *(DOCS / "rules" / f"{id_}.md" for id_ in all_rules())}
TOP = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES = sorted({*DOCS.rglob("*.md"), *TOP, *(ROOT / "benchmarks").glob("*.md")} - GENERATED)

FENCED = re.compile(r"^(`{3,})[^\n]*\n.*?^\1$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+).+?\1")
LINK = re.compile(r"\]\(([^)\s]+)\)")


@functools.cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        found.add(slug)
    return frozenset(found)


def problem(page: Path, link: str) -> str:
    """What is wrong with a link of a page, "" for nothing."""
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return "" if target in GENERATED else "leads nowhere"
    return f"has no heading {anchor}" if anchor and target.suffix == ".md" and anchor not in anchors(target) else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = CODE.sub("", FENCED.sub("", page.read_text(encoding="utf-8")))
    links = [link for link in LINK.findall(text) if "://" not in link and not link.startswith("mailto:")]
    assert [(link, wrong) for link in links if (wrong := problem(page, link))] == []


@pytest.mark.parametrize(
    ("link", "wrong"),
    [
        ("scan.md", ""),
        ("scan.md#hints", ""),
        ("commands.md", ""),
        ("scans.md", "leads nowhere"),
        ("scan.md#no-such-heading", "has no heading no-such-heading"),
    ],
)
def test_what_is_wrong_with_a_link(link: str, wrong: str) -> None:
    assert problem(DOCS / "index.md", link) == wrong


def test_every_page_has_its_place() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    trees = re.findall(r"^```\{toctree\}\n((?:.*\n)*?)```$", index, re.MULTILINE)
    placed = [line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]
    pages = {str(page.relative_to(DOCS).with_suffix("")) for page in {*DOCS.rglob("*.md"), DOCS / "commands.md"}}
    pages -= {"index", *(f"rules/{id_}" for id_ in all_rules())}
    assert len(placed) == len(set(placed))
    assert {name for name in placed if not name.startswith("..")} == pages
    assert {name for name in placed if name.startswith("..")} == {"../CONTRIBUTING", "../CHANGELOG", "../SECURITY"}


def test_every_measurement_is_listed() -> None:
    page = (DOCS / "measurements.md").read_text(encoding="utf-8")
    notes = {"ladder_notes"}  # parts of other pages
    there = {path.stem for path in (ROOT / "benchmarks").glob("*.md")} - notes
    assert set(re.findall(r"\(\.\./benchmarks/(\w+)\.md\)", page)) == there


def test_commands_and_options_are_all_on_their_page() -> None:
    page = site_pages.commands_page()
    group: Any = typer.main.get_command(application())  # click's, which typer may bundle
    commands = dict(site_pages._commands(group))
    assert {name.split()[0] for name in commands} == set(COMMANDS)
    for name, command in commands.items():
        section = page.partition(f"## perfaudit {name}\n")[2].partition("\n## ")[0]
        assert section, name
        for parameter in command.params:
            for option in () if getattr(parameter, "hidden", False) else parameter.opts:
                assert f"`{option}`" in section or parameter.param_type_name == "argument", (name, option)


def test_options_are_described_as_help_does() -> None:
    page = site_pages.commands_page()
    rows = re.findall(r"^\| (`.*`.*?) \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) > 100
    assert [option for option, told in rows if not re.search(r"\w", told)] == []
    assert ("`--budget`", r"Time for all measuring, e.g. 90s or 5m. \[default: 5m\]") in rows
    assert ("`--compile`", "Try torch.compile.") in rows
    assert any(option == r"`--ci` github\|gitlab\|pre-commit\|plain\|none" for option, _ in rows)


def test_code_on_the_page_of_commands_is_as_it_is_typed() -> None:
    text = FENCED.sub("", site_pages.commands_page())
    spans = [match[0] for match in CODE.finditer(text)]
    assert "`# perfaudit: ignore[PA101] reason`" in spans
    assert [span for span in spans if "\\" in span] == []
    assert site_pages._plain("a[b] `c[d]` e*f `g_h`") == r"a\[b\] `c[d]` e\*f `g_h`"


def test_every_rule_has_a_page() -> None:
    pages = site_pages.rule_pages()
    assert list(pages) == list(all_rules())
    for rule in all_rules().values():
        page = pages[rule.id]
        assert page.startswith(f"# {rule.id}: {rule.name}\n")
        assert all(part in page for part in (rule.title, rule.why, *rule.sources))
        assert all(example.text.strip("\n") in page for example in rule.examples)
        assert all(example.fixed.strip("\n") in page for example in rule.examples if example.fixed)


def test_links_to_rules_lead_to_their_pages() -> None:
    index = site_pages.rules_index((DOCS / "rules.md").read_text(encoding="utf-8"))
    assert set(re.findall(r"\[(PA\d+)\]\(rules/\1\.md\)", index)) == set(all_rules())
    assert not re.search(r"\(#pa\d", index)
    assert site_pages.linked_rules("[x](rules.md#pa101) [y](../rules.md#pa201)") == (
        "[x](rules/PA101.md) [y](../rules/PA201.md)"
    )
