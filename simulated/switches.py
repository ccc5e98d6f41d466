"""A training that takes as long as its source says, for tests and simulations of what is raced in it: no process, no torch.

The program is a row of switches, `a = 0`; a patch turns one on, and how long a step takes is a function of them all. Races are
run by `measure.race`, as a child runs them, on a clock that passes only in steps.
"""

from __future__ import annotations

import dataclasses
import math
import random
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fake_clock import FakeClock
from surveys import facts

from perfaudit.findings import Edit, Location, Span
from perfaudit.knobs import Bench, Knob, Setup, Survey
from perfaudit.knobs._code import Code, Patch
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.child_subject import ChildSubject
from perfaudit.measure.entrants import BASE, CONTROL, Entrant, Terms, way_of_control
from perfaudit.measure.facts import Facts, to_json
from perfaudit.measure.lab import ChildLab
from perfaudit.measure.ledger import Block, Variant
from perfaudit.measure.race import Race, Turn
from perfaudit.measure.runner import TrialFailed
from perfaudit.measurements import Settings
from perfaudit.static import edit
from perfaudit.tune.workshop import Check, Json

STEP = 0.010
Switches = dict[str, int]
Speed = Callable[[Switches], float]


def switches(text: str) -> Switches:
    return {name: int(value) for name, value in re.findall(r"^(\w) = (\d)", text, re.MULTILINE)}


def switches_on(texts: Mapping[str, str]) -> Switches:
    """The switches of t.py, with those that these patched texts, by path, turn on in any file."""
    found = switches(texts.get("t.py", Path("t.py").read_text()))
    for text in texts.values():
        found |= {name: value for name, value in switches(text).items() if value}
    return found


class Switch(Knob):
    """Turns a switch of the program on; without `line` it has no source to edit."""

    title = "a switch"

    def __init__(self, name: str, changes: tuple[str, ...] = (), line: bool = True) -> None:
        self.name, self.changes_always, self.line = name, changes, line

    def share(self, survey: Survey) -> float:
        return 1.0

    def current(self, survey: Survey) -> Settings:
        return {self.name: survey.facts.flags["switches"][self.name]}

    def candidates(self, bench: Bench) -> list[Settings]:
        return [{self.name: 1}] if not bench.survey.facts.flags["switches"][self.name] else []

    def setup(self, settings: Settings) -> Setup:
        return Setup()

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        source = code.entry()
        assert source is not None
        if not self.line:
            return None
        at = source.text.index(f"{self.name} = 0") + 4
        edits = (Edit(Span(at, at + 1), str(settings[self.name])),)
        line = source.text[:at].count("\n") + 1
        return Patch("t.py", edits, source.text, edit.apply(source.text, edits), Location("t.py", line, 1, line, 6))

    def words(self, settings: Settings, survey: Survey) -> str:
        return f"turn {self.name} on"

    def is_checked(self, settings: Settings) -> bool:
        return False


@dataclass
class Shop:
    """The workshop of that training.

    broken: why a text does not run. refused: why it runs, and cannot be put in place in a training that does. crashes: raises
    with what a process dies of in a race; fails: with what a step raises. differs: what is found when its losses are compared.
    dies_at: the step at which the user types Ctrl-C. lines: of each file, those that
    run. per_step: seconds of a step while they are traced. lasts: updates of the script, which then ends by itself.
    """

    clock: FakeClock
    speed: Speed
    check: Check | None = None
    broken: Callable[[Switches], str] = lambda on: ""
    refused: Callable[[Switches], str] = lambda on: ""
    crashes: Callable[[Switches], None] = lambda on: None
    fails: Callable[[Switches], None] = lambda on: None
    differs: Callable[[Switches], str] = lambda on: ""
    opened: list[list[str]] = field(default_factory=list)
    blocks: int = 0
    dies_at: int = sys.maxsize
    lines: range = range(1, 6)
    per_step: float = STEP
    traced: list[str] = field(default_factory=list)
    queued: float = 0.0  # of each second
    noise: float = 0.0  # of the logarithm of a step's time in a race
    way: str = "code"  # how a race says that patches are put in place
    seconds_checking: float = 0.0
    control: float = 1.0  # times what a step of the control takes in a race
    in_halves: bool = False  # patches are raced with half of the others in place, as code and settings are
    ends: Callable[[int, Switches], str] = lambda updates, on: ""  # with what a script raises after so many updates
    own_ends: set[str] = field(default_factory=set)
    lasts: int = sys.maxsize
    period: int = 1  # of steps of different length, as the first process of a race sees it
    periods: list[int] = field(default_factory=list)  # that each process is told
    firsts_of_labs: int = 0  # steps of races before the first process of the final one

    def _switches(self, variant: Variant) -> Switches:
        return switches_on(variant.overlay)

    def facts(self, on: Switches) -> Facts:
        return facts(project_files=("t.py",), factories={}, factory_files={}, flags={"switches": on})

    def lab(self, check: Check | None = None, start_of: Any = None) -> ChildLab:
        self.check = check
        return self

    def open(self, variants: Sequence[Variant]) -> dict[str, ChildSubject | TrialFailed]:
        self.opened.append([variant.key for variant in variants])
        self.firsts_of_labs = self.firsts_of_labs or self.blocks
        self.clock.sleep(0.2 * len(variants))
        found: dict[str, ChildSubject | TrialFailed] = {}
        for variant in variants:
            why = self.broken(self._switches(variant))
            why = why or (self.differs(self._switches(variant)) if self.check is not None else "")
            if self.check is not None and not why:
                self.check(None, variant, self.facts(self._switches(variant)))  # type: ignore[arg-type]  # the one that is put in the verifier's place
            found[variant.key] = TrialFailed(why) if why else Steps(self, self._switches(variant))
        return found

    def examine(self, variant: Variant) -> str:
        item = self.open([variant])[variant.key]
        return str(item) if isinstance(item, TrialFailed) else ""

    def wait_for_torch(self) -> None: ...

    def preload_libraries(self) -> float:
        return 0.0

    def ask(self, variant: Variant, *commands: Json) -> list[Json]:
        on = self._switches(variant)
        self.clock.sleep(0.2)
        answers = {
            "block": {"steps": 4, "wall": 4 * STEP, "phases": {}, "finite": True},
            "memory": {"peak_bytes": 100 + sum(on.values())},
        }
        return [to_json(self.facts(on)), *(answers.get(command["do"], {}) for command in commands)]

    def trace(self, files: list[str]) -> Json:
        self.traced = files
        lines = {path: [*self.lines] for path in files}
        facts = to_json(self.facts(switches(Path("t.py").read_text())))
        return {"facts": facts, "lines": lines, "seconds_per_step": self.per_step}

    def engine(self) -> Engine:
        self.clock.sleep(0.2)
        return Engine(self)


@dataclass(frozen=True)
class Asked:
    """What a child is told of a race beside who is in it, as `verbs.racing.screen` takes it."""

    base: str = ""
    rivals: bool = False
    so_far: Json = field(default_factory=dict)
    controls: Json = field(default_factory=dict)
    may_count_own: bool = False
    is_apart: bool = False
    pairs: Any = ()
    period: int = 1

    @property
    def has_halves(self) -> bool:
        """Whether several may be in place at the same time."""
        return not (self.base or self.rivals or self.is_apart)


class Engine:
    """A training in which switches are turned on and off, as the child of a screening is."""

    def __init__(self, shop: Shop) -> None:
        self.shop, self.inside = shop, ""
        self.refused: dict[str, str] = {}
        self.on: dict[str, Switches] = {}
        self.totals: Json = {}
        self.why_apart = ""
        self.updates, self.end = 0, dict[str, Any]()
        self.is_over, self.period, self.longest_block = False, 1, 0.0

    def screen(self, entrants: list[Json], least: float | None, seed: int, **more: Any) -> Json:
        """See `Asked`, also for what more may be said."""
        asked = Asked(**more)
        self.shop.periods.append(asked.period)
        self.period = self.shop.period if len(self.shop.periods) == 1 else asked.period
        own = switches(Path("t.py").read_text())
        self.on = {BASE: own, CONTROL: own}
        for item in entrants:
            on = switches_on(item["whole"])
            if why := self.shop.broken(on) or self.shop.refused(on):
                self.refused[item["key"]] = why
            else:
                self.on[item["key"]] = on
            self.shop.clock.sleep(STEP)
        base = asked.base or BASE
        if base in self.refused:
            raise ChildFailed("step", self.refused[base])
        self.on[CONTROL] = self.on[base]
        others = [key for key in self.on if key not in (base, CONTROL)]
        leasts = {item["key"]: item["least"] for item in entrants if "least" in item}
        former = [
            Entrant(key, [*old["log_ratios"]], [*old["seconds"]], old["left"]) for key, old in asked.so_far.items()
        ]
        slots: dict[str, list[str]] = {}
        for item in entrants:
            if item["key"] in self.on and self.shop.in_halves and asked.has_halves:
                slots.setdefault(item.get("slot") or item["key"], []).append(item["key"])
        way = way_of_control(CONTROL, {CONTROL: self.shop.way}, [CONTROL] if slots else [])
        if (old := asked.controls.get(way)) is not None:
            former.append(Entrant(CONTROL, [*old["log_ratios"]], [*old["seconds"]]))
        terms = Terms(least, seed, base, asked.rivals, leasts, former, asked.pairs)
        race = Race(others, terms, slots=[*slots.values(), [CONTROL]] if slots else [])
        return self.begin(race, dict.fromkeys(self.on, self.shop.way))

    def begin(self, race: Race, ways: dict[str, str]) -> Json:
        """Be at the first turn of a race; what a child says then."""
        self.running, self.base, self.ways = race, race.base, ways
        self.turns = race.turns()
        self.turn: Turn | None = next(self.turns, None)
        self.totals = {"steps": 0, "wall": 0.0, "cpu": 0.0, "queued": 0.0, "phases": {"forward": 0.0}}
        return {"refused": self.refused, "ways": ways}

    def race(self, seconds: float, last: bool) -> Json:
        ends = self.shop.clock.now() + seconds
        while self.turn is not None and self.shop.clock.now() < ends and not (self.end or self.is_over):
            took = self._step(self.turn)
            self.longest_block = max(self.longest_block, took * self.turn.is_timed)
            try:
                self.turn = self.turns.send(took)
            except StopIteration:
                self.turn = None
        if self.end and not any(entrant.log_ratios for entrant in self.running.entrants.values()):
            raise ChildFailed("step", self.end["words"].removeprefix("with it, "))  # nothing is known yet
        end = f"t.py: the script ended after {self.shop.lasts} updates of its optimizers" if self.is_over else ""
        if end and not any(entrant.log_ratios for entrant in self.running.entrants.values()):
            raise ChildFailed("ended", end)
        if last:
            self.running.end()
        entrants = {
            key: {
                "log_ratios": entrant.log_ratios, "seconds": entrant.seconds, "left": entrant.left,
                "interval": [*dataclasses.astuple(entrant.interval)] if entrant.interval else None,
            }
            for key, entrant in self.running.entrants.items()
        }  # fmt: skip
        ended = self.turn is None
        in_halves = sorted(self.running.in_halves)
        return {
            "entrants": entrants, "refused": {}, "ways": self.ways, "ended": ended, "block": 1, "base": self.totals,
            "in_halves": in_halves, "apart": self.why_apart, "pairs": self.running.pairs_seen, "updates": self.updates,
            "period": self.period, "longest": self.longest_block,
            **({"trouble": end, "over": True} if end else {}),
            **({"end": self.end, "trouble": self.end["words"].removeprefix("with it, ")} if self.end else {}),
        }  # fmt: skip

    def switches_in(self, turn: Turn) -> Switches:
        """Those of all that are in place in a turn."""
        keys = self.running.together.get(turn.key, (turn.key,))
        return {name: max(self.on[key][name] for key in keys) for name in self.on[self.base]}

    def _step(self, turn: Turn) -> float:
        self.inside = turn.key
        self.shop.blocks += 1
        if self.shop.blocks > self.shop.dies_at:
            raise KeyboardInterrupt
        self.updates += turn.steps
        if self.updates > self.shop.lasts:
            self.is_over, self.inside = True, ""
            return 0.0
        if error := self.shop.ends(self.updates, self.switches_in(turn)):
            why = f"with it, a step raises {error}"
            inside = {*self.running.together.get(turn.key, {turn.key})} - {BASE, CONTROL}
            self.end, self.inside = {"words": why, "with": sorted(inside), "updates": self.updates}, ""
            if turn.key in self.running.together:
                self.why_apart = why
            elif turn.key not in (self.base, CONTROL):
                self.running.fail(turn.key, why)
            return 0.0
        self.shop.crashes(self.switches_in(turn))
        try:
            self.shop.fails(self.switches_in(turn))
        except ValueError as error:
            if turn.key in self.running.together:
                self.why_apart = f"with it, a step raises {error}"
                self.running.break_up()
            else:
                self.running.fail(turn.key, f"with it, a step raises {error}")
            return 0.0
        noise = random.Random(self.shop.blocks).gauss(0.0, self.shop.noise)
        seconds = self.shop.speed(self.switches_in(turn)) * STEP * turn.steps * math.exp(noise)
        seconds *= self.shop.control if turn.key == CONTROL else 1.0
        self.shop.clock.sleep(seconds)
        if turn.key == self.base:
            for name in ("wall", "cpu"):
                self.totals[name] += seconds
            self.totals["steps"] += turn.steps
            self.totals["queued"] += seconds * self.shop.queued
            self.totals["phases"]["forward"] += seconds
        return seconds

    def in_place(self) -> str:
        return self.inside

    def close(self) -> None: ...


@dataclass
class Steps:
    shop: Shop
    on: Switches

    def block(self, steps: int, untimed: int = 1) -> Block:
        self.shop.blocks += 1
        if self.shop.blocks > self.shop.dies_at:
            raise KeyboardInterrupt
        seconds = self.shop.speed(self.on) * STEP
        self.shop.clock.sleep(seconds * (steps + 1))
        return Block(steps, seconds * steps, seconds * steps, 8 * steps, phases={"forward": seconds * steps})

    def close(self) -> None:
        pass


class Agreeing:
    """In the place of the verifier, which needs children."""

    def __init__(
        self, base: str, changes: dict[str, Any], reference: object, said: dict[str, str], *_: object, **__: object
    ) -> None:
        self.changes, self.said = changes, said

    def start_of(self, variant: Variant) -> None:
        pass

    def check(self, child: object, variant: Variant, facts: Facts) -> None:
        if variant.key in self.changes:
            self.said[variant.key] = "the losses agree"

    def __enter__(self) -> Agreeing:
        return self

    def __exit__(self, *_: object) -> None:
        pass
