"""The ranks of a run as text: how each of them ended, and a table of where each one's step goes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from perfaudit.render.paint import Paint, wrap
from perfaudit.render.words import count
from perfaudit.runs import RankRun, Run

MOST_RANKS = 16  # in the table; of more, those that differ most from the middle
COLUMNS = {
    "data_wait": "data",
    "host_to_device": "copies",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "update",
    "average": "average",
    "host_reads": "reads",
    "other": "other",
}
WORTH_A_COLUMN = 0.005  # of a step, on any rank
HIGH, FAR = 0.05, 0.15  # of a step above the middle of all ranks: marked, and marked twice
# Times the mean of all ranks, or the least of one, that the fullest batch holds, from which on it is told.
UNEVEN = 1.05
_NARROW = 7  # characters of a column at least, with the space before it
_MARKS = ("  ", "+ ", "++")
# What gloo and NCCL say where another process is gone.
_LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "remote process exited")
_FINE = ("enough", "finished")
_CAUSES = ("missing", "dead", "failed", "late", "finished")  # ends for which other ranks are ended
# How messages begin that go on behind the name of a rank.
_PREDICATES = ("made no step", "told nothing", "has not joined")
_SENTENCE = "Seen in "  # how one begins that is a sentence by itself
MEETING = ", where ranks meet"  # of a place where a rank stands
# Behind the end of a process by that signal: neither library tells Python.
ABORTS = (
    " gloo ends a process so where collectives of the ranks do not fit, as of tensors of unlike sizes, and NCCL where one takes "
    "too long; the process has printed which."
)


def ranks_block(run: Run, paint: Paint, width: int) -> str:
    """What ended badly first, then the table, then what is said of communication."""
    lines = [paint(sentence, "bold red") for sentence in _wrap_each(faults(run.by_rank), width)]
    if lines:
        lines.append("")
    shown = [each for each in run.by_rank if each.seconds_per_step is not None]
    if len(shown) > 1:
        lines += [*_table(shown, paint, compares=run.imbalance is not None), ""]
    lines += _wrap_each(communication(run, shown), width)
    return "\n".join(lines).rstrip("\n") + "\n" if lines else ""


def _wrap_each(sentences: Sequence[str], width: int) -> list[str]:
    return [wrap(sentence, width, "") for sentence in sentences]


def faults(ranks: Sequence[RankRun]) -> list[str]:
    """The ranks that ended otherwise than they were to, in the order in which they are told: causes first."""
    order = (*_CAUSES, "stopped", "interrupted")
    most = max((each.steps for each in ranks), default=0)
    others_suffer = any(each.ended not in _FINE for each in ranks)
    found = []
    for each in ranks:
        ends_early = each.ended == "finished" and (each.steps < most - 1 or others_suffer)
        if each.ended not in _FINE or ends_early:
            place = order.index(each.ended) if each.ended in order else len(order)
            is_told = any(other.ended in _CAUSES for other in ranks)
            found.append((_has_lost_others(each), place, _waits_for_others(each), each.rank, _fault(each, is_told)))
    told = [text for *_, text in sorted(found)]
    more = len(told) - MOST_RANKS
    return [*told[:MOST_RANKS], *([f"{more} more ranks ended so."] if more > 0 else [])]


def _has_lost_others(rank: RankRun) -> bool:
    """Whether a rank failed because another one was gone."""
    return rank.ended == "failed" and is_lost_connection(rank.message)


def _waits_for_others(rank: RankRun) -> bool:
    """Whether a rank stands where it waits for the others."""
    return ", in a " in rank.stands or MEETING in rank.stands


def is_lost_connection(message: str) -> bool:
    """Whether this is what a rank says where another one is gone."""
    return any(words in message for words in _LOST)


def late_words(steps: int, seconds: float, stands: str = "") -> str:
    """What is said of a rank that made no step for so long, behind its name.

    steps: as far as it has told. It tells them some at a time, so that it may have made a few more. stands: where; more time
    does not help where ranks do not meet.
    """
    since = f"for {seconds:.0f} s after at least {count(steps, 'step')}" if steps else f"within {seconds:.0f} s"
    return f"made no step {since}{'' if MEETING in stands else ' (--timeout allows more)'}"


def _late_fault(rank: RankRun) -> str:
    said = rank.message.rstrip(".")
    if not said.startswith(_PREDICATES):
        what = f"made no further step after at least {count(rank.steps, 'step')}" if rank.steps else "made no step"
        if said.startswith(_SENTENCE):
            return f"Rank {rank.rank} {what}. {said}.{f' It stands at {rank.stands}.' if rank.stands else ''}"
        said = f"{what}: {said}" if said else what
    return f"Rank {rank.rank} {said}{f'; it stands at {rank.stands}' if rank.stands else ''}."


def _fault(rank: RankRun, is_told: bool = False) -> str:
    """How a rank ended. is_told: what became of another rank, for which this one was ended, is said of that one."""
    if rank.ended == "missing":
        return f"Rank {rank.rank} {rank.message if rank.message.startswith(_PREDICATES) else 'has not joined'}."
    if rank.ended == "late":
        return _late_fault(rank)
    # A process that is killed has not told its last steps: it tells some at a time, and perfaudit's own once a second.
    is_killed = rank.ended == "dead" or " by signal " in rank.message or "was ended by SIG" in rank.message
    least = "at least " if is_killed else ""
    at = " before it told of a step" if is_killed else " before its first step"
    if rank.steps:
        at = f" after {least}{count(rank.steps, 'step')}"
    stands = f" It stands at {rank.stands}." if rank.stands else ""
    if _has_lost_others(rank):
        place = rank.message[rank.message.rfind("(") :] if rank.message.endswith(")") else ""
        return f"Rank {rank.rank} then lost the connection to another rank{at}{f' {place}' if place else ''}."
    what = {
        "dead": f"Rank {rank.rank} died{at}",
        "failed": f"Rank {rank.rank} failed{at}",
        "finished": f"Rank {rank.rank} ended by itself{at}, the others had more to do",
        "stopped": f"Rank {rank.rank} was ended{at}",
        "interrupted": f"Rank {rank.rank} was interrupted{at}",
    }.get(rank.ended, f"Rank {rank.rank} ended{at}")
    is_said = rank.ended == "stopped" and is_told
    message = f": {rank.message.rstrip('.')}" if rank.message and not is_said else ""
    return f"{what}{message}.{stands}{ABORTS if 'SIGABRT' in rank.message else ''}"


def _table(ranks: Sequence[RankRun], paint: Paint, compares: bool) -> list[str]:
    """Milliseconds of a step by rank and phase; what is longer than on most ranks is marked.

    The phases of a rank that comes early hold its waiting for the others, so they are not marked. compares: whether the ranks
    were compared; without that nothing is marked.
    """
    columns = [name for name in COLUMNS if any(each.phases.get(name, 0.0) >= WORTH_A_COLUMN for each in ranks)]
    steps = [each.seconds_per_step or 0.0 for each in ranks]
    phases = [[each.phases.get(name, 0.0) * step for each, step in zip(ranks, steps, strict=True)] for name in columns]
    step = statistics.median(steps)
    own = [each.own_seconds_per_step or 0.0 for each in ranks]
    knows_own = all(each.own_seconds_per_step is not None for each in ranks)  # else nothing is said beside phases
    before = [each * (1 - (rank.waited or 0.0)) for each, rank in zip(steps, ranks, strict=True)]
    is_early = [max(before) - mine >= HIGH * step > _above(before, number) for number, mine in enumerate(before)]
    rows = [("step", steps, False), *(_beside_steps(ranks, steps, own) if knows_own else [])]
    held = _held_columns(ranks)
    heads = [*(COLUMNS[name] for name in columns), *(head for head, *_ in rows), *held]
    widths = [max(_NARROW, 1 + max(map(len, [head, *held.get(head, [])]))) for head in heads]
    marks_words = "; + and ++ are longer than on most ranks" if compares else ""
    lines = [f"Milliseconds of a step{marks_words}", ""]
    lines.append(f"  {'rank':>4}" + "  ".join(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True)))
    shown_rows = ranks_shown(ranks)
    for number in shown_rows:
        cells = [(times, not is_early[number]) for times in phases] + [(times, marks) for _, times, marks in rows]
        texts = [
            _cell(times, number, step if marks and compares else math.inf, width, paint)
            for (times, marks), width in zip(cells, widths, strict=False)
        ]
        beside = zip(held.values(), widths[len(cells) :], strict=True)
        texts += [f"{column[number]:>{width}}{_MARKS[0]}" for column, width in beside]
        lines.append(f"  {ranks[number].rank:>4}{''.join(texts)}".rstrip())
    if len(shown_rows) < len(ranks):
        lines.append(f"  and {len(ranks) - len(shown_rows)} ranks between these")
    return lines


def _held_columns(ranks: Sequence[RankRun]) -> dict[str, list[str]]:
    """What batches of each rank hold, by the head of its column: where ranks differ in it, or padding is worth a word."""
    columns = {}
    sizes = [each.elements for each in ranks if each.elements]
    if len(sizes) == len(ranks) and max(sizes) >= UNEVEN * min(sizes):
        columns["elements"] = [f"{size:,.0f}" for size in sizes]
    paddings = [each.padding for each in ranks if each.padding is not None]
    if len(paddings) == len(ranks) and max(paddings) >= HIGH:
        columns["padding"] = [f"{100 * padding:.0f} %" for padding in paddings]
    return columns


def _beside_steps(
    ranks: Sequence[RankRun], steps: Sequence[float], own: Sequence[float]
) -> list[tuple[str, list[float], bool]]:
    """What a step is made of besides phases: a head, seconds by rank, and whether long ones are marked."""
    waited = [(each.waited or 0.0) * step for each, step in zip(ranks, steps, strict=True)]
    queued = [max(0.0, parts[0] - parts[1] - parts[2]) for parts in zip(steps, waited, own, strict=True)]
    columns = [("in collectives", waited, False)]
    if any(each >= HIGH * step for each, step in zip(queued, steps, strict=True)):
        columns.append(("without a core", queued, False))
    return [*columns, ("own time", list(own), True)]


def _above(times: Sequence[float], number: int) -> float:
    return times[number] - statistics.median_low(times)


def _cell(times: Sequence[float], number: int, step: float, width: int, paint: Paint) -> str:
    """A time in its column. step: what marks are measured by, infinite for none."""
    above = _above(times, number)
    mark = (above >= HIGH * step) + (above >= FAR * step)
    text = f"{milliseconds_of(times[number]):>{width}}{_MARKS[mark]}"
    return paint(text, ("", "yellow", "bold red")[mark]) if mark else text


def milliseconds_of(seconds: float | None) -> str:
    """A time in milliseconds, without the unit."""
    return f"{1000 * (seconds or 0.0):.3g}" if (seconds or 0.0) < 1 else f"{1000 * (seconds or 0.0):,.0f}"


def ranks_shown(ranks: Sequence[RankRun]) -> list[int]:
    """Positions of the ranks that are shown: of many the ones farthest from the middle."""
    if len(ranks) <= MOST_RANKS:
        return list(range(len(ranks)))
    own = [each.own_seconds_per_step or each.seconds_per_step or 0.0 for each in ranks]
    middle = statistics.median(own)
    return sorted(sorted(range(len(ranks)), key=lambda number: -abs(own[number] - middle))[:MOST_RANKS])


def communication(run: Run, ranks: Sequence[RankRun]) -> list[str]:
    """What is said of communication, of waiting for each other, and of what batches hold, a sentence each."""
    said = []
    if run.communication_exposed is not None:
        hidden = ""
        if run.communication_overlap is not None:
            share = f"{100 * run.communication_overlap:.0f} %"
            hidden = f" DistributedDataParallel hides {share} of its communication behind the backward pass."
        said.append(
            f"{100 * run.communication_exposed:.0f} % of a step is communication that nothing hides, on the rank that waits "
            f"least in it.{hidden}"
        )
    if run.imbalance is not None and len(ranks) > 1:
        said.append(f"Ranks wait for whichever comes last for {100 * run.imbalance:.0f} % of a step, on average.")
    elif len(ranks) > 1 and all(each.waited == 0.0 for each in ranks):
        said.append("The ranks exchange nothing: each trains on its own, without a collective of torch.distributed.")
    elif len(ranks) > 1 and all(each.waited is None for each in ranks):
        said.append(
            "How long ranks wait for each other is not known here, as their collectives run on the device: `perfaudit trace` "
            "on a trace of each rank tells it."
        )
    elif len(ranks) > 1:
        said.append("The steps that all ranks have made are too few to compare them.")
    sizes = [each.elements for each in ranks if each.elements]
    if len(sizes) > 1 and max(sizes) >= UNEVEN * min(sizes):
        said.append(f"Batches hold {min(sizes):,.0f} to {max(sizes):,.0f} elements a step, by rank.")
    if run.batch_spread is not None and run.batch_spread >= UNEVEN:
        said.append(
            f"The fullest batch of a step holds {run.batch_spread:.2f} times the mean of all ranks, on average."
        )
    paddings = [each.padding for each in ranks if each.padding is not None]
    if paddings:
        low, high = (f"{100 * each:.0f}" for each in (min(paddings), max(paddings)))
        said.append(f"Padding is {low if low == high else f'{low} to {high}'} % of what batches hold.")
    return said
