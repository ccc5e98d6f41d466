"""Runs git on the user's repository: with a deadline, without its hooks, and not where a hook's environment points."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from time import sleep

from perfaudit.errors import UserError

QUESTION_SECONDS = 60.0  # `git status` of a large tree on a cold disk
CHECKOUT_SECONDS = 600.0  # large files may come over the network (LFS, partial clones)
LOCK_TRIES = 6  # 0.1 s, doubled each time: about 3 s in all, longer than git holds a lock of its own

# What would lead git away from the folder it is run in: git sets some of these for its hooks (`git rev-parse
# --local-env-vars`). Configuration that is given by variables stays: CI puts safe.directory there.
_ELSEWHERE = {
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_PREFIX",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_SHALLOW_FILE",
    "GIT_GRAFT_FILE",
    "GIT_NAMESPACE",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_EXTERNAL_DIFF",
}
_OWN = {"LC_ALL": "C", "LANGUAGE": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
_WITHOUT_HELPERS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "submodule.recurse=false")


class NoRepository(UserError):
    """No git, or no repository that it can read."""


class GitFailed(Exception):
    """A git command that failed; the message is the line of what it said that tells why. code: None where it did not end."""

    def __init__(self, message: str, code: int | None = None, timed_out: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.timed_out = timed_out


def git(
    folder: Path, *arguments: str, seconds: float = QUESTION_SECONDS, extra: Mapping[str, str] | None = None
) -> str:
    """What a git command prints, run in this folder, less one line end. Bytes that are no UTF-8 are kept as surrogates.

    extra: variables for this command. Raises GitFailed, and NoRepository where git is not installed.
    """
    environment = {key: value for key, value in os.environ.items() if not _leads_elsewhere(key)}
    try:
        done = subprocess.run(
            ["git", *_WITHOUT_HELPERS, *arguments],
            cwd=folder,
            env={**environment, **_OWN, **(extra or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
        )
    except FileNotFoundError as error:
        if not folder.is_dir():
            raise GitFailed(f"{folder}: no such folder") from error
        raise NoRepository(
            "git is not installed, and --against needs it; install it, or compare with a file: --baseline FILE"
        ) from error
    except OSError as error:
        raise GitFailed((error.strerror or str(error)).lower()) from error
    except subprocess.TimeoutExpired as error:
        raise GitFailed(f"git {arguments[0]} took longer than {seconds:.0f} s", timed_out=True) from error
    if done.returncode:
        said = _telling_line(done.stderr) or f"git {arguments[0]} ended with code {done.returncode}"
        raise GitFailed(said, done.returncode)
    return os.fsdecode(done.stdout).removesuffix("\n")


def git_unless_locked(folder: Path, *arguments: str, seconds: float) -> None:
    """Run a command that writes into the repository; again, after a moment, where another git holds a lock."""
    for attempt in range(LOCK_TRIES):
        try:
            git(folder, *arguments, seconds=seconds)
            return
        except GitFailed as failure:
            locked = any(words in str(failure) for words in (".lock", "File exists", "could not lock"))
            if not locked or attempt == LOCK_TRIES - 1:
                raise
        sleep(0.1 * 2**attempt)


def _leads_elsewhere(variable: str) -> bool:
    return variable in _ELSEWHERE or variable.startswith("GIT_TRACE")


def _telling_line(errors: bytes) -> str:
    """The line with what was wrong: the first that begins with "fatal" or "error", else the last."""
    lines = [line for line in os.fsdecode(errors).splitlines() if line.strip()]
    worst = [line for line in lines if line.startswith(("fatal: ", "error: "))]
    return (worst or lines[-1:] or [""])[0].removeprefix("fatal: ").removeprefix("error: ")
