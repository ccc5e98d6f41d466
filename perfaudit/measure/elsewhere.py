"""Runs sets of fresh processes on other machines, several at once: the same series and records as in `runner.run`.

Knows no scheduler: `Nodes` says where work goes. A set runs on one node from its first block to its last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

from perfaudit.errors import NothingMeasured
from perfaudit.measure.journal import Json, Kept
from perfaudit.measure.runner import Series, run

TRIES = 3  # of one set; so many nodes lost in a row are no accident
KEPT = "; what was finished is kept, and --resume goes on with it"

# Opens nodes of the kind that `Nodes.kind_as_json` has told an earlier run, of any kind without; None: this machine measures.
OpenNodes = Callable[[Json | None], AbstractContextManager["Nodes | None"]]


def no_nodes(like: Json | None) -> AbstractContextManager[Nodes | None]:
    """This machine measures."""
    return nullcontext()


Work = Callable[[], Any]  # picklable; what it gives is picklable too


@dataclass(frozen=True, slots=True)
class Lost:
    """What a set gave whose node is gone; reason: one sentence."""

    reason: str


class Nodes(Protocol):
    """Machines of one kind, each of which runs one piece of work at a time. Closing ends all that runs there."""

    @property
    def width(self) -> int:
        """How many are left."""

    @property
    def kind_as_json(self) -> Json:
        """Their kind, as a resumed run must find it again."""

    @property
    def words(self) -> str:
        """How many of which kind, for a report."""

    @property
    def free(self) -> int:
        """How many have nothing to do."""

    def send(self, work: Work) -> int:
        """Have a free node do this; the number by which `next` names it."""

    def next(self) -> tuple[int, Any | Lost]:
        """Wait until a node has finished: the number of its work, and what that gave. What the work raises is raised."""

    def share(self, folder: str) -> None:
        """See to it that every node has this folder of this machine, under the same path."""

    def close(self) -> None: ...


class Spread(Series, Protocol):
    """A series whose sets can be measured in other processes."""

    def work(self, ahead: int) -> Work | None:
        """The set that is so many sets behind the next one, for another process.

        None where that depends on the sets before it. For the next one itself (0), None means that it must be measured here.
        """

    def take(self, found: Any) -> None:
        """Keep what `work` gave, as `measure` keeps what it has seen. Sets are taken in the order in which they were sent."""


@dataclass(slots=True)
class _Sent:
    """A set that is being measured, or was, and waits for those that were sent before it. ticket: None once its node is lost."""

    work: Work
    ticket: int | None
    tries: int = 1
    has_come: bool = False
    found: Any = None


@dataclass(slots=True, eq=False)  # each is itself alone: comparing what they hold took most of the time of a thousand
class _Row:
    """A series, its sets that are out, in their order, and how many it was given."""

    series: Spread
    out: deque[_Sent] = field(default_factory=deque)
    given: int = 0


def run_on(nodes: Nodes | None, every: Sequence[Spread], memo: Kept | None = None, if_lost: str = KEPT) -> None:
    """As `runner.run` does, on these nodes; here where there are none.

    A set whose node is lost is measured again on another one. Raises NothingMeasured where no node is left, or where one set
    has lost several; records and memo then keep what was measured. if_lost: what the message then says of that.
    """
    if nodes is None:
        run(every, memo)
        return
    rows = [_Row(series) for series in every]
    for row in rows:
        _recall(row.series, memo)
    while True:
        _send(nodes, rows, memo)
        if not any(row.out for row in rows):
            return
        ticket, found = nodes.next()
        row, sent = next((row, sent) for row in rows for sent in row.out if sent.ticket == ticket)
        if isinstance(found, Lost):
            _lose(nodes, sent, found, if_lost)
            continue
        sent.has_come, sent.found = True, found
        while row.out and row.out[0].has_come:
            first = row.out.popleft()
            if row.series.is_open():
                row.series.take(first.found)
                _keep(row.series, memo)


def _recall(series: Spread, memo: Kept | None) -> None:
    """Know the sets of earlier sessions."""
    for piece, state in memo.earlier_sets(series.stage) if memo is not None else ():
        if series.is_open():
            series.recall(piece, state)


def _send(nodes: Nodes, rows: list[_Row], memo: Kept | None) -> None:
    """Give each free node a set, of one series after the other, so that all come equally far."""
    for row in rows:
        for ahead, sent in enumerate(row.out):
            if sent.ticket is None and nodes.free:
                sent.work = row.series.work(ahead) or sent.work  # with the time that is left now
                sent.ticket = nodes.send(sent.work)
    refused: list[_Row] = []
    while nodes.free:
        able = [row for row in rows if row not in refused and row.series.is_open() and row.series.has_time()]
        if not able:
            return
        row = min(able, key=lambda row: row.given)
        work = row.series.work(len(row.out))
        if work is not None:
            row.given += 1
            row.out.append(_Sent(work, nodes.send(work)))
        elif row.out:
            refused.append(row)
        else:
            row.given += 1
            try:
                row.series.measure()
            finally:
                _keep(row.series, memo)


def _lose(nodes: Nodes, sent: _Sent, lost: Lost, if_lost: str) -> None:
    """Have it sent again. Raises NothingMeasured where that is hopeless."""
    if not nodes.width:
        raise NothingMeasured(f"no node is left: {lost.reason}{if_lost}")
    if sent.tries == TRIES:
        raise NothingMeasured(f"{TRIES} nodes were lost with the same work: {lost.reason}{if_lost}")
    sent.tries, sent.ticket = sent.tries + 1, None


def _keep(series: Spread, memo: Kept | None) -> None:
    if memo is not None and (kept := series.set_to_keep()) is not None:
        memo.keep_set(series.stage, *kept)
