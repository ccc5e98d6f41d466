"""A file that is audited, as Python text, whatever it is on disk: a Python file or a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perfaudit.findings import Edit, Location
from perfaudit.reading import MAX_FILE_BYTES
from perfaudit.static import edit
from perfaudit.static.notebook import Notebook, read_notebook
from perfaudit.static.source import MAX_BYTES, read_text

MAX_DIFF = 20_000  # characters; a notebook that is saved on one line has itself twice in its diff


@dataclass(frozen=True, slots=True)
class Document:
    """text: the Python that is audited. raw: the file's own text, the same unless it is a notebook."""

    raw: str
    text: str
    encoding: str = "utf-8"
    notebook: Notebook | None = None

    def rewritten(self, edits: tuple[Edit, ...] | list[Edit]) -> str:
        """The file's own text after edits of the Python text. Raises ValueError where they cannot be written back."""
        return self.notebook.rewritten(edits) if self.notebook else edit.apply(self.raw, edits)

    def diff(self, path: str, edits: tuple[Edit, ...]) -> str:
        """What edits change, as a unified diff of the file; of the cells where the file keeps a notebook in long lines.

        Raises ValueError where the edits cannot be written back.
        """
        if self.notebook is None:
            return edit.diff_of(path, self.raw, edits)
        whole = edit.diff(path, self.raw, self.rewritten(edits))
        if len(whole) <= MAX_DIFF:
            return whole
        return self.notebook.diff_of_cells(path, edits)

    def place(self, location: Location) -> Location:
        """A place in the Python text as the user counts: in a notebook by cell."""
        return self.notebook.place(location) if self.notebook else location


def is_notebook(path: Path) -> bool:
    return path.suffix == ".ipynb"


def read_document(path: Path) -> Document:
    """The file on disk. Raises Unreadable with the reason, in words, when it cannot be audited."""
    raw, encoding = read_text(path, MAX_FILE_BYTES if is_notebook(path) else MAX_BYTES)
    return document(raw, path, encoding)


def document(raw: str, path: Path, encoding: str = "utf-8") -> Document:
    """The text of a file of this name. Raises Unreadable for a notebook that cannot be read."""
    if not is_notebook(path):
        return Document(raw, raw, encoding)
    notebook = read_notebook(raw)
    return Document(raw, notebook.text, encoding, notebook)
