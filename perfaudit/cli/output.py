"""Where results go: stdout or a file, in the format asked for; colour only on a terminal; progress to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from perfaudit.errors import UserError

if TYPE_CHECKING:
    from perfaudit.cli.code_around import Reading
    from perfaudit.report import Report

ALIASES = {"full": "text"}


def is_terminal(stream: object) -> bool:
    """Whether a stream is a terminal on which colour is welcome (https://no-color.org)."""
    return (
        bool(getattr(stream, "isatty", lambda: False)())
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def text_width() -> int:
    """Columns for text: those of the terminal, within what can be read; 100 where there is none."""
    return max(40, min(_columns() or 100, 140))


def _columns() -> int:
    """As `shutil.get_terminal_size` has them, which takes longer to import than a text to print; 0 where there are none."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns if sys.__stdout__ is not None else 0
    except (OSError, ValueError):  # no terminal, or closed
        return 0


def emit(
    report: Report,
    format_: str,
    output: Path | None,
    verbose: bool = False,
    page: Path | None = None,
    read: Reading | None = None,
) -> None:
    """Render the report and write it to stdout, or to a file (atomically). Raises UserError if it cannot be written.

    verbose: text has what only an expert asks for, too; other formats have it always. page: a file that gets the report as a
    page besides. read: what the files of findings hold, for pages that show them; without, what they hold on disk.
    """
    if page is not None:
        emit(report, "html", page, read=read)
    if format_ == "html":
        from perfaudit.cli.code_around import code_around
        from perfaudit.render import html

        write(html.render(report, code_around(report, read)), output)
    elif format_ == "text":
        from perfaudit.render import text

        in_colour = output is None and is_terminal(sys.stdout)
        content = text.render(report, in_colour=in_colour, width=text_width(), verbose=verbose)
        write(content, output, addresses=_addresses(report) if in_colour else {})
    else:
        from perfaudit.render import renderer

        write(renderer(format_)(report), output, has_commands=format_ == "github")


def emit_statistics(report: Report, format_: str, output: Path | None) -> None:
    """Write how many findings each rule has, as text or JSON."""
    from perfaudit.render import counts

    write(counts.as_json(report) if format_ == "json" else counts.as_text(report), output)
    if report.skipped:
        n = len(report.skipped)
        were = "was" if n == 1 else "were"
        say(f"perfaudit: {n} {were} not audited; the report without --statistics names each with its reason")


def _addresses(report: Report) -> dict[str, str]:
    """A URI of the file of each finding, by the place that the report shows of it; none of one whose name has odd signs."""
    from perfaudit.render.words import signs

    places = [finding.location for finding in report.findings if finding.location is not None]
    files = {path: Path(path).absolute().as_uri() for path in {place.path for place in places} if path == signs(path)}
    return {str(place): files[place.path] for place in places if place.path in files}


def write(
    content: str | bytes, output: Path | None, has_commands: bool = False, addresses: Mapping[str, str] | None = None
) -> None:
    """Put finished text, or bytes as they are, on stdout or into a file. A reader that went away (`| head`) is no error.

    Of text, whatever the code or a file has put into it, neither a terminal nor the log of a CI obeys anything; commands of
    our own stay, and so do links to the addresses (see `link_places`). Raises UserError when it cannot be written.
    """
    from perfaudit.render.paint import link_places
    from perfaudit.render.words import inert

    if isinstance(content, str) and not has_commands:
        content = link_places(inert(content, in_colour=output is None and is_terminal(sys.stdout)), addresses or {})
    try:
        if output is None:
            _to_stdout(content)
        else:
            from perfaudit.files import replace_file

            replace_file(output, content if isinstance(content, bytes) else content.encode("utf-8", "replace"))
    except OSError as error:
        from perfaudit.files import reason

        raise UserError(f"{output or 'stdout'}: not written: {reason(error)}") from error


def write_patch(patch: bytes, output: Path | None) -> None:
    """Put a patch on stdout or into a file, byte for byte; on a terminal, which would obey its lines, with signs."""
    from perfaudit.render.words import inert

    if output is None and sys.stdout is not None and sys.stdout.isatty():
        patch = inert(patch.decode("utf-8", "replace")).encode()
    write(patch, output)


def _to_stdout(content: str | bytes) -> None:
    if sys.stdout is None:  # started without one: `>&-`
        return
    try:
        if isinstance(content, bytes):
            sys.stdout.buffer.write(content)
        else:
            try:
                sys.stdout.write(content)
            except UnicodeEncodeError:  # a terminal that is not UTF-8: keep the report, in the signs that it has
                sys.stdout.write(_encodable(content, sys.stdout))
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains once more at exit
        if not isinstance(error, BrokenPipeError):
            raise


def _encodable(text: str, stream: TextIO) -> str:
    """The text as the stream can show it; what it lacks would be an error on stdout, and a number on stderr."""
    if text.isascii():
        return text
    from perfaudit.render.sparkline import encodable

    return encodable(text, stream.encoding)


SOURCES = (".py", ".ipynb")


def check_writable(output: Path | None, page: Path | None = None) -> None:
    """Raise UserError if a report could not be written there; asked before hours of measuring, not after.

    page: the file of `--html`, which is another one.
    """
    if page is not None:
        check_writable(page)
        if output is not None and output.resolve() == page.resolve():
            raise UserError(f"{page}: named by --output and by --html; name two files")

    if output is None:
        return
    from perfaudit.files import destination, reason

    try:
        destination(output)
    except OSError as error:
        raise UserError(f"{output}: cannot be written: {reason(error)}") from error
    if output.is_dir():
        raise UserError(f"{output}: is a folder; name a file in it")
    if output.exists() and output.resolve().suffix in SOURCES:  # also behind a link
        raise UserError(f"{output}: would replace source code; name another file")
    folder = output.absolute().parent
    if not folder.is_dir():
        raise UserError(f"{output}: no such folder: {folder}")
    if not os.access(folder, os.W_OK) and not (output.exists() and os.access(output, os.W_OK)):
        raise UserError(f"{output}: the folder cannot be written to")


def say(text: str) -> None:
    """What is said to the person at the terminal, on stderr; neither that nor a log obeys what it cites."""
    from perfaudit.render.words import inert

    print(_encodable(inert(text), sys.stderr) if sys.stderr is not None else text, file=sys.stderr)


def behind_dashes(given: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """What was given before `--` and, behind it, what a script is given: click hands out both as one list."""
    own = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
    return (given[: -len(own)], tuple(own)) if own and given[-len(own) :] == own else (given, ())


def names(values: list[str] | None) -> tuple[str, ...]:
    """The names of an option that may be repeated and may hold commas."""
    return tuple(part.strip() for value in values or () for part in value.split(",") if part.strip())
