"""Pages of the site that are made of the code: one for each rule, and one of all commands with their options.

`docs/conf.py` writes them while the site is built; they are not committed. Nothing here imports sphinx, so that tests read the
pages without it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer.main

from perfaudit.cli.app import COMMANDS, application
from perfaudit.knobs import settled_by
from perfaudit.render.catalogue import render_one
from perfaudit.rules import all_rules

ROW_OF_RULE = re.compile(r"\[(PA\d+)\]\(#pa\d+\)")
CODE = re.compile(r"(`+).+?\1")
LINK_TO_RULE = re.compile(r"\brules\.md#(pa\d+)")


def rule_pages() -> dict[str, str]:
    """The page of every rule, by its id."""
    return {rule.id: render_one(rule, settled_by().get(rule.id, "")) for rule in all_rules().values()}


def rules_index(catalogue: str) -> str:
    """The table at the head of `docs/rules.md`, its links to the pages of the rules instead of to sections."""
    table = catalogue.partition("\n## ")[0]
    pages = "\n".join(f"rules/{id_}" for id_ in all_rules())
    linked = ROW_OF_RULE.sub(r"[\1](rules/\1.md)", table)
    return f"{linked}\n\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"


def linked_rules(page: str) -> str:
    """A page whose links to sections of `rules.md` lead to the pages of the rules."""
    return LINK_TO_RULE.sub(lambda match: f"rules/{match[1].upper()}.md", page)


def commands_page() -> str:
    """Every command: its help, how it is called, its options."""
    lines = ["# Commands", "", "Made of the program itself; `perfaudit COMMAND --help` prints the same.", ""]
    for name, command in _commands(typer.main.get_command(application())):
        lines += [f"## perfaudit {name}", "", *_help(command), ""]
        usage = " ".join(command.collect_usage_pieces(_context(command, name)))
        lines += ["```text", f"perfaudit {name} {usage}", "```", ""]
        context = _context(command, name)
        rows = [row for parameter in command.params if (row := _row(parameter, context)) is not None]
        if rows:
            lines += ["| option | |", "|---|---|", *rows, ""]
    return "\n".join(lines)


# Any below: click's classes, which typer may bundle under another name.


def _commands(group: Any) -> Iterator[tuple[str, Any]]:
    """Commands in the order of `perfaudit --help`, those below another one behind it, under their names."""
    for name in COMMANDS:
        command = group.commands[name]
        if not hasattr(command, "commands"):
            yield name, command
            continue
        for below, each in command.commands.items():
            yield f"{name} {below}", each


def _context(command: Any, name: str) -> Any:
    return command.make_context(f"perfaudit {name}", [], resilient_parsing=True)


def _help(command: Any) -> list[str]:
    """The help as Markdown: paragraphs, and its examples as code."""
    lines = []
    for block in inspect.cleandoc(command.help or "").split("\n\n"):
        is_code = block.startswith("\b")
        text = inspect.cleandoc(block.removeprefix("\b\n"))
        lines += ["```text", text, "```", ""] if is_code else [_plain(text), ""]
    return lines[:-1]


def _row(parameter: Any, context: Any) -> str | None:
    """An option and what it does, as `--help` has it, with its default; None for a hidden one."""
    if getattr(parameter, "hidden", False):
        return None
    names = ", ".join(f"`{option}`" for option in (*parameter.opts, *parameter.secondary_opts))
    if parameter.param_type_name == "argument":
        names = f"`{parameter.human_readable_name}`"
    metavar = getattr(parameter, "metavar", None)
    if metavar and parameter.param_type_name == "option":
        names += f" {_plain(metavar)}"
    _, told = parameter.get_help_record(context) or ("", "")
    return f"| {_cell(names)} | {_cell(_plain(told))} |"


def _cell(text: str) -> str:
    """Markdown for a cell of a table, which a bar would end, also one in code."""
    return text.replace("|", "\\|")


def _plain(text: str) -> str:
    """Text as Markdown that looks the same. In code nothing is escaped."""
    text, done, end = " ".join(text.split()), "", 0
    for code in CODE.finditer(text):
        done += _escaped(text[end : code.start()]) + code[0]
        end = code.end()
    return done + _escaped(text[end:])


def _escaped(text: str) -> str:
    return re.sub(r"([*_<>\[\]])", r"\\\1", text)
