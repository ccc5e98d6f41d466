"""Ranks of one job against each other: who comes last to the collectives, and how long the others wait there.

Clocks of machines differ, so starts are not compared. A collective ends on all ranks at the same time; a rank whose kernel took
less time has come later. The shortest kernel is that of the last rank, and what others took longer is their waiting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from perfaudit.trace.file_result import CollectiveRow, FileResult, Key, TraceFinding
from perfaudit.trace.kernel_names import WAIT_FOR_ALL
from perfaudit.trace.whereabouts import Whereabouts
from perfaudit.traces import CollectiveWaits, Straggler

LEAST_WAIT = 0.1  # of a collective's longest kernel, and LEAST_SECONDS: less is no waiting
LEAST_SECONDS = 30e-6
MOST_APART = 600.0  # seconds between the windows of two ranks; clocks of machines differ by less
LEAST_MATCHED = 3  # collectives; fewer tell nothing about who is late
LEAST_LATE = 3  # collectives to which somebody comes late; one is a hiccup
LEAST_SHARE = 0.02  # of the window that the others wait
MOSTLY = 0.5  # of the waiting that one rank causes, from which on it is a straggler
LONGER = 1.05  # times as long as the others computed since the collective before, from which on a rank is said to compute longer
MOST_SHOWN = 120  # collectives of the map


@dataclass(frozen=True, slots=True)
class Meeting:
    """One collective on all ranks that took part: seconds of each rank's kernel, and of computing before it.

    start: by the clock of the lowest rank, which is used for their order alone.
    """

    name: str
    start: float
    took: dict[int, float]
    exposed: dict[int, float]  # of that, the part during which the rank computes nothing
    before: dict[int, float]

    @property
    def last(self) -> int:
        return min(self.took, key=lambda rank: (self.took[rank], rank))

    @property
    def waits(self) -> dict[int, float]:
        """How long each rank waits for the last one."""
        shortest = min(self.took.values())
        return {rank: took - shortest for rank, took in self.took.items()}

    @property
    def exposed_waits(self) -> dict[int, float]:
        """The part of the waiting that no computing hides, at most."""
        return {rank: min(wait, self.exposed[rank]) for rank, wait in self.waits.items()}

    @property
    def last_computed_longer(self) -> bool:
        """Whether the last rank computed longer than the others did on average since the collective before."""
        others = [value for rank, value in self.before.items() if rank != self.last]
        return self.before[self.last] > LONGER * sum(others) / len(others)

    @property
    def is_late(self) -> bool:
        """Whether somebody waits for the last rank."""
        longest, shortest = max(self.took.values()), min(self.took.values())
        return longest - shortest >= max(LEAST_SECONDS, LEAST_WAIT * longest)


@dataclass(frozen=True, slots=True)
class Job:
    """What comparing the ranks showed. waiting: share of its window that each rank waits for others.

    notes: what was not compared, and why.
    """

    stragglers: tuple[Straggler, ...] = ()
    waits: CollectiveWaits = field(default_factory=CollectiveWaits)
    findings: tuple[TraceFinding, ...] = ()
    waiting: dict[int, float] | None = None
    notes: tuple[str, ...] = ()


def compare_ranks(results: Sequence[FileResult]) -> Job:
    """Stragglers and imbalance over the ranks of one job; nothing for fewer than two, or without collectives that match."""
    complete = [one for one in results if not any("sampled" in device.notes for device in one.devices)]
    by_rank = {one.rank: one for one in complete if one.rank is not None and one.collectives}
    if len(by_rank) < 2:
        return Job()
    if why := _not_at_once(by_rank):
        return Job(notes=(why,))
    meetings, notes = _meetings(by_rank)
    late = [meeting for meeting in meetings if meeting.is_late]
    waits = _map(sorted(by_rank), meetings)
    windows = {rank: max(device.window_seconds for device in one.devices) for rank, one in by_rank.items()}
    waiting = {rank: sum(meeting.exposed_waits.get(rank, 0.0) for meeting in late) / windows[rank] for rank in by_rank}
    if len(meetings) < LEAST_MATCHED:
        return Job(waits=waits, waiting=waiting, notes=notes)
    caused: Counter[int] = Counter()  # seconds that each rank lets the others wait, on average over all others
    times_last: Counter[int] = Counter()
    for meeting in late:
        waited = sum(meeting.exposed_waits.values())
        caused[meeting.last] += waited / (len(by_rank) - 1)  # type: ignore[assignment]  # counts seconds
        times_last[meeting.last] += 1
    window = sum(windows.values()) / len(windows)
    whole = sum(caused.values())
    share = whole / window
    if share < LEAST_SHARE or len(late) < LEAST_LATE:
        return Job(waits=waits, waiting=waiting, notes=notes)
    taken_part = Counter(rank for meeting in meetings for rank in meeting.took)
    stragglers = tuple(
        Straggler(rank, times_last[rank], taken_part[rank], seconds / window)
        for rank, seconds in caused.most_common()
        if seconds >= _mostly(len(by_rank)) * whole and times_last[rank] >= LEAST_LATE
    )
    times = [device.seconds_per_step for one in by_rank.values() for device in one.devices if device.seconds_per_step]
    step = sum(times) / len(times) if times else None
    finding = _straggling(stragglers, late, whole, share, step) or _imbalance(
        by_rank, late, len(meetings), whole, share, step
    )
    return Job(stragglers, waits, (finding,), waiting, notes)


def _not_at_once(by_rank: dict[int, FileResult]) -> str:
    """Why the ranks cannot be compared: they were recorded at other times, or in other steps; "" where they can."""
    began = {rank: one.began for rank, one in by_rank.items() if one.began is not None}
    if began and max(began.values()) - min(began.values()) > MOST_APART:
        first, last = min(began, key=lambda rank: began[rank]), max(began, key=lambda rank: began[rank])
        hours = (began[last] - began[first]) / 3600
        apart = f"{hours:,.1f} hours" if hours >= 1 else f"{60 * hours:.0f} minutes"
        return f"Rank {last} was recorded {apart} after rank {first}: which rank is late cannot be judged."
    steps = {rank: one.steps for rank, one in by_rank.items() if one.steps is not None}
    if steps and max(first for first, _ in steps.values()) > min(last for _, last in steps.values()):
        return "The ranks were recorded in different steps: which rank is late cannot be judged."
    return ""


def _mostly(ranks: int) -> float:
    """The part of all waiting that one rank must cause: of two ranks either causes half by chance."""
    return max(MOSTLY, min(0.8, 1.6 / ranks))


def _meetings(by_rank: dict[int, FileResult]) -> tuple[list[Meeting], tuple[str, ...]]:
    """Collectives that wait for all, matched by kind, group, step and number in the step, and remarks about those that do not
    match: their number differs over the ranks that have them, or the sizes of what is reduced do. Of steps that all ranks have.
    """
    rows: dict[Key, dict[int, CollectiveRow]] = {}
    numbers: dict[tuple[str, str, int], Counter[int]] = {}
    shared = set.intersection(*({row.key[2] for row in result.collectives} for result in by_rank.values()))
    for rank, result in by_rank.items():
        for row in result.collectives:
            operation, _, step, _ = row.key
            if operation in WAIT_FOR_ALL and step in shared:
                numbers.setdefault(row.key[:3], Counter())[rank] += 1
                rows.setdefault(row.key, {})[rank] = row
    uneven = {kind for kind, counts in numbers.items() if len(set(counts.values())) > 1}
    by_kind = {kind[:2]: numbers[kind] for kind in sorted(uneven)}
    notes = [_not_matched(kind, counts) for kind, counts in by_kind.items()]
    found = []
    other_sizes = 0
    for key, of_rank in rows.items():
        operation = key[0]
        if len(of_rank) < 2 or key[:3] in uneven:
            continue
        sizes = {row.elements for row in of_rank.values()} - {None}
        if operation == "all_reduce" and len(sizes) > 1:
            other_sizes += 1
            continue
        found.append(
            Meeting(
                operation,
                of_rank[min(of_rank)].start,
                {rank: row.end - row.start for rank, row in of_rank.items()},
                {rank: row.exposed for rank, row in of_rank.items()},
                {rank: row.busy_before for rank, row in of_rank.items()},
            )
        )
    if other_sizes:
        notes.append(
            f"{other_sizes} collectives are left out of the comparison of ranks: the size of what they reduce differs over "
            "ranks, so they do not belong together."
        )
    return sorted(found, key=lambda meeting: meeting.start), tuple(notes)


def _not_matched(kind: tuple[str, str], counts: Counter[int]) -> str:
    most, least = counts.most_common()[0], counts.most_common()[-1]
    of_group = "" if kind[1].startswith("stream ") else f" of {kind[1]}"
    return (
        f"In one step, rank {most[0]} has {most[1]} collectives of the kind {kind[0]}{of_group} and rank {least[0]} has "
        f"{least[1]}. Which of them belong together is not known, so they are left out of the comparison of ranks."
    )


def _straggling(
    stragglers: tuple[Straggler, ...], late: list[Meeting], whole: float, share: float, step: float | None
) -> TraceFinding | None:
    if not stragglers:
        return None
    first = stragglers[0]
    mine = [meeting for meeting in late if meeting.last == first.rank]
    others = [
        sum(value for rank, value in meeting.before.items() if rank != first.rank) / max(1, len(meeting.before) - 1)
        for meeting in mine
    ]
    own = sum(meeting.before.get(first.rank, 0.0) for meeting in mine)
    why = ""
    if own > LONGER * sum(others):
        why = f": before these it computes {own / sum(others):.2f} times as long as the others" if sum(others) else ""
    elif mine:
        why = ", though it computes as long before them as the others: its host, a copy or an exchange with another rank is late"
    seconds = whole * first.share / share
    each = None if step is None else first.share * step
    often = f"{seconds:.3g} s in all" if each is None else f"{1000 * each:.3g} ms a step"
    return TraceFinding(
        "PA904",
        f"rank {first.rank} comes last to {first.last} of {first.of} collectives{why}. The other ranks wait for it for "
        f"{100 * first.share:.0f} % of the time ({often})",
        seconds,
        first.share,
        each,
        first.rank,
        "",
        Whereabouts(),
    )


def _imbalance(
    by_rank: dict[int, FileResult], late: list[Meeting], meetings: int, whole: float, share: float, step: float | None
) -> TraceFinding:
    last = Counter(meeting.last for meeting in late)
    computed = sum(meeting.last_computed_longer for meeting in late)
    why = (
        f"In {computed} of these collectives, the last rank had computed longer than the others"
        if 2 * computed > len(late)
        else "In most of these, the last rank had not computed longer than the others: its host, a copy or its data was late"
    )
    words = ", ".join(f"rank {rank} {number} times" for rank, number in last.most_common(3))
    each = None if step is None else share * step
    often = f"{whole:.3g} s in all" if each is None else f"{1000 * each:.3g} ms a step"
    return TraceFinding(
        "PA905",
        f"ranks come to {len(late)} of {meetings} collectives at different times, and not always the same rank comes last "
        f"({words}): they wait for each other for {100 * share:.0f} % of the time ({often}). {why}",
        whole,
        share,
        each,
        None,
        "",
        Whereabouts(),
    )


def _map(ranks: list[int], meetings: list[Meeting]) -> CollectiveWaits:
    """The collectives at which most was waited, in the order of their time."""
    kept = sorted(range(len(meetings)), key=lambda index: -sum(meetings[index].waits.values()))[:MOST_SHOWN]
    shown = [meetings[index] for index in sorted(kept)]
    return CollectiveWaits(
        tuple(ranks),
        tuple(meeting.name for meeting in shown),
        tuple(tuple(meeting.waits.get(rank, 0.0) for meeting in shown) for rank in ranks),
    )
