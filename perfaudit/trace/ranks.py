"""Ranks of one job against each other: who comes last to the collectives of its group, and how long the others wait there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from perfaudit.trace.file_result import FileResult, TraceFinding
from perfaudit.trace.meetings import LONGER, Meeting, meetings_of, shared_steps, without_passed_on
from perfaudit.trace.whereabouts import Whereabouts
from perfaudit.trace.words import ranks_in_words
from perfaudit.traces import CollectiveWaits, Straggler

MOST_APART = 600.0  # seconds between the windows of two ranks; clocks of machines differ by less
LEAST_MATCHED = 3  # collectives; fewer tell nothing about who is late
LEAST_LATE = 3  # collectives to which somebody comes late; one is a hiccup
LEAST_SHARE = 0.02  # of the time that the others wait
MOSTLY = 0.5  # of the waiting that one rank causes, from which on it is a straggler
MOST_SHOWN = 120  # collectives of the map
ON_HOSTS = "Traces do not tell how long ranks without a device wait for each other: `perfaudit run` behind their launcher does."


@dataclass(frozen=True, slots=True)
class Job:
    """What comparing the ranks showed. waiting: share of its time that each rank waits for others.

    notes: what was not compared, and why.
    """

    stragglers: tuple[Straggler, ...] = ()
    waits: CollectiveWaits = field(default_factory=CollectiveWaits)
    findings: tuple[TraceFinding, ...] = ()
    waiting: dict[int, float] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that meet, and what they wait for each other: the collectives of all process groups that have just these ranks.

    late: those to which one of them comes late of its own. seconds: in which they are compared, on average over them.
    """

    ranks: tuple[int, ...]
    meetings: list[Meeting]
    late: list[Meeting]
    seconds: float

    @property
    def wait_seconds(self) -> float:
        """Seconds that they wait for the last one, on average over the others."""
        return sum(meeting.mean_wait for meeting in self.late)

    @property
    def share(self) -> float:
        return self.wait_seconds / self.seconds

    @property
    def is_told(self) -> bool:
        """Whether there is enough of it to say who is late."""
        return len(self.meetings) >= LEAST_MATCHED and len(self.late) >= LEAST_LATE and self.share >= LEAST_SHARE

    def wait_by_rank(self) -> Counter[int]:
        """Seconds that each rank lets the others wait, on average over these."""
        found: Counter[int] = Counter()
        for meeting in self.late:
            found[meeting.last] += meeting.mean_wait  # type: ignore[assignment]  # counts seconds
        return found

    def stragglers(self) -> dict[int, list[Meeting]]:
        """Ranks that cause most of the waiting, and the collectives to which they come last."""
        if not self.is_told:
            return {}
        caused = self.wait_by_rank()
        last = {rank: [meeting for meeting in self.late if meeting.last == rank] for rank in caused}
        least = _mostly(len(self.ranks)) * self.wait_seconds
        return {rank: last[rank] for rank in caused if caused[rank] >= least and len(last[rank]) >= LEAST_LATE}


def compare_ranks(results: Sequence[FileResult]) -> Job:
    """Stragglers and imbalance over the ranks of one job; nothing for fewer than two, or without collectives that match."""
    complete = [one for one in results if not any({"sampled", "cut-work"} & {*device.notes} for device in one.devices)]
    by_rank = {one.rank: one for one in complete if one.rank is not None and one.collectives}
    if len(by_rank) < 2:
        ranks = [one for one in complete if one.rank is not None]
        on_hosts = len(ranks) > 1 and not any(device.has_device for one in ranks for device in one.devices)
        return Job(notes=(ON_HOSTS,) if on_hosts else ())
    if why := _not_at_once(by_rank):
        return Job(notes=(why,))
    meetings, notes = meetings_of(by_rank)
    late = [meeting for meeting in meetings if meeting.is_late]
    steps = len(shared_steps(by_rank) - {-1})
    seconds = {rank: _compared_seconds(one, steps) for rank, one in by_rank.items()}
    waiting = {rank: sum(meeting.exposed_waits.get(rank, 0.0) for meeting in late) / seconds[rank] for rank in by_rank}
    groups = _groups(meetings, without_passed_on(late), seconds)
    times = [device.seconds_per_step for one in by_rank.values() for device in one.devices if device.seconds_per_step]
    step = sum(times) / len(times) if times else None
    stragglers, findings = _late_ranks(groups, step, set(by_rank))
    named = {rank for group in groups if group.stragglers() for rank in group.ranks}
    uneven = [group for group in groups if group.is_told and not named & set(group.ranks)]
    if uneven:
        findings.append(_imbalance(max(uneven, key=lambda group: group.share), step, set(by_rank)))
    if not findings:
        notes += [_too_few(group) for group in groups[:1] if group.late and group.share >= LEAST_SHARE]
    return Job(stragglers, _map(sorted(by_rank), meetings), tuple(findings), waiting, tuple(notes))


def _groups(meetings: list[Meeting], late: list[Meeting], seconds: dict[int, float]) -> list[Group]:
    """The meetings by the ranks that take part, those first that wait most."""
    by_ranks: dict[tuple[int, ...], list[Meeting]] = {}
    for meeting in meetings:
        by_ranks.setdefault(meeting.ranks, []).append(meeting)
    groups = [
        Group(
            ranks,
            several,
            [meeting for meeting in late if meeting.ranks == ranks],
            sum(seconds[rank] for rank in ranks) / len(ranks),
        )
        for ranks, several in by_ranks.items()
    ]
    return sorted(groups, key=lambda group: -group.share)


def _compared_seconds(result: FileResult, steps: int) -> float:
    """How long the steps that are compared take on a rank; without marked steps its window."""
    device = max(result.devices, key=lambda one: one.window_seconds)
    return steps * device.seconds_per_step if steps and device.seconds_per_step else device.window_seconds


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


def _late_ranks(
    groups: list[Group], step: float | None, all_ranks: set[int]
) -> tuple[tuple[Straggler, ...], list[TraceFinding]]:
    """The stragglers of all groups, and a finding about the one for which the others wait most.

    A rank that is late to several groups lets some ranks wait in one and others in another: that is averaged over all of them.
    """
    of_rank: dict[int, list[Group]] = {}
    for group in groups:
        for rank in group.stragglers():
            of_rank.setdefault(rank, []).append(group)
    found = []
    for rank, several in of_rank.items():
        mine = [meeting for group in several for meeting in group.stragglers()[rank]]
        peers = {peer for group in several for peer in group.ranks} - {rank}
        waited = sum(sum(meeting.exposed_waits.values()) for meeting in mine) / len(peers)
        seconds = sum(group.seconds for group in several) / len(several)
        taken_part = sum(len(group.meetings) for group in several)
        found.append((Straggler(rank, len(mine), taken_part, waited / seconds), waited, mine, peers))
    found.sort(key=lambda one: -one[0].share)
    stragglers = tuple(one for one, *_ in found)
    if not found:
        return (), []
    first, waited, mine, peers = found[0]
    others = sorted({one.rank for one in stragglers[1:] if one.rank not in peers})
    return stragglers, [_straggling(first, waited, mine, peers | {first.rank} < all_ranks, sorted(peers), others, step)]


def _straggling(
    first: Straggler,
    waited: float,
    mine: list[Meeting],
    is_part: bool,
    peers: list[int],
    others: list[int],
    step: float | None,
) -> TraceFinding:
    """is_part: whether its group is not the whole job. others: stragglers of other groups."""
    computed = sum(
        sum(value for rank, value in meeting.before.items() if rank != first.rank) / (len(meeting.before) - 1)
        for meeting in mine
    )
    own = sum(meeting.before[first.rank] for meeting in mine)
    if own > LONGER * computed:
        why = f": before these it computes {own / computed:.2f} times as long as the others" if computed else ""
    else:
        why = ", though it computes as long before them as the others: its host, a copy or an exchange with another rank is late"
    who = _ranks_or_rank(peers).capitalize() if is_part else "The other ranks"
    more = f"; in other groups so {'do' if len(others) > 1 else 'does'} {_ranks_or_rank(others)}" if others else ""
    return TraceFinding(
        "PA904",
        f"rank {first.rank} comes last to {first.last} of {first.of} collectives{' of its group' * is_part}{why}. {who} "
        f"wait{'s' * (is_part and len(peers) == 1)} for it for {100 * first.share:.0f} % of the time "
        f"({_time(waited, first.share, step)}){more}",
        waited,
        first.share,
        None if step is None else first.share * step,
        first.rank,
        "",
        Whereabouts(),
    )


def _imbalance(group: Group, step: float | None, all_ranks: set[int]) -> TraceFinding:
    last = Counter(meeting.last for meeting in group.late)
    computed = sum(meeting.last_computed_longer for meeting in group.late)
    why = (
        f"In {computed} of these collectives, the last rank had computed longer than the others"
        if 2 * computed > len(group.late)
        else "In most of these, the last rank had not computed longer than the others: its host, a copy or its data was late"
    )
    words = ", ".join(f"rank {rank} {number} times" for rank, number in last.most_common(3))
    who = "ranks" if set(group.ranks) == all_ranks else _ranks_or_rank(list(group.ranks))
    return TraceFinding(
        "PA905",
        f"{who} come to {len(group.late)} of {len(group.meetings)} collectives at different times, and not always the same rank "
        f"comes last ({words}): they wait for each other for {100 * group.share:.0f} % of the time "
        f"({_time(group.wait_seconds, group.share, step)}). {why}",
        group.wait_seconds,
        group.share,
        None if step is None else group.share * step,
        None,
        "",
        Whereabouts(),
    )


def _too_few(group: Group) -> str:
    """What waiting was seen at too few collectives to say who is late."""
    last = Counter(meeting.last for meeting in group.late)
    who = " and ".join(f"rank {rank} comes last to {number}" for rank, number in last.most_common(2))
    took = sum(max(meeting.took.values()) for meeting in group.late)
    waits = sum(max(meeting.waits.values()) for meeting in group.late)
    number = f"{len(group.meetings)} collective{'s' * (len(group.meetings) > 1)}"
    return (
        f"Ranks wait for each other at {len(group.late)} of {number}, for {100 * waits / took:.0f} % of their time and "
        f"{100 * group.share:.0f} % of all time; {who}. So few do not tell which rank is late."
    )


def _ranks_or_rank(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else ranks_in_words(ranks)


def _time(seconds: float, share: float, step: float | None) -> str:
    return f"{seconds:.3g} s in all" if step is None else f"{1000 * share * step:.3g} ms a step"


def _map(ranks: list[int], meetings: list[Meeting]) -> CollectiveWaits:
    """The collectives at which most was waited, in the order of their time."""
    kept = sorted(range(len(meetings)), key=lambda index: -sum(meetings[index].waits.values()))[:MOST_SHOWN]
    shown = [meetings[index] for index in sorted(kept)]
    return CollectiveWaits(
        tuple(ranks),
        tuple(meeting.name for meeting in shown),
        tuple(tuple(meeting.waits.get(rank, 0.0) for meeting in shown) for rank in ranks),
    )
