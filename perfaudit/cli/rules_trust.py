"""`perfaudit rules trust`, `untrust` and `trusted`: which Python of a project's own rules may run on this machine."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfaudit.cli.options import format_option
from perfaudit.cli.output import write
from perfaudit.errors import UserError

if TYPE_CHECKING:
    from perfaudit.static.rule_folder import RuleFolder
    from perfaudit.static.trusted_rules import Trust

TRUST_HELP = """Let scans run a project's own rules, as they are now. Prints every Python file that will run.

\b
    perfaudit rules trust --print       print the files and their digest, trust nothing
    perfaudit rules trust               the project of the working directory
    perfaudit rules trust ../project

A rule is Python: read it first. What is trusted is the content of every file in the folders that [tool.perfaudit] rules names,
in this place; once one of them changes, none of that folder runs until it is trusted again. In CI, put the digests into the
environment instead: PERFAUDIT_TRUST_RULES.
"""

UNTRUST_HELP = """Run a project's own rules no longer.

\b
    perfaudit rules untrust
    perfaudit rules untrust ../project      also where it is gone
"""

TRUSTED_HELP = """List the folders of rules that are trusted on this machine, and whether they are still as they were.

\b
    perfaudit rules trusted
    perfaudit rules trusted --format json
"""

Project = Annotated[Path, typer.Argument(metavar="[PATH]", help="A folder of the project (default: here).")]


def trust(
    path: Project = Path(),
    only_print: Annotated[bool, typer.Option("--print", help="Print what would run, and trust nothing.")] = False,
) -> None:
    """Parse, read the folders, print them, keep what was read."""
    from perfaudit.static.rule_folder import read_rule_folder
    from perfaudit.static.trusted_rules import VARIABLE, set_trust

    folders = [read_rule_folder(folder) for folder in _own_folders(path)]
    if not folders:
        raise UserError(f"{path}: no [tool.perfaudit] rules in a pyproject.toml at or above it, so nothing would run")
    lines = [line for folder in folders for line in _description_lines(folder)]
    if only_print:
        digests = shlex.quote(" ".join(folder.digest for folder in folders))
        then = f"not trusted by this; read them, then: perfaudit rules trust {shlex.quote(str(path))}"
        lines += [then, f"in CI: {VARIABLE}={digests}"]
    else:
        set_trust(add=folders)
        back = f"perfaudit rules untrust {shlex.quote(str(path))}"
        lines.append(f"trusted: these files run in scans from now on, until one of them changes; {back} takes it back")
    write("\n".join(lines) + "\n", None)


def untrust(path: Project = Path()) -> None:
    """Parse, forget, tell."""
    from perfaudit.static.trusted_rules import set_trust
    from perfaudit.static.trusted_rules import trust as known_trust

    top = os.path.realpath(path)
    named = {os.path.realpath(folder) for folder in _own_folders(path)} if path.is_dir() else set()
    gone = [place for place in _readable(known_trust()) if place in named or Path(place).is_relative_to(top)]
    if not gone:
        raise UserError(f"{path}: no rules of it are trusted; `perfaudit rules trusted` lists those that are")
    set_trust(remove=gone)
    write("".join(f"no longer trusted: {_safe_text(place)}\n" for place in gone), None)


def list_trusted(format: Annotated[str, format_option("text", "json", what="list")] = "text") -> None:
    """Parse, compare, list."""
    from perfaudit.render.words import json_text
    from perfaudit.static.trusted_rules import trust as known_trust

    known = known_trust()
    states = {place: _state(place, known) for place in sorted(_readable(known))}
    if format == "json":
        items = [{"folder": place, "is_as_trusted": not state, "reason": state} for place, state in states.items()]
        write(json_text({"folders": items, "digests": sorted(known.digests)}), None)
        return
    lines = [f"{_safe_text(place)}: {_safe_text(state) or 'as it was trusted'}" for place, state in states.items()]
    lines += [f"in the environment: {digest}" for digest in sorted(known.digests)]
    write("\n".join(lines or ["no rules are trusted"]) + "\n", None)


def _own_folders(path: Path) -> tuple[Path, ...]:
    from perfaudit.cli.settings import settings_of_project

    if not path.is_dir():
        raise UserError(f"{path}: no such folder")
    return settings_of_project(Path(os.path.realpath(path))).own_rule_folders()


def _description_lines(folder: RuleFolder) -> Iterable[str]:
    """What a person reads before they trust a folder: where, how much, and each file that can run."""
    from perfaudit.render.words import count

    others = len(folder.files) - len(folder.python)
    yield f"{_safe_text(folder.path)}: {count(len(folder.python), 'Python file')}, {count(others, 'other file')}"
    yield f"  digest {folder.digest}"
    yield from (f"  {_safe_text(file)}" for file in folder.python)


def _safe_text(text: object) -> str:
    """In one line and without signs that a terminal obeys: names of files are chosen by whoever wrote the project."""
    from perfaudit.render.words import one_line

    return one_line(str(text))


def _readable(known: Trust) -> Mapping[str, Mapping[str, str]]:
    """The folders that are trusted. Raises UserError where the file that says so cannot be used."""
    if known.trouble:
        raise UserError(f"{known.trouble}; `perfaudit rules trust` writes it anew")
    return known.folders


def _state(place: str, known: Trust) -> str:
    """What is different in a trusted folder, "" for nothing."""
    from perfaudit.errors import RuleFileError
    from perfaudit.static.rule_folder import read_rule_folder

    try:
        return known.why_not(read_rule_folder(Path(place)))
    except RuleFileError as error:
        return str(error)
