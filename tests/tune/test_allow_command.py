"""The command that allows patches which would pay: what was typed is typed again."""

from __future__ import annotations

from typing import Any

import pytest

from perfaudit.findings import Fix, Location
from perfaudit.target.names import Target
from perfaudit.tune.allow_command import allow_command
from perfaudit.tune.candidates import Candidate
from perfaudit.tune.climb_state import Climb

PLACE = Location("train.py", 1, 1, 1, 2)
FIX = Fix("faster", "safe", ())


def offer(name: str, *lacks: str) -> Candidate:
    return Candidate(name, name, {}, FIX, PLACE, "a\n", "code", lacks)


SCRIPT = Target("train.py", {}, ("--epochs", "1", "a b"))


@pytest.mark.parametrize(
    ("target", "asked", "words"),
    [
        (Target("train.py"), {}, "train.py --allow rounding,precision,rng"),
        (Target("train.py"), {"knobs": ["batch_size"]}, "train.py --batch-size --allow rounding,precision,rng"),
        (
            Target("train.py", {"file": "train.py", "model": "net"}),
            {"budget": 600.0, "memory": 1000, "device": "cpu", "on": "ray"},
            "train.py --allow rounding,precision,rng --factory model=net --budget 600s --memory 1000 --device cpu --on ray",
        ),
        (Target("train.py"), {"budget": 60.0}, "train.py --allow rounding,precision,rng"),
        (SCRIPT, {}, "train.py --allow rounding,precision,rng -- --epochs 1 'a b'"),
        (Target("p/t.py", {}, (), "p.t", "", True), {}, "-m p.t --allow rounding,precision,rng --in-place"),
        (Target("p/t.py", {}, ("x",), "p.t", "small"), {}, "small --allow rounding,precision,rng"),
        (
            Target("t.py", {}, ("x", "--lr", "1"), "", "small --lr 1"),
            {},
            "small --allow rounding,precision,rng -- --lr 1",
        ),
    ],
)
def test_what_was_typed_comes_again_with_the_changes_allowed(target: Target, asked: dict[str, Any], words: str) -> None:
    state = Climb(frozenset({"rounding"}))
    state.offered = {"dataloader": offer("dataloader", "rng"), "precision": offer("precision", "precision")}
    said = allow_command(target, state, **{"knobs": [], "budget": 300.0, **asked})
    assert said == f"perfaudit tune {words}"
