"""How often `perfaudit gate` is wrong by time, and what it catches, beside two rivals on the same code in the same minute.

    gate_power.py run --kind aa slow5 slow10 --target digits_cnn char_gpt --runs N --out RECORDS.jsonl [--way one|pairs]
    gate_power.py table RECORDS.jsonl...
    gate_power.py again [--rule both|student|quads] [--clock wall|cpu] RECORDS.jsonl...

`run` makes a scratch repository with one training of sample_models (shrunk where a step would take long), a worktree of its
commit as the reference, and for a slowdown changes one number in the working tree: how many small products a step computes
besides. `--runs` is for each kind and target; kinds and targets take turns, so that all see the same hours. Each run is a
process of its own with the time layer of the gate (fresh processes for every pair), and is one line in the records as soon
as it is finished, raw blocks with it, so that it can be stopped, run in parts and judged anew. Beside each
(pytest-benchmark beside every `--rival-every`-th, it takes longest):
  stored    mean of the steps in one process against the mean of the reference, which was measured once at the start of the
            study; red above +5 %
  pytest-benchmark    the reference and then the code as it is, a process each, with `--benchmark-compare-fail=mean:5%`

How the slowdown is made: a product is of the same kind as those of the step (a convolution, a linear layer). How many make
5 %, and how many 10 %, of a step is found by timing them and the step that follows, and then measured again by 400 steps;
study and shares are kept beside the records, in RECORDS.study.json. A run that crashes is a line too, with the verdict
"crashed"; it counts for no share, and the table says how many there were.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.metadata
import json
import lzma
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfaudit.gate.bounds import Rule, between_pairs, both, within_quads
from perfaudit.gate.decision import LIMIT, LOOKS, TOLERATED, time_verdict
from perfaudit.gate.gitref import Reference
from perfaudit.gate.records import OneTraining, Quad, TargetRecord, pair_from_json, pair_to_json
from perfaudit.gate.timing import time_targets
from perfaudit.machine.limits import usable_cores
from perfaudit.measure.child import Child
from perfaudit.measure.nursery import child_environment
from perfaudit.target.names import parse

Json = dict[str, Any]

HERE = Path(__file__).resolve().parent
KINDS = {"aa": 0.0, "slow5": 0.05, "slow10": 0.10}
BUDGET = 120.0
THRESHOLD = 1.05  # of both rivals
STORED_SECONDS = 4.0  # of steps, of the reference at the start and of each run
BENCHMARK_SECONDS = 2.0  # of steps, on each side
CALIBRATING, CONFIRMING = 60, 400  # steps
RULES: dict[str, Rule] = {"both": both, "student": between_pairs, "quads": within_quads}
METHODS = {
    "gate": "perfaudit gate",
    "stored": "stored mean, > 5 %",
    "pytest_benchmark": "pytest-benchmark, mean:5%",
}

# So that a step takes 10 to 20 ms of one core, and building the training a fraction of a second.
SHRUNK = {
    "digits_cnn": {"HIDDEN = 2048": "HIDDEN = 128", "BATCH_SIZE = 64": "BATCH_SIZE = 16", "DEPTH = 2": "DEPTH = 1"},
    "char_gpt": {
        "LAYERS, HEADS, WIDTH = 4, 4, 128": "LAYERS, HEADS, WIDTH = 2, 2, 64",
        "BATCH_SIZE = 16": "BATCH_SIZE = 4",
        "BLOCK = 128": "BLOCK = 64",
        "CORPUS_CHARACTERS = 600_000": "CORPUS_CHARACTERS = 200_000",
    },
}
EXTRA = """

_images, _kernel = torch.ones(2, 32, 8, 8), torch.ones(32, 32, 3, 3)
_rows, _weight = torch.ones(128, 64), torch.ones(64, 64)
_step_itself = training_step


def training_step(model, batch):
    for _ in range({extra}):  # small products that a step computes besides
        made = {product}
    return _step_itself(model, batch)
"""
PRODUCTS = {"digits_cnn": "F.conv2d(_images, _kernel, padding=1)", "char_gpt": "F.linear(_rows, _weight)"}

BENCHMARK_TEST = """
import sys

sys.path.insert(0, ".")
import train


def test_step(benchmark):
    model = train.build_model()
    optimizer = train.build_optimizer(model)
    batches = iter([])

    def step():
        nonlocal batches
        batch = next(batches, None)
        if batch is None:
            batches = iter(train.build_dataloader())
            batch = next(batches)
        optimizer.zero_grad()
        train.training_step(model, batch).backward()
        optimizer.step()

    for _ in range(5):
        step()
    benchmark(step)
"""


# ---- the code that is measured -------------------------------------------------------------------------------------


def program(target: str, extra: int) -> str:
    """A training of sample_models, shrunk, whose step computes so many products besides."""
    text = (HERE.parent / "sample_models" / f"{target}.py").read_text()
    for before, after in SHRUNK[target].items():
        if before not in text:
            raise SystemExit(f"sample_models/{target}.py has no line {before!r} to shrink")
        text = text.replace(before, after)
    main = text.index('if __name__ == "__main__":')
    return text[:main].rstrip() + EXTRA.format(product=PRODUCTS[target], extra=extra)


@contextlib.contextmanager
def worktrees(target: str, extra: int) -> Iterator[tuple[Path, Path]]:
    """A working tree, and a second one of its commit: (head, base). `extra` products a step are in head alone.

    For none, head has another text all the same, which computes none either: a change to be swapped that costs nothing.
    """
    with tempfile.TemporaryDirectory(prefix="gate_power_") as scratch:
        head, base = Path(scratch) / "head", Path(scratch) / "base"
        head.mkdir()
        (head / "train.py").write_text(program(target, 0))
        who = ["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgsign=false"]
        for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "base"], ["worktree", "add", "-q", str(base)]):
            subprocess.run(["git", *who, *command], cwd=head, check=True, capture_output=True)
        (head / "train.py").write_text(program(target, extra).replace("range(0)", "range(0, 0)"))
        yield head, base


# ---- the study: how much work is 5 %, and what the stored baseline is ----------------------------------------------


def shares_of_steps(folder: Path, target: str, extra: int, steps: int) -> list[float]:
    """Seconds of so many products over those of the step that they stand before, one value per step.

    Of processor time: the step computes on one thread and waits for nothing, so it is what the step takes undisturbed. The
    products and their own step are timed one after the other, so that both have the same mood of the machine; two steps,
    one with them and one without, differ by more than the products take. Batches are loaded before.
    """
    code = f"""
import json, sys, time
sys.path.insert(0, {str(HERE.parent)!r})
from perfaudit.target.names import Target
from perfaudit.training.factory_training import FactoryTraining
training = FactoryTraining(Target("train.py"), "cpu")
of_step = training.factories["step"].__globals__
exec("def products(count):\\n    for _ in range(count):\\n        " + {PRODUCTS[target]!r}, of_step)
batches = [training.next_batch() for _ in range(32)]
found = []
for number in range(20 + {steps}):
    started = time.process_time()
    of_step["products"]({extra})
    between = time.process_time()
    training.step(batches[number % 32])
    found.append((between - started) / (time.process_time() - between))
print(json.dumps(found[20:]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=child_environment(), capture_output=True, text=True, check=True
    )
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def calibrated(folder: Path, target: str, share: float) -> int:
    """How many products lengthen a step by a share."""
    extra = 40
    for _ in range(2):  # products are not quite alike in cost, few and many
        measured = statistics.median(shares_of_steps(folder, target, extra, CALIBRATING))
        extra = max(1, min(20 * extra, round(extra * share / max(measured, share / 20))))
    return extra


def confirmed(folder: Path, target: str, extra: int) -> Json:
    """By what share so many products lengthen a step: the median, and its 95 % interval by ranks."""
    shares = sorted(shares_of_steps(folder, target, extra, CONFIRMING))
    aside = round(0.98 * math.sqrt(len(shares)))  # normal approximation of the binomial
    middle = len(shares) // 2
    low, centre, high = (round(shares[i], 4) for i in (middle - aside, middle, middle + aside))
    return {"extra": extra, "share": centre, "low": low, "high": high}


def mean_step(folder: Path, seconds: float) -> float:
    """Mean seconds of a step of a training in one process of its own, for about so many seconds."""
    with contextlib.chdir(folder), Child() as child:
        build = {"do": "build", "target": {"file": "train.py", "names": {}}, "overlay": {}, "knob": "", "settings": {}}
        child.ask({**build, "device": "cpu"}, 120)
        first = statistics.median(child.ask({"do": "block", "steps": 10}, 120)["each"]["seconds"])
        reply = child.ask({"do": "block", "steps": max(3, round(seconds / first))}, 120)
        return statistics.fmean(reply["each"]["seconds"])


def study(out: Path, target: str) -> Json:
    """What the study knows of a target; measured when it is first asked for, and kept beside the records."""
    path = out.with_suffix(".study.json")
    known: Json = json.loads(path.read_text()) if path.exists() else {}
    if target not in known:
        with worktrees(target, 0) as (_, base):
            slowed = {kind: calibrated(base, target, share) for kind, share in KINDS.items() if share}
            shares = {kind: confirmed(base, target, extra) for kind, extra in slowed.items()}
            known[target] = {
                "injected": shares,
                "stored_mean": mean_step(base, STORED_SECONDS),
                "at": round(time.time()),
            }
        path.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")
    found: Json = known[target]
    return found


# ---- one run -------------------------------------------------------------------------------------------------------


def gate(head: Path, base: Path, budget: float, way: str = "pairs") -> tuple[TargetRecord, float]:
    """The record of the time layer, as the command makes it, and the seconds it took.

    way: "one" for both versions in one training, as the command chooses for this change; "pairs" of processes, whatever it
    would choose. A gate that was to be in one training may go to pairs all the same: its record says so.
    """
    started = time.monotonic()
    records: list[TargetRecord] = []
    with contextlib.chdir(head):
        commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        reference = Reference(base, head, head, "HEAD", commit)
        time_targets([parse("train.py")], reference, records, budget, device="cpu", in_one=way == "one")
    return records[0], time.monotonic() - started


def pytest_benchmark(head: Path, base: Path, tools: Path | None) -> Json:
    """Exit codes of both sides, and whether the comparison said that it regressed; {} where it is not installed."""
    if tools is None or not (tools / "pytest_benchmark").exists():
        return {}
    started = time.monotonic()
    environment = {**child_environment(), "PYTHONPATH": str(tools), "PYTEST_ADDOPTS": ""}
    storage = head.parent / "storage"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "test_step.py",
        f"--benchmark-storage={storage}",
    ]
    command += [f"--benchmark-max-time={BENCHMARK_SECONDS}", "--benchmark-warmup=off"]
    codes = []
    said = ""
    for folder, more in (
        (base, ["--benchmark-save=base"]),
        (head, ["--benchmark-compare", "--benchmark-compare-fail=mean:5%"]),
    ):
        (folder / "test_step.py").write_text(BENCHMARK_TEST)
        done = subprocess.run([*command, *more], cwd=folder, env=environment, capture_output=True, text=True)
        (folder / "test_step.py").unlink()
        codes.append(done.returncode)
        said = done.stdout + done.stderr
    red = "Performance has regressed" in said
    return {
        "codes": codes,
        "red": red,
        "seconds": round(time.monotonic() - started, 1),
        "said": "" if red else said[-300:],
    }


def one(kind: str, target: str, out: Path, budget: float, tools: Path | None, number: int, way: str = "pairs") -> Json:
    """One run of a kind with its rivals, as a record."""
    known = study(out, target)
    injected = known["injected"].get(kind, {})
    with worktrees(target, injected.get("extra", 0)) as (head, base):
        record, seconds = gate(head, base, budget, way)
        found = time_verdict(record, ended=True)
        started = time.monotonic()
        now = mean_step(head, STORED_SECONDS)
        stored = {"was": known["stored_mean"], "now": now, "red": now > THRESHOLD * known["stored_mean"]}
        stored["seconds"] = round(time.monotonic() - started, 1)
        rival = pytest_benchmark(head, base, tools)
    return {
        "kind": kind,
        "target": target,
        "number": number,
        "at": round(time.time()),
        "budget": budget,
        "seconds": round(seconds, 1),
        "verdict": found.verdict,
        "reason": found.reason,
        "ratio": found.ratio,
        "low": found.low,
        "high": found.high if math.isfinite(found.high) else None,
        "smallest": found.smallest,
        "pairs": found.pairs,
        "quads": found.quads,
        "way": found.way,
        "why_so": found.why_so,
        "control": found.control,
        "wall_over_cpu": found.wall_over_cpu,
        "load": found.load,
        "machine": machine(),
        "injected": injected,
        "stored": stored,
        "pytest_benchmark": rival,
        "record": to_json(record),
    }


def machine() -> str:
    """What measured, in words: kept with each run, because a table may be printed elsewhere."""
    cores = f"{usable_cores()} of {os.cpu_count()} cores"
    versions = f"Python {platform.python_version()}, torch {importlib.metadata.version('torch')}"
    return f"{platform.system()} {platform.machine()}, {cores}, {versions}"


def install_rival(tools: Path) -> None:
    """pytest-benchmark into a folder of its own; without a network it is left out, and the table says so."""
    if not (tools / "pytest_benchmark").exists():
        what = ["pytest-benchmark", "py-cpuinfo"]
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "--no-deps",
            "--target",
            str(tools),
        ]
        subprocess.run([*pip, *what], check=False)


# ---- what it came to -----------------------------------------------------------------------------------------------


def clopper_pearson(hits: int, of: int, level: float = 0.95) -> tuple[float, float]:
    """Exact interval of a share. Clopper & Pearson, Biometrika 26 (1934) 404; (0, 1) of nothing."""

    def at_most(k: int, p: float) -> float:
        return sum(math.comb(of, i) * p**i * (1 - p) ** (of - i) for i in range(k + 1))

    def root(above: Callable[[float], bool]) -> float:
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if above(middle) else (low, middle)
        return (low + high) / 2

    tail = (1 - level) / 2
    lower = root(lambda p: 1 - at_most(hits - 1, p) < tail) if hits else 0.0
    upper = root(lambda p: at_most(hits, p) > tail) if hits < of else 1.0
    return lower, upper


def by_processor(record: TargetRecord) -> None:
    """Let blocks count for what their process computed, as if it had had the core to itself."""
    for pair in record.pairs:
        for i, quad in enumerate(pair.quads):
            seconds = [block.cpu / block.steps for block in quad.blocks]
            blocks = (replace(b, median=s, mean=s) for b, s in zip(quad.blocks, seconds, strict=True))
            pair.quads[i] = Quad(tuple(blocks))


def to_json(record: TargetRecord) -> dict[str, Any]:
    """A record as plain data."""
    data = dataclasses.asdict(record)
    for name in ("is_begun", "steps_to_end"):  # while it is measured only
        del data[name]
    return {**data, "pairs": [pair_to_json(pair) for pair in record.pairs]}


def from_json(data: dict[str, Any]) -> TargetRecord:
    """The record that `to_json` wrote. Raises TypeError, KeyError or ValueError for other data."""
    one = OneTraining(**data["one"]) if data.get("one") else None
    return TargetRecord(**{**data, "pairs": [pair_from_json(pair) for pair in data["pairs"]], "one": one})


def rejudged(run: Json, rule: Rule, clock: str = "wall") -> str:
    """The verdict of another rule on the blocks of a run, look after look. Pairs that the first rule saved are missing."""
    full = from_json(run["record"])
    if full.one is not None:
        return time_verdict(full, LIMIT, TOLERATED, ended=True, rule=rule).verdict
    if clock == "cpu":
        by_processor(full)
    for look in LOOKS:
        so_far = TargetRecord(
            full.target, typical=full.typical, pairs=full.pairs[: look.generations], failures=full.failures
        )
        if len(so_far.pairs) == look.generations:
            verdict = time_verdict(so_far, LIMIT, TOLERATED, rule=rule).verdict
            if verdict != "inconclusive":
                return verdict
    full.settled = False
    return time_verdict(full, LIMIT, TOLERATED, ended=True, rule=rule).verdict


def red(run: Json, method: str) -> bool | None:
    """Whether a method called a run slower; None where it did not run, or to no end."""
    if method == "gate":
        return bool(run["verdict"] == "regressed")
    found = run.get(method) or {}
    return bool(found["red"]) if found and not failed(found) else None


def failed(rival: Json) -> bool:
    """Whether pytest-benchmark left with an error that is not the comparison's."""
    before, after = rival.get("codes") or (0, 0)
    return bool(before or (after and not rival["red"]))


def step_seconds(run: Json) -> float | None:
    """The median step of the reference in a run; None where nothing was measured."""
    record = from_json(run["record"])
    if record.one is not None:
        return record.seconds_per_step("base")
    quads = [quad for pair in record.pairs for quad in pair.quads]
    blocks = [block.median for quad in quads for block in quad.blocks if block.side == "base"]
    return statistics.median(blocks) if blocks else None


def share(calls: Sequence[bool]) -> str:
    """ "3 of 40 (7.5 %, 1.6 to 20.4)": with the exact 95 % interval."""
    if not calls:
        return "–"
    low, high = clopper_pearson(sum(calls), len(calls))
    return f"{sum(calls)} of {len(calls)} ({100 * sum(calls) / len(calls):.1f} %, {100 * low:.1f} to {100 * high:.1f})"


def table(runs: Sequence[Json]) -> str:
    """The Markdown table: what each method called slower, of identical code and of slowed-down code."""
    head = ["target", "method", "false alarms", "caught at +5 %", "caught at +10 %", "seconds a run, median"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    targets = sorted({run["target"] for run in runs})
    for target in [*targets, "all"] if len(targets) > 1 else targets:
        mine = [run for run in runs if target in (run["target"], "all")]
        for method, name in METHODS.items():
            cells = [
                share([call for run in mine if run["kind"] == kind and (call := red(run, method)) is not None])
                for kind in KINDS
            ]
            times = [
                run["seconds"] if method == "gate" else run[method]["seconds"]
                for run in mine
                if red(run, method) is not None
            ]
            cells.append(f"{statistics.median(times):.0f}" if times else "–")
            lines.append(f"| {target} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def details(runs: Sequence[Json]) -> str:
    """What else the gate said: verdicts, pairs, what it could have seen, and the load of the machine."""
    head = [
        "target",
        "kind",
        "runs",
        "step, median",
        "verdicts",
        "injected",
        "ratio, quartiles",
        "pairs, mean",
        "smallest callable, median",
        "load, median",
    ]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for target, kind in sorted({(run["target"], run["kind"]) for run in runs}):
        mine = [run for run in runs if (run["target"], run["kind"]) == (target, kind)]
        verdicts = [run["verdict"] for run in mine]
        ratios = [run["ratio"] for run in mine if run["ratio"]]
        quartiles = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios
        smallest = [run["smallest"] for run in mine if run["smallest"] is not None]
        steps = [seconds for run in mine if (seconds := step_seconds(run)) is not None]
        injected = {f"{100 * run['injected']['share']:.1f} %" for run in mine if run["injected"]}
        cells = [
            target,
            kind,
            str(len(mine)),
            f"{1000 * statistics.median(steps):.0f} ms" if steps else "–",
            ", ".join(f"{verdicts.count(word)} {word}" for word in sorted(set(verdicts))),
            ", ".join(sorted(injected)) or "none",
            " ".join(f"{value:.3f}" for value in quartiles),
            f"{statistics.fmean(run['pairs'] for run in mine):.1f}",
            f"{100 * statistics.median(smallest):.1f} %" if smallest else "–",
            f"{statistics.median(run['load'] or 0.0 for run in mine):.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def judged_anew(run: Json, rule: Rule, clock: str) -> Json:
    return run if run["verdict"] == "crashed" else {**run, "verdict": rejudged(run, rule, clock)}


def told(runs: Sequence[Json]) -> str:
    """Both tables, and how they came about."""
    kept = [run for run in runs if run["verdict"] != "crashed"]
    lost = len(runs) - len(kept)
    machines = " / ".join(sorted({run.get("machine", "a machine that the record does not name") for run in kept}))
    how = "Trainings of sample_models, shrunk, on one core each with OMP_NUM_THREADS=1."
    count = "No run crashed" if not lost else f"{lost} of {len(runs)} runs crashed and count for nothing below"
    rivals = sum(failed(run["pytest_benchmark"]) for run in kept if run.get("pytest_benchmark"))
    errors = f" pytest-benchmark ended {rivals} times with another error, which counts for nothing." if rivals else ""
    return f"{machines}. {how} {count}.{errors}{ways(kept)}\n\n{table(kept)}\n\n{details(kept)}"


def ways(runs: Sequence[Json]) -> str:
    """How many runs compared both versions in one training, where any did, and how many quads they had."""
    quads = [run["quads"] for run in runs if run.get("way") == "one training"]
    if not quads:
        return ""
    return (
        f" {len(quads)} of {len(runs)} gates were in one training, with {statistics.median(quads):.0f} quads (median)."
    )


def read(paths: Sequence[Path]) -> list[Json]:
    """The runs of record files, those that are packed (.xz) too."""
    texts = [
        lzma.decompress(path.read_bytes()).decode() if path.suffix == ".xz" else path.read_text() for path in paths
    ]
    return [json.loads(line) for text in texts for line in text.splitlines() if line]


# ---- the command line ----------------------------------------------------------------------------------------------


def run_all(arguments: argparse.Namespace) -> None:
    out: Path = arguments.out.resolve()
    tools: Path = (arguments.tools or Path(tempfile.gettempdir()) / "gate_power_tools").resolve()
    if arguments.rival_every:
        install_rival(tools)
    before = len(read([out])) if out.exists() else 0
    turns = [(kind, target) for _ in range(arguments.runs) for kind in arguments.kind for target in arguments.target]
    for number, (kind, target) in enumerate(turns, before):
        command = [
            sys.executable,
            str(Path(__file__).resolve()),
            "one",
            "--kind",
            kind,
            "--target",
            target,
            "--out",
            str(out),
        ]
        command += ["--budget", str(arguments.budget), "--number", str(number), "--way", arguments.way]
        if arguments.rival_every and number // len(arguments.target) % arguments.rival_every == 0:
            command += ["--tools", str(tools)]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if done.returncode:  # the next one is made all the same
            with out.open("a") as lines:
                lines.write(json.dumps(crashed(kind, target, number, done.returncode, done.stderr)) + "\n")
            print(f"{number} {target} {kind}: crashed: {done.stderr.strip()[-200:]}", flush=True)


def crashed(kind: str, target: str, number: int, code: int, said: str) -> Json:
    """The line of a run that came to no record."""
    return {
        "kind": kind,
        "target": target,
        "number": number,
        "at": round(time.time()),
        "verdict": "crashed",
        "code": code,
        "said": said.strip()[-1000:],
    }


def run_one(arguments: argparse.Namespace) -> None:
    os.environ["OMP_NUM_THREADS"] = (
        "1"  # of the children too: with two on a loaded machine of two cores, nothing is comparable
    )
    (kind,), (target,) = arguments.kind, arguments.target
    record = one(kind, target, arguments.out, arguments.budget, arguments.tools, arguments.number, arguments.way)
    with arguments.out.open("a") as out:
        out.write(json.dumps(record) + "\n")
    ratio = f"{record['ratio']:.3f}" if record["ratio"] else "-"
    rivals = [record["stored"]["red"], record["pytest_benchmark"].get("red")]
    counts = f"{record['pairs']} pairs, {record['quads']} quads"
    told = f"{target} {kind}: {record['verdict']} {ratio}, {counts}, {record['seconds']} s"
    print(f"{record['number']} {told}, rivals {rivals}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "one"):
        measuring = commands.add_parser(name)
        measuring.add_argument("--kind", choices=list(KINDS), nargs="+", default=["aa"])
        measuring.add_argument("--target", choices=list(SHRUNK), nargs="+", default=["digits_cnn"])
        measuring.add_argument("--runs", type=int, default=1)
        measuring.add_argument("--out", type=Path, required=True)
        measuring.add_argument("--budget", type=float, default=BUDGET)
        measuring.add_argument("--tools", type=Path)
        measuring.add_argument(
            "--rival-every", type=int, default=1, help="pytest-benchmark beside every n-th run; 0: never"
        )
        measuring.add_argument("--number", type=int, default=0)
        measuring.add_argument(
            "--way",
            choices=["one", "pairs"],
            default="pairs",
            help="both versions in one training, or pairs of processes",
        )
    for name in ("table", "again"):
        telling = commands.add_parser(name)
        telling.add_argument("records", type=Path, nargs="+")
        telling.add_argument("--rule", choices=list(RULES), default="both")
        telling.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    arguments = parser.parse_args()
    if arguments.command == "run":
        run_all(arguments)
    elif arguments.command == "one":
        run_one(arguments)
    else:
        runs = read(arguments.records)
        if arguments.command == "again":
            runs = [judged_anew(run, RULES[arguments.rule], arguments.clock) for run in runs]
        print(told(runs))


if __name__ == "__main__":
    main()
