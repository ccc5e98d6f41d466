"""What `PerfauditCallback` costs: `python benchmarks/callback_overhead.py`, in the environment of `make trainers`.

    --quads N    on, off, off, on, or the other way round (60)
    --block N    steps of each of them, of which the first does not count (8)
    --clock wall seconds of the clock, on a machine that does nothing else; else of the processor, by the training's thread

The sample programs of Hugging Face and Lightning train with the callback, whose watch is put in place in some blocks of steps and
taken away in others, next to each other. A block counts by the sum of its steps. Of each quad there is a ratio of the seconds
with over those without; the median of these has its 95 % interval by ranks. The first 400 steps are left out: there the
phases of each step are timed for a while, later those of a few. What a log costs is told apart: it comes once in many steps.
"""

from __future__ import annotations

import argparse
import functools
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from own_processes import median_ratio

PROGRAMS = Path(__file__).resolve().parents[1] / "tests" / "training" / "trainer_programs"
WARM_UP = 400  # steps
CLOCKS = {"wall": time.perf_counter, "cpu": time.thread_time}


class Toggle:
    """Switches the watch of a callback after blocks of steps, and keeps what each block took."""

    def __init__(self, quads: int, block: int, clock: str) -> None:
        chance = random.Random(0)
        orders = ((True, False, False, True), (False, True, True, False))
        self.plan = [each for _ in range(quads) for each in chance.choice(orders)]
        self.block, self.clock = block, CLOCKS[clock]
        self.took: list[float] = []
        self.logs: list[float] = []
        self.steps = 0
        self.is_on, self.off_at = True, 0.0
        self.last = 0.0
        self.now = 0.0  # what this block has taken

    def after_step(self, training: Any, forward: Any = None) -> bool:
        """Whether all is done."""
        now = self.clock()
        self.steps += 1
        at = self.steps - WARM_UP
        if at > 0 and (at - 1) % self.block:  # the first step of a block does not count
            self.now += now - self.last
        if at >= 0 and at % self.block == 0:
            if at:
                self.took.append(self.now)
                self.now = 0.0
            number = at // self.block
            if number % 16 == 0:
                began = self.clock()
                training.take_figures()
                training.warn()
                self.logs.append(self.clock() - began)
            if number == len(self.plan):
                return True
            self.switch(training, self.plan[number], forward)
        self.last = self.clock()
        return False

    def switch(self, training: Any, is_on: bool, forward: Any) -> None:
        if is_on == self.is_on:
            return
        if is_on:
            began = training._began
            training.begin(forward)
            training._began = began + self.clock() - self.off_at
            training._watch.watch_next(not training._rests)
            if training._rests:
                training._watch.rest()
        else:
            training.end()
            self.off_at = self.clock()
        self.is_on = is_on

    def tell(self, name: str, share: float) -> None:
        sums: dict[bool, list[float]] = {True: [], False: []}
        for first in range(0, len(self.took) - 3, 4):
            quad = list(zip(self.plan[first : first + 4], self.took[first : first + 4], strict=True))
            for wanted, several in sums.items():
                several.append(sum(seconds for is_on, seconds in quad if is_on == wanted))
        off = [seconds / (self.block - 1) for is_on, seconds in zip(self.plan, self.took, strict=True) if not is_on]
        found = median_ratio(sums[True], sums[False])
        assert found is not None
        median, low, high = found
        print(
            f"{name}: step {1000 * statistics.median(off):.2f} ms, with the callback {100 * (median - 1):+.2f} % "
            f"[{100 * (low - 1):+.2f}, {100 * (high - 1):+.2f}], {100 * share:.0f} % of the steps timed by phase, "
            f"a log {1000 * statistics.median(self.logs):.1f} ms, {len(sums[True])} quads",
            flush=True,
        )


def source(name: str, batch: int) -> str:
    """A sample program whose step is made longer."""
    text = (PROGRAMS / f"{name}.py").read_text()
    return text.replace("max_steps=2000", "max_steps=10_000_000").replace("128", str(batch))


def hugging_face(toggle: Toggle, width: int) -> None:
    from perfaudit.callbacks import transformers

    transformers.WatchedTraining = functools.partial(transformers.WatchedTraining, clock=toggle.clock)

    class Toggled(transformers.PerfauditCallback):
        def on_log(self, *_: Any, **__: Any) -> None:
            """None of its own."""

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop |= toggle.after_step(self._training)
            self.share = self._training._chosen.share

    callback = Toggled()
    text = source("hugging_face", width).replace(
        "train_dataset=Points()", "train_dataset=Points(), callbacks=[CALLBACK]"
    )
    text = text.replace("logging_steps=10", "logging_steps=100_000")
    exec(compile(text, "hugging_face.py", "exec"), {"__name__": "__main__", "CALLBACK": callback})
    toggle.tell("Hugging Face", callback.share)


def lightning_fit(toggle: Toggle, width: int) -> None:
    from perfaudit.callbacks import lightning

    lightning.WatchedTraining = functools.partial(lightning.WatchedTraining, clock=toggle.clock)

    class Toggled(lightning.PerfauditCallback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx % 2:
                trainer.should_stop |= toggle.after_step(self._training, (trainer.strategy, "training_step"))
                self.share = self._training._chosen.share

    callback = Toggled()
    text = source("lightning_fit", width).replace("logger=False,", "logger=False, callbacks=[CALLBACK],")
    exec(compile(text, "lightning_fit.py", "exec"), {"__name__": "__main__", "CALLBACK": callback})
    toggle.tell("Lightning", callback.share)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quads", type=int, default=60)
    parser.add_argument("--block", type=int, default=8)
    parser.add_argument("--clock", choices=CLOCKS, default="cpu")
    parser.add_argument("--width", type=int, default=4096, help="of the sample's model: a wider one has longer steps")
    given = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    for run in (hugging_face, lightning_fit):
        run(Toggle(given.quads, given.block, given.clock), given.width)


if __name__ == "__main__":
    sys.exit(main())
