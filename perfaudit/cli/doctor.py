"""`perfaudit doctor`: what this process may use of the machine, and what would spoil a measurement."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from perfaudit.cli.options import format_option
from perfaudit.cli.output import check_writable, emit, is_terminal
from perfaudit.errors import FOUND, OK

HELP = """Look at the machine: what this process may use of it, what slows a training, and what would spoil a measurement.

\b
    perfaudit doctor
    perfaudit doctor --format json --output machine.json
    perfaudit doctor --no-bandwidth        without reading from the disk and copying to a GPU

None of your code is run. torch is imported in a separate process, from a folder where your files cannot shadow it.

Exit codes: 0 nothing is wrong · 1 warnings · 2 wrong use · 130 interrupted.
"""


def command(
    bandwidth: Annotated[
        bool,
        typer.Option("--bandwidth/--no-bandwidth", help="Time reads from this folder's disk, and copies to a GPU."),
    ] = True,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="Exit with 0 where there are warnings.")] = False,
    format: Annotated[str, format_option("text", "json", "markdown")] = "text",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the report to a file.")] = None,
) -> None:
    from perfaudit.machine.checks import look_at
    from perfaudit.machine.place import Place
    from perfaudit.report import Report

    check_writable(output)
    is_shown = is_terminal(sys.stderr)
    if is_shown:
        print("\r\x1b[Klooking at the machine, and asking torch ...", end="", file=sys.stderr, flush=True)
    try:
        facts = tuple(look_at(Place(has_bandwidth=bandwidth)))
    finally:
        if is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    emit(Report("doctor", machine=facts), format, output)
    wrong = any(fact.state == "warning" for fact in facts)
    raise typer.Exit(FOUND if wrong and not exit_zero else OK)
