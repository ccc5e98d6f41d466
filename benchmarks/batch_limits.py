"""The largest batch that fits into a budget of tensor bytes: found exhaustively, by us, and by Lightning's two modes.

The part `batch` of search_quality.py. A budget is kept by `capped`, a dispatch mode in which an operator raises what the
CPU allocator raises, once the bytes of live tensors are more than the budget. Everything runs in it: the real steps whose
exhaustive bisection finds the true limit, the real steps by which we confirm ours, and Lightning's.

Lightning's gradients of the step before live through the forward pass (it drops them between forward and backward), ours
and most loops' do not; so its true limit may be another one, and is found in the same way with its order of things.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import io
import json
import logging
import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from perfaudit.knobs._memory_limit import FIRST
from perfaudit.knobs.batch_size import KNOB, LARGEST
from perfaudit.measure.memory import held_tensors, live_bytes, memory_of_step
from perfaudit.target.load import is_out_of_memory
from perfaudit.target.names import Target
from perfaudit.training.factory_training import FactoryTraining

MIB = 2**20
CLOSE = 0.02  # of the true limit, that a limit may be off
LIGHTNING_MODES = ("power", "binsearch")

Record = dict[str, Any]  # JSON

HEAD = """
import families
import memory_prediction
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __len__(self):
        return 1 << 16


def build_dataloader():
    return DataLoader(Made(), batch_size=8, drop_last=True)


def build_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
"""
IMAGES = """

class Made(Samples):
    def __getitem__(self, index):
        return torch.rand(3, 48, 48), index % 10


def build_model():
    return families.resnet((1, 1, 1, 1), False, width=16, classes=10)
"""
WORDS = """

class Made(Samples):
    def __getitem__(self, index):
        return torch.randint(0, 500, (33,))


def build_model():
    return memory_prediction.GPT()


def training_step(model, batch):
    return memory_prediction.next_words(model, batch)
"""
VECTORS = """

class Made(Samples):
    def __getitem__(self, index):
        return torch.rand(32), index % 10


def build_model():
    return memory_prediction.wide()
"""
# By name: the user's file, and a budget in bytes.
MODELS = {
    "ResNet-10 of width 16, 48 x 48": (HEAD + IMAGES, 80 * MIB),
    "GPT, 3 blocks": (HEAD + WORDS, 100 * MIB),
    "MLP, 30,000 hidden": (HEAD + VECTORS, 100 * MIB),
}


def batch_run(name: str, _seconds: float) -> Record:
    """One model: the true limit, ours, and Lightning's; seconds are the processor's, on one thread."""
    import torch

    text, budget = MODELS[name]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{''.join(c if c.isalnum() else '_' for c in name)}.py"  # imported once by its name
            file.write_text(text)

            def build() -> FactoryTraining:
                return FactoryTraining(Target(str(file), {}), "cpu")

            return {
                "part": "batch", "regime": name, "budget": budget, "torch": torch.__version__,
                "true": true_limit(build(), budget), "ours": our_limit(build, budget),
                "lightning_true": true_limit(build(), budget, gradients_kept=True),
                **{mode: lightning_limit(build(), budget, mode, folder) for mode in LIGHTNING_MODES},
            }  # fmt: skip
    finally:
        torch.set_num_threads(threads)


# ---- a budget -----------------------------------------------------------------------------------------------------


def capped(budget: int) -> Any:
    """A dispatch mode that counts live tensor bytes and raises as the CPU allocator once they pass the budget.

    `events` counts how often. As with the allocator, what raised has allocated nothing; the rest lives on.
    """

    class Capped(type(live_bytes())):  # type: ignore[misc]  # made inside a function, as torch is imported there
        def __init__(self) -> None:
            super().__init__()
            self.events = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            before = self.now
            result = super().__torch_dispatch__(func, types, args, kwargs)
            if self.now > budget and self.now > before:
                self.events += 1
                wanted = self.now - before
                del result  # which the traceback would keep
                raise RuntimeError(  # as torch 2.13 on Linux
                    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried "
                    f"to allocate {wanted} bytes. Error code 12 (Cannot allocate memory)"
                )
            return result

    return Capped()


@contextlib.contextmanager
def budgeted(training: FactoryTraining, budget: int) -> Iterator[Any]:
    """`capped`, which knows the tensors that the training has already."""
    with capped(budget) as live:
        for tensor in held_tensors(training):
            live.see(tensor)
        yield live


# ---- the true limit -----------------------------------------------------------------------------------------------


def true_limit(training: FactoryTraining, budget: int, gradients_kept: bool = False) -> Record:
    """The largest batch of which two real steps in a row stay within the budget, by bisection; 0 where none does.

    gradients_kept: steps in Lightning's order. Tells also the counted peak, of the limit and of one sample more.
    """
    first = training.fixed_batch()
    training.step(first)  # makes the optimizer's state

    def fits(size: int) -> bool:
        training.optimizer.zero_grad()
        with budgeted(training, budget) as live:
            try:
                batch = of_size(first, size)
                for _ in range(2):
                    (lightnings_step if gradients_kept else training.step)(*[training] * gradients_kept, batch)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                error.__traceback__ = None  # it holds the activations
            return not live.events

    started = time.process_time()
    limit, trials = bisected(fits)
    seconds = time.process_time() - started
    peaks = (
        [] if gradients_kept else [memory_of_step(training, of_size(first, limit + more)).tensors for more in (0, 1)]
    )
    return {"limit": limit, "trials": trials, "seconds": seconds, "peaks": peaks}


def lightnings_step(training: FactoryTraining, batch: Any) -> None:
    """A step as Lightning's automatic optimization orders it."""
    loss = training.loss(batch)
    training.optimizer.zero_grad()
    loss.backward()
    training.optimizer.step()


def bisected(fits: Callable[[int], bool]) -> tuple[int, int]:
    """The largest size that fits, and how many were tried: doublings of 1, then halves of what is between."""
    low, high, trials = 0, 1, 1
    while fits(high):
        low, high, trials = high, 2 * high, trials + 1
    while high - low > 1:
        middle, trials = (low + high) // 2, trials + 1
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low, trials


def of_size(batch: Any, size: int) -> Any:
    """A batch of zeros with the shapes and types of another and so many samples."""
    if isinstance(batch, (list, tuple)):
        return type(batch)(of_size(item, size) for item in batch)
    return batch.new_zeros(size, *batch.shape[1:])


# ---- ours ---------------------------------------------------------------------------------------------------------


def our_limit(build: Callable[[], FactoryTraining], budget: int) -> Record:
    """What the knob answers in its child, and the real steps by which it confirms that, within the budget.

    Each question is put to a training built anew, as each is asked in a child of its own. Left out is what it adds for a
    process: the room that libraries take besides tensors.
    """
    started = time.process_time()
    reply = KNOB.answer_limits(build(), budget, LARGEST, seconds=0.0)  # 0: not with what saves memory
    seconds = time.process_time() - started
    if "cannot" in reply:
        return {"limit": 0, "seconds": seconds, "predictions": 0, "events": 0, "said": reply["cannot"]}
    limit = int(reply["limits"]["plain"])
    events, peaks = 0, []
    for share in (FIRST, 1.0):
        training = build()
        with budgeted(training, budget) as live:
            try:
                peaks.append(KNOB.answer_real(training, max(1, int(limit * share)))["peak"])
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                error.__traceback__ = None
            events += live.events
    confirming = time.process_time() - started - seconds
    return {
        "limit": limit, "seconds": seconds, "confirming_seconds": confirming, "predictions": len(reply["peaks"]),
        "events": events, "peaks": peaks,
    }  # fmt: skip


# ---- Lightning's --------------------------------------------------------------------------------------------------


def lightning_limit(training: FactoryTraining, budget: int, mode: str, folder: str) -> Record:
    """What Lightning's batch size finder returns, or how it dies; {} where Lightning cannot be imported."""
    try:
        import lightning.pytorch as pl
        from lightning.pytorch.tuner import Tuner
    except ImportError:
        return {}
    from torch.utils.data import DataLoader

    class Module(pl.LightningModule):  # type: ignore[misc]  # installed beside, or not
        def __init__(self) -> None:
            super().__init__()
            self.model, self.batch_size = training.model, training.loader.batch_size

        def training_step(self, batch: Any, _: int) -> Any:
            return training.loss(batch)

        def configure_optimizers(self) -> Any:
            return training.optimizer

        def train_dataloader(self) -> Any:
            return DataLoader(training.loader.dataset, batch_size=self.batch_size, drop_last=True)

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    record: Record = {"limit": None, "version": importlib.metadata.version("lightning")}
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()), budgeted(training, budget) as live:
        warnings.simplefilter("ignore")
        started = time.process_time()
        trainer = pl.Trainer(accelerator="cpu", devices=1, max_epochs=1, default_root_dir=folder, **quiet)
        try:
            record["limit"] = Tuner(trainer).scale_batch_size(Module(), mode=mode)
        except Exception as error:  # how it dies is the result
            record["died"] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        record.update(seconds=time.process_time() - started, events=live.events)
    gc.collect()
    return record


# ---- the table ----------------------------------------------------------------------------------------------------

HEADINGS = (
    "model", "budget, MiB", "true limit", "ours", "off by, %", "predictions", "s (true / ours / confirming)",
    "out of memory", "true limit in Lightning's order", "Lightning power (off that)", "Lightning binsearch (off that)",
)  # fmt: skip


def batch_table(records: list[Record]) -> str:
    """One row a run, and how many of them reach what is promised."""
    lines = [f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    for record in records:
        true, ours = record["true"], record["ours"]
        cells = [
            record["regime"],
            f"{record['budget'] / MIB:.0f}",
            true["limit"],
            ours["limit"],
            f"{100 * off(ours, true):+.2f}",
            ours["predictions"],
            f"{true['seconds']:.0f} / {ours['seconds']:.1f} / {ours.get('confirming_seconds', math.nan):.1f}",
            ours["events"],
            record["lightning_true"]["limit"],
            *(lightnings_cell(record[mode], record["lightning_true"]) for mode in LIGHTNING_MODES),
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    close = sum(abs(off(r["ours"], r["true"])) <= CLOSE for r in records)
    events = sum(r["ours"]["events"] for r in records)
    versions = json.dumps(sorted({(r["torch"], r["power"].get("version", "not installed")) for r in records}))
    return "\n".join(
        [
            *lines,
            "",
            f"{len(records)} runs: ours within {100 * CLOSE:.0f} % of the true limit in {close}, out of memory {events} "
            f"times. Seconds are processor seconds on one thread; [torch, Lightning]: {versions}",
        ]
    )


def off(found: Record, true: Record) -> float:
    """Share of the true limit that a limit is too large."""
    return float(found["limit"] / true["limit"] - 1) if true["limit"] else math.nan


def lightnings_cell(found: Record, true: Record) -> str:
    """ "256 (-31.7 %, 1 out of memory, 12 s)", or how it died."""
    if not found:
        return "not installed"
    cost = f"{found['events']} out of memory, {found['seconds']:.0f} s"
    if found["limit"] is None:
        return f"died: {found.get('died', 'no size')} ({cost})"
    return f"{found['limit']} ({100 * off(found, true):+.1f} %, {cost})"
