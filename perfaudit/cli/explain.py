"""`perfaudit explain`: one rule's page, from its rule file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfaudit.cli.options import format_option
from perfaudit.cli.output import is_terminal, text_width, write
from perfaudit.cli.rules import FurtherRules, every_rule
from perfaudit.errors import UserError

if TYPE_CHECKING:
    from perfaudit.rules import Rule

HELP = """Show one rule: what it sees, why it costs, what the fix changes, examples and sources.

\b
    perfaudit explain PA201
    perfaudit explain conv-bias-before-norm
"""


def _ids(incomplete: str) -> list[tuple[str, str]]:
    """Rules whose id begins as what is typed, with their names, for the shell."""
    from perfaudit.rules import rule_heads

    return [(rule.id, rule.name) for rule in rule_heads().values() if rule.id.startswith(incomplete.upper())]


def command(
    rule: Annotated[str, typer.Argument(metavar="RULE", help="Id or name of a rule.", autocompletion=_ids)],
    format: Annotated[str, format_option("text", "json", "markdown", what="page")] = "text",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the page to a file.")] = None,
    folders: FurtherRules = None,
) -> None:
    """Parse, find the rule, print its page, exit."""
    from perfaudit.knobs import settled_by
    from perfaudit.render import page
    from perfaudit.render.paint import colour, plain
    from perfaudit.render.words import json_text

    rules = every_rule(folders)
    found = next((r for r in rules.values() if rule.upper() == r.id or rule.lower() == r.name), None)
    if found is None:
        import difflib

        names = [*rules, *(r.name for r in rules.values())]
        near = [name for name in names if name.startswith((rule.upper(), rule.lower()))][:3] if rule else []
        near = (
            near or difflib.get_close_matches(rule, names, n=3) or difflib.get_close_matches(rule.upper(), names, n=3)
        )
        hint = f"did you mean {' or '.join(near)}?" if near else "`perfaudit rules` lists them"
        raise UserError(f"no rule is called {rule!r}; {hint}")
    knob = settled_by().get(found.id, "")
    if format == "json":
        write(json_text(_public(found) | {"settled_by": knob}), output)
        return
    if format == "markdown":
        from perfaudit.render import catalogue

        write(catalogue.render_one(found, knob), output)
        return
    in_colour = output is None and is_terminal(sys.stdout)
    width = text_width() if output is None and sys.stdout is not None and sys.stdout.isatty() else None
    write(page.render(found, colour if in_colour else plain, knob, width), output)


def _public(rule: Rule) -> dict[str, object]:
    """The rule as plain data, without where its file lies on this machine."""
    import dataclasses

    return {key: value for key, value in dataclasses.asdict(rule).items() if key != "path"}
