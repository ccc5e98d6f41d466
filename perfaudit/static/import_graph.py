"""Which files of a scan import which, directly or through others. A set of files is an int with one bit for each.

So a question about thousands of files costs microseconds: following imports file by file took a time that grew with their square.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

MAX_HOPS = 6  # importers of importers, and imports of imports; packages that hand on what they import take some

FileSet = int  # bit n is the n-th file of the scan


class ImportGraph:
    """Imports among the files of a scan.

    imports: for a file of the scan, the files that it imports; what is no file of the scan is left out.
    """

    def __init__(self, files: Sequence[str], imports: Callable[[str], Iterable[str]]) -> None:
        self._files = files
        self._imports = imports
        self._numbers = {file: number for number, file in enumerate(files)}

    def importers(self, path: str) -> FileSet:
        """Files that import this one, and those that import them; not the file itself."""
        number = self._numbers.get(path)
        return self._above[number] & ~(1 << number) if number is not None else 0

    def imported_by(self, path: str) -> FileSet:
        """Files that this one imports, and those that they import; not the file itself."""
        number = self._numbers.get(path)
        return self._below[number] & ~(1 << number) if number is not None else 0

    def nearest_importers(self, path: str) -> Iterator[int]:
        """The same as numbers, those that need the fewest imports first, and of those in order of path."""
        if path not in self._numbers:
            return
        reached = edge = {self._numbers[path]}
        for _ in range(MAX_HOPS):
            edge = {above for below in edge for above in self._importing[below]} - reached
            yield from sorted(edge, key=self._files.__getitem__)
            reached = reached | edge

    def program(self, path: str) -> FileSet:
        """Files that run together with this one: those that import it, and what it and they import."""
        number = self._numbers.get(path)
        if number is None:
            return 0
        above = self.importers(path)
        return (above | self._below[number] | self._imported_by(above)) & ~(1 << number)

    def _imported_by(self, files: FileSet) -> FileSet:
        """What any of these files imports, directly or through others; most files of a project have the same importers."""
        if files not in self._union_by_files:
            joined = 0
            for number in numbers_in(files):
                joined |= self._below[number]
            self._union_by_files[files] = joined
        return self._union_by_files[files]

    @cached_property
    def _union_by_files(self) -> dict[FileSet, FileSet]:
        return {}

    @cached_property
    def _imported_numbers(self) -> list[list[int]]:
        found = ((self._numbers.get(imported) for imported in self._imports(file)) for file in self._files)
        return [list(dict.fromkeys(n for n in some if n is not None and n != own)) for own, some in enumerate(found)]

    @cached_property
    def _importing(self) -> list[list[int]]:
        table: list[list[int]] = [[] for _ in self._files]
        for number, imported in enumerate(self._imported_numbers):
            for below in imported:
                table[below].append(number)
        return table

    @cached_property
    def _above(self) -> list[FileSet]:
        return _reachable_files(self._importing)

    @cached_property
    def _below(self) -> list[FileSet]:
        return _reachable_files(self._imported_numbers)


def _reachable_files(edges: list[list[int]]) -> list[FileSet]:
    """For each file what can be reached from it in MAX_HOPS, itself included."""
    reached = [1 << number for number in range(len(edges))]
    for _ in range(MAX_HOPS):
        before = reached
        reached = []
        for number, further in enumerate(edges):
            files = before[number]
            for other in further:
                files |= before[other]
            reached.append(files)
    return reached


def numbers_in(files: FileSet) -> list[int]:
    """The numbers of the files in a set, ascending; most sets have few of thousands."""
    bits = f"{files:b}"[::-1]
    found = []
    number = bits.find("1")
    while number >= 0:
        found.append(number)
        number = bits.find("1", number + 1)
    return found
