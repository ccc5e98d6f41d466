"""Where results go: stdout or a file, in the format asked for; colour only on a terminal; progress to stderr."""

from __future__ import annotations

import enum
import os
import shutil
import sys
from pathlib import Path

from perfaudit.errors import UserError
from perfaudit.report import Report


class Format(enum.StrEnum):
    """Formats of a report; each is one file in `perfaudit.render`."""

    text = "text"
    json = "json"


def is_terminal(stream: object) -> bool:
    """Whether a stream is a terminal on which colour is welcome (https://no-color.org)."""
    return (
        bool(getattr(stream, "isatty", lambda: False)())
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def emit(report: Report, format_: Format, output: Path | None) -> None:
    """Render the report and write it to stdout, or to a file (atomically). Raises UserError if it cannot be written."""
    if format_ is Format.json:
        from perfaudit.render import json

        text = json.render(report)
    else:
        from perfaudit.render import text as as_text

        width = max(60, min(shutil.get_terminal_size((100, 24)).columns, 140))
        text = as_text.render(report, in_colour=output is None and is_terminal(sys.stdout), width=width)
    write(text, output)


def write(content: str | bytes, output: Path | None) -> None:
    """Put finished text, or a patch as bytes, on stdout or into a file. A reader that went away (`| head`) is no error.

    Raises UserError when it cannot be written.
    """
    try:
        if output is None:
            _to_stdout(content)
        else:
            from perfaudit.static.fix import replace_file

            replace_file(output, content if isinstance(content, bytes) else content.encode("utf-8", "replace"))
    except OSError as error:
        raise UserError(f"{output or 'stdout'}: not written: {(error.strerror or str(error)).lower()}") from error


def _to_stdout(content: str | bytes) -> None:
    if sys.stdout is None:  # started without one: `>&-`
        return
    try:
        if isinstance(content, bytes):
            sys.stdout.buffer.write(content)
        else:
            encoding = sys.stdout.encoding or "utf-8"
            try:
                sys.stdout.write(content)
            except UnicodeEncodeError:  # a terminal that is not UTF-8: keep the report, lose the signs
                sys.stdout.write(content.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains once more at exit
        if not isinstance(error, BrokenPipeError):
            raise


def check_writable(output: Path | None) -> None:
    """Raise UserError if a report could not be written there; asked before hours of measuring, not after."""
    if output is None:
        return
    folder = output.absolute().parent
    if not folder.is_dir():
        raise UserError(f"{output}: no such folder: {folder}")
    if not os.access(folder, os.W_OK) and not (output.exists() and os.access(output, os.W_OK)):
        raise UserError(f"{output}: the folder cannot be written to")


def say(text: str) -> None:
    """One line for the person at the terminal, on stderr."""
    print(text, file=sys.stderr)


def names(values: list[str] | None) -> tuple[str, ...]:
    """The names of an option that may be repeated and may hold commas."""
    return tuple(part.strip() for value in values or () for part in value.split(",") if part.strip())
