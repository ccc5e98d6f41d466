"""`perfaudit tune` as one of several ranks: all run the sets that the first one orders, and the first one reports."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from perfaudit.cli.output import say
from perfaudit.cli.ranks_child import Gone, OwnChild, RankChildren, free_port
from perfaudit.cli.run_ranks import Ranks, together
from perfaudit.cli.set_of_ranks import set_run_of
from perfaudit.errors import NothingMeasured, UserError
from perfaudit.knobs._batches_by_length import WINDOW
from perfaudit.measure.stats import LOOKS
from perfaudit.render.run_ranks import is_lost_connection, late_words
from perfaudit.runs import Run
from perfaudit.tune.ranks.race import BASE, LOSSES, NUDGED, PATCH, Race, SetRun

if TYPE_CHECKING:
    from perfaudit.distributed.launch import Place
    from perfaudit.report import Report
    from perfaudit.script.request import Script
    from perfaudit.target.names import Target
    from perfaudit.tune.ranks.candidates import Choice
    from perfaudit.tune.ranks.patches import Candidate
    from perfaudit.tune.ranks.screened_patches import Screened

Json = dict[str, Any]  # Any: nested JSON
FEWEST_STEPS, MOST_STEPS = 40, 200  # of a set, with those that do not count
SEED = 20_000
SCREENING_SHARE = 0.3  # of the budget, for patches that a running set of ranks can be given
STARTS_TO_SCREEN = 3  # of the script, for which there must be time: two of them to see what there is and to race it
SET_OVER_FIRST = 1.5  # seconds of a set over those of the first one: its steps take half as long as a start
LOOK_STEPS = 8  # of the first set, which tells what the script runs; it is no part of the race


def tune_on_ranks(
    place: Place,
    target: Target,
    budget: float,
    timeout: float,
    allow: frozenset[str],
    in_place: bool,
    meet: Path | None,
    hand_over: Callable[[Report], object],
    only_by_length: bool = False,
) -> None:
    """Have the first rank lead; the others run what it orders, and wait until its report is out.

    hand_over: prints the report, on the first rank, and may end the command. only_by_length: race batches by length, and
    nothing else.
    """
    if place.is_on_several_nodes and meet is None:
        raise UserError("ranks on several nodes are tuned through a folder that all of them see: name it with --meet")
    from perfaudit.script.request import Script

    script = Script(target.module or target.file, target.arguments or (), bool(target.module))
    target = replace(target, in_place=in_place)
    with together(place, script, 0, meet) as ranks, _sets(ranks, script, target, timeout, in_place) as sets:
        if not ranks.is_first:
            sets.follow()
            if not ranks.wait_for_report():
                raise NothingMeasured(f"{script}: rank {ranks.first}, which was to report, is gone")
            return
        try:
            try:
                report = _lead(sets, place, target, script, budget, allow, only_by_length)
            finally:
                sets.end()
            hand_over(report)
        finally:  # a launcher ends all ranks when another one leaves first
            ranks.tell_reported()


def _lead(
    sets: Sets,
    place: Place,
    target: Target,
    script: Script,
    budget: float,
    allow: frozenset[str],
    only_by_length: bool,
) -> Report:
    """Order a first set, choose candidates, screen in a running set what can stand there, race them generation by generation.

    The report has all of it.
    """
    from perfaudit.measure.environment import host
    from perfaudit.report import Report
    from perfaudit.tune.ranks.candidates import BY_LENGTH, FINDS, Choice, NoCandidates, candidates_of
    from perfaudit.tune.ranks.patches import Ranks as RanksSeen
    from perfaudit.tune.ranks.report import report_of_race
    from perfaudit.tune.ranks.screened_patches import Screened

    machine, began = host(), time.monotonic()
    say("the script runs once on all ranks, to see what it runs")
    try:
        first = sets.run({}, LOOK_STEPS, reads_samples=True)
    except Gone as why:
        raise NothingMeasured(f"{script}: {why}, so that nothing was measured") from None
    steps = _steps_of_set(first.seconds, time.monotonic() - began)
    if sets.differ:
        raise UserError(sets.differ)
    if first.why:
        raise (UserError if first.has_failed else NothingMeasured)(f"{script}: {first.why}")
    facts = sets.facts
    machine = replace(
        machine, device=facts.get("device", "cpu"), torch=facts.get("torch", ""), threads=facts.get("threads", 0)
    )
    try:
        backend = str(facts.get("collectives", {}).get("backend", "gloo"))
        seen = RanksSeen(
            max(1, machine.cores // place.local_ranks),
            backend,
            facts.get("sample_lengths") or {},
            facts.get("loaders_read", ()),
        )
        choice = candidates_of(facts.get("files", []), allow, seen, BY_LENGTH if only_by_length else FINDS)
    except NoCandidates as why:
        if only_by_length:
            raise _nothing_to_race(script, str(why)) from None
        choice = Choice({}, [], [str(why)], why.nudged)
    took = (time.monotonic() - began) or 1.0
    report, screened = Report("tune", target=str(script), environment=machine, notes=tuple(choice.left)), Screened()
    try:
        seconds = SCREENING_SHARE * budget
        if not only_by_length and seconds >= STARTS_TO_SCREEN * took:
            sets.screen(target, allow, seconds, screened, choice.candidates)
        elif not only_by_length:
            screened.left.append(
                f"patches that a running set of ranks can be given are not screened in {seconds:.0f} s, as one start takes "
                f"{took:.0f} s: --budget gives more time"
            )
    except KeyboardInterrupt:
        report = report.with_(interrupted=True)
    except Gone as why:
        report = _note_early_end(report, why)
    if not (choice.candidates or screened.candidates or report.interrupted) and sets.is_complete:
        raise _nothing_to_race(script, "; ".join([*choice.left, *screened.left]))
    wanted = [*screened.survivors(), *screened.undecided_candidates(choice.candidates)]
    by_key = {each.key: each for each in wanted}
    race = _race(choice, wanted)
    if any("order" in each.fix.changes for each in wanted):
        steps = _whole_windows(steps)
    texts = {key: {each.path: each.text} for key, each in by_key.items()}
    if choice.nudged:
        texts[NUDGED] = dict([choice.nudged])
    waiting = [*wanted]
    try:
        while not report.interrupted and sets.is_complete:
            left = budget - (time.monotonic() - began)
            if waiting and not race.order() and BASE not in race.failures:
                is_first = not race.settings  # one is raced, however little time there is
                number = max(int(is_first), _number_that_fit(left, SET_OVER_FIRST * took if is_first else took))
                race.admit(waiting[:number])
                del waiting[:number]
            order = race.order()
            if not order or left < took * len(order):
                break
            say(f"generation {len(race.generations) + 1}: {len(order)} sets of ranks, {left:.0f} s left")
            generation: dict[str, SetRun] = {}
            began_generation = time.monotonic()
            for key in order:
                generation[key] = sets.run(texts.get(key, {}), steps)
                if key == BASE and generation[key].why:
                    break  # there is nothing to compare with
            race.add(generation)
            took = (time.monotonic() - began_generation) / len(order)
        if waiting and not report.interrupted and BASE not in race.failures:
            screened.left.append(
                f"not raced in fresh sets, for which the budget had no time: {'; '.join(each.key for each in waiting)}; "
                "--budget gives more"
            )
    except KeyboardInterrupt:
        report = report.with_(interrupted=True)
    except Gone as why:
        report = _note_early_end(report, why)
    return report_of_race(report, race, by_key, screened)


def _number_that_fit(seconds: float, of_set: float) -> int:
    """Patches of which the generations before the first look fit into so many seconds. of_set: seconds of a set."""
    return max(0, int(seconds / (LOOKS[0].generations * of_set)) - 2)


def _nothing_to_race(script: Script, why: str) -> UserError:
    return UserError(f"{script}: {why}; behind a launcher `tune` races what several ranks have together")


def _note_early_end(report: Report, why: Gone) -> Report:
    return report.with_(notes=(*report.notes, f"{why}: what was measured until then is shown"))


def _race(choice: Choice, wanted: Sequence[Candidate]) -> Race:
    """The race that these candidates are to be admitted to."""
    nudges = choice.nudged is not None and any("rounding" in each.fix.changes for each in wanted)
    return Race({}, {}, {PATCH: "none"}, os.getpid(), nudges)


def _steps_of_set(step: float, start: float) -> int:
    """Steps that take half as long as the start of a set: more would tell less than another set does. Both in seconds."""
    return min(MOST_STEPS, max(FEWEST_STEPS, round(start / step / 2))) if step > 0 else FEWEST_STEPS


def _whole_windows(steps: int) -> int:
    """Steps in whole windows of a sampler by length, two of them at least: the first one is not counted."""
    return max(2, math.ceil(steps / WINDOW)) * WINDOW


@contextlib.contextmanager
def _sets(ranks: Ranks, script: Script, target: Target, timeout: float, in_place: bool) -> Iterator[Sets]:
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        yield Sets(ranks, script, target, timeout, in_place, output)


class Sets:
    """Runs one set of ranks after the other. facts: of the first rank's last run. is_complete: no rank was seen to be gone."""

    def __init__(
        self, ranks: Ranks, script: Script, target: Target, timeout: float, in_place: bool, output: IO[str]
    ) -> None:
        self._ranks, self._script, self._timeout, self._output = ranks, script, timeout, output
        self._target, self._in_place = target, in_place
        self.facts: Json = {}
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
        of_ranks: Sequence[Candidate] = (),
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
