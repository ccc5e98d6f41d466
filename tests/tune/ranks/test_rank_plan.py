"""What is raced first on ranks, and for how long a running set may screen."""

from __future__ import annotations

import pytest

from perfaudit.findings import Fix, Location
from perfaudit.measurements import Settings
from perfaudit.tune.ranks.patches import RankPatch
from perfaudit.tune.ranks.plan import Shares, in_order, number_that_fit, promise, seconds_to_screen

COMMUNICATING = Shares(communication=0.4, update=0.02, loading=0.05)


def of(*changes: tuple[str, object, object]) -> RankPatch:
    """A patch of settings, each with what it is otherwise."""
    settings: Settings = {name: new for name, new, _ in changes}  # type: ignore[misc]
    now: Settings = {name: old for name, _, old in changes}  # type: ignore[misc]
    key = ", ".join(f"{name}={new!r}" for name, new, old in changes if new != old)
    return RankPatch(key, settings, now, key, Fix(key, "unsafe", (), (), ""), "a.py", "", Location("a.py", 1, 1, 1, 2))


NO_SYNC = of(("no_sync", True, False))
WORKERS = of(("num_workers", 1, 0))
BUCKETS = of(("static_graph", False, False), ("bucket_cap_mb", 5, 25))
HOOK = of(("comm_hook", "fp16_compress_hook", None))
FUSED = of(("update", "fused", "default"))
SPREAD = of(("optimizer", "ZeroRedundancyOptimizer", "AdamW"))
ALL = [BUCKETS, WORKERS, FUSED, HOOK, SPREAD, NO_SYNC]


@pytest.mark.parametrize(
    ("shares", "saved", "looks", "keys"),
    [
        (COMMUNICATING, {}, {}, [NO_SYNC, HOOK, BUCKETS, WORKERS, SPREAD, FUSED]),
        (Shares(0.01, 0.3, 0.4), {}, {}, [WORKERS, SPREAD, NO_SYNC, HOOK, BUCKETS, FUSED]),
        (Shares(0.01, 0.3, 0.4), {FUSED.key: 0.25}, {}, [WORKERS, FUSED, SPREAD, NO_SYNC, HOOK, BUCKETS]),
        (COMMUNICATING, {}, {BUCKETS.key: -0.1, HOOK.key: 0.9}, [NO_SYNC, HOOK, WORKERS, SPREAD, FUSED, BUCKETS]),
        (Shares(), {}, {}, ALL),  # NCCL, whose collectives run on the device
    ],
)
def test_what_promises_most_by_the_phases_of_a_step_comes_first(
    shares: Shares, saved: dict[str, float], looks: dict[str, float], keys: list[RankPatch]
) -> None:
    assert [each.key for each in in_order(ALL, shares, saved, looks)] == [each.key for each in keys]


def test_a_promise_is_of_what_a_patch_changes_and_not_of_what_it_leaves() -> None:
    assert promise(NO_SYNC, COMMUNICATING) == 0.4
    assert promise(of(("no_sync", False, False), ("static_graph", True, False)), COMMUNICATING) < 0.2
    assert promise(FUSED, COMMUNICATING) == 0.0


@pytest.mark.parametrize(
    ("budget", "patches", "shares", "seconds"),
    [
        (600.0, [BUCKETS], COMMUNICATING, 180.0),
        (160.0, [NO_SYNC], Shares(0.05), 48.0),
        (160.0, [NO_SYNC], Shares(), 48.0),
        (600.0, [BUCKETS, NO_SYNC], COMMUNICATING, 180.0),  # 13 sets of 10 s, and much is left
        (180.0, [BUCKETS, NO_SYNC], COMMUNICATING, 40.0),
        (140.0, [BUCKETS, NO_SYNC], COMMUNICATING, 0.0),
    ],
)
def test_screening_leaves_the_time_that_a_promising_patch_needs_in_fresh_sets(
    budget: float, patches: list[RankPatch], shares: Shares, seconds: float
) -> None:
    assert seconds_to_screen(budget, 10.0, 10.0, patches, shares) == seconds


@pytest.mark.parametrize(
    ("seconds", "of_set", "number"), [(615, 15, 8), (600, 15, 7), (315, 15, 3), (100, 15, 0), (0, 15, 0)]
)
def test_as_many_patches_are_raced_as_four_generations_of_them_fit_into_the_budget(
    seconds: float, of_set: float, number: int
) -> None:
    assert number_that_fit(seconds, of_set) == number
