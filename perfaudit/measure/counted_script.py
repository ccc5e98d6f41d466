"""Steps of a script, each counted in its own loop, and what most of them have in common. Child only."""

from __future__ import annotations

import contextlib
import gc
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from perfaudit.errors import NoBatches, TargetError
from perfaudit.measure.counted_step import (
    COPIES,
    OF_A_STEP,
    OperatorCounts,
    held_with_gradients,
    nothing_collected,
    places,
)
from perfaudit.target.batches import tensors_in
from perfaudit.target.load import is_out_of_memory, where, words_of_error
from perfaudit.target.observed.same_state import Unobservable, without_compilation
from perfaudit.target.observed.syncs import BATCH, ON_HOST, SyncWatch, modes

Reply = dict[str, Any]  # JSON

STEPS, FEWEST = 8, 4  # that are counted; a log line under `if step % 10 == 0` is in one of them at most
ENOUGH_SECONDS = 20.0  # after which the fewest are enough


def count_script(training: Any, found: Reply, enough: float) -> None:  # Any: ScriptTraining
    """Counters of a typical step of a script, into `found`: see `counters.counters`.

    A step is from one update's end to the next one's, all that the script does there, without loading batches. Where more than
    half of the steps share a value, it is that one: an evaluation, a log line or the short batch that ends an epoch make a step
    another one. Where they do not, the counter is unsteady, or absent with the reason where a step has none. enough: seconds
    after which the fewest steps will do.

    Raises TargetError where the script ends before the fewest steps, or fails while it is watched.
    """
    names = (*OF_A_STEP, "host_syncs", *(COPIES if training.device.type != "cpu" else ()))
    try:
        with without_compilation(training.model):
            steps = _count_steps(training, enough)
    except Unobservable as error:
        found["absent"].update(dict.fromkeys(names, str(error)))
        return
    for name in names:
        _keep(found, name, steps)


def _count_steps(training: Any, enough: float) -> list[Reply]:
    """What was counted in each step, as `counted_step` has it, with "host_syncs"."""
    counts, syncs = OperatorCounts(training.device.type), SyncWatch(training.device.type, moves=True)
    functions, operators = modes(syncs)

    @contextlib.contextmanager
    def unseen() -> Iterator[None]:
        before, counts.is_paused = counts.is_paused, True
        syncs.quiet += 1
        try:
            yield
        finally:
            counts.is_paused = before
            syncs.quiet -= 1

    def note_batch(batch: Any) -> None:
        tensors = list(tensors_in(batch))
        counts.know_all(tensors)
        syncs.taint(tensors, ON_HOST if training.device.type == "cpu" else BATCH)

    training.unseen, training.on_batch = unseen, note_batch
    steps: list[Reply] = []
    began = time.monotonic()
    try:
        with nothing_collected():
            counts.know_all(held_with_gradients(training))
            with counts.mode, operators, functions:
                while len(steps) <= STEPS and (len(steps) <= FEWEST or time.monotonic() < began + enough):
                    steps.append(_step(training, counts, syncs))
                    _refuse_lost(counts.mode, operators)
    except NoBatches as error:
        if len(steps) <= FEWEST:
            raise TargetError(f"{error}; counters need {FEWEST + 2} steps: let it train longer") from error
    except TargetError:  # it has left with a code that says that it failed
        raise
    except Exception as error:  # whatever the user's code raises when every operator is watched
        if is_out_of_memory(error):
            raise
        raise TargetError(
            f"a step under observation failed: {type(error).__name__}: {words_of_error(error)[:300]}{where(error)}"
        ) from error
    return steps[1:]  # of what is alive in the first one, some is not known


def _refuse_lost(*watching: Any) -> None:
    """Raise TargetError where a step has left a mode that an earlier one had entered, and taken one of ours with it."""
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    there = _get_current_dispatch_mode_stack()
    if not all(any(each is mode for each in there) for mode in watching):
        raise TargetError(
            "a step ends inside a mode of torch's dispatcher (`with …:` around its update) and cannot be watched"
        )


def _step(training: Any, counts: OperatorCounts, syncs: SyncWatch) -> Reply:
    gc.collect()
    syncs.seen.clear()
    syncs.taint_model(training.model)
    counts.begin()
    samples = training.whole_step()
    with training.unseen():
        training.synchronize()
    reply = counts.reply(samples)
    by_name: Counter[str] = Counter()
    lines: Counter[tuple[str, int, str]] = Counter()
    for (path, line, what, _), count in syncs.seen.items():
        by_name[what] += count
        lines[(path, line, what)] += count
    reply["values"]["host_syncs"] = by_name.total()
    reply["by_name"]["host_syncs"] = dict(by_name)
    reply["places"]["host_syncs"] = places(lines)
    return reply


def _keep(found: Reply, name: str, steps: Sequence[Reply]) -> None:
    """Keep what most steps have of a counter, with the parts and lines of the first of them; else that they differ.

    A step in which it could not be counted, an evaluation of another layout say, is one that does not share the value.
    """
    seen = [step["values"].get(name) for step in steps]
    known = [value for value in seen if value is not None]
    value, times = Counter(known).most_common(1)[0] if known else (None, 0)
    if 2 * times <= len(seen):
        if len(known) < len(seen):
            found["absent"][name] = next(step["absent"][name] for step in steps if name in step["absent"])
            return
        value = max(seen)
        found["unsteady"][name] = f"between {min(seen):,} and {value:,} in {len(seen)} steps"
        found["steps"][name] = seen
    found["values"][name] = value
    typical = steps[seen.index(value)]
    for part in ("by_name", "places"):
        if name in typical[part]:
            found[part][name] = typical[part][name]
