"""How often identical code is called different in one training, and real effects are found: `engine_calibration.py`.

    --kinds identical effects single halves found    what is raced (default: all of them)
    --samples char_gpt …     trainings of sample_models (default: all three)
    --states calm loaded     the machine as it is, and beside three busy processes that this starts; "shared": beside what
                             others do on it just then
    --runs N                 measure until each kind, sample and state has N runs on record; 0 only judges what is there
    --seconds S              of each race (120)
    --write                  put the table into engine_calibration.md

One run is one training in one process, raced by the worker's own verbs as `tune` has them. *identical*: ten copies of the step's
code, each a candidate, and the control; half of them come in as a patch that adds `pass` to what a step runs, the others as
controls do. *effects*: the step of every entrant, the base's too, makes some matrix products besides; eight candidates make 2, 3,
5 and 10 % of a step fewer or more. *single*: one candidate that saves 10 %, in steps of about 120 and 200 ms, for the seconds
until it is called. *halves*: each function that a step runs, beginning with `pass`, a candidate; half of them are in place at a
time, as `tune` has it. *found*: these without the step's own function, and one that saves 10 % of a step, for the seconds until
that is called.

The true ratio is taken from the run itself. Every step's call of the products writes down when it began, how long it took and how
many it made. All steps do the same besides: that takes the median distance of two calls in a row, less the call. With the
median time of a product it gives the step of every candidate. Beside busy processes these are processor seconds of the thread:
what others take of a step is no part of its true time, and `tune` leaves it out (`measure.own_time`).

A run is a line of engine_calibration.jsonl as soon as it is over, so that it can be interrupted and run in parts. Shares have
exact (Clopper-Pearson) 95 % intervals. Candidates of one run share a process, so they are not quite independent. The tables judge
the log ratios on record by the rule as it is now; only the seconds until something was called are those of the run.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gate_power import clopper_pearson, machine
from machine_states import SHARED, STATES, busy_cores, machine_in
from records import keep, read, tell

from perfaudit.measure.child import Child
from perfaudit.measure.entrants import DECIDED, FUTILE, UNDECIDED
from perfaudit.measure.lab import build_command
from perfaudit.measure.ledger import Variant
from perfaudit.measure.quads import LOOKS, PAIR_LOOKS, interval_of_quads, is_look
from perfaudit.measure.stats import Look

HERE = Path(__file__).resolve().parent
RECORDS, PAGE = HERE / "engine_calibration.jsonl", HERE / "engine_calibration.md"
SAMPLES = ("char_gpt", "photo_resnet", "digits_cnn")
KINDS = ("identical", "effects", "single", "halves", "found")
COPIES = 10  # of identical code in one training
EFFECTS = (-0.10, -0.05, -0.03, -0.02, 0.02, 0.03, 0.05, 0.10)  # of a step, what a candidate makes more than the base
BESIDES = 0.12  # of a step: the products that the base's own step makes besides, so that some can be saved
OF_A_STEP = {"training_step", "forward", "gelu"}  # names of the samples' functions that run in a step
LEAST = 0.01  # of a step: the gain worth having, as `tune` has it
SETTLED = (DECIDED, FUTILE, UNDECIDED)  # why one leaves whose steps did not fail
SLICE = 0.5  # seconds between two looks at how the race stands
TIMEOUT = 300.0
WARM_STEPS = 8
# A training of `single` whose step takes about 200 ms on two cores.
LONGER = {"char_gpt": ("BATCH_SIZE = 16", "BATCH_SIZE = 28")}

Json = dict[str, Any]

# Beside the sample in its folder. `step_seconds` and `besides.log` are files of that folder.
WORK = '''
"""Matrix products whose number is given as a share of a step; each call is written down."""

import os
import statistics
import time

import torch

FOLDER = os.path.dirname(os.path.abspath(__file__))
LOG = os.open(os.path.join(FOLDER, "besides.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
LEFT, RIGHT, OUT = torch.full((128, 128), 0.01), torch.full((128, 128), 0.01), torch.empty(128, 128)
of_a_step = 0.0  # products that take as long as a step; none until the step was timed


def spend(key, share):
    global of_a_step
    if not of_a_step and os.path.exists(os.path.join(FOLDER, "step_seconds")):
        with open(os.path.join(FOLDER, "step_seconds")) as file:
            of_a_step = float(file.read()) / one_product()
    products = round(share * of_a_step)
    began, began_computing = time.perf_counter(), time.thread_time()
    for _ in range(products):
        torch.mm(LEFT, RIGHT, out=OUT)
    computing, seconds = time.thread_time() - began_computing, time.perf_counter() - began
    os.write(LOG, f"{key} {began:.6f} {seconds:.7f} {products} {began_computing:.6f} {computing:.7f}\\n".encode())


def one_product():
    looks = []
    for _ in range(9):
        began = time.perf_counter()
        for _ in range(40):
            torch.mm(LEFT, RIGHT, out=OUT)
        looks.append((time.perf_counter() - began) / 40)
    return statistics.median(looks)
'''


# ---- one run -------------------------------------------------------------------------------------------------------


def text_of(sample: str, longer: bool) -> str:
    """The sample's text, with larger batches where a longer step is wanted."""
    text = (HERE.parent / "sample_models" / f"{sample}.py").read_text(encoding="utf-8")
    if longer:
        before, after = LONGER[sample]
        if before not in text:
            raise SystemExit(f"sample_models/{sample}.py has no line {before!r} to make larger")
        text = text.replace(before, after)
    return text


def with_products(text: str, key: str, share: float) -> str:
    """The text, its `training_step` making products besides that take a share of a step."""
    tree = ast.parse(text)
    step = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "training_step")
    first = next(node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom)))
    lines = text.splitlines(keepends=True)
    lines.insert(step.body[1].lineno - 1, f'    spend("{key}", {share!r})\n')
    lines.insert(first.lineno - 1, "from products_besides import spend\n")
    return "".join(lines)


def with_pass(text: str) -> str:
    """The text, its functions that a step runs beginning with a statement that does nothing."""
    lines = text.splitlines(keepends=True)
    functions = [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef) and node.name in OF_A_STEP
    ]
    for function in sorted(functions, key=lambda one: -one.lineno):
        first = function.body[ast.get_docstring(function) is not None]
        lines.insert(first.lineno - 1, " " * first.col_offset + "pass\n")
    return "".join(lines)


def one_by_one(text: str, but: str = "") -> dict[str, str]:
    """By name and line, the text with `pass` in just one of its functions that a step runs; not in one of this name."""
    found = {}
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef) and function.name in OF_A_STEP - {but}:
            lines = text.splitlines(keepends=True)
            first = function.body[ast.get_docstring(function) is not None]
            lines.insert(first.lineno - 1, " " * first.col_offset + "pass\n")
            found[f"{function.name} {function.lineno}"] = "".join(lines)
    return found


def key_of(effect: float) -> str:
    return f"{100 * effect:+.0f}%"


def entrants_of(kind: str, file: str, text: str) -> tuple[str, list[Json]]:
    """The text to import, and the entrants of its race as the verb `screen` takes them."""
    empty: Json = {"code": {}, "settings": [], "whole": {}}
    if kind == "identical":
        same = {**empty, "code": {file: [text, with_pass(text)]}}
        ways = [("in place", same), ("control", empty)]
        copies = [ways[number % len(ways)] for number in range(COPIES)]
        return text, [
            {"key": f"copy {number}", "way": way, **what} for number, (way, what) in enumerate(copies, start=1)
        ]
    if kind == "halves":
        return text, _in_slots({key: [text, after] for key, after in one_by_one(text).items()}, file)
    base = with_products(text, "base", BESIDES)
    if kind == "found":
        key = key_of(EFFECTS[0])
        others = {name: [base, after] for name, after in one_by_one(base, but="training_step").items()}
        return base, _in_slots({key: [base, with_products(text, key, BESIDES + EFFECTS[0])], **others}, file)
    entrants = []
    for effect in EFFECTS if kind == "effects" else EFFECTS[:1]:
        key = key_of(effect)
        patched = with_products(text, key, BESIDES + effect)
        swapped = {"code": {file: [base, patched]}, "settings": [], "whole": {file: patched}}
        entrants.append({"key": key, "way": "in place", **swapped})
    return base, entrants


def _in_slots(texts: dict[str, list[str]], file: str) -> list[Json]:
    """Candidates that may be in place at the same time, by key, of the text as imported and as patched."""
    return [
        {"key": key, "way": "in place", "slot": key, "code": {file: pair}, "settings": [], "whole": {}}
        for key, pair in texts.items()
    ]


def run(kind: str, sample: str, state: str, longer: bool, seconds: float, seed: int) -> Json:
    """One training raced in a state of the machine, as a record."""
    others = busy_cores()
    with tempfile.TemporaryDirectory(prefix="engine_calibration_") as name, machine_in(state):
        folder = Path(name)
        file = str(folder / f"{sample}.py")
        base, entrants = entrants_of(kind, file, text_of(sample, longer))
        Path(file).write_text(base, encoding="utf-8")
        (folder / "products_besides.py").write_text(WORK.lstrip(), encoding="utf-8")
        time.sleep(2.0 if state == "loaded" else 0.0)  # until the others compute
        load = os.getloadavg()[0]
        with Child(False) as child:
            child.ask(build_command({"file": file, "names": {}}, Variant("base", "", {}), "cpu", 0), TIMEOUT)
            alone = statistics.median(child.ask({"do": "block", "steps": WARM_STEPS}, TIMEOUT)["each"]["seconds"])
            (folder / "step_seconds").write_text(repr(alone))
            raced = _race(child, entrants, seconds, seed)
        found = read_log(folder / "besides.log") if kind not in ("identical", "halves") else []
    return {
        "kind": kind, "sample": sample, "state": state, "longer": longer, "seconds": seconds, "seed": seed,
        "at": round(time.time()), "others": others, "load": [round(load, 1), round(os.getloadavg()[0], 1)], "machine": machine(),
        "step": round(alone, 5), "true": true_ratios(found, by_thread=state != "calm"), **raced,
    }  # fmt: skip


def _race(child: Child, entrants: list[Json], seconds: float, seed: int) -> Json:
    """The race of these entrants until it ends by itself or the seconds are over, preparing them not counted in."""
    began = time.monotonic()
    asked = {"do": "screen", "entrants": entrants, "least": LEAST, "seed": seed, "may_count_own": True}
    child.ask(asked, TIMEOUT)
    prepared = time.monotonic() - began
    called: dict[str, float] = {}
    left: dict[str, float] = {}
    state: Json = {"ended": False}
    began = time.monotonic()
    while not state["ended"] and time.monotonic() - began < seconds:
        state = child.ask({"do": "race", "seconds": SLICE}, TIMEOUT)
        for key, entrant in state["entrants"].items():
            if _excludes(entrant["interval"], 1.0):
                called.setdefault(key, round(time.monotonic() - began, 1))
            if entrant["left"]:
                left.setdefault(key, round(time.monotonic() - began, 1))
    took = time.monotonic() - began
    state = child.ask({"do": "race", "seconds": 0.0, "last": True}, TIMEOUT)
    kept = {
        key: {
            "interval": [round(value, 5) for value in entrant["interval"][:3]] if entrant["interval"] else None,
            "quads": entrant["interval"][3] if entrant["interval"] else 0,
            "left": entrant["left"],
            "called": called.get(key),
            "decided": left.get(key),
            "log_ratios": [round(value, 5) for value in entrant["log_ratios"]],
        }
        for key, entrant in state["entrants"].items()
    }
    base = state["base"]
    own = {"counts_own": state["counts_own"], "counted": round(base["counted"] / max(base["wall"], 1e-9), 4)}
    told = {"prepared": round(prepared, 1), "took": round(took, 1), "block": state["block"], **own}
    told |= {"in_halves": state["in_halves"]}
    return {**told, "entrants": kept, "refused": state["refused"], "ways": state.get("ways", {})}


@dataclass(frozen=True, slots=True)
class Call:
    """A step's call of the products: whose step, when it began, its seconds, and how many products it made.

    The same of the thread that made them: processor seconds before it, and in it.
    """

    key: str
    began: float
    seconds: float
    products: int
    thread_began: float = 0.0
    thread_seconds: float = 0.0


def read_log(path: Path) -> list[Call]:
    """The calls of a run, in their order."""
    lines = (line.split() for line in path.read_text().splitlines())
    return [
        Call(key, float(began), float(seconds), int(products), *map(float, of_thread))
        for key, began, seconds, products, *of_thread in lines
    ]


def true_ratios(calls: Sequence[Call], by_thread: bool = False) -> dict[str, float]:
    """By key, the time of a step over that of the base's step, from what the calls wrote down; {} where nothing was.

    by_thread: of processor seconds of the thread that makes the steps.
    """
    if by_thread:
        calls = [replace(call, began=call.thread_began, seconds=call.thread_seconds) for call in calls]
    counts = {call.key: call.products for call in calls}  # the last: those before the step was timed made none
    timed = [call for call in calls if call.products]
    if not timed or "base" not in counts:
        return {}
    product = statistics.median(call.seconds / call.products for call in timed)
    rest = statistics.median(after.began - call.began - call.seconds for call, after in itertools.pairwise(calls))
    step = rest + counts["base"] * product
    return {key: round((rest + counts[key] * product) / step, 5) for key in sorted(counts) if key != "base"}


def _excludes(interval: Sequence[float] | None, value: float) -> bool:
    return interval is not None and not interval[1] <= value <= interval[2]


# ---- judging and the table -----------------------------------------------------------------------------------------


def judged_again(record: Json) -> Json:
    """The record as the rule of today would have judged its log ratios, look by look. Seconds are those of the run."""
    return {
        **record,
        "entrants": {
            key: {**entrant, **_judged(entrant, _beside(record, key), key == "control", _looks(record, key))}
            for key, entrant in record["entrants"].items()
        },
    }


def _beside(record: Json, key: str) -> list[list[float]]:
    """Log ratios of the other entrants of this run."""
    return [other["log_ratios"] for name, other in record["entrants"].items() if name != key]


def _looks(record: Json, key: str) -> Sequence[Look]:
    return PAIR_LOOKS if key in record.get("in_halves", ()) else LOOKS


def _judged(entrant: Json, others: list[list[float]], is_control: bool, looks: Sequence[Look]) -> Json:
    """The interval of its log ratios at the look that decides, or at the end; one that looked no faster has left all the same."""
    ratios, is_futile = entrant["log_ratios"], entrant["left"] == FUTILE
    for quads in range(1, len(ratios) + 1):
        is_one = is_look(quads, looks) and not is_control
        found = interval_of_quads(ratios[:quads], others=others, looks=looks) if is_one else None
        if found is not None and (1 - found.high >= LEAST or 1 - found.low < LEAST):
            return {"interval": [found.ratio, found.low, found.high], "quads": found.quads, "left": DECIDED}
    found = interval_of_quads(ratios, ended=not is_futile, others=others, looks=looks)
    return {
        "interval": [found.ratio, found.low, found.high] if found else None,
        "quads": found.quads if found else 0,
        "left": FUTILE if is_futile else "",
    }


def row(cells: Sequence[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |"


def head(columns: str) -> list[str]:
    """The first two lines of a table; ">" before a column's name has it stand to the right."""
    names = columns.split(" | ")
    sides = ["---:" if name.startswith(">") else "---" for name in names]
    return [row([name.removeprefix(">") for name in names]), f"|{'|'.join(sides)}|"]


def share(hits: int, of: int) -> str:
    """`3 of 120 (2.5 %, 0.5 to 7.1)`, with the exact interval."""
    if not of:
        return "–"
    low, high = clopper_pearson(hits, of)
    return f"{hits} of {of} ({100 * hits / of:.1f} %, {100 * low:.1f} to {100 * high:.1f})"


def groups_of(records: Sequence[Json]) -> Iterator[tuple[str, str, list[Json]]]:
    """Sample, state and the records of both; then those of each state, and all of them."""
    for state in (*STATES, SHARED):
        for sample in SAMPLES:
            if mine := [r for r in records if r["state"] == state and r["sample"] == sample]:
                yield sample, state, mine
    for state in (*STATES, SHARED):
        if mine := [r for r in records if r["state"] == state]:
            yield "all", state, mine
    if records:
        yield "all", "all", list(records)


def candidates(records: Sequence[Json]) -> list[Json]:
    """The candidates of these runs of which something is known, each with its true ratio where the run knows it.

    Those that left early because they looked no faster have no interval: they count where an effect is missed, and can be no
    false call. Of those that the time left open before there was an interval nothing is known.
    """
    return [
        {**entrant, "key": key, "true": record["true"].get(key)}
        for record in records
        for key, entrant in record["entrants"].items()
        if key != "control" and (entrant["interval"] or entrant["left"] in SETTLED)
    ]


def pays(entrant: Json) -> bool:
    """Whether its interval shows that it gains LEAST of a step."""
    return entrant["interval"] is not None and 1 - entrant["interval"][2] >= LEAST


def identical_table(records: Sequence[Json]) -> list[str]:
    """False calls of identical code, and the controls beside them."""
    lines = head(
        "training | machine | >step, ms | >load | >runs | left without an interval, looking no faster | interval excludes 1 | "
        "pays by 1 % or more | >median half width | control excludes 1"
    )
    for sample, state, mine in groups_of(records):
        known = candidates(mine)
        found = [one for one in known if one["interval"]]
        controls = [r["entrants"]["control"] for r in mine if r["entrants"].get("control", {}).get("interval")]
        widths = [(one["interval"][2] - one["interval"][1]) / 2 for one in found]
        cells = [
            sample, state, f"{1e3 * statistics.median(r['step'] for r in mine):.0f}", load_of(mine), str(len(mine)),
            f"{sum(one['left'] == FUTILE and not one['interval'] for one in known)} of {len(known)}",
            share(sum(_excludes(one["interval"], 1.0) for one in found), len(found)),
            share(sum(pays(one) for one in found), len(found)),
            f"{100 * statistics.median(widths):.1f} %" if widths else "–",
            share(sum(_excludes(one["interval"], 1.0) for one in controls), len(controls)),
        ]  # fmt: skip
        lines.append(row(cells))
    return lines


def effects_table(records: Sequence[Json]) -> list[str]:
    """What became of effects of known size, by state of the machine."""
    lines = head(
        "work in the candidate | machine | >load | true ratio | shown to be faster | settled as not worth having | "
        "interval misses the true ratio | centre over true ratio"
    )
    for effect in EFFECTS:
        for state in (*STATES, SHARED):
            mine = [r for r in records if r["state"] == state]
            found = [one for one in candidates(mine) if one["key"] == key_of(effect) and one["true"]]
            if not found:
                continue
            true = sorted(one["true"] for one in found)
            centres = [one["interval"][0] / one["true"] for one in found if one["interval"]]
            useless = sum(one["left"] in (DECIDED, FUTILE) and not pays(one) for one in found)
            cells = [
                f"{key_of(effect)[:-1]} %", state, load_of(mine),
                f"{statistics.median(true):.3f} ({true[0]:.3f} to {true[-1]:.3f})",
                share(sum(bool(one["interval"]) and one["interval"][2] < 1 for one in found), len(found)),
                share(useless, len(found)),
                share(sum(_excludes(one["interval"], one["true"]) for one in found), len(centres)),
                f"{statistics.median(centres):.3f}" if centres else "–",
            ]  # fmt: skip
            lines.append(row(cells))
    return lines


def seconds_table(records: Sequence[Json]) -> list[str]:
    """Seconds until a saving of 10 % is called."""
    lines = head(
        "training | machine | >load | >candidates beside it | >step, ms | >runs | interval excludes 1 within the race | "
        ">median seconds until then | >slowest"
    )
    key = key_of(-0.10)
    for kind, longer in (("single", False), ("single", True), ("effects", False), ("found", False)):
        mine = [r for r in records if r["kind"] == kind and r["longer"] == longer]
        for sample, state, group in groups_of(mine):
            if sample == "all":
                continue
            found = [r["entrants"][key] for r in group if key in r["entrants"]]
            if not found:
                continue
            called = [one["called"] for one in found if one["called"] is not None]
            enough = len(called) * 2 > len(found)
            words = ", larger batches" if longer else ", in halves" if kind == "found" else ""
            cells = [
                f"{sample}{words}", state, load_of(group),
                f"{statistics.median(sum(name not in ('control', key) for name in r['entrants']) for r in group):.0f}",
                f"{1e3 * statistics.median(r['step'] for r in group):.0f}", str(len(found)),
                share(len(called), len(found)),
                f"{statistics.median(one['called'] or float('inf') for one in found):.0f}" if enough else "not called",
                f"{max(called):.0f}" if len(called) == len(found) else "not called",
            ]  # fmt: skip
            lines.append(row(cells))
    return lines


def load_of(records: Sequence[Json]) -> str:
    return f"{statistics.median(r['load'][1] for r in records):.1f}"


def page(records: Sequence[Json]) -> str:
    """All tables, judged by the rule as it is now, and what they were measured on."""
    records = [judged_again(record) for record in records]
    lines = ["# One training, several candidates: false calls and power", ""]
    lines += [
        "Printed by `python benchmarks/engine_calibration.py --write`, which judges the records beside it; they were made by",
        "",
    ]
    seconds = sorted({r["seconds"] for r in records})
    for limit in seconds:
        lines.append(f"    python benchmarks/engine_calibration.py --runs N --seconds {limit:g}")
    machines = " / ".join(sorted({r["machine"] for r in records}))
    lines += [
        "",
        f"{machines}. Load is that of the last minute, at the end of a race; the training itself is in it.",
        "",
    ]
    for kind, title, table in (
        ("identical", f"Identical code, {COPIES} copies in one training", identical_table),
        ("halves", "Identical code, half of the candidates in place at a time", identical_table),
        ("effects", "Effects of known size, eight candidates in one training", effects_table),
    ):
        if mine := [r for r in records if r["kind"] == kind]:
            lines += [f"## {title}", "", *table(mine), ""]
    if any(r["kind"] not in ("identical", "halves") for r in records):
        lines += ["## Seconds until a saving of 10 % of a step is called", "", *seconds_table(records), ""]
    refused = sorted({f"{key}: {why}" for r in records for key, why in r["refused"].items()})
    lines += [f"- not raced: {said}" for said in refused]
    return "\n".join(lines).rstrip() + "\n"


# ---- the command ---------------------------------------------------------------------------------------------------


def cells_of(arguments: argparse.Namespace) -> list[tuple[str, str, str, bool]]:
    """Kinds, samples, states and lengths of steps that are wanted, states in turn."""
    return [
        (kind, sample, state, longer)
        for kind in arguments.kinds
        for sample in arguments.samples
        for longer in ((False, True) if kind == "single" and sample in LONGER else (False,))
        for state in arguments.states
    ]


def missing(records: Sequence[Json], cells: Sequence[tuple[str, str, str, bool]], runs: int) -> tuple[Any, int] | None:
    """The cell with the fewest runs, so that all see the same hours of the machine, and a seed; None if all have enough."""
    counts = {cell: sum((r["kind"], r["sample"], r["state"], r["longer"]) == cell for r in records) for cell in cells}
    cell = min(counts, key=lambda one: counts[one])
    return (cell, len(records)) if counts[cell] < runs else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--samples", nargs="+", choices=SAMPLES, default=list(SAMPLES))
    parser.add_argument("--states", nargs="+", choices=(*STATES, SHARED), default=list(STATES))
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    records = read(arguments.records)
    while (wanted := missing(records, cells_of(arguments), arguments.runs)) is not None:
        (kind, sample, state, longer), seed = wanted
        record = run(kind, sample, state, longer, arguments.seconds, seed)
        records.append(record)
        keep(arguments.records, record)
        print(f"{kind} {sample} {state}: {record['took']:.0f} s {record['refused'] or ''}", flush=True)
    if records:
        tell(page(records), PAGE, arguments.write)


if __name__ == "__main__":
    main()
