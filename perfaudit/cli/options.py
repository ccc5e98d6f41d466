"""Options that several commands have, as typer reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from perfaudit.cli.output import ALIASES
from perfaudit.render import all_formats

HtmlFile = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Also write the report as a page to pass on.")
]

RuleFolders = Annotated[
    list[Path] | None,
    typer.Option("--rules", metavar="DIR", help="Also the rules of this folder, whose Python runs (several times)."),
]


def format_option(*names: str, what: str = "report") -> Any:  # Any: as typer has it
    """The option `--format`, which takes these names, every format of `perfaudit.render` if there are none.

    Commands get the name of a format: "text" where "full" was typed.
    """
    allowed = names or all_formats()

    def check_name(name: str) -> str:
        name = ALIASES.get(name, name)
        if name not in allowed:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(allowed)}")
        return name

    return typer.Option(
        "--format",
        metavar="|".join(allowed),
        callback=check_name,
        autocompletion=lambda: list(allowed),
        help=f"Format of the {what}; full is another name for text.",
    )
