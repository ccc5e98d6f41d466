"""`docs/rules.md` is what `perfaudit rules --format markdown` prints."""

from __future__ import annotations

from pathlib import Path

from perfaudit.knobs import settled_by
from perfaudit.render.catalogue import render
from perfaudit.rules import all_rules

ROOT = Path(__file__).parent.parent.parent


def test_the_page_is_that_of_the_rule_files() -> None:
    page = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    assert page == render(all_rules().values(), settled_by()), (
        "run: perfaudit rules --format markdown --output docs/rules.md"
    )


def test_every_rule_has_a_section() -> None:
    page = render(all_rules().values(), settled_by())
    for rule in all_rules().values():
        assert f"\n### {rule.id}\n" in page
        assert rule.why in page
