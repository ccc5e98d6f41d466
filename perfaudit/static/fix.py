"""Which fixes are applied together, and writing them: atomic, parsed first, refused when the file changed."""

from __future__ import annotations

import ast
import bisect
import hashlib
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from perfaudit.errors import UserError
from perfaudit.files import reason, replace_source
from perfaudit.findings import Edit, Finding, Fix
from perfaudit.forked_work import Lost, in_children
from perfaudit.reading import read_bytes
from perfaudit.records import record, replace
from perfaudit.static import edit, unified_diff
from perfaudit.static.document import Document, read_document
from perfaudit.static.edit import Edits
from perfaudit.static.source import Unreadable, decode_source


@record(frozen=True, slots=True)
class Patched:
    """A file with its fixes: the text before and after, which findings are in, which had to wait for another run."""

    path: str
    before: str
    after: str
    applied: tuple[Finding, ...]
    waiting: tuple[Finding, ...]
    encoding: str = "utf-8"

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All edits of the fixes that are in."""
        return _edits_of(self.applied)

    @property
    def changes(self) -> tuple[str, ...]:
        """What besides speed these fixes change, each thing once."""
        return tuple(dict.fromkeys(c for f in self.applied if f.fix for c in f.fix.changes))

    @property
    def diff(self) -> str:
        return unified_diff.diff(self.path, self.before, self.after)

    @property
    def diff_bytes(self) -> bytes:
        """The diff as `git apply` takes it."""
        return unified_diff.in_bytes(
            unified_diff.diff_of_file(self.path, self.before, self.after, self.encoding), self.encoding
        )


def is_allowed(finding: Finding, unsafe: bool, allow: frozenset[str] = frozenset()) -> bool:
    """Whether a finding's fix may be applied: safe always, unsafe on request or when all it changes is allowed."""
    fix = finding.fix
    if fix is None or not fix.edits or fix.safety == "manual":
        return False
    return fix.safety == "safe" or unsafe or (bool(fix.changes) and set(fix.changes) <= allow)


def allowed_fixes(findings: Iterable[Finding], unsafe: bool, allow: frozenset[str] = frozenset()) -> list[Finding]:
    """The findings whose fixes may be applied; of one that speaks for several rules and may not, those of a rule that may."""
    found = []
    for finding in findings:
        each = (finding,) if is_allowed(finding, unsafe, allow) else finding.parts
        found += [part for part in each if is_allowed(part, unsafe, allow)]
    return found


def with_fix_as_advice(finding: Finding, reason: str) -> Finding:
    """The finding with its fix as advice: nothing that can be written, and why."""
    finding = finding.with_(parts=tuple(with_fix_as_advice(part, reason) for part in finding.parts))
    if finding.fix is None or not finding.fix.edits:
        return finding
    return finding.with_(fix=Fix(finding.fix.title, "manual"), note=reason)


def patch(path: str, text: str, findings: Iterable[Finding], encoding: str = "utf-8") -> Patched:
    """The text with the findings' fixes, first come first served where two overlap.

    A fix that would leave a text that does not compile is left out, whatever the reason.
    """
    apart, waiting = _without_overlap(findings)
    applied, broken = _that_compile(text, apart, []) if apart else ([], [])
    after = edit.apply(text, _edits_of(applied))
    return Patched(path, text, after, tuple(applied), (*waiting, *broken), encoding)


def together(findings: Iterable[Finding]) -> Patched | None:
    """The fixes of findings in one file, that of the first that has one.

    None where no fix can be made, and where the file cannot be read or is not the one that the findings are of: their
    edits count its characters, and would land elsewhere.
    """
    located = [f for f in findings if f.location is not None and f.fix is not None and f.fix.edits]
    paths = [f.location.path for f in located if f.location is not None]
    if not paths:
        return None
    findings = [f for f, path in zip(located, paths, strict=True) if path == paths[0]]
    known = {f.fix.before for f in findings if f.fix is not None and f.fix.before}
    try:
        data = read_bytes(paths[0])
        text, _ = decode_source(data)
    except (Unreadable, OSError):  # one too large is an OSError
        return None
    if known and known != {hashlib.sha256(data).hexdigest()}:
        return None
    done = patch(paths[0], text, findings)
    return done if done.applied else None


def _without_overlap(findings: Iterable[Finding]) -> tuple[list[Finding], list[Finding]]:
    """The findings whose fixes can be made together, and those that touch the text of an earlier one."""
    apart, waiting = [], []
    chosen: list[Edit] = []  # in order of place; they do not cross, so that only neighbours can touch a further one
    for finding in findings:
        edits = _edits_of([finding])
        near = [e for item in edits for e in _touching(chosen, item)]
        if edit.overlap(tuple(near), edits):
            waiting.append(finding)
            continue
        apart.append(finding)
        for item in edits:
            bisect.insort(chosen, item)
    return apart, waiting


def _touching(chosen: list[Edit], item: Edit) -> Iterator[Edit]:
    at = bisect.bisect_right(chosen, item.span.end, key=lambda e: e.span.start) - 1
    while at >= 0 and chosen[at].span.end >= item.span.start:
        yield chosen[at]
        at -= 1


def _that_compile(text: str, group: list[Finding], chosen: list[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Of the fixes, those with which the text still compiles beside the chosen ones, and the others; found by halves."""
    if not group or _compiles(edit.apply(text, _edits_of([*chosen, *group])), like=text):
        return group, []
    if len(group) == 1:
        return [], group
    middle = len(group) // 2
    first, bad = _that_compile(text, group[:middle], chosen)
    second, worse = _that_compile(text, group[middle:], [*chosen, *first])
    return [*first, *second], [*bad, *worse]


def _edits_of(findings: Iterable[Finding]) -> Edits:
    return tuple(e for finding in findings if finding.fix is not None for e in finding.fix.edits)


def _compiles(text: str, like: str) -> bool:
    """Whether Python takes the text; where it does not take the one before either (`await` outside), whether it parses."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return _is_taken(text, flags) or (not _is_taken(like, flags) and _is_taken(text, ast.PyCF_ONLY_AST))


def _is_taken(text: str, flags: int) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "", "exec", flags, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def patches(findings: Iterable[Finding], unsafe: bool, allow: frozenset[str] = frozenset()) -> list[Patched]:
    """One patch per file that has an allowed fix, in order of path.

    Files are read again. Raises UserError if one is no longer what its findings were read from.
    """
    by_path: dict[str, list[Finding]] = {}
    for finding in allowed_fixes(findings, unsafe, allow):
        if finding.location is not None:
            by_path.setdefault(finding.location.path, []).append(finding)
    made = []
    for (path, _), patched in in_children(lambda item: _patch_file(*item), sorted(by_path.items())):
        if isinstance(patched, Lost):
            raise UserError(f"{path}: its patch: {patched.reason}")
        made.append(patched)
    return made


def _patch_file(path: str, findings: list[Finding]) -> Patched:
    found = _read_again(path)
    if not found.digest:
        raise UserError(f"{path}: not fixed: its text cannot be written in {found.encoding}")
    if any(finding.fix is not None and finding.fix.before != found.digest for finding in findings):
        raise UserError(f"{path}: changed since it was read; scan it again")
    return patch_document(path, found, findings)


def patch_document(path: str, found: Document, findings: Iterable[Finding]) -> Patched:
    """The file with the findings' fixes, written back into the cells where it is a notebook."""
    patched = patch(path, found.text, findings, found.encoding)
    if found.notebook is None:
        return patched
    return replace(patched, before=found.raw, after=found.rewritten(_edits_of(patched.applied)))


def _read_again(path: str) -> Document:
    try:
        return read_document(Path(path))
    except Unreadable as error:
        raise UserError(f"{path}: changed since it was read: {error}") from error


def write(patched: Patched) -> None:
    """Replace the file by its patched text: same encoding and mode, all or nothing.

    Raises UserError if the file no longer holds the text the patch was made for, or cannot be written.
    """
    found = _read_again(patched.path)
    text, encoding = found.raw, found.encoding
    if text != patched.before:
        raise UserError(f"{patched.path}: changed since it was read; scan it again")
    path = Path(patched.path)
    try:
        data = path.read_bytes()
        if data != text.encode(encoding):
            if _text_in(data) != text:  # another process was faster
                raise UserError(f"{patched.path}: changed since it was read; scan it again")
            # Some old encodings write one character in several ways.
            raise UserError(f"{patched.path}: not written: its text in {encoding} would not give the same bytes again")
        replace_source(path, patched.after.encode(encoding))
    except OSError as error:
        raise UserError(f"{patched.path}: not written: {reason(error)}") from error


def _text_in(data: bytes) -> str | None:
    try:
        return decode_source(data)[0]
    except Unreadable:
        return None
