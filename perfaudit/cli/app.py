"""The typer application."""

from __future__ import annotations

import importlib
from typing import Any

import typer

from perfaudit.cli.help_text import Command, Group
from perfaudit.cli.script_command import ScriptCommand

HELP = """Find out why PyTorch training is slow, measure what each cause costs, and get the patch.

\b
    perfaudit scan train.py                  what is slow, by reading the code
    perfaudit run train.py -- ARGS           where the steps of a script go
    perfaudit tune train.py                  patches that pay, checked and timed
    perfaudit trace FOLDER                   why devices were idle, from traces
    perfaudit gate train.py --against main   the check in CI

`perfaudit COMMAND --help` has more examples, and the options of a command.

Exit codes: 0 nothing to report · 1 findings, something faster was found, or the gate found a regression · 2 wrong use ·
3 nothing could be looked at or measured, or a scan found nothing and could not read a file that you named ·
130 interrupted. `run` returns the code of a script that fails.
"""

# Each imports what the others need not: `scan` is typed all day, and starts in a third of the time without them.
COMMANDS = {
    "scan": "What makes training slow, by reading the code.",
    "run": "Where the steps of an unmodified script go.",
    "tune": "What makes your training faster, as a checked patch.",
    "trace": "Why devices were idle, from traces of torch.profiler.",
    "gate": "Does this change make training slower? For CI.",
    "apply": "The patches of a saved report.",
    "history": "What was measured in this folder before.",
    "doctor": "The machine, and what would spoil a measurement.",
    "explain": "One rule: why it exists, with examples and sources.",
    "rules": "All rules, in one line each.",
    "migrate-checkpoint": "Old checkpoints for a model without some biases.",
    "mcp": "Serve these commands to coding agents.",
}


def application(only: str = "") -> typer.Typer:
    """The commands of perfaudit; only one of them where it is named."""
    app = typer.Typer(
        name="perfaudit",
        help=HELP,
        cls=Group,
        no_args_is_help=True,
        add_completion=not only,  # a shell that asks how a line goes on names no command in the arguments
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    app.callback()(root)
    for name in COMMANDS if not only else (only,):
        short = COMMANDS[name]
        module: Any = importlib.import_module(f"perfaudit.cli.{name.replace('-', '_')}")  # HELP, and command or app
        if name in ("gate", "rules"):
            app.add_typer(module.app, name=name, help=module.HELP, short_help=short)
        elif name in ("scan", "run", "tune"):
            app.command(name, help=module.HELP, short_help=short, cls=ScriptCommand)(module.command)
        else:
            app.command(name, help=module.HELP, short_help=short, cls=Command)(module.command)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from perfaudit import __version__

        print(f"perfaudit {__version__}")
        raise typer.Exit


def root(
    version: bool = typer.Option(
        False, "--version", "-V", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Options before the command."""
