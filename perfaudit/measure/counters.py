"""What one warm training step consists of, in numbers that do not depend on how busy the machine is. Child only."""

from __future__ import annotations

from collections import Counter
from typing import Any

from perfaudit.errors import TargetError
from perfaudit.measure.counted_script import ENOUGH_SECONDS, count_script
from perfaudit.measure.counted_step import COPIES, OF_A_STEP, counted_step, places
from perfaudit.measure.counters_as_run import compiles
from perfaudit.target.load import is_out_of_memory
from perfaudit.target.observed.same_state import Unobservable, without_compilation
from perfaudit.target.observed.syncs import Seen, syncs_of_steps
from perfaudit.target.random_streams import seed_all
from perfaudit.target.sampling import first_batches

Reply = dict[str, Any]  # JSON

# Batches; a shorter epoch is begun anew for each counted step, whose batch else were its smaller last one.
SHORT_EPOCH = 8
MOST_INDICES = 2_000_000  # of an epoch that are drawn; at half a second for a million, more would be felt


def counters(training: Any, enough: float = ENOUGH_SECONDS) -> Reply:  # Any: training.factory_training.FactoryTraining
    """Counters of one warm training step, and of one epoch of the loader's indices, as JSON.

    values: by name, of the first of two steps that are counted; where the second one has more of something, of that one.
    by_name: their parts: by operator, or by kind of sync. places: [path, line, text of the line, what, how often] for
    operators and syncs under a line of the user's own; the backward pass has none. unsteady: counters that the two steps do
    not share, with words; steps: of these, the values of four steps. absent: what could not be counted, with words. as_run:
    whether there is something to count in a training without observation too, see `counters_as_run`.

    What runs from the loader's batch on is counted; loading is not, because it may be another process that does it. A
    compiled function is counted as it is written. Floating-point operations are those of `flop_formulas`, in which
    element-wise operators and some rare ones are missing: these count 0. Bytes are those of storages on the training's
    device that are new in the step (`bytes_allocated`) or alive at once (`peak_live_bytes`, with parameters, gradients, and
    the optimizer's state). The copies are there on an accelerator only.

    The training goes on from where these steps leave it: five, and up to six more where steps differ, or fail. Of a script it is
    the value of most of its steps: see `counted_script`, also for `enough`.
    """
    import torch

    found: Reply = {"values": {}, "by_name": {}, "places": {}, "unsteady": {}, "steps": {}, "absent": {}}
    seed_all(training.seed)
    compiled = compiles(training)
    if training.is_script:
        count_script(training, found, enough)
    else:
        _count_syncs(training, found)
        _count_steps(training, compiled, found)
    parameters = list(training.model.parameters())  # lazy ones have a shape by now
    found["values"]["parameters"] = sum(p.numel() for p in parameters)
    found["values"]["trainable_parameters"] = sum(p.numel() for p in parameters if p.requires_grad)
    _count_indices(training, found)
    training.phases.take()  # steps under observation are no times to go by
    dtypes = sorted({str(p.dtype).removeprefix("torch.") for p in parameters})
    as_run = compiled or training.device.type == "cuda"
    return {
        **found, "as_run": as_run, "device": training.device.type, "torch": torch.__version__, "dtype": ", ".join(dtypes),
    }  # fmt: skip


def _count_syncs(training: Any, found: Reply) -> None:
    """Host syncs by kind and line, of two steps. The one before them leaves the optimizer's state behind."""
    _fresh_epoch(training)
    try:
        seen = syncs_of_steps(training, 2, lambda: _fresh_epoch_if_short(training))
        if _how_many(seen[0]) != _how_many(seen[1]):
            seen += syncs_of_steps(training, 2, lambda: _fresh_epoch_if_short(training), warm=True)
    except Unobservable as error:
        found["absent"]["host_syncs"] = str(error)
        for _ in range(2):
            training.whole_step()  # says what is wrong where the step fails unobserved too
        return
    most = max(seen[:2], key=_how_many)
    by_name: Counter[str] = Counter()
    lines: Counter[tuple[str, int, str]] = Counter()
    for item in most:  # what of the batch and what of the parameters is read on a line is one thing here
        by_name[item["what"]] += item["count"]
        lines[(item["path"], item["line"], item["what"])] += item["count"]
    found["by_name"]["host_syncs"] = dict(by_name)
    found["places"]["host_syncs"] = places(lines)
    _keep(found, "host_syncs", [_how_many(step) for step in seen])


def _how_many(seen: list[Seen]) -> int:
    return sum(item["count"] for item in seen)


def _keep(found: Reply, name: str, seen: list[int]) -> None:
    """Keep what two steps have of a counter: the larger value; where they differ, that they do, and what two more have."""
    found["values"][name] = max(seen[:2])
    if seen[0] != seen[1]:
        found["unsteady"][name] = f"{seen[0]:,} and {seen[1]:,} in two steps"
        found["steps"][name] = seen


def _count_steps(training: Any, compiled: bool, found: Reply) -> None:
    """Two steps, each counted: the larger value of both; two more, where something is not the same in them."""
    import torch

    names = OF_A_STEP if training.device.type == "cpu" else OF_A_STEP + COPIES
    if compiled and not hasattr(torch.compiler, "set_stance"):  # since torch 2.6
        why = f"something is compiled, and torch {torch.__version__} cannot run it uncompiled"
        found["absent"].update(dict.fromkeys(names, why))
        return
    _fresh_epoch(training)
    seed_all(training.seed)  # so that batches and dropouts do not depend on how much chance the construction used up
    try:
        with without_compilation(training.model):
            first, second = _two_steps(training)
            more = [] if first["values"] == second["values"] else _two_steps(training)
    except TargetError:
        raise
    except Exception as error:  # whatever the user's code raises when every operator is watched
        if is_out_of_memory(error):
            raise
        training.whole_step()  # says what is wrong where the step fails unobserved too
        words = (str(error).splitlines() or [""])[0]
        why = f"a step under observation failed: {type(error).__name__}: {words}"[:300]
        found["absent"].update(dict.fromkeys(names, why))
        return
    found["absent"].update(first["absent"])
    for name, value in first["values"].items():
        seen = [value, *(step["values"].get(name, value) for step in (second, *more))]
        _keep(found, name, seen)
        for part in ("by_name", "places"):
            parts = second[part] if seen[1] > value else first[part]
            found[part].update({name: parts[name]} if name in parts else {})


def _two_steps(training: Any) -> list[Reply]:
    first = counted_step(training)
    _fresh_epoch_if_short(training)
    return [first, counted_step(training)]


def _fresh_epoch(training: Any) -> None:
    """The next batch is the first of an epoch, except of an iterable dataset, which may be used up by one pass."""
    from torch.utils.data import IterableDataset

    if not isinstance(training.loader.dataset, IterableDataset):
        training.close()


def _fresh_epoch_if_short(training: Any) -> None:
    """As `_fresh_epoch`, where the batch would else soon be the smaller last one of an epoch."""
    if (training.epoch_batches or SHORT_EPOCH) < SHORT_EPOCH:
        _fresh_epoch(training)


def _count_indices(training: Any, found: Reply) -> None:
    """How many samples one epoch of indices has twice, and how many never (what `drop_last` drops too)."""
    names = ("samples_repeated", "samples_skipped")
    try:
        drawn, samples = _indices(training)
    except _NoIndices as error:
        found["absent"].update(dict.fromkeys(names, str(error)))
        return
    distinct = set(drawn)
    found["values"].update(
        dataset_samples=samples, samples_repeated=len(drawn) - len(distinct), samples_skipped=samples - len(distinct)
    )


class _NoIndices(Exception):
    """There are no indices of an epoch to look at; the message says why."""


def _indices(training: Any) -> tuple[list[int], int]:
    """The indices of one epoch as the sampler draws them, and the number of samples there are. No sample is loaded."""
    from torch.utils.data import IterableDataset

    loader = training.loader
    if loader is None:
        raise _NoIndices("its batches do not come from a DataLoader")
    if isinstance(loader.dataset, IterableDataset):
        raise _NoIndices("the dataset is iterable and has no indices")
    seed_all(training.seed)
    try:
        samples = len(loader.dataset)
        if samples > MOST_INDICES:
            raise _NoIndices(f"an epoch of {samples:,} samples is more than the {MOST_INDICES:,} that are looked at")
        batches, whole = first_batches(loader, MOST_INDICES)
        drawn = [int(i) for i in batches] if loader.batch_sampler is None else [int(i) for b in batches for i in b]
    except _NoIndices:
        raise
    except Exception as error:  # a dataset without a length, a sampler of names, and whatever else a sampler may do
        raise _NoIndices(f"the sampler's indices cannot be counted: {type(error).__name__}: {error}"[:300]) from error
    if not whole:
        raise _NoIndices(f"the sampler draws more than {MOST_INDICES:,} indices in an epoch")
    if strange := [index for index in drawn if not -samples <= index < samples]:
        raise _NoIndices(f"the sampler draws {strange[0]}, which is no index of {samples:,} samples")
    return [index % samples for index in drawn], samples
