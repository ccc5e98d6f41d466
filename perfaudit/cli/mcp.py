"""`perfaudit mcp`: tools for coding agents, over standard input and output."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfaudit.errors import UserError

HELP = """Serve scan, explain, rules, doctor and trace to coding agents, by the Model Context Protocol on stdin and stdout.

\b
    perfaudit mcp                        the agent's program starts this, as its settings say
    perfaudit mcp --root ~/project       paths stay inside of this folder (default: the working directory)
    perfaudit mcp --allow-run            also run and tune, which run the project's code

Settings of an agent's program: {"mcpServers": {"perfaudit": {"command": "perfaudit", "args": ["mcp"]}}}

Tools return what the commands print with --format json. No tool writes into your files. Needs `pip install 'perfaudit[mcp]'`.
"""


def command(
    root: Annotated[Path, typer.Option(metavar="DIR", help="The folder in which all paths lie.")] = Path(),
    allow_run: Annotated[
        bool,
        typer.Option("--allow-run", help="Also offer run and tune, which run code of this folder with your rights."),
    ] = False,
) -> None:
    """Parse, serve until the client leaves."""
    if not root.is_dir():
        raise UserError(f"--root {root}: no such folder")
    try:
        from perfaudit.mcp.server import server_for
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(("mcp", "pydantic")):
            raise
        raise UserError("`perfaudit mcp` needs the SDK of the protocol: pip install 'perfaudit[mcp]'") from error
    server_for(root, allow_run).run("stdio")
