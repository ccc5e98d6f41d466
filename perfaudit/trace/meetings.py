"""Collectives of all ranks of a job, matched: who came last to each, and how long the others waited there.

Clocks of machines differ, so starts are not compared. A collective ends on all ranks at the same time; a rank whose kernel took
less time has come later. The shortest kernel is that of the last rank, and what others took longer is their waiting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfaudit.trace.file_result import CollectiveRow, FileResult, Key
from perfaudit.trace.kernel_names import WAIT_FOR_ALL

LEAST_WAIT = 0.1  # of a collective's longest kernel, and LEAST_SECONDS: less is no waiting
LEAST_SECONDS = 30e-6
LONGER = 1.05  # times as long as the others computed since the collective before, from which on a rank is said to compute longer
PASSED_ON = 0.5  # of the waiting for a rank that the rank itself has waited for others just before, which explains it


@dataclass(frozen=True, slots=True)
class Meeting:
    """One collective on all ranks that took part: seconds of each rank's kernel, and of computing before it.

    starts: by each rank's own clock.
    """

    name: str
    starts: dict[int, float]
    took: dict[int, float]
    exposed: dict[int, float]  # of that, the part during which the rank computes nothing
    before: dict[int, float]

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted(self.took))

    @property
    def start(self) -> float:
        """By the clock of the lowest rank, which is used for their order alone."""
        return self.starts[min(self.starts)]

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
    def mean_wait(self) -> float:
        """What the others wait for the last one where nothing is computed, on average over them."""
        return sum(self.exposed_waits.values()) / (len(self.took) - 1)

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


def meetings_of(by_rank: Mapping[int, FileResult]) -> tuple[list[Meeting], list[str]]:
    """Collectives that wait for all, matched by kind, group, step and number in the step, and remarks about those that do not
    match: their number differs over the ranks that have them, or the sizes of what is reduced do. Of steps that all ranks have.
    """
    rows: dict[Key, dict[int, CollectiveRow]] = {}
    numbers: dict[tuple[str, str, int], Counter[int]] = {}
    shared = shared_steps(by_rank)
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
        if len(of_rank) < 2 or key[:3] in uneven:
            continue
        sizes = {row.elements for row in of_rank.values()} - {None}
        if key[0] == "all_reduce" and len(sizes) > 1:
            other_sizes += 1
            continue
        found.append(_meeting(key[0], of_rank))
    if other_sizes:
        notes.append(
            f"{other_sizes} collectives are left out of the comparison of ranks: the size of what they reduce differs over "
            "ranks, so they do not belong together."
        )
    return sorted(found, key=lambda meeting: meeting.start), notes


def shared_steps(by_rank: Mapping[int, FileResult]) -> set[int]:
    """The numbers of the steps of which all ranks have collectives; -1 stands for no step."""
    return set.intersection(*({row.key[2] for row in result.collectives} for result in by_rank.values()))


def without_passed_on(meetings: Sequence[Meeting]) -> list[Meeting]:
    """Those to which somebody comes late of his own: not because he has just waited for a rank of another group.

    A slow rank makes the ranks of its own group late to their other groups. meetings: late ones.
    """
    passed_on = set()
    for rank in {meeting.last for meeting in meetings}:
        waited = 0.0
        waited_before: dict[tuple[int, ...], float] = {}  # until after the last meeting of a group
        mine = [number for number, meeting in enumerate(meetings) if rank in meeting.took]
        for number in sorted(mine, key=lambda number: meetings[number].starts[rank]):
            meeting = meetings[number]
            if meeting.last == rank:
                since = waited - waited_before.get(meeting.ranks, 0.0)
                if since >= PASSED_ON * meeting.mean_wait:
                    passed_on.add(number)
            waited += meeting.exposed_waits[rank]
            waited_before[meeting.ranks] = waited
    return [meeting for number, meeting in enumerate(meetings) if number not in passed_on]


def _meeting(operation: str, of_rank: Mapping[int, CollectiveRow]) -> Meeting:
    return Meeting(
        operation,
        {rank: row.start for rank, row in of_rank.items()},
        {rank: row.end - row.start for rank, row in of_rank.items()},
        {rank: row.exposed for rank, row in of_rank.items()},
        {rank: row.busy_before for rank, row in of_rank.items()},
    )


def _not_matched(kind: tuple[str, str], counts: Counter[int]) -> str:
    most, least = counts.most_common()[0], counts.most_common()[-1]
    of_group = "" if kind[1].startswith("stream ") else f" of {kind[1]}"
    return (
        f"In one step, rank {most[0]} has {most[1]} collectives of the kind {kind[0]}{of_group} and rank {least[0]} has "
        f"{least[1]}. Which of them belong together is not known, so they are left out of the comparison of ranks."
    )
