"""Runs git on the user's repository: with a deadline, without programs that the repository names, and not where a hook's
environment points.

An archive that was unpacked brings its `.git` along, with hooks and settings that its author chose. git runs what they
name. Programs that the user's own settings name (`~/.gitconfig`, the system's) stay.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import sleep

from perfaudit.errors import UserError, refusal
from perfaudit.ownership import SAFE, is_accepted

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
_WITHOUT_HELPERS = (
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "submodule.recurse=false"),
    # A fetch is followed by maintenance, which packs the user's repository anew and runs `gc.recentObjectsHook`.
    *("-c", "maintenance.auto=false", "-c", "gc.auto=0"),
)

# Settings that name a program, with sections and keys in lower case as git prints them.
# Hooks of git 2.54 and newer, which run whatever `core.hooksPath` says.
_HOOK = re.compile(r"hook\.(?P<name>.*)\.(?:command|event)", re.DOTALL)
_FILTER = re.compile(r"filter\.(?P<name>.*)\.(?:clean|smudge|process)", re.DOTALL)
_OF_LFS = {  # what `git lfs install --local` writes: a program of the user's, not of the repository
    "git-lfs clean -- %f",
    "git-lfs smudge -- %f",
    "git-lfs smudge --skip -- %f",
    "git-lfs filter-process",
    "git-lfs filter-process --skip",
}
_DEFAULTS = {"core.sshcommand": "ssh", "core.askpass": ""}
_CREDENTIALS = re.compile(r"credential\.(?:.*\.)?helper", re.DOTALL)
_NEVER_FETCH = re.compile(  # of these the first counts, or every one: no later setting takes them back
    r"core\.(?:gitproxy|alternaterefscommand)|remote\..*\.(?:uploadpack|vcs)|protocol\.(?:.*\.)?allow"
    r"|lfs\.(?:extension|customtransfer)\..*|lfs\.(?:.*\.)?standalonetransferagent",
    re.DOTALL,
)


class NoRepository(UserError):
    """No git, or no repository that it can read."""


class GitFailed(Exception):
    """A git command that failed; the message is the line of what it said that tells why. code: None where it did not end."""

    def __init__(self, message: str, code: int | None = None, timed_out: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.timed_out = timed_out


def git(
    folder: Path,
    *arguments: str,
    seconds: float = QUESTION_SECONDS,
    extra: Mapping[str, str] | None = None,
    of: Path | None = None,
) -> str:
    """What a git command prints, run in this folder, less one line end. Bytes that are no UTF-8 are kept as surrogates.

    extra: variables for this command. of: the user's checkout, where `folder` is a worktree of perfaudit's.
    Raises GitFailed, and NoRepository where git is not installed.
    """
    environment = _environment()
    own = _own_programs(folder, of or folder, environment, min(seconds, QUESTION_SECONDS))
    try:
        return _run(folder, arguments, {**environment, **own.switched_off(environment), **(extra or {})}, seconds)
    except GitFailed as failure:
        if own.fetching and "not allowed" in str(failure):
            why = f"nothing is fetched, because the repository's own settings name a program for it: {own.fetching!r}"
            mend = f"to have it run all the same, set {SAFE}={of or folder}"
            raise GitFailed(f"{failure}: {why}; {mend}", failure.code) from failure
        raise


def _run(folder: Path, arguments: tuple[str, ...], environment: Mapping[str, str], seconds: float) -> str:
    try:
        done = subprocess.run(
            ["git", *_WITHOUT_HELPERS, *arguments],
            cwd=folder,
            env=environment,
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
        raise GitFailed(refusal(error)) from error
    except subprocess.TimeoutExpired as error:
        raise GitFailed(f"git {arguments[0]} took longer than {seconds:.0f} s", timed_out=True) from error
    if done.returncode:
        said = _telling_line(done.stderr) or f"git {arguments[0]} ended with code {done.returncode}"
        raise GitFailed(said, done.returncode)
    return os.fsdecode(done.stdout).removesuffix("\n")


@dataclass(frozen=True, slots=True)
class OwnPrograms:
    """Programs that a repository's own settings name. settings: what takes them back, in order; filters: their names;
    fetching: the first key of those that nothing takes back but to fetch nothing."""

    settings: tuple[tuple[str, str], ...] = ()
    filters: tuple[str, ...] = ()
    fetching: str = ""

    def switched_off(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Variables for git with which none of them runs, after the settings that variables give already.

        Not `-c`, which ends the name of a setting at the first "=": that of a filter may hold one.
        """
        if not self.settings and not self.fetching:
            return {}
        given = environment.get("GIT_CONFIG_COUNT", "")
        first = int(given) if given.isdecimal() else 0
        variables = {"GIT_CONFIG_COUNT": str(first + len(self.settings))}
        for number, (key, value) in enumerate(self.settings, start=first):
            variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        return variables | ({"GIT_ALLOW_PROTOCOL": "none"} if self.fetching else {})


def filters_left_out(folder: Path, of: Path) -> list[str]:
    """A note on the filters that only a repository's own settings name, [] where there are none. Raises GitFailed."""
    found = _own_programs(folder, of, _environment()).filters
    if not found:
        return []
    return [
        f"files of the reference are as git stores them, because filters that the repository's own settings name are not run: "
        f"{', '.join(found)}; to have them run, name them in your ~/.gitconfig or set {SAFE}={of}"
    ]


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not _leads_elsewhere(key)} | _OWN


def _own_programs(
    folder: Path, of: Path, environment: Mapping[str, str], seconds: float = QUESTION_SECONDS
) -> OwnPrograms:
    """Of the repository that a folder is in; none but hooks, of whomever they are, where the user accepts `of`."""
    listed = _run(folder, ("config", "--list", "--show-scope", "--null"), environment, seconds).split("\0")
    entries = [
        (scope in ("local", "worktree"), *_key_and_value(entry))
        for scope, entry in zip(listed[::2], listed[1::2], strict=False)
    ]
    hooks = {match["name"] for _, key, _ in entries if (match := _HOOK.fullmatch(key))}
    no_hooks = tuple((f"hook.{name}.enabled", "false") for name in sorted(hooks))
    if is_accepted(of):
        return OwnPrograms(no_hooks)
    theirs = {(key, value) for is_theirs, key, value in entries if is_theirs}
    users = {key: value for is_theirs, key, value in entries if not is_theirs}  # the last of each counts
    fetching = next((key for key, _ in sorted(theirs) if _NEVER_FETCH.fullmatch(key)), "")
    settings: dict[str, str] = {}
    for key, value in theirs:
        if _FILTER.fullmatch(key) and value not in _OF_LFS:
            settings[key] = users.get(key, "")
        elif key in _DEFAULTS:
            settings[key] = users.get(key, _DEFAULTS[key])
    if fetching:  # a filter of the user's, as that of LFS, may fetch too
        settings |= {key: "" for _, key, _ in entries if _FILTER.fullmatch(key)}
    filters = {match["name"] for key, value in settings.items() if not value and (match := _FILTER.fullmatch(key))}
    settings |= {f"filter.{name}.required": "false" for name in filters}
    helpers = [(key, value) for is_theirs, key, value in entries if not is_theirs and _CREDENTIALS.fullmatch(key)]
    if any(_CREDENTIALS.fullmatch(key) for key, _ in theirs):  # an empty one takes back all before it
        helpers = [("credential.helper", ""), *helpers]
    else:
        helpers = []
    return OwnPrograms((*sorted(settings.items()), *helpers, *no_hooks), tuple(sorted(filters)), fetching)


def _key_and_value(entry: str) -> tuple[str, str]:
    key, _, value = entry.partition("\n")  # no newline where the file has a key without "="
    return key, value


def git_unless_locked(folder: Path, *arguments: str, seconds: float, of: Path | None = None) -> None:
    """Run a command that writes into the repository; again, after a moment, where another git holds a lock."""
    for attempt in range(LOCK_TRIES):
        try:
            git(folder, *arguments, seconds=seconds, of=of)
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
