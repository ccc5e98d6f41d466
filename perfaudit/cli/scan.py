"""`perfaudit scan`: its options, as typer reads them."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from perfaudit.cli.one_scan import ScanOptions, scan_as_asked
from perfaudit.cli.options import HtmlFile, RuleFolders, format_option

HELP = """Find what makes training slow, by reading the code. Your code is neither imported nor run, unless --measure is given.

\b
    perfaudit scan train.py
    perfaudit scan src/ --select PA1,PA601       only some rules
    perfaudit scan train.py --diff | git apply   take the safe patches
    perfaudit scan train.py --fix                the same, written in place; reports what is left
    perfaudit scan train.py --measure            measure what each patch saves
    perfaudit scan train.py --measure -- --epochs 1     the same, of a script with arguments
    perfaudit scan small --measure               the same, of a name of [tool.perfaudit.targets]
    perfaudit scan . --baseline known.json       only what is new; --update-baseline accepts what there is
    perfaudit scan - --stdin-filename train.py   for editors

A comment `# perfaudit: ignore[PA101] reason` or `# noqa: PA101` on the first or last line of a finding silences it,
`# perfaudit: ignore-file[PA101]` the whole file. Test files below a folder are read with --tests only. Rules written in
Python run with --rules DIR, or where `perfaudit rules trust` said so.
"""


class Level(enum.StrEnum):
    """Severities, from the worst."""

    error = "error"
    warning = "warning"
    info = "info"
    hint = "hint"


def command(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH...", help="Python files, notebooks and folders (default: here); - is standard input."
        ),
    ] = None,
    format: Annotated[str, format_option()] = "text",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the report to a file.")] = None,
    html: HtmlFile = None,
    diff: Annotated[bool, typer.Option("--diff", help="Print only the patch that --fix would apply.")] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Apply safe fixes (nothing but speed changes), then report what is left.")
    ] = False,
    unsafe_fixes: Annotated[
        bool,
        typer.Option(
            "--unsafe-fixes",
            help="With --fix or --diff: also fixes that change rounding, precision, the random stream, checkpoints, …",
        ),
    ] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHANGES",
            help="With --fix or --diff: also fixes that change only these, as rounding,rng or one in each --allow.",
        ),
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option(help="Only these rules: ids, beginnings of ids, or names.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Not these rules.")] = None,
    severity: Annotated[
        Level | None,
        typer.Option(
            help="Lowest severity that is reported (default: info; of rules that --select names one by one, hint)."
        ),
    ] = None,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="Exit with 0 even when something was found.")] = False,
    tests: Annotated[bool, typer.Option("--tests", help="Also report test files found below a folder.")] = False,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Print how many findings each rule has instead of the findings.")
    ] = False,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Report only what this file does not know.")
    ] = None,
    update_baseline: Annotated[
        bool, typer.Option("--update-baseline", help="With --baseline: write what there is into the file.")
    ] = False,
    stdin_filename: Annotated[
        str | None, typer.Option(metavar="NAME", help="With -: the path that the text has or will have.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=0, help="Processes at most (0: as many as pay).")] = 0,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Audit every file anew, and keep no results for the next scan.")
    ] = False,
    force_exclude: Annotated[
        bool, typer.Option("--force-exclude", help="Leave out excluded files and tests even where they are named.")
    ] = False,
    isolated: Annotated[bool, typer.Option("--isolated", help="Pay no attention to any pyproject.toml.")] = False,
    rules: RuleFolders = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Run the training, factories or a script with the arguments behind --, and measure what each patch saves.",
        ),
    ] = False,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="With --measure: let a script write its files, and its trackers record.")
    ] = False,
    budget: Annotated[
        str, typer.Option(help="With --measure: time for all measuring, e.g. 90s or 5m (default: 75s, of a script 3m).")
    ] = "",
    timeout: Annotated[
        str, typer.Option(help="With --measure: longest time that loading, or one step, may take.")
    ] = "2m",
    factory: Annotated[
        list[str] | None, typer.Option(metavar="ROLE=NAME", help="With --measure: name a factory, as in `tune`.")
    ] = None,
    device: Annotated[
        str, typer.Option(help="With --measure: cpu, cuda, … (default: an accelerator if there is one).")
    ] = "auto",
    resume: Annotated[
        bool, typer.Option("--resume", help="With --measure: go on with the newest unfinished scan of this folder.")
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="With --measure: also print noise and processor time. JSON has both."),
    ] = False,
) -> None:
    """Parse, scan, render, exit."""
    raise typer.Exit(scan_as_asked(ScanOptions(**locals())))  # each parameter under its own name
