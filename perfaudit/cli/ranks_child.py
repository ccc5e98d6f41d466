"""A child on each rank, asked as one: the first rank orders, all give the same command to their own, and one reply comes back.

A rank whose child fails ends it at once: the connections of the others then break, and none of them waits in a collective for
longer than it takes to see that.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfaudit.cli.run_ranks import LEAVE_SECONDS, LOOK_SECONDS, Ranks
from perfaudit.measure.child import Asked, Child, ChildFailed
from perfaudit.measure.exchange import exchange_folder
from perfaudit.measure.nursery import START_SECONDS
from perfaudit.measure.scratch import target_json
from perfaudit.measure.watch import Watch
from perfaudit.render.run_ranks import is_lost_connection
from perfaudit.target.names import Target
from perfaudit.tune.workshop import Children

Json = dict[str, Any]  # Any: nested JSON
OPEN, ASK, CLOSE = "open", "ask", "close"  # of a child, as orders have it


class Gone(Exception):
    """Another rank, or the first one, is gone: nothing more can be run."""


class OwnChild:
    """This rank's child, as long as it answers."""

    def __init__(self, ranks: Ranks, target: Target, fresh: bool) -> None:
        self._ranks, self._target, self._fresh = ranks, target, fresh
        self._child: Child | None = None
        self._marker = tempfile.NamedTemporaryFile(prefix="perfaudit-", dir=exchange_folder())  # noqa: SIM115  # closed with it
        self._look_at = 0.0

    @property
    def child(self) -> Child | None:
        return self._child

    def obey(self, order: Json) -> Json:
        """Do what an order says, on any rank but the first, and say what came of it."""
        if order["child"] == OPEN:
            self.open(int(order["port"]))
            return {}
        if order["child"] == CLOSE:
            self.close()
            return {}
        command = order["command"]
        if "target" in command:
            command["target"] = target_json(self._target, self._child)
        if "marker" in command:
            command["marker"] = self._marker.name
        return self.ask(command, order["timeout"], lambda: Path(self._marker.name).read_text(encoding="utf-8"))

    def open(self, port: int) -> None:
        """Start it, in an environment in which its script meets those of the other ranks at this port."""
        self.close()
        with _variables({"MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "False"}):
            self._child = Child(self._fresh)

    def ask(self, command: Json, timeout: float, progress: Callable[[], object]) -> Json:
        """Its reply, or under "failed" and "message" why there is none. Where its training cannot go on, it is ended."""
        rank = {"rank": self._ranks.place.rank}
        if "seed" in command and command["do"] == "build":
            command = {**command, "seed": command["seed"] + self._ranks.place.rank}
        if self._child is None:
            return {**rank, "failed": "crash", "message": "its process has ended"}
        try:
            reply = self._child.ask(command, timeout, lambda: self._look_around(progress))
        except ChildFailed as failure:
            self.close()
            return {**rank, "failed": failure.kind, "message": str(failure)}
        if reply.get("trouble"):
            self.close()
        return {**rank, "reply": reply}

    def _look_around(self, progress: Callable[[], object]) -> object:
        """How far the child has come. Raises Gone where another rank is gone."""
        if (now := time.monotonic()) > self._look_at:
            self._look_at = now + LOOK_SECONDS
            if (rank := self._ranks.first_gone()) is not None:
                raise Gone(f"rank {rank} is gone")
        return progress()

    def close(self) -> None:
        """End it."""
        if self._child is not None:
            self._child.close()
        self._child = None


class RanksChild:
    """All ranks' children as one (a `measure.child.Asked`): where one fails, the reply is that of the cause. First rank only."""

    def __init__(self, ranks: Ranks, own: OwnChild) -> None:
        self._ranks, self._own = ranks, own
        self._is_open = True
        port = free_port()
        self._order({"child": OPEN, "port": port})
        try:
            self._own.open(port)
            self._wait(START_SECONDS)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> RanksChild:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, command: Json, timeout: float, progress: Callable[[], object] = lambda: None) -> Json:
        """Give a command to all, and wait for the reply of all. Raises ChildFailed, and Gone where a rank is gone.

        timeout: seconds without progress of this rank's child, for which the others are waited for, too: the same seconds.
        """
        self._order({"child": ASK, "command": command, "timeout": timeout})
        deadline = _Deadline(timeout, progress)
        mine = self._own.ask(command, timeout, deadline.look)
        told = cause_of([mine, *self._wait(timeout, deadline.seconds_left())])
        if "failed" in told:
            raise ChildFailed(told["failed"], told["message"])
        reply: Json = told["reply"]
        return reply

    def pause(self) -> None:
        """Nothing: it waits for its next command, and so do the others."""

    def at_end(self, work: Callable[[], None]) -> None:
        """Do this when this rank's has ended."""
        if self._own.child is not None:
            self._own.child.at_end(work)

    def close(self) -> None:
        """End all of them."""
        if self._is_open:
            self._is_open = False
            self._own.close()
            self._order({"child": CLOSE})
            with contextlib.suppress(Gone):
                self._wait(START_SECONDS)

    def _order(self, order: Json) -> None:
        self._ranks.begin()
        self._ranks.tell_order(order)

    def _wait(self, seconds: float, left: float | None = None) -> list[Json]:
        """What the others say. Raises Gone where one is gone, or says nothing in these seconds, of which so many are left."""
        told = self._ranks.replies((seconds if left is None else left) + LEAVE_SECONDS)
        if (gone := self._ranks.first_gone()) is not None:
            raise Gone(f"rank {gone} is gone")
        if None in told:
            others = [rank for rank in self._ranks.numbers if rank != self._ranks.place.rank]
            raise Gone(f"rank {others[told.index(None)]} did not answer within {seconds + LEAVE_SECONDS:.0f} s")
        return [each for each in told if each is not None]


class _Deadline:
    """Seconds that begin anew whenever a child has come further."""

    def __init__(self, seconds: float, progress: Callable[[], object]) -> None:
        self._seconds, self._progress = seconds, progress
        self._reached: object = None
        self._began = time.monotonic()

    def look(self) -> object:
        """How far the child has come."""
        if (now := self._progress()) != self._reached:
            self._reached, self._began = now, time.monotonic()
        return now

    def seconds_left(self) -> float:
        return max(0.0, self._began + self._seconds - time.monotonic())


def cause_of(told: Sequence[Json]) -> Json:
    """Of what ranks say, that of the first one which failed for itself, and not because another one was gone.

    Where none answers in time, a rank waits for another, and nobody tells which: what each of them does is said.
    """
    failed = [each for each in told if "failed" in each or each["reply"].get("trouble")]
    if not failed:
        return told[0]
    late = [each for each in failed if each.get("failed") == "timeout"]
    if late and len(late) == len(failed):
        words = "; ".join(f"rank {each['rank']}: {each['message']}" for each in late)
        return {**late[0], "message": words}
    own = [each for each in failed if each not in late and not is_lost_connection(_words(each))]
    return (own or failed)[0]


def _words(told: Json) -> str:
    return str(told["message"] if "failed" in told else told["reply"]["trouble"])


class RankChildren(Children):
    """The workshop of a training on ranks: each of its processes is one on every rank."""

    def __init__(self, ranks: Ranks, target: Target, watch: Watch, timeout: float) -> None:
        super().__init__(target, "auto", watch, timeout, of_ranks=True)
        self._ranks, self._own = ranks, OwnChild(ranks, target, self.fresh)

    def new_child(self) -> Asked:
        return RanksChild(self._ranks, self._own)


@contextlib.contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Inside, these variables are in the environment of this process, and of what it starts."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def free_port() -> int:
    """A port on which nothing listens now, for the store of a set of ranks."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])
