"""Which ranks of many a page shows, and what they are called in it."""

from __future__ import annotations

from collections.abc import Sequence

from perfaudit.render.html.markup import Markup, element, shorten, words
from perfaudit.traces import RankTrace, Traces

LONGEST_NAME = 40  # letters of a file


def label(rank: RankTrace) -> str:
    """ "rank 3 cuda:0"; the name of the file where no rank is known, of a long one its head and its end."""
    file = rank.file.rpartition("/")[2]
    short = file if len(file) <= LONGEST_NAME else f"{file[: LONGEST_NAME // 2]}..{file[-LONGEST_NAME // 2 :]}"
    name = f"rank {rank.rank}" if rank.rank is not None else short
    return shorten(f"{name} {rank.device}", 60)


def share(value: float, digits: int = 0) -> str:
    """A share in percent: "12 %"."""
    return f"{100 * value:.{digits}f} %"


def choose_ranks(ranks: Sequence[RankTrace], traces: Traces, most: int) -> list[RankTrace]:
    """At most so many, in their order: those that others wait for, those that compute least and most, and every n-th."""
    if len(ranks) <= most:
        return list(ranks)
    late = {one.rank for one in traces.stragglers}
    by_compute = sorted(range(len(ranks)), key=lambda index: ranks[index].shares["compute"])
    evenly = [number * len(ranks) // most for number in range(most)]
    wanted = [
        *(index for index, rank in enumerate(ranks) if rank.rank in late),
        by_compute[0],
        by_compute[-1],
        *evenly,
    ]
    return [ranks[index] for index in sorted(list(dict.fromkeys(wanted))[:most])]


def left_out_sentence(shown: int, of: int) -> Markup:
    """A sentence on what is not drawn, nothing where all is."""
    if shown == of:
        return Markup()
    said = (
        f"{shown} of {of:,} ranks are shown: those that others wait for, those that compute least and most, and others at "
        "equal distances. `--format json` has all of them."
    )
    return element("p", words(said), class_="dim")
