"""Gates that the tests of all formats render: each verdict, each layer, odd names, a file, a self-test, several targets."""

from __future__ import annotations

from dataclasses import replace

from reports import ERROR, WARNING

from perfaudit.measurements import Environment
from perfaudit.report import Report, Skipped
from perfaudit.verdicts import (
    CounterChange,
    CountersVerdict,
    FindingsVerdict,
    Gate,
    Place,
    SelfTest,
    TimeVerdict,
)

MAIN, COMMIT = "origin/main (1f2e3d4c5b6a)", "1f2e3d4c5b6a" + 28 * "0"
FILE = "perfaudit-gate.json"
NOW = {"host_syncs": 16, "operators": 1232, "bytes_allocated": 16_777_216, "flops": 2_500_000_000, "parameters": 5000}

NO_NEW = FindingsVerdict("pass", known=12)
NEW = FindingsVerdict("regressed", new=2, known=12, gone=1)
SAME = CountersVerdict("train.py", "pass", counters=NOW)
SYNCS = CounterChange(
    "host_syncs",
    2,
    16,
    {"item": 13, "tolist": 1},
    (Place("train.py", 88, 13, "item"), Place("data/load.py", 7, 1, "tolist")),
)
BYTES = CounterChange("bytes_allocated", 12_582_912, 16_777_216, {"aten::mul": 4_194_304})
FEWER = CounterChange("operators", 1300, 1232, {"aten::add": -68})
GREW = CountersVerdict(
    "train.py", "regressed", "", NOW, (BYTES, FEWER, SYNCS), {"peak_live_bytes": "12 and 14 in two runs"}
)
EVEN = TimeVerdict(
    "train.py", "pass", "", 1.002, 0.994, 1.013, 4, 16, 0.1, 0.1002, 0.018, 0.4, wall_over_cpu=1.01, load=0.4
)
SLOWER = replace(EVEN, verdict="regressed", ratio=1.081, low=1.062, high=1.101, seconds_after=0.1081, p=0.0001)
FASTER = replace(EVEN, verdict="improved", ratio=0.88, low=0.861, high=0.899, seconds_after=0.088)
OPEN = replace(
    EVEN, verdict="inconclusive", reason="the interval reaches from below +1 % to above +5 %", ratio=1.021, low=0.96,
    high=1.09, pairs=16, quads=64, seconds_after=0.1021, smallest=0.074, wall_over_cpu=1.4, load=3.2,
)  # fmt: skip


MACHINE = Environment("cpu", "3.11", "Linux", 2, 1 << 33, torch="2.13", threads=2)


def report(gate: Gate, **more: object) -> Report:
    return Report("gate", gate=gate, files=3, target="train.py", environment=MACHINE, **more)  # type: ignore[arg-type]  # names of fields


PASS = report(Gate(MAIN, "ref", "pass", COMMIT, False, NO_NEW, (SAME,), (EVEN,)))
IMPROVED = report(
    Gate(
        FILE, "baseline", "improved", "", False, NO_NEW,
        (CountersVerdict("train.py", "improved", "", NOW, (FEWER,)),),
    )
)  # fmt: skip
FASTER_STEP = report(Gate(MAIN, "ref", "improved", COMMIT, False, NO_NEW, (SAME,), (FASTER,)))
NEW_FINDINGS = report(
    Gate(MAIN, "ref", "regressed", COMMIT, True, NEW), findings=(ERROR, WARNING), skipped=(Skipped("b.py", "binary"),)
)
COUNTERS = report(Gate(MAIN, "ref", "regressed", COMMIT, True, NO_NEW, (GREW,), (EVEN,)))
TIME = report(Gate(MAIN, "ref", "regressed", COMMIT, True, NO_NEW, (SAME,), (SLOWER,)))
OPEN_PASSES = report(Gate(MAIN, "ref", "inconclusive", COMMIT, False, NO_NEW, (SAME,), (OPEN,)))
OPEN_FAILS = report(
    Gate(
        MAIN, "ref", "inconclusive", COMMIT, True, times=(
            replace(OPEN, low=0.0, high=float("inf"), quads=3, pairs=1, smallest=None,
                    reason="3 comparisons in 1 pair of processes are too few for an interval: raise --budget"),
        ),
    )
)  # fmt: skip
WHY = "dropout needs it"
ACCEPTED = report(
    Gate(
        MAIN, "ref", "pass", COMMIT, False, FindingsVerdict("accepted", "accepted: dropout needs it", 0, 12, 0, 1),
        (
            CountersVerdict(
                "train.py", "accepted", "", NOW,
                (replace(SYNCS, accepted=WHY), replace(BYTES, allowed=True)),
            ),
        ),
        (replace(SLOWER, verdict="accepted", accepted=WHY),),
    )
)  # fmt: skip
NEW_TARGET = report(
    Gate(
        MAIN, "ref", "pass", COMMIT, False, None,
        (CountersVerdict("new.py", "not_judged", f"new: {MAIN} does not have it", NOW),),
        (TimeVerdict("new.py", "not_judged", f"new: {MAIN} does not have it"),),
        notes=(f"train.py: a target in {MAIN} and none here, so nothing is compared with it",),
    )
)  # fmt: skip
NOT_REACHED = report(
    Gate(
        MAIN, "ref", "not_judged", COMMIT, True,
        times=(
            TimeVerdict(
                "train.py", "inconclusive", "not reached: the budget ended before its turn; raise --budget", load=0.4
            ),
        ),
    )
)  # fmt: skip
DRIFTED = report(
    Gate(
        FILE, "baseline", "not_judged", "", True,
        counters=(
            CountersVerdict(
                "train.py", "not_judged", "not comparable: torch 2.12.0 when it was written, 2.13.0 now", NOW
            ),
        ),
    )
)  # fmt: skip
BROKEN = report(
    Gate(
        MAIN, "ref", "failed", COMMIT, True, NO_NEW,
        (CountersVerdict("train.py", "failed", "the reference does not run: NameError: name 'torhc' is not defined"),),
        (TimeVerdict("train.py", "not_judged", "it does not run, as its counters say"),),
    )
)  # fmt: skip
INTERRUPTED = report(Gate(MAIN, "ref", "failed", COMMIT, True, NO_NEW), interrupted=True)
SWAPPED = report(
    Gate(
        MAIN, "ref", "pass", COMMIT, False, NO_NEW,
        (
            CountersVerdict(
                "train.py", "pass", "", NOW,
                (
                    CounterChange("host_syncs", 16, 16, {"item": 1, "tolist": -1}),
                    CounterChange("operators", 1242, 1232, {"aten::copy_": 20, "aten::view": -30}),
                ),
            ),
        ),
    )
)  # fmt: skip
DIRTY = report(
    Gate(
        MAIN, "ref", "pass", COMMIT, False, NO_NEW,
        notes=("2 files differ from the last commit: the code is judged as it lies in the folder",),
    ),
    notes=("stopped at the budget",),
)  # fmt: skip
ADVICE = report(
    Gate(
        FILE, "baseline", "regressed", "", True, NO_NEW, (GREW,),
        (
            TimeVerdict(
                "train.py", "not_judged", "measure with --against REF", 1.081, seconds_before=0.1,
                seconds_after=0.1081, advice=True,
            ),
        ),
    )
)  # fmt: skip
SELF_TEST = report(
    Gate(
        "itself", "self_test", "inconclusive",
        counters=(
            replace(SAME, set_aside={"samples_repeated": "3 and 4 in two runs"}),
            CountersVerdict("eval.py", "pass", counters=NOW),
        ),
        times=(OPEN, replace(SLOWER, target="eval.py")),
        self_tests={
            "train.py": SelfTest(4, 0, 1, (0.031, 0.042, 0.079, 0.051), 41.2),
            "eval.py": SelfTest(2, 1, 0, (), 3.0),
        },
    )
)  # fmt: skip
SEVERAL = report(
    Gate(
        MAIN, "ref", "regressed", COMMIT, True, replace(NEW, new=1),
        (SAME, replace(GREW, target="eval.py", changes=(SYNCS,))),
        (
            replace(SLOWER, target="eval.py"),
            replace(OPEN, target="train.py"),
            TimeVerdict("gan.py", "failed", "your code does not run: out of memory"),
        ),
    ),
    findings=(ERROR,),
)  # fmt: skip
EVIL = "\x1b[2J\x07|`<b>\n::error::&]]>\udcff"
ODD_GATE = report(
    Gate(
        EVIL, "ref", "regressed", "", True, FindingsVerdict("failed", EVIL),
        (
            CountersVerdict(
                EVIL, "regressed", EVIL, {}, (CounterChange("host_syncs", 0, 1, {EVIL: 1}, (Place(EVIL, 1, 1, EVIL),)),),
                {EVIL: EVIL},
            ),
        ),
        (replace(SLOWER, target=EVIL, reason=EVIL), replace(SLOWER, target="b", verdict="accepted", accepted=EVIL)),
        {EVIL: SelfTest(1, 0, 0, (0.05,), 1.0)},
        (EVIL,),
    )
)  # fmt: skip

GATES = {
    "pass": PASS,
    "improved": IMPROVED,
    "faster step": FASTER_STEP,
    "new findings": NEW_FINDINGS,
    "counters": COUNTERS,
    "time": TIME,
    "inconclusive, passes": OPEN_PASSES,
    "inconclusive, fails": OPEN_FAILS,
    "accepted": ACCEPTED,
    "new target": NEW_TARGET,
    "not reached": NOT_REACHED,
    "drifted": DRIFTED,
    "broken": BROKEN,
    "interrupted": INTERRUPTED,
    "swapped": SWAPPED,
    "dirty": DIRTY,
    "advice": ADVICE,
    "self-test": SELF_TEST,
    "several": SEVERAL,
    "odd": ODD_GATE,
}
