"""The race of sets of ranks, with sets whose step and losses are made up."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from perfaudit.findings import Edit, Fix, Location, Span
from perfaudit.report import Report
from perfaudit.tune.ranks.patches import RankPatch
from perfaudit.tune.ranks.plan import Pace
from perfaudit.tune.ranks.race import BASE, CONTROL, MOST_GENERATIONS, NUDGED, SPOILED, Race, SetRun, gap
from perfaudit.tune.ranks.report import report_of_race
from perfaudit.tune.session import INTERRUPTED

LOSSES = ((1.0, 0.5, 0.25), (1.1, 0.6, 0.3))


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def race(*keys: str, changes: tuple[str, ...] = ()) -> Race:
    return Race({key: {key: True} for key in keys}, dict.fromkeys(keys, changes), dict.fromkeys(keys, False), seed=1)


def run(raced: Race, ratios: dict[str, float], noise: float = 0.01, seed: int = 0, most: int = 100) -> None:
    """Run generations until nothing is open."""
    chance = random.Random(seed)
    while (order := raced.order()) and len(raced.generations) < most:
        mood = 1 + chance.random()  # of the machine, in this generation
        raced.add({key: SetRun(mood * ratios.get(key, 1.0) * (1 + chance.gauss(0, noise)), LOSSES) for key in order})


def test_a_generation_has_the_code_as_it_is_identical_code_and_all_that_is_open_in_random_order() -> None:
    raced = race("a", "b")
    orders = set()
    for _ in range(3):
        orders.add(tuple(raced.order()))
        assert sorted(raced.order()) == sorted([BASE, CONTROL, "a", "b"])
        raced.add({key: SetRun(1.0, LOSSES) for key in raced.order()})
    assert len(orders) > 1


def test_what_gains_is_told_with_its_interval_and_leaves_at_a_planned_look() -> None:
    raced = race("fast", "same")
    run(raced, {"fast": 0.8})
    (fast, same) = raced.comparisons()
    assert (fast.verdict, fast.n) == ("faster", 4)
    assert fast.low < 0.8 < fast.high < 0.9
    assert same.verdict == "undecided"
    assert raced.best() == "fast"
    assert len(raced.generations) <= MOST_GENERATIONS


@pytest.mark.parametrize(
    ("generations", "why"), [(1, "too little was measured to tell anything"), (2, "was shown to pay")]
)
def test_a_single_generation_is_no_verdict(generations: int, why: str) -> None:
    raced = race("a")
    run(raced, {}, noise=0.05, most=generations)
    (kept,) = report_of_race(Report("tune"), raced, {}).winners
    assert kept.keeps_current
    assert why in kept.words


def test_what_is_faster_by_too_little_says_so_and_what_budget_would_decide_it() -> None:
    """Three rounds end the budget: 0.525 [0.276, 0.998], and 1 % at worst is not shown."""
    raced = race("a", "broken", "slow")
    for number, ratio in enumerate((0.4055, 0.525, 0.68)):
        runs = {BASE: SetRun(1.0, LOSSES), CONTROL: SetRun(1.0, LOSSES), "a": SetRun(ratio, LOSSES)}
        runs["slow"] = SetRun(1.5, LOSSES)
        raced.add(runs | ({} if number else {"broken": SetRun(why="Rank 1 failed")}))
    compared = raced.comparisons()[0]
    assert (compared.verdict, raced.best(), 0.99 < compared.high < 1) == ("faster", "", True)
    pace = Pace(10.0, 10.0, 122.3)
    (kept,) = report_of_race(Report("tune"), raced, {}, pace=pace).winners
    said = "keep what you have: a is faster, by less than 1 % at worst, which is too little for a patch"
    assert kept.words == f"{said}; 1 more round would decide it if they scatter as these do: --budget 153s"
    assert report_of_race(Report("tune"), raced, {}).winners[0].words == said
    pace.has_screened = True  # for three tenths of what is more, too
    assert report_of_race(Report("tune"), raced, {}, pace=pace).winners[0].words.endswith(": --budget 166s")
    raced.add({BASE: SetRun(1.0, LOSSES), CONTROL: SetRun(1.0, LOSSES), "a": SetRun(0.525, LOSSES)})
    assert raced.best() == "a"


def test_too_few_generations_name_the_budget_that_has_the_first_look() -> None:
    """13 sets of 10 s behind a first one of 12 s."""
    raced = race("a")
    run(raced, {}, most=1)
    (note,) = report_of_race(Report("tune"), raced, {}, pace=Pace(10.0, 12.0)).notes
    told = (
        "too few generations fitted into the budget, the first look at which is after 4: --budget 142s has time for it"
    )
    assert note == told


def test_no_budget_is_named_where_no_number_of_rounds_would_show_the_least_gain() -> None:
    raced = race("a")
    for number in range(3):
        runs = {BASE: 1.0, CONTROL: 1.0, "a": 0.994 + 0.0001 * number}
        raced.add({key: SetRun(seconds, LOSSES) for key, seconds in runs.items()})
    (kept,) = report_of_race(Report("tune"), raced, {}, pace=Pace(10.0)).winners
    assert kept.words.endswith("a is faster, by less than 1 % at worst, which is too little for a patch")


@pytest.mark.parametrize("generations", [0, 1, 3])
def test_an_interruption_is_told_and_the_budget_is_not_blamed_for_it(generations: int) -> None:
    raced = race("a")
    run(raced, {}, noise=0.05, most=generations)
    report = report_of_race(Report("tune", interrupted=True), raced, {})
    assert report.notes[-1] == INTERRUPTED
    assert not any("budget" in note for note in report.notes)
    assert report.winners[0].words == "keep what you have: interrupted before anything was decided"


def test_of_two_that_gain_the_one_is_taken_that_gains_more_for_certain() -> None:
    raced = race("good", "better")
    run(raced, {"good": 0.9, "better": 0.7})
    assert raced.best() == "better"


def test_identical_code_is_hardly_ever_called_faster() -> None:
    called = 0
    for seed in range(100):
        raced = race("same")
        run(raced, {}, noise=0.05, seed=seed)
        called += bool(raced.best())
    assert called <= 5


def test_what_looks_hopeless_in_two_generations_is_run_no_more_and_nothing_is_claimed_of_it() -> None:
    raced = race("slow", "same")
    run(raced, {"slow": 1.5})
    slow = raced.comparisons()[0]
    assert (slow.n, slow.given_up, slow.verdict, slow.high) == (2, True, "undecided", math.inf)


@pytest.mark.parametrize(
    ("losses", "changes", "is_refused"),
    [
        (LOSSES, (), False),
        (((1.0, 0.5, 0.25000001), (1.1, 0.6, 0.3)), (), True),  # identical code gives the same to the bit
        (((1.0, 0.5, 0.25000001), (1.1, 0.6, 0.3)), ("rounding",), False),
        (((1.0, 0.5, 0.26), (1.1, 0.6, 0.3)), ("rounding",), True),
        (((1.0, 0.5, math.nan), (1.1, 0.6, 0.3)), ("rounding",), True),
        (((1.0, 0.5), (1.1, 0.6, 0.3)), ("rounding",), True),
        ((LOSSES[0],), ("rounding",), True),
    ],
)
def test_a_patch_whose_losses_are_others_is_refused(
    losses: tuple[tuple[float, ...], ...], changes: tuple[str, ...], is_refused: bool
) -> None:
    raced = race("patch", changes=changes)
    for _ in range(4):
        raced.add({BASE: SetRun(1.0, LOSSES), CONTROL: SetRun(1.0, LOSSES), "patch": SetRun(0.5, losses)})
    assert ("patch" in raced.failures) == is_refused
    assert raced.best() == ("" if is_refused else "patch")


def test_where_identical_code_gives_other_losses_a_patch_may_be_so_far_off_too() -> None:
    raced = race("patch")
    other = ((1.0, 0.5, 0.2501), LOSSES[1])
    for _ in range(4):
        raced.add({BASE: SetRun(1.0, LOSSES), CONTROL: SetRun(1.0, other), "patch": SetRun(0.5, other)})
    assert raced.best() == "patch"
    assert "those of identical code within" in raced.loss_words("patch")


@pytest.mark.parametrize(
    ("base", "identical", "changes", "why"),
    [
        (0.25, 0.2501, ("rounding",), ""),
        (0.25, 0.26, ("rounding",), "losses of identical code are up to 3.8e-02 apart"),
        (0.25, 0.5, (), "losses of identical code are up to 5.0e-01 apart"),
        (math.nan, math.nan, (), "losses of your own code are not finite"),
        (math.inf, math.inf, ("rounding",), "losses of your own code are not finite"),
        (0.25, math.nan, ("rounding",), "losses of your own code are not finite"),
        (0.25, 0.5, ("order",), ""),  # which is not compared by losses
    ],
)
def test_where_identical_code_is_far_off_its_losses_tell_nothing_of_a_patch(
    base: float, identical: float, changes: tuple[str, ...], why: str
) -> None:
    Path("train.py").write_text("step()\n")
    edits = (Edit(Span(0, 0), "quick = True\n"),)
    fix = Fix("quick", "safe", (), edits)
    quick = RankPatch(
        "patch", {}, {}, "quick", fix, "train.py", "quick = True\nstep()\n", Location("train.py", 1, 1, 1, 2)
    )
    raced = race("patch", changes=changes)
    for number in range(6):
        wobble = 1 + 0.001 * (number % 3)
        ours, theirs = ((1.0, 0.5, base), LOSSES[1]), ((1.0, 0.5, identical), LOSSES[1])
        patched = ours if "order" not in changes else LOSSES
        runs = {BASE: (1.0, ours), CONTROL: (wobble, theirs), "patch": (0.8 * wobble, patched)}
        raced.add({key: SetRun(seconds, losses, mean=seconds) for key, (seconds, losses) in runs.items()})
    (winner,) = report_of_race(Report("tune"), raced, {"patch": quick}).winners
    assert (winner.fix is None) == bool(why)
    assert winner.handed_over.startswith(f"its patch is not handed over: {why}" if why else "")
    assert bool(winner.verified) != bool(why)


def test_without_a_set_of_identical_code_nothing_is_handed_over() -> None:
    raced = race("patch")
    for number in range(6):
        raced.add({BASE: SetRun(1.0, LOSSES), "patch": SetRun(0.8 + 0.001 * number, LOSSES)})
    quick = RankPatch("patch", {}, {}, "quick", Fix("quick", "safe"), "train.py", "", Location("train.py", 1, 1, 1, 2))
    (winner,) = report_of_race(Report("tune"), raced, {"patch": quick}).winners
    assert (winner.fix, "no set of identical code has run" in winner.handed_over) == (None, True)


@pytest.mark.parametrize(
    ("nudged", "patched", "is_refused"),
    [
        (0.2501, 0.2502, False),  # roundings carry this training's losses about as far
        (0.25, 0.2505, True),
        (0.2501, 0.252, True),
        (0.3, 0.2505, True),  # they carry them anywhere: that is no yardstick
    ],
)
def test_a_patch_that_rounds_otherwise_may_be_as_far_off_as_roundings_carry_the_losses(
    nudged: float, patched: float, is_refused: bool
) -> None:
    raced = race("patch", changes=("rounding",))
    raced.nudges = True
    assert NUDGED in raced.order()
    for _ in range(4):
        runs = {key: SetRun(1.0, LOSSES) for key in raced.order()}
        runs["patch"] = SetRun(0.5, ((1.0, 0.5, patched), LOSSES[1]))
        if NUDGED in runs:
            runs[NUDGED] = SetRun(1.0, ((1.0, 0.5, nudged), LOSSES[1]))
        raced.add(runs)
        if is_refused:
            break
        assert NUDGED not in raced.order()
    assert ("patch" in raced.failures) == is_refused


NORMS = ((3.0, 2.0), (3.0, 2.0))


@pytest.mark.parametrize(
    ("norms", "identical", "changes", "why"),
    [
        (NORMS, NORMS, (), ""),
        (((3.0, 2.00001), NORMS[1]), NORMS, ("rounding",), ""),
        # The losses are the same, and each rank steps with its own gradients.
        (
            ((3.0, 2.1), (3.0, 1.9)),
            NORMS,
            ("rounding",),
            "its norms of gradients are not those of your code: up to 5.0e-02",
        ),
        (((3.0, math.nan), NORMS[1]), NORMS, ("rounding",), "its norms of gradients are not those of your code"),
        (((), ()), NORMS, ("rounding",), "its norms of gradients are not those of your code: up to inf"),
        (((3.0, 2.001), NORMS[1]), ((3.0, 2.001), NORMS[1]), (), ""),
        (((3.0, 2.1), (3.0, 1.9)), ((3.0, 2.2), NORMS[1]), ("rounding",), ""),  # too far apart anyway
        (((3.0, 2.1), (3.0, 1.9)), NORMS, ("order",), ""),
    ],
)
def test_a_patch_whose_gradients_have_other_norms_is_refused(
    norms: tuple[tuple[float, ...], ...], identical: tuple[tuple[float, ...], ...], changes: tuple[str, ...], why: str
) -> None:
    raced = race("patch", changes=changes)
    runs = {BASE: (1.0, NORMS), CONTROL: (1.0, identical), "patch": (0.5, norms)}
    for _ in range(4):
        raced.add({key: SetRun(seconds, LOSSES, mean=seconds, norms=told) for key, (seconds, told) in runs.items()})
    assert raced.failures.get("patch", "").startswith(why)
    assert raced.best() == ("" if why else "patch")


@pytest.mark.parametrize(
    ("nudged", "is_refused"),
    [(2.015, False), (2.0, True), (3.0, False)],  # roundings carry norms as far; not so far; anywhere
)
def test_norms_may_be_as_far_off_as_roundings_carry_them(nudged: float, is_refused: bool) -> None:
    raced = race("patch", changes=("rounding",))
    raced.nudges = True
    told = {BASE: 2.0, CONTROL: 2.0, NUDGED: nudged, "patch": 2.03}
    raced.add({key: SetRun(1.0, LOSSES, norms=((3.0, last), NORMS[1])) for key, last in told.items()})
    assert ("patch" in raced.failures) == is_refused


@pytest.mark.parametrize(
    ("base", "patched", "said"),
    [
        (NORMS, NORMS, "in 1 starts; norms of their gradients agree to the bit"),
        (NORMS, ((3.0, 2.00002), NORMS[1]), "in 1 starts; norms of their gradients agree within 1.0e-05"),
        ((NORMS[0], ()), (NORMS[0], ()), "; norms of gradients are not compared, as not all ranks tell them"),
        ((), (), "to the bit, in 1 starts"),
    ],
)
def test_what_is_said_of_norms(
    base: tuple[tuple[float, ...], ...], patched: tuple[tuple[float, ...], ...], said: str
) -> None:
    raced = race("patch", changes=("rounding",))
    raced.add({key: SetRun(1.0, LOSSES, norms=base if key != "patch" else patched) for key in (BASE, CONTROL, "patch")})
    assert said in raced.loss_words("patch")


CLIPPED = ((1.0, 1.0), (1.0, 1.0))


@pytest.mark.parametrize(
    ("norms", "spoiled", "why"),
    [
        (CLIPPED, 0.3, ""),
        (CLIPPED, 0.25, "these losses do not tell wrong gradients from yours: spoiled ones move them by 0.0e+00"),
        (CLIPPED, None, "it was not shown that losses tell wrong ones"),
        ((), 0.25, "these losses do not tell wrong gradients from yours"),
        (NORMS, None, ""),  # norms tell them
    ],
)
def test_where_neither_norms_nor_losses_tell_wrong_gradients_nothing_is_handed_over(
    norms: tuple[tuple[float, ...], ...], spoiled: float | None, why: str
) -> None:
    """As where a learning rate begins at nothing, and gradients are clipped to one norm."""
    raced = race("patch", changes=("rounding",))
    raced.spoils = True
    for number in range(4):
        order = raced.order()
        assert (SPOILED in order) == (number == 1 and norms != NORMS)
        runs = {key: SetRun(0.5 if key == "patch" else 1.0, LOSSES, norms=norms) for key in order}
        if SPOILED in runs:
            last = spoiled if spoiled is not None else 0.25
            told = SetRun(1.0, ((1.0, 0.5, last), LOSSES[1]), norms=norms)
            runs[SPOILED] = told if spoiled is not None else SetRun(why="Rank 1 failed")
        raced.add(runs)
    assert raced.best() == "patch"
    assert why in raced.why_losses_tell_nothing("patch")
    assert bool(why) == bool(raced.why_losses_tell_nothing("patch"))
    told = "spoiled gradients move these losses by 1.7e-01" if spoiled == 0.3 else ""
    assert raced.loss_words("patch").endswith(told) and bool(told) == ("by 1.7e-01" in raced.loss_words("patch"))


def test_without_losses_nothing_is_verified() -> None:
    for losses in (((), ()), (LOSSES[0], ())):  # of one rank only
        raced = race("patch")
        raced.add({BASE: SetRun(1.0, losses), CONTROL: SetRun(1.0, losses), "patch": SetRun(0.5, losses)})
        assert raced.loss_words("patch") == ""


def test_a_set_that_fails_is_a_result_with_its_reason_and_one_of_the_users_own_code_ends_the_race() -> None:
    raced = race("broken", "same")
    raced.add({BASE: SetRun(1.0, LOSSES), CONTROL: SetRun(1.0, LOSSES), "broken": SetRun(why="rank 1 failed")})
    assert [(trial.status, trial.reason) for trial in raced.trials()][1] == ("failed", "rank 1 failed")
    assert "broken" not in raced.order()
    raced.add({BASE: SetRun(why="rank 0 died")})
    assert raced.order() == []


def test_gap_is_relative_and_infinite_where_something_is_missing() -> None:
    assert gap(LOSSES, LOSSES) == 0.0
    assert gap(((2.0,),), ((1.0,),)) == 0.5
    assert gap(((1.0,),), ((math.inf,),)) == math.inf
