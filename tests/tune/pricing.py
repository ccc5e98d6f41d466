"""Findings of a row of switches, priced: what tests of pricing share. Fixtures are in `test_price.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from switches import Switches

from perfaudit.findings import Edit, Finding, Fix, Location, Saving, Span
from perfaudit.knobs import Bench, Knob, Setup, Survey
from perfaudit.knobs._code import Code, Patch
from perfaudit.measurements import Settings
from perfaudit.reading import digest
from perfaudit.static import edit

PROGRAM = "import torch\n\na = 0\nb = 0\nc = 0\n"
KNOWN = Saving("documented", 0.0, 0.05, source="a paper")


def switch(
    name: str, saving: Saving | None = None, path: str = "t.py", changes: tuple[str, ...] = ("rounding",)
) -> Finding:
    """The finding that a switch is off; its rule is PA003 for that of the third line."""
    at = PROGRAM.index(f"{name} = 0") + 4
    line = PROGRAM[:at].count("\n") + 1
    fix = Fix(f"turn {name} on", "unsafe", changes, (Edit(Span(at, at + 1), "1"),), before=digest(PROGRAM.encode()))
    return Finding(
        f"PA00{line}", f"{name}-off", "warning", f"{name} is off", Location(path, line, 1, line, 6), saving, fix
    )


def gains(**each: float) -> Any:  # a speed
    """A step takes the product of these for the switches that are on: `gains(a=0.8)`."""

    def speed(on: Switches) -> float:
        took = 1.0
        for name, factor in each.items():
            took *= factor if on[name] else 1.0
        return took

    return speed


class Dial(Knob):
    """Sets the first switch to one of several values; settles PA003."""

    title, rules, fixed_batch = "a dial", ("PA003",), False
    name = "dial"

    def __init__(self, values: list[int], **attributes: Any) -> None:
        self.values = values
        for name, value in attributes.items():
            setattr(self, name, value)

    def share(self, survey: Survey) -> float:
        return 1.0

    def current(self, survey: Survey) -> Settings:
        return {"dial": 0, "more": None}

    def candidates(self, bench: Bench) -> list[Settings]:
        return [{"dial": value, "more": None} for value in self.values]

    def size(self, settings: Settings) -> int:
        return int(str(settings["dial"]))

    def setup(self, settings: Settings) -> Setup:
        return Setup()

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        before = Path("t.py").read_text()
        edits = (Edit(Span(18, 19), str(settings["dial"])),)
        return Patch("t.py", edits, before, edit.apply(before, edits), Location("t.py", 3, 1, 3, 6))

    def words(self, settings: Settings, survey: Survey) -> str:
        return f"dial {settings['dial']}"
