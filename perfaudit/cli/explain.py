"""`perfaudit explain`: one rule's page, from its rule file."""

from __future__ import annotations

import difflib
import sys
from typing import Annotated

import typer

from perfaudit.cli.output import is_terminal, write
from perfaudit.errors import UserError

HELP = """Show one rule: what it sees, why it costs, what the fix changes, examples and sources.

\b
    perfaudit explain PA201
    perfaudit explain conv-bias-before-norm
"""


def command(rule: Annotated[str, typer.Argument(metavar="RULE", help="Id or name of a rule.")]) -> None:
    """Parse, find the rule, print its page, exit."""
    from perfaudit.render import page
    from perfaudit.render.paint import colour, plain
    from perfaudit.rules import all_rules

    rules = all_rules()
    found = next((r for r in rules.values() if rule.upper() == r.id or rule.lower() == r.name), None)
    if found is None:
        names = [*rules, *(r.name for r in rules.values())]
        near = difflib.get_close_matches(rule, names, n=3) or difflib.get_close_matches(rule.upper(), names, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "`perfaudit rules` lists them"
        raise UserError(f"no rule is called {rule!r}; {hint}")
    write(page.render(found, colour if is_terminal(sys.stdout) else plain), None)
