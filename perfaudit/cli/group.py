"""Commands with commands below them, one of which is meant where none is named."""

from __future__ import annotations

from typing import Any

import typer

from perfaudit.cli.help_text import Group

_WIDE = {"help_option_names": ["-h", "--help"], "max_content_width": 110}  # as the other commands have it


def group_with_default(name: str, default: str) -> typer.Typer:
    """An application in which what is no command of it goes to `default`: `perfaudit gate train.py` checks train.py."""

    class _Group(Group):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # Any: click's context, which typer may bundle
            is_asked_what_may_come = ctx.resilient_parsing and not args  # by a shell that completes
            if not is_asked_what_may_come and (not args or args[0] not in self.commands):
                args = [default, *args]
            return super().parse_args(ctx, args)

    return typer.Typer(
        name=name,
        cls=_Group,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=_WIDE,
    )
