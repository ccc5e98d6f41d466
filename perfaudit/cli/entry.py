"""A command line is run, and its errors become exit codes: the one place for that. A plain scan does without typer."""

from __future__ import annotations

import sys
from pathlib import Path

from perfaudit.cli.output import say
from perfaudit.errors import INTERRUPTED, NOTHING_MEASURED, UserError, refusal


def run() -> int:
    """Run the command line and return its exit code; a UserError is one line on stderr, never a traceback.

    typer itself leaves with 2 for wrong options, 130 for Ctrl-C, and the code of `typer.Exit`. A fault of the machine or of
    this program is a traceback and 3: Python and typer would leave with 1, which says that there are findings.
    """
    try:
        _check_working_directory()
        return _run(sys.argv[1:])
    except UserError as error:
        return _complain(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (BrokenPipeError, EOFError):  # nobody reads what is said, or input has ended
        return NOTHING_MEASURED
    except SystemExit as leaving:  # the same, as typer has it
        if isinstance(leaving.__context__, OSError) or type(leaving.__context__).__name__ == "Abort":
            return NOTHING_MEASURED
        raise
    except Exception:
        import traceback

        say(traceback.format_exc().rstrip("\n"))
        return NOTHING_MEASURED


def _run(words: list[str]) -> int:
    if words[:1] == ["scan"]:
        from perfaudit.cli.plain_scan import read_plain

        if (asked := read_plain(words[1:])) is not None:
            from perfaudit.cli.one_scan import scan_as_asked

            return scan_as_asked(asked)
    from perfaudit.cli.app import COMMANDS, application

    application(words[0] if words and words[0] in COMMANDS else "")()
    return 0


def _complain(error: UserError) -> int:
    """Say what the user can mend, on several ranks of a machine once; the exit code."""
    import os
    import tempfile

    from perfaudit.cli.one_voice import speaking
    from perfaudit.distributed.launch import place_of

    place = place_of(os.environ)
    base = Path(tempfile.gettempdir()) if place.local_ranks > 1 else Path()  # a full disk has none
    with speaking(place, str(error), base) as is_ours:
        if is_ours:
            say(f"perfaudit: {error}")
    return error.exit_code


def _check_working_directory() -> None:
    try:
        Path.cwd()
    except OSError as error:
        reason = refusal(error)
        raise UserError(f"the working directory cannot be found ({reason}): change into another one") from error
