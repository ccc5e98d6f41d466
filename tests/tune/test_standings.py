"""How a race in one training is told to those who watch."""

from __future__ import annotations

from perfaudit.measure.watch import Standing
from perfaudit.tune.screening import AS_IT_IS, CONTROL, Raced, Seen, _standings


def test_each_entrant_has_its_words_and_so_has_the_control() -> None:
    raced = Raced({
        "fusion {}": Seen(40, "decided", (0.89, 0.83, 0.95)), CONTROL: Seen(12, "", (1.0, 0.99, 1.01)),
        AS_IT_IS: Seen(1, ""), "no words": Seen(0, "it raised"),
    })  # fmt: skip
    raced.log_ratios = {"fusion {}": [-0.1], CONTROL: [0.0], AS_IT_IS: [0.0], "no words": []}
    assert _standings(raced, {"fusion {}": "fusion: GELU by the library", AS_IT_IS: "your code"}) == [
        Standing("fusion: GELU by the library", 40, 0.89, 0.83, 0.95, "decided"),
        Standing("the same code again", 12, 1.0, 0.99, 1.01),
        Standing("your code", 1, 1.0),
        Standing("no words", 0, left="it raised"),
    ]
