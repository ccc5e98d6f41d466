"""What `--help` prints: lines that fit the terminal, in signs that it has."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import typer.core

from perfaudit.expressions import regex

_LEAST, _MOST = 40, 110  # columns
_NARROW = 72  # columns; with fewer, what an option does stands below its name, for beside it would be a word a line
_EXAMPLE = regex(r"(\s*)(\S.*?)\s{2,}(\S.*)")


class Command(typer.core.TyperCommand):
    def get_help(self, ctx: Any) -> str:  # Any: click's context, which typer may bundle
        return help_text(self, ctx)


class Group(typer.core.TyperGroup):
    def get_help(self, ctx: Any) -> str:  # Any: as above
        return help_text(self, ctx)


def help_text(command: Any, ctx: Any) -> str:  # Any: a class of click's for both, as above
    """The help of a command for the terminal that stdout is."""
    from perfaudit.render.sparkline import encodable

    columns = max(_LEAST, min(shutil.get_terminal_size((100, 24)).columns, _MOST))
    formatter = ctx.make_formatter()
    formatter.width = columns - 2
    if columns < _NARROW:
        formatter.write_dl = lambda rows, *_, **__: formatter.write(_stack_rows(rows, columns))
    command.format_help(ctx, formatter)
    lines = [fitting for line in formatter.getvalue().rstrip("\n").split("\n") for fitting in fit(line, columns)]
    return encodable("\n".join(lines), getattr(sys.stdout, "encoding", None))


def _stack_rows(rows: Sequence[tuple[str, str]], columns: int) -> str:
    lines = []
    for name, what in rows:
        lines += textwrap.wrap(name, columns, initial_indent="  ", subsequent_indent="    ")
        lines += textwrap.wrap(what, columns, initial_indent="      ", subsequent_indent="      ")
    return "\n".join(lines) + "\n"


def fit(line: str, columns: int) -> list[str]:
    """A line of help as lines that fit: of an example that does not, the remark stands below the command.

    A command stays whole, also where it is longer than a line: it is there to be copied.
    """
    example = _EXAMPLE.fullmatch(line) if len(line) > columns else None
    if example is None:
        return [line]
    indent, command, remark = example.groups()
    below = f"{indent}    "
    return [f"{indent}{command}", *textwrap.wrap(remark, columns, initial_indent=below, subsequent_indent=below)]
