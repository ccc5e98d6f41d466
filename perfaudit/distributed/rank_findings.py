"""From what the ranks have shown to findings: who is late, loads that differ, communication that nothing hides. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from perfaudit.distributed.compare import BY_HAND, EXPOSED, LAST_OF_IDLE, Comparison
from perfaudit.findings import Finding, Location, Severity
from perfaudit.runs import PHASE_WORDS, LateRank, RankRun

# Of a step: ranks that wait so long for whichever comes last are no noise on a machine that others use. Chosen: of 50 runs of
# trainings with nothing wrong, at a load of 2 to 17 on two cores, one had 17.5 %, the others 2 to 12 % (benchmarks/ranks.jsonl).
MORE_THAN_NOISE = 0.25
LARGEST = 1.3  # times as much as on any other rank: batches that are the reason why a rank is late


@dataclass(frozen=True, slots=True)
class Caller:
    """A line of the script's own that calls a collective: its seconds as a share of a step, and calls a step."""

    path: str
    line: int
    name: str
    share: float
    calls: float


@dataclass(frozen=True, slots=True)
class Head:
    """What findings have of their rule."""

    name: str
    severity: Severity


def findings_of(
    comparison: Comparison,
    ranks: Sequence[RankRun],
    callers: Sequence[Caller],
    heads: Mapping[str, Head],
    is_busy: bool = False,
) -> tuple[Finding, ...]:
    """What to say, the largest loss first; nothing where ranks are alike and communication is hidden.

    is_busy: others used the cores, so that a rank, or a bucket, may be late for that now and then.
    """
    found: list[tuple[float, Finding]] = []
    step = max((each.seconds_per_step or 0.0 for each in ranks), default=0.0)
    for late in comparison.stragglers:
        if is_made_up_for(late):  # the others hardly wait for it here
            found.append((0.0, replace(_finding("PA904", _idle_words(late, ranks), heads), severity="info")))
            continue
        share = late.seconds / step if step else 0.0
        found.append((share, _finding("PA904", _late_words(late, ranks), heads)))
        if (times := _times_as_much(late.rank, ranks)) >= LARGEST:
            message = (
                f"batches of rank {late.rank} hold {times:.2f} times as much as those of the others, and it comes last: the same "
                "work for all ranks takes away what they wait for it"
            )
            found.append((share, _finding("PA905", message, heads)))
    is_noise = is_busy and not comparison.batches_explain and (comparison.in_turn or 0.0) < MORE_THAN_NOISE
    if comparison.is_imbalanced and comparison.in_turn is not None and not is_noise:
        why = {
            True: ": its batches hold more than the others' then",
            False: ". What their batches hold does not explain it: loading, or the host, takes different times",
            None: "",
        }[comparison.batches_explain]
        message = (
            f"ranks come to collectives at different times, now one and now another last: {100 * comparison.in_turn:.0f} % of "
            f"a step is waiting for whichever comes last{why}"
        )
        found.append((comparison.in_turn, _finding("PA905", message, heads)))
    exposed = comparison.exposed or 0.0
    by_hand = [each for each in callers if min(each.share, exposed) >= BY_HAND]
    if by_hand:
        first = by_hand[0]
        message = (
            f"`{first.name}`, called {first.calls:.3g} times a step, takes {100 * min(first.share, exposed):.0f} % of a "
            "step on the rank that waits least, and nothing is computed meanwhile. DistributedDataParallel sums gradients in "
            "buckets while the backward pass goes on"
        )
        found.append(
            (first.share, _finding("PA903", message, heads, Location(first.path, first.line, 1, first.line, 1)))
        )
    elif exposed >= EXPOSED and not is_busy:
        message = (
            f"{100 * exposed:.0f} % of a step is communication that no computation hides, on the rank that waits least; "
            f"{100 * comparison.in_buckets:.0f} % is waiting for buckets at the end of the backward pass"
        )
        found.append((exposed, _finding("PA903", message, heads)))
    return tuple(finding for _, finding in sorted(found, key=lambda each: -each[0]))


def is_made_up_for(late: LateRank) -> bool:
    """Whether the others hardly wait for a rank that idles, because it computes in less time here."""
    return late.only_idles and late.last < LAST_OF_IDLE


def _late_words(late: LateRank, ranks: Sequence[RankRun]) -> str:
    last, where = f"rank {late.rank} comes last in {100 * late.last:.0f} % of the steps", _where(late.rank, ranks)
    if late.only_idles:
        return f"{last}. It sleeps, reads or waits {_span(late)} longer a step than the others{where}"
    return f"{last}, {_span(late)} behind the others, which wait for it{where}"


def _idle_words(late: LateRank, ranks: Sequence[RankRun]) -> str:
    return (
        f"rank {late.rank} sleeps, reads or waits {_span(late)} longer a step than the others{_where(late.rank, ranks)}. It "
        f"comes last in only {100 * late.last:.0f} % of the steps: its computing takes less time than that of another rank "
        "here, which may have a slower core. On equal cores the others may wait for it"
    )


def _span(late: LateRank) -> str:
    return f"{1000 * late.seconds:.3g} ms [{1000 * late.low:.3g}, {1000 * late.high:.3g}]"


def _where(rank: int, ranks: Sequence[RankRun]) -> str:
    """The phase in which a late rank differs most from the others; "" where none stands out."""
    mine = next((each for each in ranks if each.rank == rank), None)
    others = [each for each in ranks if each.rank != rank and each.seconds_per_step]
    if mine is None or not others or not mine.seconds_per_step:
        return ""
    extra = {
        name: share * mine.seconds_per_step
        - sum(each.phases.get(name, 0.0) * (each.seconds_per_step or 0.0) for each in others) / len(others)
        for name, share in mine.phases.items()
        if name != "backward"  # in which the others wait
    }
    largest = max(extra, key=lambda name: extra[name], default="")
    if not largest or extra[largest] <= 0:
        return ""
    phase = "outside of the phases that are timed" if largest == "other" else f"in {PHASE_WORDS[largest]}"
    return f"; its largest excess is {phase} ({1000 * extra[largest]:.3g} ms)"


def _times_as_much(rank: int, ranks: Sequence[RankRun]) -> float:
    """How many times as much a rank's batches hold as those of the rank with most beside it; 0 where that is not known."""
    mine = next((each.elements for each in ranks if each.rank == rank), None)
    most = max((each.elements or 0.0 for each in ranks if each.rank != rank), default=0.0)
    return mine / most if mine and most else 0.0


def _finding(rule: str, message: str, heads: Mapping[str, Head], location: Location | None = None) -> Finding:
    head = heads[rule]
    return Finding(rule, head.name, head.severity, message, location, note="observed in this run")
