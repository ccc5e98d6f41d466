"""What watching a script costs: `python benchmarks/watch_overhead.py --write`.

    --quads N    on, off, off, on, or the other way round (60)
    --block N    steps of each of them, of which the first does not count (8)
    --clock cpu  seconds of the processor that the training's thread takes, of one thread in all: for a machine that others use
    --step MS    that a step is made to take, by the size of its batch (10)
    --write      put the table into watch_overhead.md

Trainings in one process, in the loop that somebody would write. Everything that `perfaudit run` puts in place for watching is
there in some blocks of steps and taken out in others, next to each other, so that both see the same machine. What it tells goes
to a pipe that another process reads. A block counts by the sum of its steps, with all that is told between them. Of each quad
there is a ratio of the seconds with over those without; the median of these has its 95 % interval by ranks. *first steps*: the
phases of each step are timed, as in the first ones of a run; *long run*: those of as many steps as `watched_steps` chooses, of
which *watched* is the share. As a control, a second switch that changes nothing is raced the same way.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gate_power import machine
from own_processes import median_ratio
from records import keep, read, tell

from perfaudit.script import replaced_functions
from perfaudit.script.pipe import Pipe
from perfaudit.script.request import Request, Script
from perfaudit.script.teller import Teller

HERE = Path(__file__).resolve().parent
RECORDS, PAGE = HERE / "watch_overhead.jsonl", HERE / "watch_overhead.md"
HEAD = (
    "training",
    "clock",
    "step, ms",
    "first steps, with watching",
    "long run, with watching",
    "watched",
    "control",
    "quads",
)

CLOCKS = {"wall": time.perf_counter, "cpu": time.thread_time}
CLOCK = [time.perf_counter]  # that which is in use
Json = dict[str, Any]
Steps = Iterator[None]


class Switch:
    """Takes what a watch has put in place out, and puts it back."""

    def __init__(self) -> None:
        self._places: list[tuple[Any, str, bool, Any, Any]] = []
        original = replaced_functions.replace

        def replace(owner: Any, name: str, watch: Callable[..., Any]) -> Any:
            is_own, before = name in vars(owner), getattr(owner, name)
            ours = original(owner, name, watch)
            self._places.append((owner, name, is_own, before, ours))
            return ours

        replaced_functions.replace = replace
        from torch.optim import optimizer

        self._hooks = [optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks]
        self._kept: list[dict[Any, Any]] = []
        self.is_on = True
        self._off_at = 0.0
        self.teller: Teller | None = None

    def off(self) -> None:
        if not self.is_on:
            return
        # What was put back already is left out.
        self._places = [each for each in self._places if vars(each[0]).get(each[1]) is each[4]]
        for owner, name, is_own, before, _ in reversed(self._places):
            if is_own:
                setattr(owner, name, before)
            else:
                delattr(owner, name)
        self._kept = [dict(hooks) for hooks in self._hooks]
        for hooks in self._hooks:
            hooks.clear()
        self.is_on = False
        self._off_at = time.monotonic()

    def on(self) -> None:
        if self.is_on:
            return
        for owner, name, _, _, ours in self._places:
            setattr(owner, name, ours)
        for hooks, kept in zip(self._hooks, self._kept, strict=True):
            hooks.update(kept)
        self.is_on = True
        if self.teller is not None and self.teller._first is not None:  # what passed meanwhile is no time of the run
            self.teller._first += time.monotonic() - self._off_at


# ---- trainings: each yields after a step -----------------------------------------------------------------------------


def perceptron(batch: int) -> Steps:
    """A few layers, batches of a DataLoader, the loss read at each step."""
    import torch

    data = torch.utils.data.TensorDataset(torch.randn(20 * batch, 64), torch.randint(10, (20 * batch,)))
    loader = torch.utils.data.DataLoader(data, batch, shuffle=True)
    # Wide layers and few samples: where large tensors come and go, the allocator's moods are larger than what is measured.
    wide = [each for _ in range(2) for each in (torch.nn.Linear(384, 384), torch.nn.ReLU())]
    model = torch.nn.Sequential(torch.nn.Linear(64, 384), torch.nn.ReLU(), *wide, torch.nn.Linear(384, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    total = 0.0
    while True:
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            total += loss.item()
            yield


def transformer(batch: int) -> Steps:
    """Many small modules, no loader."""
    import torch

    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    while True:
        inputs = torch.randn(batch, 16, 64)
        loss = (model(inputs) - inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield


def accumulation(batch: int) -> Steps:
    """Eight backward passes an update, each with its batch and a number read."""
    import torch

    data = torch.utils.data.TensorDataset(torch.randn(160 * batch, 64))
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 64))
    optimizer, seen = torch.optim.Adam(model.parameters(), 1e-3), 0.0
    while True:
        for number, (inputs,) in enumerate(torch.utils.data.DataLoader(data, batch)):
            loss = (model(inputs) - inputs).square().mean() / 8
            loss.backward()
            seen += loss.item()
            if number % 8 == 7:
                optimizer.step()
                optimizer.zero_grad()
                yield


def actor(batch: int) -> Steps:
    """Reinforcement: fifty calls of the policy for one sample, each with an action read, then an update."""
    import torch

    policy = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    optimizer = torch.optim.Adam(policy.parameters(), 1e-3)
    while True:
        kept = []
        for _ in range(50):
            choice = torch.distributions.Categorical(logits=policy(torch.randn(4)))
            action = choice.sample()
            kept.append(choice.log_prob(action) * (1.0 - action.item()))
        optimizer.zero_grad()
        torch.stack(kept).sum().backward()
        optimizer.step()
        yield


TRAININGS: dict[str, Callable[[int], Steps]] = {
    "perceptron, loader": perceptron,
    "transformer, no loader": transformer,
    "accumulation of eight": accumulation,
    "reinforcement, fifty actions": actor,
}


def sized(build: Callable[[int], Steps], wanted: float) -> tuple[Steps, float]:
    """A training whose step takes about so long where its batch can do that, and what it takes."""
    batch = 8
    while True:
        steps = build(batch)
        taken = statistics.median(seconds(steps) for _ in range(12))
        if taken >= 0.9 * wanted or batch >= 1 << 16 or build is actor:
            return steps, taken
        batch = max(batch + 8, min(4 * batch, int(batch * wanted / taken)))


def seconds(steps: Steps) -> float:
    began = CLOCK[0]()
    next(steps)
    return CLOCK[0]() - began


def ratios(
    steps: Steps, on: Callable[[], None], off: Callable[[], None], quads: int, block: int
) -> tuple[list[float], list[float]]:
    """Seconds of the blocks of each quad, with and without."""
    dice, with_it, without = random.Random(0), [], []
    for _ in range(quads):
        order = [True, False, False, True]
        if dice.random() < 0.5:
            order = [not each for each in order]
        found: dict[bool, float] = {True: 0.0, False: 0.0}
        for is_on in order:
            (on if is_on else off)()
            next(steps)
            found[is_on] += sum(seconds(steps) for _ in range(block - 1)) / (block - 1)
        with_it.append(found[True])
        without.append(found[False])
    return with_it, without


def measure(name: str, wanted: float, quads: int, block: int, clock: str) -> Json:
    """A record of one training. In a process of its own, as the watch stays."""
    import torch

    CLOCK[0] = CLOCKS[clock]
    if clock == "cpu":
        torch.set_num_threads(1)
    switch = Switch()
    reading, writing = os.pipe()
    subprocess.Popen(["cat"], stdin=reading, stdout=subprocess.DEVNULL)
    os.close(reading)
    order = json.loads(Request(Script("train.py")).to_json(writing))
    switch.teller = teller = Teller(order, Pipe(writing))
    chosen, teller._chosen = teller._chosen, None
    teller.watch.put_in_place()
    steps, _ = sized(TRAININGS[name], wanted)
    for _ in range(10):  # models are looked for in the first updates
        next(steps)
    first = ratios(steps, switch.on, switch.off, quads, block)
    switch.on()
    # As if all updates before, of whatever size, had taken as long.
    teller._first = time.monotonic() - teller.watch.counts.updates * statistics.median(first[1]) / 2
    teller._chosen = chosen
    before = counts(teller)
    watched = ratios(steps, switch.on, switch.off, quads, block)
    timed, updates = (now - then for now, then in zip(counts(teller), before, strict=True))
    switch.off()
    control = ratios(steps, lambda: None, lambda: None, quads, block)
    return {
        "training": name, "machine": machine(), "load": round(os.getloadavg()[0], 1), "block": block, "clock": clock,
        "seconds": statistics.median(watched[1]) / 2, "first": median_ratio(*first), "long": median_ratio(*watched),
        "share": timed / updates, "control": median_ratio(*control), "quads": quads,
    }  # fmt: skip


def counts(teller: Teller) -> tuple[int, int]:
    """Updates whose phases were timed, and all of them."""
    teller.watch._notes.add_up()
    return teller.watch._notes.made._watched, teller.watch.counts.updates


def page(records: list[Json]) -> str:
    last = {record["training"]: record for record in records if "long" in record}  # older ones have other figures
    machines = " / ".join(sorted({record["machine"] for record in last.values()}))
    lines = ["# What watching a script costs", "", "    python benchmarks/watch_overhead.py --write", ""]
    lines += [machines + ". What the columns mean stands at the top of watch_overhead.py.", ""]
    lines += [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    for name in TRAININGS:
        if name in last:
            record = last[name]
            cells = [
                name,
                record["clock"],
                f"{1e3 * record['seconds']:.1f}",
                _shown(record["first"]),
                _shown(record["long"]),
            ]
            cells += [f"{100 * record['share']:.0f} %", _shown(record["control"]), str(record["quads"])]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _shown(ratio: list[float] | tuple[float, float, float] | None) -> str:
    return "–" if ratio is None else f"{ratio[0]:.4f} [{ratio[1]:.4f}, {ratio[2]:.4f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainings", nargs="*", choices=TRAININGS, default=list(TRAININGS))
    parser.add_argument("--quads", type=int, default=60)
    parser.add_argument("--block", type=int, default=8)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--step", type=float, default=10.0)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    for name in args.trainings:
        pid = os.fork()
        if not pid:
            keep(RECORDS, measure(name, args.step / 1e3, args.quads, args.block, args.clock))
            os._exit(0)
        os.waitpid(pid, 0)
    tell(page(read(RECORDS)), PAGE, args.write)


if __name__ == "__main__":
    main()
