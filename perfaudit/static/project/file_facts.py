"""Of which files of a scan something is true: each is read once for a fact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from perfaudit.static.import_graph import FileSet, numbers_in
from perfaudit.static.source import Source, read_text
from perfaudit.static.source.reading import Unreadable


class FileFacts:
    """What is known of the files of a scan, by fact."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = files
        self._known: dict[Callable[[Source], bool], tuple[FileSet, FileSet]] = {}  # where each is false, and where true

    def first_where(
        self, fact: Callable[[Source], bool], files: FileSet, needed: Callable[[Source], bool] | None = None
    ) -> str:
        """The first of the files of `all_where`, "" if there is none."""
        return next(self.all_where(fact, files, needed), "")

    def all_where(
        self, fact: Callable[[Source], bool], files: FileSet, needed: Callable[[Source], bool] | None = None
    ) -> Iterator[str]:
        """Those of these files of which something is true, in order, as they are found; each file is read once for a fact.

        needed: another fact, which holds wherever this one does, and which several questions share.
        """
        found = self._where(needed or fact, files)
        return (self._files[n] for n in found if needed is None or self._is_true(fact, n))

    def first_in_order(
        self, fact: Callable[[Source], bool], numbers: Iterable[int], of_text: Callable[[str], bool] | None = None
    ) -> str:
        """The first file, in this order of their numbers, of which something is true; "" if it is of none.

        of_text: what is true of the text wherever the fact is, so that a file of which it is not need not be parsed.
        """
        number = next((n for n in numbers if self._is_true(fact, n, of_text)), None)
        return "" if number is None else self._files[number]

    def _where(self, fact: Callable[[Source], bool], files: FileSet) -> Iterator[int]:
        """The numbers of those files of which something is true, ascending."""
        false, _ = self._known.get(fact, (0, 0))
        return (number for number in numbers_in(files & ~false) if self._is_true(fact, number))

    def _is_true(
        self, fact: Callable[[Source], bool], number: int, of_text: Callable[[str], bool] | None = None
    ) -> bool:
        false, true = self._known.get(fact, (0, 0))
        bit = 1 << number
        if not (false | true) & bit:
            holds = _holds(fact, self._files[number], of_text)
            self._known[fact] = (false, true | bit) if holds else (false | bit, true)
            return holds
        return bool(true & bit)


def _holds(fact: Callable[[Source], bool], path: str, of_text: Callable[[str], bool] | None) -> bool:
    """Whether something is true of a file; False for one that does not parse."""
    try:
        text = read_text(Path(path))[0]
        return (of_text is None or of_text(text)) and fact(Source(path, text))
    except (Unreadable, RecursionError):
        return False
