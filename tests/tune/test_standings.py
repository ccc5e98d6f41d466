"""How a race in one training is told to those who watch."""

from __future__ import annotations

from typing import Any

import pytest

from perfaudit.findings import Fix, Location
from perfaudit.measure.entrants import BASE, CONTROL
from perfaudit.measure.watch import Standing
from perfaudit.measurements import Settings
from perfaudit.tune.candidates import Candidate
from perfaudit.tune.race_results import Raced, Seen
from perfaudit.tune.screening import _standings
from perfaudit.tune.short_names import short_names, variant_name


def test_each_entrant_has_its_name_and_so_has_the_control() -> None:
    raced = Raced({
        "fusion {}": Seen(40, "decided", (0.89, 0.83, 0.95)), CONTROL: Seen(12, "", (1.0, 0.99, 1.01)),
        BASE: Seen(1, ""), "no name": Seen(0, "it raised"),
    })  # fmt: skip
    raced.log_ratios = {"fusion {}": [-0.1], CONTROL: [0.0], BASE: [0.0], "no name": []}
    assert _standings(raced, {"fusion {}": "fusion", BASE: "your code"}) == [
        Standing("fusion", 40, 0.89, 0.83, 0.95, "decided"),
        Standing("control", 12, 1.0, 0.99, 1.01, is_control=True),
        Standing("your code", 1, 1.0),
        Standing("no name", 0, left="it raised"),
    ]


def candidate(key: str, name: str, **settings: Any) -> Candidate:
    return Candidate(key, name, settings, Fix("a title", "safe"), Location("t.py", 1, 1, 1, 2), "", "fresh")


@pytest.mark.parametrize(
    ("candidates", "names"),
    [
        ([("fusion", {"activation": "library"})], ["fusion"]),  # code, and the one there is
        (
            [("fusion", {"activation": "library"}), ("fusion", {"activation": "compiled"})],
            ["fusion activation=library", "fusion activation=compiled"],
        ),
        ([("optimizer", {"update": "fused"}), ("attention", {})], ["optimizer update=fused", "attention"]),
        ([("threads", {"threads": 1}), ("memory_format", {"memory_format": "channels_last"})],
         ["threads=1", "memory_format=channels_last"]),
        ([("dataloader", {"num_workers": 1, "timeout": None, "pin_memory": False}),
          ("dataloader", {"num_workers": 2, "timeout": None, "pin_memory": False})],
         ["dataloader num_workers=1", "dataloader num_workers=2"]),
        ([("dataloader", {"num_workers": 2, "pin_memory": False})], ["dataloader num_workers=2"]),
        ([("transfer", {"pin_memory": True, "non_blocking": True}), ("transfer", {"pin_memory": True, "non_blocking": False}),
          ("transfer", {"pin_memory": False, "non_blocking": True})],
         ["transfer pin_memory=True non_blocking=True", "transfer pin_memory=True non_blocking=False",
          "transfer pin_memory=False"]),
        ([("patch", {"patch": "PA404"}), ("patch", {"patch": "PA501"})], ["PA404", "PA501"]),
        ([("patch", {"patch": "PA404"}), ("patch", {"patch": "PA404"})], ["0", "1"]),  # of two files: their keys
    ],
)  # fmt: skip
def test_a_name_is_the_knob_and_what_tells_its_settings_apart(
    candidates: list[tuple[str, dict[str, Any]]], names: list[str]
) -> None:
    given = {str(at): candidate(str(at), name, **settings) for at, (name, settings) in enumerate(candidates)}
    assert [*short_names(given).values()] == names


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"patch": "none"}, "your code"),
        ({"patch": "all"}, "patched"),
        ({"patch": "PA204", "path": "t.py"}, "PA204"),
        ({"patch": "fusion pointwise=library"}, "fusion pointwise=library"),
        ({"num_workers": 2, "timeout": None}, "num_workers=2"),
        ({}, "your code"),
    ],
)
def test_what_runs_in_a_fresh_process_is_called_as_a_user_would(settings: Settings, name: str) -> None:
    assert variant_name(settings) == name
