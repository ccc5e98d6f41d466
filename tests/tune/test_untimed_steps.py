"""How many steps the final race makes before each block: as many as batches may lie ready."""

from __future__ import annotations

from typing import Any

import pytest
from surveys import profile_of, survey_of

from perfaudit.findings import Fix, Location
from perfaudit.tune.candidates import Candidate
from perfaudit.tune.final import untimed_steps


def rung(knob: str, settings: dict[str, Any]) -> Candidate:
    return Candidate(knob, knob, settings, Fix("x", "safe"), Location("train.py", 1, 1, 1, 2), "", "code")


@pytest.mark.parametrize(
    ("workers", "rungs", "untimed"),
    [
        (0, [rung("fusion", {"b": 1})], 1),
        (4, [rung("fusion", {"b": 1})], 1),  # both sides have the same ready
        (0, [rung("fusion", {"b": 1}), rung("dataloader", {"num_workers": 2, "prefetch_factor": 2})], 5),
        (4, [rung("dataloader", {"num_workers": 2, "prefetch_factor": 2})], 9),  # the user's code has more
    ],
)
def test_what_either_side_has_ready_is_used_up(workers: int, rungs: list[Candidate], untimed: int) -> None:
    loader = {"num_workers": workers, "prefetch_factor": 2 if workers else None}
    assert untimed_steps(profile_of(survey_of(loader=loader)), rungs) == untimed
