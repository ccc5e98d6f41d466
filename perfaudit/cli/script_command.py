"""A command that is given a script: an option that is not its own may be the script's, which comes behind `--`."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfaudit.cli.help_text import Command

_A_TYPO = 0.75  # likeness of two names, from which on one is meant for the other


class ScriptCommand(Command):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # Any: click's context, which typer may bundle
        typed = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # click's NoSuchOption, which cannot be imported from where every typer has it
            name = getattr(error, "option_name", None)
            words = dashes_hint(ctx.command_path, typed, name) if type(error).__name__ == "NoSuchOption" else ""
            own: Any = error  # Any: click's, as above
            likely = [each for each in getattr(own, "possibilities", None) or () if _is_typo(each, str(name))]
            if name == "--json" and any("--format" in each.opts for each in self.get_params(ctx)):
                words, likely = " ".join(filter(None, ["A report as JSON is printed by --format json.", words])), []
            if words and not likely:
                own.possibilities, own.message = None, f"{own.message}. {words}"
            raise


def dashes_hint(command: str, typed: Sequence[str], option: str | None) -> str:
    """That an option of the script's comes behind `--`, with the command as it is then; "" where no script is before it."""
    at = next((at for at, word in enumerate(typed) if option and _has_option(word, option)), 0)
    before = typed[:at]
    if command.endswith(" scan") and "--measure" not in typed:
        return ""
    if "--" in before or not any(word.endswith(".py") or word == "-m" or Path(word).is_file() for word in before):
        return ""
    return f"Arguments of the script come after --: {command} {shlex.join([*before, '--', *typed[at:]])}"


def _has_option(word: str, option: str) -> bool:
    """Whether a word is the option, with its value or others behind it."""
    return word.split("=")[0] == option or (not option.startswith("--") and word.startswith(option))


def _is_typo(name: str, typed: str) -> bool:
    return difflib.SequenceMatcher(None, name, typed).ratio() >= _A_TYPO
