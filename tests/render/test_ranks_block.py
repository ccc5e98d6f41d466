"""The ranks of a run as text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfaudit.render.paint import plain
from perfaudit.render.run import run_block
from perfaudit.render.run_ranks import ABORTS, MOST_RANKS, faults, late_words, ranks_block
from perfaudit.runs import RankRun, Run

PHASES = {"data_wait": 0.1, "forward": 0.2, "backward": 0.6, "optimizer": 0.099, "other": 0.001}
RANK = RankRun(
    0, "enough", steps=50, seconds_per_step=0.05, own_seconds_per_step=0.04, phases=PHASES, waited=0.2, elements=4096.0
)
LATE = replace(
    RANK,
    rank=1,
    own_seconds_per_step=0.049,
    waited=0.02,
    phases=PHASES | {"data_wait": 0.4, "backward": 0.3},
    padding=0.25,
)
RUN = Run(
    "train.py", "enough", steps=50, counted=47, seconds_per_step=0.05, by_rank=(RANK, LATE), ranks=2,
    communication_exposed=0.08, communication_overlap=0.6, imbalance=0.09,
)  # fmt: skip


def block(run: Run, width: int = 80) -> str:
    return ranks_block(run, plain, width)


def test_each_rank_is_a_row_and_what_is_longer_than_on_most_is_marked() -> None:
    """Not the backward pass of rank 0, which holds its waiting for rank 1."""
    assert block(RUN) == (
        "Milliseconds of a step; + and ++ are longer than on most ranks\n"
        "\n"
        "  rank   data   forward   backward   update     step   in collectives   own time\n"
        "     0      5        10         30     4.95       50               10         40\n"
        "     1     20++      10         15     4.95       50                1         49++\n"
        "\n"
        "8 % of a step is communication that nothing hides, on the rank that waits least\n"
        "in it. DistributedDataParallel hides 60 % of its communication behind the\n"
        "backward pass.\n"
        "Ranks wait for whichever comes last for 9 % of a step, on average.\n"
        "Padding is 25 % of what batches hold.\n"
    )


def test_a_rank_that_is_no_earlier_has_marks_in_its_phases_and_waiting_for_cores_has_a_column() -> None:
    ranks = (replace(RANK, own_seconds_per_step=0.03), replace(LATE, own_seconds_per_step=0.031, waited=0.18))
    assert [line.rstrip() for line in block(replace(RUN, by_rank=ranks)).splitlines()[2:5]] == [
        "  rank   data   forward   backward   update     step   in collectives   without a core   own time",
        "     0      5        10         30++   4.95       50               10               10         30",
        "     1     20++      10         15     4.95       50                9               10         31",
    ]


@pytest.mark.parametrize("known", [0, 1])
def test_ranks_whose_waiting_is_not_known_have_their_phases_alone(known: int) -> None:
    """Also where it is not known of one of them, which has died early."""
    ranks = [replace(each, own_seconds_per_step=None, waited=None) for each in (RANK, LATE)]
    ranks[:known] = [RANK] * known
    assert "   update     step\n" in block(replace(RUN, by_rank=tuple(ranks)))


def test_of_very_many_ranks_that_failed_the_first_are_named() -> None:
    late = [replace(RANK, rank=rank, ended="late") for rank in range(100)]
    said = faults(late)
    assert len(said) == MOST_RANKS + 1 and said[-1] == f"{100 - MOST_RANKS} more ranks ended so."


@pytest.mark.parametrize(
    ("elements", "padding", "ends"),
    [
        ((4096.0, 4096.0), (0.25, 0.31), ("own time   padding", "        40      25 %", "       49++    31 %")),
        ((4096.0, 12288.0), (0.01, 0.02), ("own time   elements", "        40      4,096", "       49++   12,288")),
        ((4096.0, 4097.0), (0.01, 0.02), ("own time", "        40", "       49++")),
        ((4096.0, None), (0.25, None), ("own time", "        40", "       49++")),
    ],
)
def test_what_batches_of_a_rank_hold_is_told_where_it_says_something(
    elements: tuple[float | None, ...], padding: tuple[float | None, ...], ends: tuple[str, ...]
) -> None:
    ranks = (RANK, replace(RANK, rank=1, own_seconds_per_step=0.049))
    each = zip(ranks, elements, padding, strict=True)
    ranks = tuple(replace(rank, elements=size, padding=share) for rank, size, share in each)
    lines = block(replace(RUN, by_rank=ranks), 200).splitlines()
    assert [line.endswith(end) for line, end in zip(lines[2:5], ends, strict=True)] == [True] * 3, lines


def test_batches_that_differ_from_rank_to_rank_are_told_by_the_step() -> None:
    said = "The fullest batch of a step holds 1.21 times the mean of all ranks, on average."
    assert said in block(replace(RUN, batch_spread=1.21), 120)
    assert "fullest" not in block(replace(RUN, batch_spread=1.01), 120)


@pytest.mark.parametrize(
    ("ranks", "first"),
    [
        (
            [
                replace(
                    RANK,
                    ended="failed",
                    message="RuntimeError: Connection closed by peer (train.py:9 in main)",
                    steps=7,
                ),
                replace(LATE, ended="failed", message="ValueError: no such row (data.py:3 in read)", steps=6),
            ],
            "Rank 1 failed after 6 steps: ValueError: no such row (data.py:3 in read).",
        ),
        (
            [
                replace(RANK, ended="late", stands="train.py:9 in main, in a backward pass"),
                replace(LATE, ended="late", stands="data.py:3 in read"),
            ],
            "Rank 1 made no further step after at least 50 steps; it stands at data.py:3 in read.",
        ),
        (
            [
                replace(RANK, ended="late", message=late_words(50, 60.0), stands="train.py:9 in main, in a collective"),
                replace(LATE, ended="late", message=late_words(50, 60.0), stands="data.py:3 in read"),
            ],
            "Rank 1 made no step for 60 s after at least 50 steps (--timeout allows more); it stands at data.py:3 in read.",
        ),
        (
            [
                replace(RANK, ended="late", message=late_words(0, 60.0), stands="train.py:9 in main, in a collective"),
                replace(LATE, ended="late", message="told nothing for 20 s"),
            ],
            "Rank 1 told nothing for 20 s.",
        ),
        (
            [
                replace(RANK, ended="late", steps=0, stands="train.py:9 in main, in a collective"),
                replace(LATE, ended="late", steps=0, message="Seen in 60 s: no update.", stands="data.py:3 in read"),
            ],
            "Rank 1 made no step. Seen in 60 s: no update. It stands at data.py:3 in read.",
        ),
        (
            [
                replace(RANK, ended="stopped", message="rank 1 of 2 did not join"),
                RankRun(1, "missing", "has not joined in 121 s"),
            ],
            "Rank 1 has not joined in 121 s.",
        ),
        (
            [replace(RANK, ended="stopped", message="rank 1 has ended"), replace(LATE, ended="finished", steps=20)],
            "Rank 1 ended by itself after 20 steps, the others had more to do.",
        ),
    ],
)
def test_the_cause_comes_before_what_other_ranks_suffered(ranks: list[RankRun], first: str) -> None:
    lines = block(replace(RUN, by_rank=tuple(ranks)), 200).splitlines()
    assert lines[0] == first
    assert lines[1].startswith("Rank 0 ")


@pytest.mark.parametrize(
    ("ended", "message", "said"),
    [
        (
            "failed",
            "its process ended by signal SIGKILL",
            "Rank 0 failed after at least 16 steps: its process ended by signal SIGKILL.",
        ),
        (
            "dead",
            "its process is dead, and told nothing",
            "Rank 0 died after at least 16 steps: its process is dead, and told nothing.",
        ),
        (
            "failed",
            "its process ended by signal SIGABRT",
            f"Rank 0 failed after at least 16 steps: its process ended by signal SIGABRT.{ABORTS}",
        ),
        ("failed", "ValueError: no", "Rank 0 failed after 16 steps: ValueError: no."),
    ],
)
def test_a_rank_that_is_killed_has_not_told_its_last_steps(ended: str, message: str, said: str) -> None:
    assert faults([replace(RANK, ended=ended, message=message, steps=16), LATE]) == [said]


def test_a_rank_that_is_killed_early_may_have_made_steps_and_the_headline_names_no_interruption() -> None:
    """torchrun interrupts the other ranks when one has died."""
    dead = RankRun(1, "dead", "it left no word")
    run = Run("train.py", "interrupted", by_rank=(RankRun(0, "interrupted"), dead), ranks=2)
    assert run_block(run, plain, 100) == (
        "No step could be timed.\n"
        "\n"
        "Rank 1 died before it told of a step: it left no word.\n"
        "Rank 0 was interrupted before its first step.\n"
    )
    alone = replace(run, by_rank=(), ranks=1)
    assert run_block(alone, plain, 100) == "Interrupted before a step could be timed.\n"


def test_where_ranks_do_not_meet_more_time_is_no_advice() -> None:
    stands = "train.py:7 in main, where ranks meet (init_process_group)"
    assert late_words(0, 60.0, stands) == "made no step within 60 s"
    ranks = (
        replace(RANK, ended="late", steps=0, stands=stands),
        replace(LATE, ended="late", steps=0, stands="a.py:3 in f"),
    )
    assert [said[:6] for said in faults(ranks)] == ["Rank 1", "Rank 0"]


def test_a_rank_that_never_joins_is_named_once() -> None:
    """Not by the rank that was ended for it, nor by the sentence that says that nothing was timed."""
    why = "rank 1 of 2 did not join within 120 s"
    ended = RankRun(0, "stopped", why, stands="train.py:9 in main, in a collective")
    run = Run(
        "train.py", "stopped", message=why, by_rank=(ended, RankRun(1, "missing", "has not joined in 121 s")), ranks=2
    )
    assert run_block(run, plain, 100) == (
        "No step could be timed.\n"
        "\n"
        "Rank 1 has not joined in 121 s.\n"
        "Rank 0 was ended before its first step. It stands at train.py:9 in main, in a collective.\n"
    )
    alone = replace(run, by_rank=(), ranks=1)
    assert run_block(alone, plain, 100) == f"Ended before a step could be timed: {why}.\n"


def test_a_rank_that_lost_the_others_says_so_in_plain_words() -> None:
    lost = replace(RANK, ended="failed", message="RuntimeError: [..] Connection reset by peer (train.py:9 in main)")
    assert block(replace(RUN, by_rank=(lost, LATE)), 200).startswith(
        "Rank 0 then lost the connection to another rank after 50 steps (train.py:9 in main).\n"
    )


def test_of_many_ranks_those_are_shown_that_differ_most() -> None:
    many = tuple(replace(RANK, rank=rank, own_seconds_per_step=0.04 + 0.001 * (rank == 33)) for rank in range(64))
    lines = block(replace(RUN, by_rank=many)).splitlines()
    assert sum(line.startswith("  ") and line.split()[0].isdigit() for line in lines) == MOST_RANKS
    assert any(line.split()[:1] == ["33"] for line in lines)
    assert f"  and {64 - MOST_RANKS} ranks between these" in lines


def test_without_ranks_there_is_no_block() -> None:
    assert block(replace(RUN, by_rank=(), communication_exposed=None, imbalance=None)) == ""


def test_what_is_not_known_is_said() -> None:
    unknown = replace(RUN, communication_exposed=None, imbalance=None)
    assert "too few to compare" in block(unknown, 200)
    ranks = tuple(replace(each, waited=None, own_seconds_per_step=None) for each in RUN.by_rank)
    assert "collectives run on the device" in block(replace(unknown, by_rank=ranks), 200)
