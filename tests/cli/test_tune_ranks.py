"""What the first rank makes of the sets that all ranks have run."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from perfaudit.cli import tune_ranks
from perfaudit.cli.rank_sets import _is_cut_short
from perfaudit.cli.ranks_child import Gone
from perfaudit.cli.set_of_ranks import set_run_of, shares_of_step
from perfaudit.cli.tune import _hand_over
from perfaudit.cli.tune_ranks import (
    FEWEST_STEPS,
    MOST_STEPS,
    SHORT_STEPS,
    _lead,
    _steps_of_set,
    _whole_windows,
)
from perfaudit.distributed.launch import RankPlace
from perfaudit.errors import NothingMeasured
from perfaudit.report import Report
from perfaudit.runs import RankUpdate, RankUpdates, Run
from perfaudit.script.request import Script
from perfaudit.target.names import Target
from perfaudit.tune.ranks.candidates import candidates_of
from perfaudit.tune.ranks.plan import Shares
from perfaudit.tune.ranks.race import BASE, CONTROL, Race, SetRun
from perfaudit.tune.ranks.report import report_of_race

LOSSES = ((1.0, 0.5), (1.1, 0.6))
ALLOWED = frozenset({"rounding", "precision"})
TEXT = "from torch.nn.parallel import DistributedDataParallel\nmodel = DistributedDataParallel(net)\n"


def word(rank: int, seconds: float, **others: Any) -> dict[str, Any]:
    updates = updates_of(0, [seconds] * 20, [8] * 20, [0] * 20)
    return {"rank": rank, "ended": "enough", "updates": updates, "losses": [1.0, 0.5]} | others


def updates_of(first: int, seconds: list[float], elements: list[int], padding: list[int]) -> dict[str, Any]:
    rows = zip(seconds, elements, padding, strict=True)
    return asdict(
        RankUpdates.of(first, [RankUpdate(each, 0.0, 0.0, 0.0, 0.0, own, beside, 0.0) for each, own, beside in rows])
    )


def test_a_set_takes_as_long_as_its_slowest_rank() -> None:
    assert set_run_of([word(0, 0.04), word(1, 0.06, norms=[3.0])], 20) == SetRun(
        0.06, ((1.0, 0.5), (1.0, 0.5)), mean=pytest.approx(0.06), spread=1.0, norms=((), (3.0,))
    )


def test_what_a_set_holds_is_told_of_whole_windows_behind_the_first() -> None:
    """25 steps of the first window, 25 that count, and the beginning of a third, which has some of its batches only."""

    def told(rank: int, tokens: int, padding: int, first: int = 0) -> dict[str, Any]:
        seconds = [9.0] * 25 + [0.1] * 24 + [0.6] + [9.0] * 7
        held = ([999] * 25 + [each] * 25 + [999] * 7 for each in (tokens, padding))
        return word(rank, 0.0, updates=updates_of(first, seconds[first:], *(row[first:] for row in held)))

    found = set_run_of([told(0, 100, 100), told(1, 300, 100, first=20)], 57)
    assert (found.mean, found.tokens, found.padding) == (pytest.approx(0.12), 400.0, pytest.approx(1 / 3))
    assert found.spread == pytest.approx(400 / 300)
    unmasked = set_run_of([told(0, 100, 0), told(1, 300, 0)], 57)
    assert (unmasked.tokens, unmasked.padding, unmasked.spread) == (0.0, None, 1.5)


@pytest.mark.parametrize(("steps", "whole"), [(40, 50), (50, 50), (51, 75), (200, 200)])
def test_steps_of_a_set_are_whole_windows_where_batches_by_length_are_raced(steps: int, whole: int) -> None:
    assert _whole_windows(steps) == whole


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"ended": "failed", "message": "ValueError: no"}, "Rank 1 failed before its first step: ValueError: no"),
        ({"ended": "late", "stands": "train.py:9 in main"}, "made no step; it stands at train.py:9 in main"),
        ({"updates": updates_of(0, [], [], [])}, "no more than"),
        ({"updates": updates_of(0, [0.1] * 3, [8] * 3, [0] * 3)}, "no more than"),
    ],
)
def test_a_set_of_which_a_rank_fails_has_failed(other: dict[str, Any], why: str) -> None:
    assert why in set_run_of([word(0, 0.04), word(1, 0.06, **other)], 20).why


def test_a_set_fails_for_the_rank_that_was_the_cause() -> None:
    lost = word(0, 0.04, ended="failed", message="RuntimeError: Connection closed by peer", steps=20)
    cause = word(1, 0.04, ended="failed", message="ValueError: no static graphs here", steps=20)
    failed = set_run_of([lost, cause], 20)
    assert failed.why == "Rank 1 failed after 20 steps: ValueError: no static graphs here."
    assert failed.has_failed


def test_a_rank_that_does_not_join_the_first_set_is_one_sentence() -> None:
    class Alone:
        def run(self, *_: object, **__: object) -> SetRun:
            raise Gone("rank 1 has not joined")

    with pytest.raises(NothingMeasured) as refused:
        _lead(Alone(), RankPlace(), Target("train.py"), Script("train.py", (), False), 60, frozenset(), False)  # type: ignore[arg-type]
    assert str(refused.value) == "train.py: rank 1 has not joined, so that nothing was measured"


def test_ranks_that_hang_in_the_first_set_are_named_all_with_where_they_stand() -> None:
    """Which of them waits for the other is what tells the fault."""
    words = [
        word(rank, 0.04, ended="late", message="made no step for 15 s after at least 3 steps", stands=stands)
        for rank, stands in enumerate(("train.py:9 in main, in a barrier", "train.py:12 in main"))
    ]

    class Hung(TimedSets):
        def run(self, texts: dict[str, str], steps: int, reads_samples: bool = False) -> SetRun:
            return set_run_of(words, steps)

    with pytest.raises(NothingMeasured) as refused:
        _lead(
            Hung([0.0], 1.0, 1.0), RankPlace(0, 2, 0, 2), Target("train.py"), Script("train.py", (), False), 60.0,
            ALLOWED, False,
        )  # type: ignore[arg-type]  # fmt: skip
    late = "made no step for 15 s after at least 3 steps; it stands at train.py"
    assert str(refused.value) == f"train.py: Rank 1 {late}:12 in main. Rank 0 {late}:9 in main, in a barrier."


@pytest.mark.parametrize("is_reported", [True, False])
def test_a_rank_whose_first_one_is_gone_does_not_end_as_if_all_were_well(
    monkeypatch: pytest.MonkeyPatch, is_reported: bool
) -> None:
    ranks = SimpleNamespace(is_first=False, first=0, wait_for_report=lambda: is_reported)
    monkeypatch.setattr(tune_ranks, "together", lambda *_: nullcontext(ranks))
    monkeypatch.setattr(tune_ranks, "rank_sets", lambda *_: nullcontext(SimpleNamespace(follow=lambda: None)))

    def tune() -> None:
        tune_ranks.tune_on_ranks(
            RankPlace(1, 2, 1, 2),
            Target("train.py"),
            60,
            60,
            frozenset(),
            False,
            None,
            lambda report: pytest.fail("a report"),
        )

    if is_reported:
        tune()
    else:
        with pytest.raises(NothingMeasured) as gone:
            tune()
        assert str(gone.value) == "train.py: rank 0, which was to report, is gone"


@pytest.mark.parametrize("fails", [False, True])
def test_the_other_ranks_hear_that_the_report_is_out_when_it_is(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """A launcher ends all ranks when one of them leaves: the others must not leave before it is printed."""
    happened = list[str]()
    ranks = SimpleNamespace(is_first=True, tell_reported=lambda: happened.append("told"))
    monkeypatch.setattr(tune_ranks, "together", lambda *_: nullcontext(ranks))
    monkeypatch.setattr(
        tune_ranks, "rank_sets", lambda *_: nullcontext(SimpleNamespace(end=lambda: happened.append("no more sets")))
    )
    monkeypatch.setattr(tune_ranks, "_lead", lambda *_: Report("tune"))

    def hand_over(_: Report) -> None:
        happened.append("printed")
        raise typer.Exit(2) if fails else OSError("the disk is full")

    with pytest.raises((OSError, typer.Exit)):
        tune_ranks.tune_on_ranks(RankPlace(0, 2, 0, 2), Target("train.py"), 60, 60, frozenset(), False, None, hand_over)
    assert happened == ["no more sets", "printed", "told"]


class TimedSets:
    """Sets of ranks that take so many seconds each, the first one its own, on a clock that they alone move."""

    def __init__(self, now: list[float], first: float, later: float) -> None:
        self.now, self.first, self.later, self.ran = now, first, later, list[dict[str, str]]()
        self.screened = list[float]()
        self.differ, self.is_complete, self.shares = "", True, Shares()
        self.facts: dict[str, Any] = {"files": ["train.py"], "collectives": {"backend": "gloo"}}

    def run(self, texts: dict[str, str], steps: int, reads_samples: bool = False) -> SetRun:
        self.now[0] += self.later if self.ran else self.first
        self.ran.append(texts)
        return SetRun(0.1 * (1 + 0.001 * (len(self.ran) % 3)), LOSSES)

    def screen(self, target: Target, allow: frozenset[str], seconds: float, *_: object) -> None:
        """Nothing is told."""
        self.screened.append(seconds)


@pytest.mark.parametrize(
    ("first", "later", "budget", "raced", "is_left"),
    [
        (60.0, 5.0, 800.0, 6, False),  # a load that passed: the first set alone took long
        (5.0, 5.0, 800.0, 6, False),
        (5.0, 60.0, 800.0, 6, False),  # it came behind: all began, as they were to fit
        (60.0, 60.0, 1100.0, 1, True),
        (1.0, 1.0, 0.0, 1, True),
    ],
)
def test_what_the_budget_has_no_time_for_is_told_by_what_was_raced_and_not_by_the_first_set(
    monkeypatch: pytest.MonkeyPatch, first: float, later: float, budget: float, raced: int, is_left: bool
) -> None:
    now = [0.0]
    monkeypatch.setattr(tune_ranks.time, "monotonic", lambda: now[0])
    sets = TimedSets(now, first, later)
    report = _lead(
        sets, RankPlace(0, 2, 0, 2), Target("train.py"), Script("train.py", (), False), budget, ALLOWED, False
    )  # type: ignore[arg-type]
    left = [note for note in report.notes if "not raced in fresh sets" in note]
    assert len(report.trials) - 1 == raced
    others = "static_graph=True; gradient_as_bucket_view=True, static_graph=True; bucket_cap_mb=5; bucket_cap_mb=100"
    said = f"not raced in fresh sets, for which the budget had no time: {others}; comm_hook='fp16_compress_hook'; "
    if is_left:
        (note,) = left
        assert note.startswith(f"{said}--budget ")
        assert note.endswith("s has time for all")
    else:
        assert not left
    assert {trial.status for trial in report.trials} == ({"ok"} if budget else {"not_measured"})


def test_ctrl_c_in_the_first_set_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    class Interrupted(TimedSets):
        def run(self, texts: dict[str, str], steps: int, reads_samples: bool = False) -> SetRun:
            raise KeyboardInterrupt

    sets, script = Interrupted([0.0], 1.0, 1.0), Script("train.py", (), False)
    with pytest.raises(KeyboardInterrupt):  # which is exit code 130: see `cli.entry`
        _lead(sets, RankPlace(0, 2, 0, 2), Target("train.py"), script, 60.0, ALLOWED, False)  # type: ignore[arg-type]
    assert "train.py: interrupted before anything was measured" in capsys.readouterr().err


@pytest.mark.parametrize("at", [2, 6])
def test_ctrl_c_in_a_set_of_the_race_is_an_interruption_and_exit_code_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], at: int
) -> None:
    class Interrupted(TimedSets):
        def run(self, texts: dict[str, str], steps: int, reads_samples: bool = False) -> SetRun:
            if len(self.ran) == at:
                raise KeyboardInterrupt
            return super().run(texts, steps, reads_samples)

    now = [0.0]
    monkeypatch.setattr(tune_ranks.time, "monotonic", lambda: now[0])
    script = Script("train.py", (), False)
    sets = Interrupted(now, 5.0, 5.0)
    report = _lead(sets, RankPlace(0, 2, 0, 2), Target("train.py"), script, 200.0, ALLOWED, False)  # type: ignore[arg-type]
    with pytest.raises(typer.Exit) as left:
        _hand_over(report, "text", None, False, None, None, False, False, is_launched=True)
    said = capsys.readouterr().out
    assert left.value.exit_code == 130
    assert "interrupted; what was measured until then is in this report" in said
    assert "too few generations" not in said


@pytest.mark.parametrize(
    ("communication", "budget", "first", "is_screened"),
    [
        (
            0.4,
            190.0,
            "no_sync=True",
            False,
        ),  # what a running set has no time for is raced in the time of four generations
        (0.4, 400.0, "no_sync=True", True),
        (None, 190.0, "gradient_as_bucket_view=True", True),
    ],
)
def test_where_ranks_wait_for_each_other_no_sync_is_raced_before_all_else(
    monkeypatch: pytest.MonkeyPatch, communication: float | None, budget: float, first: str, is_screened: bool
) -> None:
    loop = (
        "for i, x in enumerate(loader):\n    model(x).mean().backward()\n    if i % 4 == 3:\n        optimizer.step()\n"
    )
    Path("train.py").write_text(TEXT + loop)
    now = [0.0]
    monkeypatch.setattr(tune_ranks.time, "monotonic", lambda: now[0])
    sets = TimedSets(now, 10.0, 10.0)
    sets.shares = Shares(communication)
    report = _lead(
        sets, RankPlace(0, 2, 0, 2), Target("train.py"), Script("train.py", (), False), budget, ALLOWED, False
    )  # type: ignore[arg-type]
    raced = [trial for trial in report.trials if trial.status == "ok"]
    assert [trial.settings["patch"] for trial in raced[1:2]] == [first]
    assert bool(sets.screened) == is_screened
    told = "3 starts of 10 s: the budget is kept for a patch that promises more; --budget 225s has time for them"
    assert any(told in note for note in report.notes) != is_screened
    assert any("not raced in fresh sets" in note for note in report.notes)


def test_a_set_tells_where_its_step_goes() -> None:
    def told(waited: float, loading: float, **others: Any) -> dict[str, Any]:
        updates = [RankUpdate(0.1, waited, 0.0, 0.0, 0.0, 8, 0, 0.0)] * 9
        return word(
            0,
            0.1,
            updates=asdict(RankUpdates.of(0, updates)),
            phases={"data_wait": loading, "optimizer": 0.1},
            **others,
        )

    assert shares_of_step([told(0.03, 0.1), told(0.05, 0.2)]) == Shares(pytest.approx(0.3), 0.1, 0.2)  # type: ignore[arg-type]
    assert shares_of_step([told(0.03, 0.1, collectives={"backend": "nccl"})]).communication is None


@pytest.mark.parametrize(
    ("ended", "message", "updates", "is_so"),
    [
        ("failed", "RuntimeError: Connection closed by peer [127.0.0.1]:9", 39, True),
        ("failed", "ValueError: the patch does this in its last step", 39, False),
        ("failed", "RuntimeError: Connection closed by peer [127.0.0.1]:9", 20, False),
        ("stopped", "rank 1 has ended after 40 steps", 39, True),
        ("late", "made no step for 600 s after step 39", 39, True),
        ("interrupted", "", 39, False),
    ],
)
def test_a_rank_without_its_last_step_is_cut_short_by_another_and_not_by_an_error_of_its_own(
    ended: str, message: str, updates: int, is_so: bool
) -> None:
    assert _is_cut_short(Run("train.py", ended, message=message), updates, 40) == is_so


def test_steps_of_a_set_go_by_what_a_start_takes() -> None:
    assert (_steps_of_set(0.05, 10.0), _steps_of_set(2.0, 10.0), _steps_of_set(0.001, 10.0)) == (
        100,
        FEWEST_STEPS,
        MOST_STEPS,
    )
    assert _steps_of_set(0.0, 10.0) == FEWEST_STEPS


@pytest.mark.parametrize(
    ("step", "start", "fits", "steps"),
    [
        (0.5, 10.0, 13.0, SHORT_STEPS),  # 14 would fit
        (0.5, 10.0, 20.0, 28),
        (0.5, 10.0, 30.0, FEWEST_STEPS),
        (0.05, 10.0, 1.0, 100),  # its start is what a set takes, and not its steps
    ],
)
def test_a_short_budget_has_shorter_sets_where_their_steps_are_what_takes_long(
    step: float, start: float, fits: float, steps: int
) -> None:
    assert _steps_of_set(step, start, fits) == steps


def test_a_short_budget_of_long_steps_has_several_generations(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start of 6 s with 8 steps of 0.56 s: 40 steps a set are one generation in 180 s, and no interval."""

    class LongSteps(TimedSets):
        def run(self, texts: dict[str, str], steps: int, reads_samples: bool = False) -> SetRun:
            self.later = 6.0 + 0.56 * steps
            super().run(texts, steps, reads_samples)
            return SetRun(0.56 * (1 + 0.001 * (len(self.ran) % 3)), LOSSES)

    now = [0.0]
    monkeypatch.setattr(tune_ranks.time, "monotonic", lambda: now[0])
    script, sets = Script("train.py", (), False), LongSteps(now, 10.5, 0.0)
    report = _lead(sets, RankPlace(0, 2, 0, 2), Target("train.py"), script, 180.0, ALLOWED, False)  # type: ignore[arg-type]
    assert [compared.n for compared in report.comparisons] == [2]
    assert 180 - 3 * sets.later < now[0] <= 180  # no further generation fits


def report_of(
    generations: int, patched: float, control: float = 1.0, losses: tuple[tuple[float, ...], ...] = LOSSES
) -> Report:
    """A race whose second candidate takes `patched` of the time."""
    now, found, *_ = candidates_of(["train.py"], frozenset())
    race = Race({each.key: each.settings for each in found}, {each.key: each.fix.changes for each in found}, now)
    for number in range(generations):
        wobble = 1 + 0.001 * (number % 3)
        runs = {key: SetRun(wobble, LOSSES) for key in race.settings}
        race.add(
            runs
            | {
                BASE: SetRun(1.0, LOSSES),
                CONTROL: SetRun(control * wobble, LOSSES),
                "static_graph=True": SetRun(patched * wobble, losses),
            }
        )
    return report_of_race(Report("tune"), race, {each.key: each for each in found})


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TEXT)


def test_what_pays_is_handed_over_as_a_patch_with_what_was_checked() -> None:
    (winner,) = report_of(6, 0.8).winners
    assert winner.fix is not None
    assert "+model = DistributedDataParallel(net, static_graph=True)" in winner.fix.diff
    assert "to the bit" in winner.verified
    assert winner.saving is not None
    assert (winner.saving.basis, round(winner.saving.low, 2)) == ("measured", 0.2)


def test_nothing_is_handed_over_of_few_generations_of_noise_or_of_other_losses() -> None:
    for report in (report_of(1, 0.8), report_of(6, 1.0), report_of(6, 0.8, losses=((1.0, 0.4), (1.1, 0.6)))):
        (winner,) = report.winners
        assert (winner.keeps_current, winner.fix) == (True, None)


def test_where_a_set_of_the_users_code_fails_that_is_why_nothing_was_compared() -> None:
    race = Race({"static_graph=True": {"patch": "static_graph=True"}}, {"static_graph=True": ()}, {"patch": "none"})
    race.add(
        {"static_graph=True": SetRun(1.0, LOSSES), BASE: SetRun(why="Rank 1 failed: ValueError: no", has_failed=True)}
    )
    report = report_of_race(Report("tune"), race, {})
    assert report.notes == ("nothing was compared, as a set of your own code failed",)
    assert report.trials[0].reason == "Rank 1 failed: ValueError: no"
    assert race.order() == []


def test_a_race_whose_control_is_not_the_users_code_hands_nothing_over() -> None:
    report = report_of(6, 0.8, control=1.2)
    assert report.winners[0].keeps_current
    assert "not to be trusted" in report.notes[-1]


def test_without_loss_or_with_a_file_that_changed_the_patch_stays_here() -> None:
    now, found, *_ = candidates_of(["train.py"], frozenset())
    race = Race({each.key: each.settings for each in found}, {each.key: () for each in found}, now)
    for _ in range(4):
        race.add(
            {
                key: SetRun(0.8 if key == "static_graph=True" else 1.0, ((), ()))
                for key in [BASE, CONTROL, *race.settings]
            }
        )
    by_key = {each.key: each for each in found}
    (winner,) = report_of_race(Report("tune"), race, by_key).winners
    assert (winner.fix, "losses were not compared" in winner.handed_over) == (None, True)
    for generation in race.generations:
        for key in generation:
            generation[key] = SetRun(generation[key].seconds, LOSSES)
    Path("train.py").write_text("\n" + TEXT)
    (winner,) = report_of_race(Report("tune"), race, by_key).winners
    assert (winner.fix, "has changed" in winner.handed_over) == (None, True)


@pytest.mark.parametrize(
    ("patched", "exit_zero", "code", "is_said"), [(0.8, False, 1, True), (0.8, True, 0, False), (1.0, False, 0, False)]
)
def test_what_a_launcher_makes_of_exit_code_1_is_said(
    patched: float, exit_zero: bool, code: int, is_said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """torchrun prints a traceback of its own behind the report of a patch that pays."""
    with pytest.raises(typer.Exit) as left:
        _hand_over(report_of(6, patched), "json", None, False, None, None, False, exit_zero, is_launched=True)
    assert left.value.exit_code == code
    assert ("a launcher calls that a failure" in capsys.readouterr().err) == is_said
