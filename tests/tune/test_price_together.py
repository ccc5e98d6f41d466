"""Pricing by a knob's search and of all patches together, with steps that take as long as their source says."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conftest import FakeClock
from test_search import STEP, Sizes

from perfaudit.findings import Edit, Finding, Fix, Location, Saving, Span
from perfaudit.knobs import Facts
from perfaudit.measure.ledger import Block, Variant
from perfaudit.measure.runner import Lab, Subject, TrialFailed
from perfaudit.measure.watch import Watch
from perfaudit.measurements import Calibration
from perfaudit.static.fix import together
from perfaudit.static.ondisk import digest_of
from perfaudit.target.names import Target
from perfaudit.tune import price
from perfaudit.tune.price import BASE, Priced
from perfaudit.tune.tuning import Tuning
from perfaudit.tune.workshop import Check, Json

TEXT = "import torch\n\na = 0\nb = 0\n"


@dataclass
class Shop:
    """A step takes STEP times what its source's switches and its settings' size say; `cpu` of it computing, the rest queued."""

    clock: FakeClock
    speeds: dict[str, float]
    cpu: float = 1.0
    threads: int = 1
    broken: str = ""
    opened: list[list[str]] = field(default_factory=list)

    def facts(self) -> Facts:
        return {
            "device": "cpu", "device_name": "cpu", "torch": "2", "driver": "", "threads": self.threads, "project_files": ["t.py"],
            "loader": {"num_workers": 0}, "factories": {}, "factory_files": {},
        }  # fmt: skip

    def lab(self, check: Check | None = None) -> Lab:
        return self

    def speed(self, variant: Variant) -> float:
        text = variant.overlay.get("t.py", TEXT)
        on = [name for name in ("a", "b") if f"{name} = 1" in text]
        size = str(variant.settings.get("size", 0))
        return self.speeds.get(size, 1.0) * (self.speeds["".join(on)] if on else 1.0)

    def open(self, variants: Sequence[Variant]) -> dict[str, Subject | TrialFailed]:
        self.opened.append([variant.key for variant in variants])
        self.clock.sleep(0.2 * len(variants))
        return {
            v.key: TrialFailed(self.broken) if self.broken and v.key == "together" else Steps(self, self.speed(v))
            for v in variants
        }

    def ask(self, variant: Variant, *commands: Json) -> list[Json]:
        return [self.facts(), *({} for _ in commands)]

    def trace(self, files: list[str]) -> Json:
        raise NotImplementedError


@dataclass
class Steps:
    shop: Shop
    speed: float

    def block(self, steps: int) -> Block:
        seconds = self.speed * STEP * steps
        self.shop.clock.sleep(seconds + self.speed * STEP)
        cpu = self.shop.cpu * seconds
        return Block(steps, seconds, cpu, 8 * steps, queued=seconds - cpu, phases={"forward": seconds})

    def close(self) -> None:
        pass


def switch(name: str, saving: Saving | None = None) -> Finding:
    at = TEXT.index(f"{name} = 0") + 4
    line = TEXT[:at].count("\n") + 1
    edits = (Edit(Span(at, at + 1), "1"),)
    fix = Fix(f"turn {name} on", "unsafe", ("rounding",), edits, before=digest_of("t.py", TEXT))
    return Finding(
        f"PA00{line}", f"{name}-off", "warning", f"{name} is off", Location("t.py", line, 1, line, 6), saving, fix
    )


Start = Callable[..., tuple[Tuning, Priced, Shop]]


@pytest.fixture
def start(clock: FakeClock, project: Callable[..., Path]) -> Start:
    """`start(speeds, ...)`: a tuning of t.py, its findings sorted and waiting for their race."""
    project(**{"t.py": TEXT})

    def begin(speeds: dict[str, float], *findings: Finding, **options: Any) -> Any:
        shop = Shop(clock, speeds, **options)
        tuning = Tuning(Target("t.py", {}), shop, Watch(), clock=clock, cores=1, facts=shop.facts())
        tuning.calibration = Calibration(STEP, 1.0, 0.0, 1.0, 12, True, 0.0, {"forward": STEP})
        priced = Priced()
        for finding in findings:
            done = together([finding])
            assert done is not None
            key = f"{finding.rule} t.py"
            variant = Variant(key, "patch", {"patch": finding.rule, "path": "t.py"}, {"t.py": done.after})
            priced.waiting[key] = (finding, variant)
        return tuning, priced, shop

    return begin


def measure(tuning: Tuning, priced: Priced, seconds: float = 1000.0) -> list[Finding]:
    deadline = tuning.deadline(seconds)
    price._patches(tuning, priced, deadline)
    price._together(tuning, priced, deadline)
    return price._results(tuning, priced)


def saved(finding: Finding) -> tuple[float, float, float | None] | None:
    s = finding.saving
    return s and (round(s.low, 6), round(s.high, 6), s.seconds_per_step and round(s.seconds_per_step, 6))


def test_patches_are_priced_one_by_one_and_all_at_once(start: Start) -> None:
    """Savings do not add up: 20 % and 10 % are 25 % together, and that is measured, not computed."""
    tuning, priced, shop = start({"a": 0.8, "b": 0.9, "ab": 0.75}, switch("a"), switch("b"))
    found = measure(tuning, priced)
    assert [saved(finding) for finding in found] == [(0.2, 0.2, 0.002), (0.1, 0.1, 0.001)]
    assert tuning.notes == [
        "all 2 patches that pay, applied together: 10.00 ms → 7.50 ms a step, saves 25.0 to 25.0 % (measured); "
    ]
    assert shop.opened == [["as it is", "PA003 t.py", "PA004 t.py"]] * 4 + [["as it is", "together"]] * 4
    assert priced.together is not None
    assert priced.together.settings == {"patch": "PA003 + PA004"}
    assert priced.together.overlay == {"t.py": TEXT.replace("0", "1")}
    trials, comparisons = price._evidence(tuning, priced)
    assert [(t.settings["patch"], t.n) for t in trials] == [
        ("none", 24), ("PA003", 24), ("PA004", 24), ("none", 24), ("PA003 + PA004", 24)
    ]  # fmt: skip
    assert [round(c.ratio, 6) for c in comparisons] == [0.8, 0.9, 0.75]


def test_on_a_busy_machine_processor_time_is_what_is_told(start: Start) -> None:
    tuning, priced, _ = start({"a": 0.8, "b": 0.9, "ab": 0.75}, switch("a"), switch("b"), cpu=0.5)
    found = measure(tuning, priced)
    assert [saved(finding) for finding in found] == [(0.2, 0.2, 0.001), (0.1, 0.1, 0.0005)]
    assert tuning.notes[0].startswith(
        "all 2 patches that pay, applied together: 5.00 ms → 3.75 ms of processor time a step, saves 25.0 to 25.0 %"
    )


@pytest.mark.parametrize(("threads", "workers"), [(2, False), (1, True)])
def test_processor_time_is_not_believed_where_others_compute_too(start: Start, threads: int, workers: bool) -> None:
    tuning, priced, _ = start({"a": 0.8}, switch("a"), cpu=0.5, threads=threads)
    if workers:
        priced.with_workers.add("PA003 t.py")
    (found,) = measure(tuning, priced)
    assert found.saving is not None
    assert (found.saving.clock, saved(found)) == ("wall", (0.2, 0.2, 0.002))


def test_only_what_pays_is_applied_together_and_one_alone_is_not_raced_again(start: Start) -> None:
    tuning, priced, shop = start({"a": 0.8, "b": 1.0, "ab": 0.8}, switch("a"), switch("b"))
    found = measure(tuning, priced)
    assert [saved(finding) for finding in found] == [(0.2, 0.2, 0.002), (0.0, 0.0, 0.0)]
    assert (tuning.notes, priced.together, len(shop.opened)) == ([], None, 4)


def test_patches_that_do_not_run_together_are_told_so(start: Start) -> None:
    tuning, priced, _ = start({"a": 0.8, "b": 0.9}, switch("a"), switch("b"), broken="losses differ")
    measure(tuning, priced)
    assert tuning.notes == ["the 2 patches that pay were not measured together: losses differ"]


def test_without_time_for_all_of_them_nothing_is_said_of_all(start: Start) -> None:
    tuning, priced, _ = start({"a": 0.8, "b": 0.9, "ab": 0.75}, switch("a"), switch("b"))
    price._patches(tuning, priced, tuning.deadline(1000))
    price._together(tuning, priced, tuning.deadline(0.9))
    assert (tuning.notes, priced.together) == ([], None)
    price._together(tuning, priced, tuning.deadline(1.0))
    assert priced.together is not None


def test_what_is_slower_is_given_up_and_what_was_not_reached_is_said(start: Start) -> None:
    tuning, priced, _ = start({"a": 1.3, "b": 0.9}, switch("a"), switch("b"))
    notes = [finding.note for finding in measure(tuning, priced)]
    assert notes == ["it looked 30 % slower in every generation and was not measured further", ""]
    tuning, priced, _ = start({"a": 0.8}, switch("a"))
    assert [f.note for f in price._results(tuning, priced)] == ["not measured: the budget ended before it"]


def test_four_patches_are_raced_at_once_and_half_a_share_is_kept(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    tuning, priced, _ = start({"a": 0.8})
    finding = switch("a")
    for n in range(6):
        priced.waiting[f"k{n}"] = (finding, Variant(f"k{n}", "patch", {"patch": n}))
    races: list[tuple[list[str], float]] = []
    monkeypatch.setattr(
        price, "_race", lambda tuning, priced, variants, deadline: races.append(([v.key for v in variants], deadline.left()))
    )  # fmt: skip
    price._patches(tuning, priced, tuning.deadline(100.0))
    assert races == [(["k0", "k1", "k2", "k3"], pytest.approx(40.0)), (["k4", "k5"], pytest.approx(100 / 1.5))]


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`sizes([1, 2])`: a knob of these sizes settles PA003."""

    def put(values: Sequence[int], **attributes: Any) -> None:
        module = types.ModuleType("perfaudit.knobs.sizes")
        module.KNOB = Sizes("sizes", values, rules=("PA003",), fixed_batch=False, **attributes)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(price, "all_knobs", lambda: ["sizes"])

    return put


def searched(tuning: Tuning, priced: Priced, seconds: float = 1000.0) -> Finding:
    price._knobs(tuning, priced, tuning.deadline(seconds))
    (found,) = [*priced.kept, *(finding for finding, _ in priced.waiting.values())]
    return found


def test_a_setting_with_a_best_value_is_searched_and_its_winner_handed_over(start: Start, sizes: Any) -> None:
    sizes([1, 2])
    tuning, priced, _ = start({"a": 0.95, "1": 0.9, "2": 0.7}, switch("a"))
    found = searched(tuning, priced)
    assert (saved(found), found.note) == ((0.3, 0.3, 0.003), "found by searching sizes")
    assert found.fix == Fix("take size 2", "manual")
    assert not priced.waiting


def test_where_nothing_is_faster_the_best_that_was_tried_is_told(start: Start, sizes: Any) -> None:
    sizes([1, 2])
    tuning, priced, _ = start({"1": 1.03, "2": 1.02}, switch("a"))
    found = searched(tuning, priced)
    assert saved(found) == (-0.02, -0.02, -0.0002)
    assert found.note.endswith("; the best other setting tried: size=2")


def test_faster_by_less_than_it_must_is_told_without_a_patch(start: Start, sizes: Any) -> None:
    sizes([1], min_gain=0.03)
    tuning, priced, _ = start({"1": 0.98}, switch("a"))
    found = searched(tuning, priced)
    assert (saved(found), found.fix) == ((0.02, 0.02, 0.0002), None)
    assert found.note == "faster, but not by 3 % for certain, so your setting stays; the best tried: size=1"


def test_a_knob_is_searched_once_with_half_as_much_more_than_its_share(
    start: Start, sizes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes([1])
    tuning, priced, _ = start({"1": 0.9}, switch("a"), switch("b"))
    seen: list[tuple[str, float, int]] = []
    monkeypatch.setattr(
        price, "search", lambda tuning, name, deadline, memory: seen.append((name, round(deadline.left(), 6), memory))
    )
    price._knobs(tuning, priced, tuning.deadline(100.0))
    assert seen == [("sizes", 75.0, 0)]
    assert set(priced.waiting) == {"PA003 t.py", "PA004 t.py"}  # it came to nothing, so their own patches are raced
    del priced.waiting["PA004 t.py"]
    price._knobs(tuning, priced, tuning.deadline(100.0))
    assert seen[1:] == [("sizes", 100.0, 0)]


def test_the_base_is_the_unpatched_code() -> None:
    assert (BASE.key, BASE.settings, BASE.overlay) == ("as it is", {"patch": "none"}, {})
