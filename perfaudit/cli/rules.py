"""`perfaudit rules`: the catalogue, one line per rule."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfaudit.cli import rules_trust
from perfaudit.cli.group import group_with_default
from perfaudit.cli.help_text import Command
from perfaudit.cli.options import format_option
from perfaudit.cli.output import is_terminal, text_width, write
from perfaudit.errors import UserError

if TYPE_CHECKING:
    from perfaudit.rules import Rule

_WIDE = 140  # columns of a terminal, from which on a rule is one line; elsewhere, for `grep`, it always is

FurtherRules = Annotated[
    list[Path] | None, typer.Option("--rules", metavar="DIR", help="Also the rules of this folder (several times).")
]

HELP = """List every rule: id, name, severity, tier, what its fix changes, and the knob that measures it.

\b
    perfaudit rules
    perfaudit rules --format json
    perfaudit rules trust --print     a project's own rules: which Python files would run
    perfaudit rules trust             and from now on they do, as they are now
"""

app = group_with_default("rules", "list")
app.command("trust", help=rules_trust.TRUST_HELP, cls=Command)(rules_trust.trust)
app.command("untrust", help=rules_trust.UNTRUST_HELP, cls=Command)(rules_trust.untrust)
app.command("trusted", help=rules_trust.TRUSTED_HELP, cls=Command)(rules_trust.list_trusted)


def every_rule(named: list[Path] | None = None) -> dict[str, Rule]:
    """Our rules, those of the folders that `[tool.perfaudit] rules` names here, and of further ones; no Python of them is run.

    Raises UserError for a folder that is missing, and for an id that another rule has, as a scan does.
    """
    from perfaudit.cli.settings import settings_of_project
    from perfaudit.rules import all_rules, read_folder

    rules = dict(all_rules())
    for folder in (*settings_of_project().own_rule_folders(), *(named or ())):
        if not folder.is_dir():
            raise UserError(f"{folder}: cannot be read: no such folder")
        for id_, rule in read_folder(folder).items():
            if id_ in rules and rules[id_].path != rule.path:
                raise UserError(f"{rule.path}: id {id_!r} is taken by {Path(rules[id_].path).name}")
            rules[id_] = rule
    return rules


@app.command("list", help=HELP, cls=Command)
def command(
    format: Annotated[str, format_option("text", "json", "markdown", what="list")] = "text",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the list to a file.")] = None,
    folders: FurtherRules = None,
) -> None:
    """Parse, list, exit."""
    from perfaudit.render.paint import colour, plain, wrap
    from perfaudit.render.words import json_text

    rules = list(every_rule(folders).values())
    if format == "json":
        from perfaudit.knobs import settled_by

        keys = ("id", "name", "title", "area", "severity", "tier", "fix", "changes", "settled_by", "reading")
        plain_rules = [dataclasses.asdict(rule) | {"settled_by": settled_by().get(rule.id, "")} for rule in rules]
        write(json_text([{key: rule[key] for key in keys} for rule in plain_rules]), output)
        return
    if format == "markdown":
        from perfaudit.knobs import settled_by
        from perfaudit.render import catalogue

        write(catalogue.render(rules, settled_by()), output)
        return
    paint = colour if output is None and is_terminal(sys.stdout) else plain
    width = max(len(rule.name) for rule in rules)
    columns = text_width() if output is None and sys.stdout is not None and sys.stdout.isatty() else None
    lines = []
    for rule in rules:
        fix = f"{rule.fix} ({', '.join(rule.changes)})" if rule.changes else rule.fix
        if columns is not None and columns < _WIDE:
            lines.append(f"{paint(rule.id, 'bold')}  {rule.name}")
            lines += [
                wrap(text, columns, "       ") for text in (f"{rule.severity}, {rule.tier}; fix: {fix}", rule.title)
            ]
            continue
        lines.append(
            f"{paint(rule.id, 'bold')}  {rule.name:<{width}}  {rule.severity:<7}  {rule.tier:<7}  {fix:<26}  {rule.title}"
        )
    closing = f"{len(rules)} rules; `perfaudit explain {rules[0].id}` shows one whole"
    write("\n".join([*lines, wrap(closing, columns or len(closing), ""), ""]), output)
