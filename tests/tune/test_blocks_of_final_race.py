"""How many steps of a side the final race makes before each block, and times in it at least."""

from __future__ import annotations

from typing import Any

import pytest
from surveys import profile_of, survey_of

from perfaudit.findings import Fix, Location
from perfaudit.tune.candidates import Candidate
from perfaudit.tune.final import patched_variant, user_code


def rung(knob: str, settings: dict[str, Any]) -> Candidate:
    return Candidate(knob, knob, settings, Fix("x", "safe"), Location("train.py", 1, 1, 1, 2), "", "code")


def loader(workers: int) -> dict[str, Any]:
    return {"num_workers": workers, "prefetch_factor": 2 if workers else None}


@pytest.mark.parametrize(
    ("workers", "rungs", "own", "patched"),
    [
        (0, [rung("fusion", {"b": 1})], (1, 2), (1, 2)),
        (4, [rung("fusion", {"b": 1})], (1, 2), (1, 2)),  # both sides have the same ready
        (0, [rung("fusion", {"b": 1}), rung("dataloader", loader(2))], (1, 2), (5, 2)),
        (4, [rung("dataloader", loader(6))], (9, 4), (13, 6)),
        (4, [rung("dataloader", loader(0))], (9, 4), (1, 2)),
    ],
)
def test_each_side_uses_up_what_it_has_ready_and_times_a_batch_of_each_worker(
    workers: int, rungs: list[Candidate], own: tuple[int, int], patched: tuple[int, int]
) -> None:
    sides = user_code(profile_of(survey_of(loader=loader(workers))), rungs), patched_variant("all", rungs)
    assert [(side.untimed, side.least_steps) for side in sides] == [own, patched]
