"""A git ref checked out beside the code as it is, so that both can be scanned and measured side by side."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from perfaudit.errors import NothingMeasured, UserError, refusal
from perfaudit.gate.checkout import Checkout
from perfaudit.gate.git import GitFailed, NoRepository, git
from perfaudit.gate.working_files import bring
from perfaudit.gate.worktree import has_repository, submodules, temporary_worktree

LIKE = 80  # percent of a text, from which on it may be the same file under another name
SHORT = 12  # characters of a hash, as `measurements.Environment.commit` has it


class NoCommitYet(UserError):
    """A repository without any commit: nothing can be worse than before."""


@dataclass(frozen=True, slots=True)
class Reference(Checkout):
    """What the code is compared with.

    name: the ref as given; commit: the full hash of what was checked out. missing: folders of submodules that are filled in
    the user's checkout and not here, relative to `root`.
    """

    name: str
    commit: str
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@contextlib.contextmanager
def checked_out(ref: str, working: Path) -> Iterator[Reference]:
    """The commit at which the code in `working` left a ref, in a temporary worktree that is removed in every case.

    The working files stay as they are: what is not committed is measured with the rest, and noted. Raises UserError for a
    ref that cannot be, or without git, NoCommitYet before the first commit, NothingMeasured where the files cannot be written.
    """
    top = _top(working)
    try:
        commit, notes = _left_at(ref, _commit_of(ref, top, working), top)
    except GitFailed as failure:
        raise UserError(f"--against {ref}: git cannot tell what to compare with: {failure}") from failure
    with temporary_worktree(top, commit) as worktree:
        differs = _uncommitted_notes(top) or _same(commit, top)
        said = (*notes, *differs, *worktree.notes)
        yield Reference(worktree.root, top, working.resolve(), ref, commit, said, tuple(worktree.missing))


@contextlib.contextmanager
def copy_of_code(working: Path, links: Sequence[str] = ()) -> Iterator[Reference]:
    """The code in `working` as it is, a second time, in a place where a reference would lie, and removed as that is.

    What git ignores is not there, unless it is linked. Raises UserError for a link that cannot be, NoRepository and
    NoCommitYet where there is no commit to begin with, NothingMeasured where the files cannot be written.
    """
    wanted = linkable(links)
    top = _top(working)
    commit = _commit_of("HEAD", top, working)
    with temporary_worktree(top, commit) as worktree:
        said = link_paths(wanted, top, worktree.root)
        try:
            bring(top, commit, worktree.root)
        except (GitFailed, OSError) as failure:
            raise NothingMeasured(f"the working files cannot be copied: {failure}") from failure
        notes = (*worktree.notes, *said)
        yield Reference(worktree.root, top, working.resolve(), "HEAD", commit, notes, tuple(worktree.missing))


def _top(working: Path) -> Path:
    """The top of the checkout around a folder."""
    try:
        top = Path(git(working, "rev-parse", "--show-toplevel")).resolve()
        if working.resolve().is_relative_to(top):
            return top
        said = f"its settings (core.worktree) say that its working files lie in {top}"
    except GitFailed as failure:
        said = str(failure)
    if "not a git repository" in said:
        problem = "not in a git repository; run the gate in one, or compare with a file: --baseline FILE"
    elif "work tree" in said:
        problem = "a repository without working files; run the gate in a checkout of it"
    elif "dubious ownership" in said or "unsafe repository" in said:
        problem = f"git does not trust it, because it belongs to another user: git config --global --add safe.directory {working}"
    else:
        problem = f"git cannot read it: {said}"
    raise NoRepository(f"{working}: {problem}")


def _commit_of(ref: str, top: Path, working: Path) -> str:
    """The full hash of the commit that a ref names."""
    if not ref.strip() or ref.startswith(("-", "^")) or not ref.isprintable():
        raise UserError(
            f"--against {ref!r}: no name of a commit; name a branch, a tag or a hash, e.g. --against origin/main"
        )
    if not _hash("HEAD", top):
        raise NoCommitYet(
            f"{top}: no commit yet, so there is nothing to compare with; commit the state to compare with first"
        )
    if commit := _hash(f"{ref}^{{commit}}", top):
        return commit
    raise UserError(f"--against {ref}: {_why_unknown(ref, top, working)}")


def _hash(name: str, top: Path) -> str:
    """What a name stands for, "" for nothing."""
    try:
        return git(top, "rev-parse", "--verify", "--quiet", name)
    except GitFailed:
        return ""


_SHORT_HASH = re.compile(r"[0-9a-f]{4,39}")
_EXPRESSION = re.compile(r"[~^@:]|\.\.|[\s?*\[]")  # what is in no name of a branch: git check-ref-format


def _why_unknown(ref: str, top: Path, working: Path) -> str:
    names = git(top, "for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/remotes", "refs/tags").split("\n")
    remote, _, branch = ref.partition("/")
    if remote not in git(top, "remote").split("\n") or not branch:
        remote, branch = "origin", ref
    fetch = f"git fetch --depth=1 {remote} +{branch}:refs/remotes/{remote}/{branch}"
    shallow = git(top, "rev-parse", "--is-shallow-repository") == "true"
    if shallow and _SHORT_HASH.fullmatch(ref):
        return (
            "no such commit here; this clone is shallow: where it is the short hash of one, name all 40 digits of it (which "
            "can be fetched then), or clone with the history: `fetch-depth: 0` in GitHub Actions, `GIT_DEPTH: 0` in GitLab CI"
        )
    if expression := _EXPRESSION.search(ref):
        if shallow and expression[0] in "~^@":
            return "no such commit here; this clone is shallow: git fetch --deepen=10, or `fetch-depth: 0` in CI"
        return f"no commit; name one of {top}: a branch, a tag or a hash"
    if shallow:
        return (
            f"no such commit here; this clone is shallow; fetch it: {fetch} (and compare with {remote}/{branch}), or clone "
            "with the history: `fetch-depth: 0` of actions/checkout in GitHub Actions, `GIT_DEPTH: 0` in GitLab CI"
        )
    if (working / ref).is_file():
        return "a file, not a commit; a file is compared with by --baseline FILE"
    if near := difflib.get_close_matches(ref, names, 3):
        return f"no such commit in {top}; near to it are: {', '.join(near)}"
    return f"no such commit in {top}; if the server has it, fetch it: {fetch.replace(' --depth=1', '')}"


def _left_at(ref: str, tip: str, top: Path) -> tuple[str, list[str]]:
    """The commit to compare with, and what is to be said of it: where this branch left the ref, else the ref itself.

    Compared with the tip, a branch would be blamed for lacking what the ref has gained meanwhile.
    """
    try:
        base = git(top, "merge-base", "HEAD", tip)
    except GitFailed as failure:
        if failure.code != 1:  # 1: there is none
            raise
        shallow = git(top, "rev-parse", "--is-shallow-repository") == "true"
        why = "this clone is shallow" if shallow else "they have no common history"
        return tip, [f"where this branch left {ref} is not known ({why}): compared with its tip {tip[:SHORT]}"]
    if base == tip:
        return tip, []
    ahead = int(git(top, "rev-list", "--count", f"{base}..{tip}"))
    commits = "1 commit" if ahead == 1 else f"{ahead} commits"
    return base, [f"{ref} is {commits} ahead of where this branch left it: compared with {base[:SHORT]}"]


def _uncommitted_notes(top: Path) -> list[str]:
    """A note that counts tracked files and submodules which are not as the last commit has them, and Python files that it
    does not have; [] where there are none.
    """
    try:
        changed, python = _changes(top)
    except GitFailed as failure:
        return [f"whether files are changed here is not known: {failure}"]
    counts = [_files(changed, "changed")] * (changed > 0) + [_files(python, "untracked Python")] * (python > 0)
    return [f"not committed: {' and '.join(counts)}; the code is judged as it is here"] if counts else []


def _changes(repository: Path) -> tuple[int, int]:
    """Changed files and submodules, and untracked Python files. Submodules are asked one by one: where git asks them in one
    question, it runs the programs that their settings name.
    """
    status = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--ignore-submodules=dirty")
    entries = [entry for entry in git(repository, *status).split("\0") if entry]
    untracked = [entry for entry in entries if entry.startswith("??")]
    changed = {entry[3:] for entry in entries} - {entry[3:] for entry in untracked}
    for path, _ in submodules(repository, "HEAD"):
        if path not in changed and has_repository(repository, repository / path) and _changes(repository / path)[0]:
            changed.add(path)
    return len(changed), sum(PurePath(entry[3:]).suffix in (".py", ".ipynb") for entry in untracked)


def _files(count: int, kind: str) -> str:
    return f"{count} {kind} {'file' if count == 1 else 'files'}"


def _same(commit: str, top: Path) -> list[str]:
    """A note where the code as it is has been committed, and is what it is compared with."""
    return ["the reference is this very commit: nothing differs"] if commit == _hash("HEAD", top) else []


def renamed_files(reference: Reference) -> dict[str, tuple[str, int]]:
    """Files here that the reference has under another name: that name, and how much of the text is the same, in percent.

    Names are as seen from the working directory. git tells it, among files that it tracks; {} where it cannot.
    """
    question = (
        "diff",
        "--name-status",
        f"--find-renames={LIKE}%",
        "--diff-filter=R",
        "--no-ext-diff",
        "--ignore-submodules=dirty",
        "-z",
    )
    try:
        fields = git(reference.head_root, *question, reference.commit).split("\0")  # R097, name before, name now
    except GitFailed:
        return {}
    rows = [fields[i : i + 3] for i in range(0, len(fields) - 2, 3)]
    names = [[os.path.relpath(reference.head_root / name, reference.working) for name in row[1:]] for row in rows]
    return {now: (before, int(row[0][1:])) for row, (before, now) in zip(rows, names, strict=True)}


def linkable(links: Sequence[str]) -> list[PurePath]:
    """The relative paths of files and folders that git does not hold, such as data, and the reference is to have as well.

    Raises UserError for one that leaves the repository, or is all of it.
    """
    paths = []
    for link in links:
        path = PurePath(os.path.normpath(link))
        if not link or path.is_absolute() or path.parts[:1] in ((), ("..",), (".git",)) or not link.isprintable():
            raise UserError(
                f"--link {link!r}: name a file or folder in the repository, relative to its top, such as --link data/images"
            )
        paths.append(path)
    return paths


def link_paths(paths: Sequence[PurePath], top: Path, root: Path) -> list[str]:
    """Link what is in the checkout at `top` but not in the reference at `root`; notes for what is not there.

    Not before the findings are judged: what is linked is of this change, and would be taken for known, and its rules for
    the reference's, whose code a scan runs.
    """
    notes = []
    for path in paths:
        place = root / path
        if not (top / path).exists():
            notes.append(f"--link {path}: there is none in {top}")
        elif not place.parent.resolve().is_relative_to(root):
            notes.append(f"--link {path}: not linked, because a link in the reference leads out of it there")
        elif not os.path.lexists(place):
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(top / path)
            except OSError as error:  # a file in the reference where there is a folder here
                notes.append(f"--link {path}: not linked in the reference: {refusal(error)}")
    return notes
