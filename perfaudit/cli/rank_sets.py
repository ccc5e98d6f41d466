"""The sets of ranks that `tune` runs: the first rank orders them, and all run what is ordered."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

from perfaudit.cli.output import say
from perfaudit.cli.ranks_child import Gone, OwnChild, RankChildren, free_port
from perfaudit.cli.run_ranks import Ranks
from perfaudit.cli.set_of_ranks import set_run_of, shares_of_step
from perfaudit.render.run_ranks import is_lost_connection, late_words
from perfaudit.runs import Run
from perfaudit.tune.ranks.plan import Shares
from perfaudit.tune.ranks.race import LOSSES, SetRun

if TYPE_CHECKING:
    from perfaudit.script.request import Script
    from perfaudit.target.names import Target
    from perfaudit.tune.ranks.patches import RankPatch
    from perfaudit.tune.ranks.screened_patches import Screened

Json = dict[str, Any]  # Any: nested JSON
SEED = 20_000


@contextlib.contextmanager
def rank_sets(ranks: Ranks, script: Script, target: Target, timeout: float, in_place: bool) -> Iterator[Sets]:
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        yield Sets(ranks, script, target, timeout, in_place, output)


class Sets:
    """Runs one set of ranks after the other. facts: of the first rank's last run; shares: where the step of the last set went.

    is_complete: no rank was seen to be gone.
    """

    def __init__(
        self, ranks: Ranks, script: Script, target: Target, timeout: float, in_place: bool, output: IO[str]
    ) -> None:
        self._ranks, self._script, self._timeout, self._output = ranks, script, timeout, output
        self._target, self._in_place = target, in_place
        self.facts: Json = {}
        self.shares = Shares()
        self.is_complete = True

    @property
    def differ(self) -> str:
        """That ranks do not run the same, "" where they do."""
        return self._ranks.differ

    def screen(
        self,
        target: Target,
        allow: frozenset[str],
        seconds: float,
        screened: Screened,
        of_ranks: Sequence[RankPatch] = (),
    ) -> None:
        """Screen patches in one running set of ranks: see `tune.ranks.screened_patches`. Raises Gone."""
        from perfaudit.measure.watch import Watch
        from perfaudit.tune.ranks.screened_patches import screen
        from perfaudit.tune.session import Session, interruptible

        say(f"patches that a running set of ranks can be given are screened in one, for {seconds:.0f} s at most")
        workshop = RankChildren(self._ranks, target, Watch(), self._timeout)
        try:
            with interruptible() as is_interrupted:
                session = Session(target, workshop, Watch(), timeout=self._timeout)
                screen(session, allow, seconds, screened, of_ranks)
        except Gone:
            self.is_complete = False
            raise
        if is_interrupted[0]:
            raise KeyboardInterrupt

    def run(self, texts: Mapping[str, str], steps: int, reads_samples: bool = False) -> SetRun:
        """Order a set of ranks, run this rank of it, and put together what all have seen. Raises Gone.

        reads_samples: this rank reads some samples at the end, for their lengths.
        """
        self._ranks.begin()
        order = {"texts": dict(texts), "steps": steps, "port": free_port()}
        self._ranks.tell_order(order)
        self._run_own(order, reads_samples)
        words = self._ranks.gather()
        for told in words:
            if told["ended"] in ("dead", "missing"):
                raise Gone(f"rank {told['rank']} {'is gone' if told['ended'] == 'dead' else 'has not joined'}")
        self.shares = shares_of_step(words)
        return set_run_of(words, steps)

    def follow(self) -> None:
        """Run what the first rank orders, until it ends or is gone."""
        from perfaudit.target.fresh_start import must_start_afresh
        from perfaudit.tune.session import interruptible

        own = OwnChild(self._ranks, self._target, must_start_afresh(self._target.file))
        with interruptible() as is_interrupted, contextlib.closing(own):
            self._follow(own)
        if is_interrupted[0]:
            raise KeyboardInterrupt

    def _follow(self, own: OwnChild) -> None:
        while True:
            self._ranks.begin()
            order = self._ranks.wait_for_order()
            try:
                if order is not None and "child" in order:
                    self._ranks.tell_reply(own.obey(order))
                elif order is not None and "steps" in order:
                    self._run_own(order)
                else:
                    return
            except Gone:
                return

    def end(self) -> None:
        """Tell the others that nothing more is ordered."""
        self._ranks.begin()
        self._ranks.tell_order({})

    def _run_own(self, order: Json, reads_samples: bool = False) -> None:
        from perfaudit.script.observe import observe
        from perfaudit.script.request import Request
        from perfaudit.script.scratch_folders import scratch_root
        from perfaudit.script.summary import summarize

        place = self._ranks.place
        request = Request(
            self._script, order["steps"], 0.0, None if self._in_place else scratch_root(self._script), values=True,
            is_rank=True, texts=order["texts"], seed=SEED + place.rank, reads_samples=reads_samples,
        )  # fmt: skip
        variables = {"MASTER_PORT": str(order["port"]), "TORCHELASTIC_USE_AGENT_STORE": "False"}
        seen = observe(request, self._timeout, self._ranks.heed, self._output, LOSSES, variables=variables)
        _shorten(self._output)
        self.facts = seen.facts
        run = summarize(seen, str(self._script), self._in_place)
        if run.ended == "late":
            run = replace(run, message=late_words(run.steps, self._timeout, run.stands))
        if _is_cut_short(run, seen.number, order["steps"]):
            run = replace(run, ended="enough", message="")
        missing = set(order["texts"]) - {os.path.relpath(file) for file in seen.facts.get("files", [])}
        if run.ended == "enough" and missing:  # a file that only some ranks import: the set tells nothing of its patch
            run = replace(run, ended="failed", message=f"{min(missing)} did not run with its patch")
        self._ranks.tell_done(run, seen)
        if run.ended == "interrupted":
            raise KeyboardInterrupt


def _is_cut_short(run: Run, updates: int, steps: int) -> bool:
    """Whether a rank did not make its last step because another one had ended before."""
    is_left_alone = run.ended in ("late", "stopped") or (run.ended == "failed" and is_lost_connection(run.message))
    return is_left_alone and updates >= steps - 1


def _shorten(output: IO[str]) -> None:
    """What the script printed is not kept from one set to the next."""
    with contextlib.suppress(OSError):
        os.ftruncate(output.fileno(), 0)
