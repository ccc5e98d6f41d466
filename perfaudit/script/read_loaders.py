"""Where the loaders of a script are built, and which of them its updates read: another one, of an evaluation, slows no step."""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable
from typing import Any

from perfaudit.target.provenance import Site, call_site

Function = Callable[..., Any]  # Any: of torch, or one of ours in its place
Lines = tuple[str, int, int]  # file, first and last line of a call


class ReadLoaders:
    """The calls that build loaders.

    last: the id of the iterator that gave the last batch. is_other: that is another one than at the last update, or may be.
    """

    def __init__(self) -> None:
        self.last = 0
        self.is_other = True
        self._sites: list[Site] = []
        self._built: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # numbers of sites by loader
        self._begun: dict[int, int] = {}  # the same by the id of an iterator; one that is gone leaves its id to another
        self._read: set[int] = set()  # numbers of sites
        self._loaders: dict[int, weakref.ref[Any]] = {}  # loaders by the id of an iterator

    def watch_building(self, original: Function) -> Function:
        """In the place of `DataLoader.__init__`."""

        def build(loader: Any, *args: Any, **kwargs: Any) -> None:
            original(loader, *args, **kwargs)
            site = call_site(sys._getframe(1), loader)
            if site is not None and site not in self._sites:
                self._sites.append(site)
            with contextlib.suppress(TypeError):  # a class of loaders may have no hash
                number = self._sites.index(site) if site is not None else self._made_of(loader)
                if number >= 0:
                    self._built[loader] = number

        return build

    def _made_of(self, loader: Any) -> int:
        """The number of the call whose loader a library has built another one of, such as `Accelerator.prepare`; -1 for none."""
        found = {number for other, number in [*self._built.items()] if takes_the_same(loader, other)}
        return found.pop() if len(found) == 1 else -1

    def begin(self, loader: Any, batches: Any) -> None:
        """An iterator over a loader was made."""
        self.is_other = True
        self._begun[id(batches)] = -1
        with contextlib.suppress(TypeError):
            self._begun[id(batches)] = self._built.get(loader, -1)
            self._loaders[id(batches)] = weakref.ref(loader)

    def read(self, batches: int) -> None:
        """An iterator, by its id, has given a batch, and another one gave that before."""
        self.last = batches
        self.is_other = True

    def end_update(self) -> None:
        """An update has ended; the last batch before it is its own. There is nothing to do unless `is_other`."""
        self.is_other = False
        self._read.add(self._begun.get(self.last, -1))

    def last_read(self) -> Any:
        """The loader that gave the last batch; None where it is gone, or not known."""
        found = self._loaders.get(self.last)
        return found() if found is not None else None

    def were_read(self) -> list[Lines]:
        """The calls whose loaders updates have read; [] where that is not known of each."""
        if -1 in self._read:
            return []
        return [(site.path, site.line, site.end_line) for n, site in enumerate(self._sites) if n in self._read]

    def never_read(self) -> list[Lines]:
        """The calls whose loaders no update has read; [] where one has read a loader of which the call is not known."""
        if not self._read or -1 in self._read:
            return []
        others = [site for number, site in enumerate(self._sites) if number not in self._read]
        return [(site.path, site.line, site.end_line) for site in others]


def takes_the_same(loader: Any, other: Any) -> bool:
    """Whether a loader was built of another one's parts, so that it takes the same batches."""
    missing = object()
    if getattr(loader, "dataset", missing) is not getattr(other, "dataset", None):
        return False
    if loader.batch_sampler is None:
        return other.batch_sampler is None and loader.batch_size == other.batch_size
    return loader.batch_sampler is other.batch_sampler
