"""Pricing by a knob's search and of all patches together, with steps that take as long as their source says."""

from __future__ import annotations

import math
import random
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from conftest import FakeClock
from test_search import STEP, Kept, Sizes
from test_verify import FakeChild

from perfaudit.errors import NothingMeasured
from perfaudit.findings import Edit, Finding, Fix, Location, Saving, Span
from perfaudit.knobs import Facts
from perfaudit.measure.ledger import Block, Ledger, Variant
from perfaudit.measure.runner import Lab, Subject, TrialFailed
from perfaudit.measure.stats import ratio_interval
from perfaudit.measure.watch import Watch
from perfaudit.measurements import Calibration
from perfaudit.report import Report
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
    broken: str = ""  # why all of them together do not run
    fails: dict[str, str] = field(default_factory=dict)  # by key
    swings: tuple[float, ...] = (1.0,)  # on the wall, of patched code, one for each generation
    checks: bool = False
    workers: int = 0
    opened: list[list[str]] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)

    def facts(self) -> Facts:
        return {
            "device": "cpu", "device_name": "cpu", "torch": "2", "driver": "", "threads": self.threads, "project_files": ["t.py"],
            "loader": {"num_workers": self.workers}, "factories": {}, "factory_files": {},
        }  # fmt: skip

    def lab(self, check: Check | None = None) -> Lab:
        self.check = check
        return self

    def speed(self, variant: Variant) -> float:
        text = variant.overlay.get("t.py", TEXT)
        on = [name for name in ("a", "b") if f"{name} = 1" in text]
        size = str(variant.settings.get("size", 0))
        return self.speeds.get(size, 1.0) * (self.speeds["".join(on)] if on else 1.0)

    def open(self, variants: Sequence[Variant]) -> dict[str, Subject | TrialFailed]:
        self.opened.append([variant.key for variant in variants])
        self.clock.sleep(0.2 * len(variants))
        swing, opened = self.swings[(len(self.opened) - 1) % len(self.swings)], dict[str, Subject | TrialFailed]()
        for v in variants:
            why = self.fails.get(v.key) or (self.broken if v.key == "together" else "")
            opened[v.key] = TrialFailed(why) if why else Steps(self, v.key, self.speed(v), swing if v.overlay else 1.0)
            if self.checks and self.check is not None:
                self.check(FakeChild(1.0, 0.5), v, self.facts())  # type: ignore[arg-type]  # a stand-in
        return opened

    def ask(self, variant: Variant, *commands: Json) -> list[Json]:
        return [self.facts(), *({"peak_bytes": 1 << 40} for _ in commands)]

    def trace(self, files: list[str]) -> Json:
        raise NotImplementedError


@dataclass
class Steps:
    shop: Shop
    key: str
    speed: float
    swing: float

    def block(self, steps: int) -> Block:
        self.shop.ran.append(self.key)
        seconds = self.speed * self.swing * STEP * steps
        self.shop.clock.sleep(seconds + self.speed * STEP)
        cpu = self.shop.cpu * self.speed * STEP * steps
        return Block(steps, seconds, cpu, 8 * steps, queued=seconds - cpu, phases={"forward": seconds})

    def close(self) -> None:
        pass


def switch(name: str, saving: Saving | None = None, path: str = "t.py") -> Finding:
    at = TEXT.index(f"{name} = 0") + 4
    line = TEXT[:at].count("\n") + 1
    edits = (Edit(Span(at, at + 1), "1"),)
    fix = Fix(f"turn {name} on", "unsafe", ("rounding",), edits, before=digest_of(path, TEXT))
    return Finding(
        f"PA00{line}", f"{name}-off", "warning", f"{name} is off", Location(path, line, 1, line, 6), saving, fix
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
            assert finding.location is not None
            path = finding.location.path
            key = f"{finding.rule} {path}"
            variant = Variant(key, "patch", {"patch": finding.rule, "path": path}, {path: done.after})
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
    assert tuning.notes == []  # time for one generation, which gives no interval


def test_what_is_slower_is_given_up_and_what_was_not_reached_is_said(start: Start) -> None:
    tuning, priced, _ = start({"a": 3.0, "b": 0.9}, switch("a"), switch("b"))
    notes = [finding.note for finding in measure(tuning, priced)]
    assert notes == ["it looked 200 % slower in every generation and was not measured further", ""]
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


class Stages(Watch):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def stage(self, words: str) -> None:
        self.seen.append(words)


def test_the_ends_of_what_all_of_them_save_are_those_of_the_interval(start: Start) -> None:
    """Two generations at 0.74 and two at 0.76: the ends are Student's, at what the first look may miss."""
    swings = (1.0, 1.0, 1.0, 1.0, 0.74 / 0.75, 0.76 / 0.75, 0.74 / 0.75, 0.76 / 0.75)
    tuning, priced, _ = start({"a": 0.8, "b": 0.9, "ab": 0.75}, switch("a"), switch("b"), swings=swings)
    tuning.watch = Stages()
    measure(tuning, priced)
    _, low, high = ratio_interval([[math.log(0.74)], [math.log(0.76)]] * 2, alpha=0.01)
    (note,) = tuning.notes
    assert low < 0.73 and high > 0.77
    assert f"a step, saves {100 * (1 - high):.1f} to {100 * (1 - low):.1f} % (measured); " in note
    assert tuning.watch.seen == ["measuring PA003, PA004", "measuring 2 patches together"]
    assert priced.together is not None and priced.together.knob == "patch"


def test_patches_of_two_files_are_applied_together(start: Start, project: Callable[..., Path]) -> None:
    project(**{"u.py": TEXT})
    tuning, priced, _ = start({"a": 0.8, "": 1.0}, switch("a"), switch("b", path="u.py"))
    priced.kept = [f.with_(saving=Saving("measured", 0.1, 0.2, 0.001)) for f, _ in priced.waiting.values()]
    priced.waiting.clear()
    price._together(tuning, priced, tuning.deadline(100.0))
    assert priced.together is not None
    assert priced.together.overlay == {"t.py": TEXT.replace("a = 0", "a = 1"), "u.py": TEXT.replace("b = 0", "b = 1")}


def test_rounds_are_drawn_for_patches_and_kept_for_a_run_that_is_resumed(start: Start) -> None:
    tuning, priced, shop = start({"a": 0.8}, switch("a"))
    tuning.record = record = Kept()
    measure(tuning, priced)
    assert [stage["stage"] for stage, _ in record.generations] == ["patches"] * 4
    draw, keys, expected = random.Random("3 patches 0"), ["as it is", "PA003 t.py"], list[str]()
    for _ in range(3):
        order = list(keys)
        draw.shuffle(order)
        expected += [*order, *reversed(order)]
    assert shop.ran[2:14] == expected


@pytest.mark.parametrize(("workers", "trusted"), [(0, "cpu"), (2, "wall")])
def test_what_a_check_sees_is_said_and_a_loader_s_workers_leave_the_clock_on_the_wall(
    start: Start, workers: int, trusted: str
) -> None:
    tuning, priced, _ = start({"a": 0.8}, switch("a"), cpu=0.5, checks=True, workers=workers)
    (found,) = measure(tuning, priced)
    assert found.note.startswith("checked: 2 steps from one seed give the same losses to the bit")
    assert found.saving is not None and found.saving.clock == trusted
    assert priced.with_workers == ({"as it is", "PA003 t.py"} if workers else set())


@pytest.mark.parametrize(("threads", "generations", "trusted"), [(1, 4, "cpu"), (2, 12, "wall")])
def test_a_race_ends_where_the_clock_that_is_trusted_is_sure(
    start: Start, threads: int, generations: int, trusted: str
) -> None:
    """On the wall the patched code swings from 0.6 to 1.0; in processor time it is 0.8 in every generation."""
    tuning, priced, shop = start({"a": 0.8}, switch("a"), cpu=0.5, threads=threads, swings=(0.76, 1.24))
    measure(tuning, priced)
    assert len(shop.opened) == generations
    ((ledger, _),) = priced.races
    compared = price._compared(tuning, priced, ledger, priced.waiting["PA003 t.py"][1])
    assert compared is not None and compared.clock == trusted


def test_what_failed_and_what_was_too_brief_is_said_of_each(start: Start) -> None:
    tuning, priced, _ = start({"a": 0.8, "b": 0.9}, switch("a"), switch("b"), fails={"PA003 t.py": "losses differ"})
    failed, other = measure(tuning, priced)
    assert (failed.fix, failed.note) == (None, "its patch is withdrawn: losses differ")
    assert (other.fix is not None, other.note) == (True, "")
    tuning, priced, _ = start({"a": 0.8, "b": 0.9}, switch("a"), switch("b"))
    priced.said["PA004 t.py"] = "losses agree"
    brief = "measured too briefly for an interval, give it longer with --budget"
    assert [f.note for f in measure(tuning, priced, 2.0)] == [brief, f"{brief}; checked: losses agree"]


def test_a_finding_is_told_what_its_own_race_found(start: Start) -> None:
    tuning, priced, _ = start({"a": 0.8, "b": 0.9}, switch("a"), switch("b"))
    for key, why in (("PA003 t.py", "first"), ("PA004 t.py", "second")):
        priced.races.append((Ledger(failures={key: why}), [key]))
    assert [f.note for f in price._results(tuning, priced)] == [
        "its patch is withdrawn: first", "its patch is withdrawn: second"
    ]  # fmt: skip


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`sizes([1, 2])`: a knob of these sizes settles PA003."""

    def put(values: Sequence[int], **attributes: Any) -> None:
        module, usual = types.ModuleType("perfaudit.knobs.sizes"), {"rules": ("PA003",), "fixed_batch": False}
        module.KNOB = Sizes("sizes", values, **usual | attributes)  # type: ignore[attr-defined]
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
    sizes([1], min_gain=0.304)
    tuning, priced, _ = start({"1": 0.7}, switch("a"))
    found = searched(tuning, priced)
    assert (saved(found), found.fix) == ((0.3, 0.3, 0.003), None)
    assert found.note == "faster, but not by 30 % for certain, so your setting stays; the best tried: size=1"


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


def test_a_knob_on_a_fixed_batch_settles_nothing(start: Start, sizes: Any) -> None:
    sizes([1], fixed_batch=True)
    tuning, priced, shop = start({"1": 0.9}, switch("a"))
    price._knobs(tuning, priced, tuning.deadline(1000.0))
    assert (shop.opened, list(priced.waiting)) == ([], ["PA003 t.py"])


def test_findings_of_one_knob_beside_others(start: Start, sizes: Any) -> None:
    """One search for each knob: a second finding of it, and those of no knob, wait for the race of their patches."""
    sizes([1], rules=("PA004", "PA003"))
    tuning, priced, _ = start({"1": 0.9}, *(replace(switch("a"), rule=rule) for rule in ("PA009", "PA003", "PA004")))
    price._knobs(tuning, priced, tuning.deadline(1000.0))
    assert ([f.rule for f in priced.kept], list(priced.waiting)) == (["PA003"], ["PA009 t.py", "PA004 t.py"])


def test_a_search_that_was_too_brief_is_said(start: Start, sizes: Any) -> None:
    sizes([1])
    tuning, priced, _ = start({"1": 0.9}, switch("a"))
    found = searched(tuning, priced, 0.7)
    assert found.note.endswith("; give it longer with --budget") and found.saving is None


def test_settings_without_a_value_are_not_named(start: Start, sizes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes([1])
    monkeypatch.setattr(Sizes, "candidates", lambda self, bench: [{"size": 1, "more": None}])
    tuning, priced, _ = start({"1": 1.02}, switch("a"))
    assert searched(tuning, priced).note.endswith("; the best other setting tried: size=1")


def test_the_base_is_the_unpatched_code() -> None:
    assert (BASE.key, BASE.settings, BASE.overlay) == ("as it is", {"patch": "none"}, {})


# ---- the whole of it ---------------------------------------------------------------------------------------------------


@dataclass
class Traced(Shop):
    """A training whose steps take 10 ms and run the third and fourth line; `stops` at the lab that is opened so late."""

    stops: int = sys.maxsize
    timeouts: list[float] = field(default_factory=list)
    traced: list[str] = field(default_factory=list)
    seconds: float = STEP

    def trace(self, files: list[str]) -> Json:
        self.traced = files
        return {**self.facts(), "lines": {"t.py": [3, 4]}, "seconds_per_step": self.seconds}

    def open(self, variants: Sequence[Variant]) -> dict[str, Subject | TrialFailed]:
        if len(self.opened) == self.stops:
            raise KeyboardInterrupt
        return super().open(variants)


Whole = Callable[..., Report]


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch, project: Callable[..., Path]) -> Whole:
    """`whole(shop, finding, ...)`: the report of pricing these; `shown`, `withdrawn`, `problems`: what observing it shows."""
    project(**{"t.py": TEXT})

    def run(
        shop: Traced, *findings: Finding, budget: float = 1000.0, selected: frozenset[str] | None = None, timeout: float = 7.0,
        shown: Sequence[Finding] | None = None, withdrawn: Sequence[Finding] = (), problems: Sequence[str] = (),
    ) -> Report:  # fmt: skip
        def children(target: Target, device: str, watch: Watch, seconds: float) -> Shop:
            shop.timeouts.append(seconds)
            return shop

        def observed(tuning: Tuning, seconds: float) -> Any:
            shop.timeouts += [tuning.timeout, seconds]
            kept = tuning.findings if shown is None else shown
            return types.SimpleNamespace(findings=tuple(kept), withdrawn=tuple(withdrawn), problems=tuple(problems))

        monkeypatch.setattr(price, "Children", children)
        monkeypatch.setattr(price, "observed_findings", observed)
        report = Report("price", findings, notes=("scanned",))
        return price.price(Target("t.py", {}), report, budget, "cpu", Watch(), timeout, selected)

    return run


def test_a_scan_is_priced_whole(whole: Whole, clock: FakeClock) -> None:
    shop, outside = Traced(clock, {"a": 0.8, "b": 0.9, "ab": 0.75}), Path("..", "u.py").as_posix()
    away = replace(switch("b"), rule="PA900", location=Location(outside, 4, 1, 4, 6))
    report = whole(shop, switch("b"), switch("a"), away, replace(switch("a"), rule="PA901", location=None))
    assert shop.traced == ["t.py"]
    assert shop.timeouts == [7.0, 7.0, 100.0]  # a tenth of the budget for observing
    assert [(f.rule, saved(f), f.note) for f in report.findings] == [
        ("PA003", (0.2, 0.2, 0.002), ""),
        ("PA004", (0.1, 0.1, 0.001), ""),
        ("PA901", None, "not measured: there is no patch to measure"),
        ("PA900", None, "not measured: the file lies outside the working directory"),
    ]
    assert [note.partition(":")[0] for note in report.notes] == ["all 2 patches that pay, applied together"]
    assert (report.target, report.interrupted, len(report.trials), len(report.comparisons)) == ("t.py", False, 5, 3)
    assert report.environment is not None and report.calibration is not None


def test_what_a_run_shows_adds_takes_back_and_is_selected(whole: Whole, clock: FakeClock) -> None:
    new = replace(switch("b"), rule="PA006", location=Location("t.py", 2, 1, 2, 6))
    other = replace(new, rule="PA007", location=Location("t.py", 1, 1, 1, 6))
    shop = Traced(clock, {"a": 0.8, "b": 0.9, "ab": 0.75})
    report = whole(
        shop, switch("a"), switch("b"), shown=[switch("a"), new, other], withdrawn=[switch("b").with_(note="it is on")],
        problems=["no sync was seen"], selected=frozenset({"PA003", "PA006"}), budget=90.0,
    )  # fmt: skip
    assert [(f.rule, saved(f)) for f in report.findings] == [("PA003", (0.2, 0.2, 0.002)), ("PA006", (0.1, 0.1, 0.001))]
    assert report.notes[:2] == ("not observed: no sync was seen", "t.py:4:1: PA004 is taken back: it is on")
    assert shop.timeouts[2] == 10.0  # at least
    everything = whole(Traced(clock, {"a": 0.8, "b": 0.9, "ab": 0.75}), switch("a"), shown=[switch("a"), other])
    assert [f.rule for f in everything.findings] == ["PA003", "PA007"]


@pytest.mark.parametrize(("seconds", "is_observed"), [(1.0, True), (1.01, False)])
def test_steps_that_are_too_long_are_not_observed(
    whole: Whole, clock: FakeClock, seconds: float, is_observed: bool
) -> None:
    """Ten of them in a tenth of the budget."""
    shop = Traced(clock, {"a": 0.8}, seconds=seconds)
    report = whole(shop, switch("a"), budget=100.0)
    note = "the training was not observed: its steps are too long for this --budget"
    assert (note in report.notes, len(shop.timeouts)) == ((False, 3) if is_observed else (True, 1))


@pytest.mark.parametrize(("stops", "trials"), [(0, 0), (1, 2), (3, 2)])
def test_what_is_interrupted_tells_what_there_is(whole: Whole, clock: FakeClock, stops: int, trials: int) -> None:
    """While it is calibrated, before its patch was raced for the first time, and amid its race."""
    report = whole(Traced(clock, {"a": 0.8}, stops=stops), switch("a"))
    assert report.interrupted and report.target == "t.py"
    assert report.notes == ("interrupted; what was measured until then is in this report",)
    assert len(report.trials) == trials


def test_without_a_comparison_or_the_code_as_it_is_there_is_nothing(whole: Whole, clock: FakeClock) -> None:
    with pytest.raises(NothingMeasured, match=r"t\.py: the code as it is could not be measured: out of memory"):
        whole(Traced(clock, {"a": 0.8}, fails={"as it is": "out of memory"}), switch("a"))
    failed = whole(Traced(clock, {"a": 0.8}, fails={"PA003 t.py": "losses differ"}), switch("a"))
    assert [f.note for f in failed.findings] == ["its patch is withdrawn: losses differ"]
    assert whole(Traced(clock, {}), replace(switch("a"), fix=None)).trials == ()  # nothing to measure is no failure


def test_patches_are_measured_as_text_and_not_applied_again() -> None:
    one = Variant("k", "patch", {"patch": "PA003"}, {"t.py": "x"})
    assert price._plain(one) == replace(one, apply_knob=False)


def test_what_patches_change_together_is_what_each_of_them_changes() -> None:
    """So their losses are compared as those of a patch that changes all of it."""
    assert price._changes(switch("a")) == ("rounding",)
    assert price._changes(switch("a").with_(fix=None)) == ()
