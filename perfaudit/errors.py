"""Errors a user can cause, each with the exit code of design section 2. Everything else stays a traceback."""

from __future__ import annotations

OK = 0
FOUND = 1
WRONG_USE = 2
NOTHING_MEASURED = 3
INTERRUPTED = 130


class UserError(Exception):
    """Something the user can mend: one message that says what, where and what to do."""

    exit_code = WRONG_USE


def last_words(said: str) -> str:
    """What was wrong, of all that a command wrote to stderr: its last words, without the progress before; else all of it."""
    _, found, last = f"\n{said}".rpartition("\nperfaudit: ")
    return (last if found else said).strip()


class RuleFileError(UserError):
    """A rule file that does not hold what it must; the message names file and key."""


class ConfigError(UserError):
    """A configuration that cannot be read; the message names file and key."""


class TargetError(UserError):
    """A target that does not load, or a factory that does not give what it should."""


class NoTarget(TargetError):
    """No target was named, and no file offers factories."""


class NoBatches(TargetError):
    """A training without a further step: its loader gives no batch, or the script has come to its end without a fault."""


class NoStep(TargetError):
    """A script that has come to its end without a fault, and without a step."""

    exit_code = NOTHING_MEASURED


class NothingMeasured(UserError):
    """Measuring was asked for and no trial finished."""

    exit_code = NOTHING_MEASURED


def refusal(error: OSError) -> str:
    """Why the system refused what it was asked for, in words for a sentence."""
    return (error.strerror or str(error)).lower()


AT_BREAKPOINT = "it stops at a breakpoint"


def is_at_breakpoint(error: BaseException) -> bool:
    """Whether a debugger has raised it, which got no answer: a `bdb.BdbQuit`, whose own words are at most its place."""
    return type(error).__name__ == "BdbQuit"


def words_of(error: BaseException) -> str:
    """What an error of the user's code says, or what it means where it says nothing that helps."""
    if is_at_breakpoint(error):
        place = f" at {error}" if str(error) else ""
        way_out = "take it out, or set PYTHONBREAKPOINT=0, which skips each breakpoint()"
        return f"{AT_BREAKPOINT}{place}, and its standard input is closed here; {way_out}"
    return str(error)
