"""A file that is audited, as Python text, whatever it is on disk: a Python file or a notebook."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from perfaudit.findings import Edit, Fix, Location
from perfaudit.reading import MAX_FILE_BYTES, digest
from perfaudit.records import NamedTuple, replace
from perfaudit.static import edit, unified_diff
from perfaudit.static.source import Unreadable, read_text
from perfaudit.static.source.lines import location
from perfaudit.static.source.reading import MAX_BYTES

if TYPE_CHECKING:
    from perfaudit.static.notebook import Notebook

MAX_DIFF = 20_000  # characters; a notebook that is saved on one line has itself twice in its diff


class Document(NamedTuple):
    """text: the Python that is audited. raw: the file's own text, the same unless it is a notebook."""

    raw: str
    text: str
    encoding: str = "utf-8"
    notebook: Notebook | None = None

    def rewritten(self, edits: Iterable[Edit]) -> str:
        """The file's own text after edits of the Python text. Raises ValueError where they cannot be written back."""
        return self.notebook.rewritten(edits) if self.notebook else edit.apply(self.raw, edits)

    def diff(self, path: str, edits: tuple[Edit, ...]) -> str:
        """What edits change, as a unified diff of the file; of the cells where the file keeps a notebook in long lines.

        Raises ValueError where the edits cannot be written back.
        """
        if self.notebook is None:
            return unified_diff.diff_of(path, self.raw, edits)
        whole = unified_diff.diff(path, self.raw, self.rewritten(edits))
        if len(whole) <= MAX_DIFF:
            return whole
        return self.notebook.diff_of_cells(path, edits)

    def place(self, location: Location) -> Location:
        """A place in the Python text as the user counts: in a notebook by cell."""
        return self.notebook.place(location) if self.notebook else location

    @property
    def digest(self) -> str:
        """SHA-256 of the file's bytes; "" where the encoding does not write what it reads."""
        return _digest_of_file(self.raw, self.encoding)

    def as_handed_over(self, path: str, fix: Fix, with_after: bool = True) -> Fix:
        """A fix of this document with all that a report says of it: places of its edits, digests of the file before and after.

        The digests are "" in an encoding that does not write what it reads; such a file is not written either.
        """
        ordered = edit.in_order(fix.edits, len(self.text))
        edits = tuple(replace(e, place=self.place(location(path, self.text, e.span))) for e in ordered)
        after = _digest_of(self.rewritten(edits), self.encoding) if with_after and self.digest else ""
        return replace(fix, edits=edits, before=self.digest, after=after, encoding=unified_diff.plain(self.encoding))


def _digest_of(text: str, encoding: str) -> str:
    try:
        return digest(text.encode(encoding))
    except (UnicodeError, LookupError):
        return ""


_digest_of_file = functools.lru_cache(maxsize=1)(_digest_of)  # asked for by each fix of a file


def is_notebook(path: Path) -> bool:
    return path.suffix == ".ipynb"


def read_document(path: Path) -> Document:
    """The file on disk. Raises Unreadable with the reason, in words, when it cannot be audited."""
    raw, encoding = read_text(path, MAX_FILE_BYTES if is_notebook(path) else MAX_BYTES)
    return document(raw, path, encoding)


def read_again(path: str) -> Document | None:
    """The file as it is now, None where it cannot be read."""
    try:
        return read_document(Path(path))
    except Unreadable:
        return None


def handed_over(path: str, text: str, fix: Fix) -> Fix:
    """The fix of a file as `Document.as_handed_over` has it, as it is where the file no longer holds this text."""
    found = read_again(path)
    return found.as_handed_over(path, fix) if found is not None and found.text == text else fix


def document(raw: str, path: Path, encoding: str = "utf-8") -> Document:
    """The text of a file of this name. Raises Unreadable for a notebook that cannot be read."""
    if not is_notebook(path):
        return Document(raw, raw, encoding)
    from perfaudit.static.notebook import read_notebook  # most files are none

    notebook = read_notebook(raw)
    return Document(raw, notebook.text, encoding, notebook)
