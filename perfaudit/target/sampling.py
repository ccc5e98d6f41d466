"""Which samples a loader yields with other numbers of workers, and what starting workers costs. Runs in a child only.

Samples are compared as multisets of digests, so that their order does not matter. A sample is taken apart into its leaves
(tensors, arrays, numbers, texts) by their place in it, because random augmentation changes some and leaves others (labels,
names) as they are: what two passes without workers agree on is compared, and the rest is called random.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from perfaudit.target.batches import parts_of

WHOLE = ""  # the leaf that stands for all of a sample
WAITING = 10  # seconds for one batch of a worker; a worker that blocks is a failure with a reason, not a hang

MAP_SAMPLES = 256  # compared, where torch draws the indices itself
ITERABLE_SAMPLES, ITERABLE_SECONDS = 2000, 5.0  # where only a whole pass tells whether workers share the samples out

WAVES = 3  # of workers' batches, of which the first one has their start in it

Leaves = dict[str, str]  # digest by place in the sample


@dataclass(slots=True)
class Pass:
    """What one pass over a dataset yielded, as far as it went. ended: whether it came to the end by itself."""

    samples: int = 0
    ended: bool = False
    leaves: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, leaves: Leaves) -> None:
        self.samples += 1
        for place, digest in leaves.items():
            self.leaves.setdefault(place, Counter())[digest] += 1

    @property
    def repeated_samples(self) -> int:
        """Samples that had been yielded before in this pass."""
        whole = self.leaves.get(WHOLE, Counter())
        return whole.total() - len(whole)


def equal_places(one: Pass, other: Pass) -> list[str]:
    """Places whose digests are the same multiset in both passes."""
    return sorted(place for place, found in one.leaves.items() if other.leaves.get(place) == found)


def compared_with_workers(loader: Any, counts: list[int], most: int) -> dict[str, Any]:
    """Whether a loader yields the same samples with these numbers of workers as with none, as JSON.

    Of an iterable dataset a whole pass is compared: whether workers share its samples out is its own affair, and one
    that does not yields each of them again from every worker. Of a map-style dataset the training process draws the
    indices whatever the number of workers, so they cannot repeat; what can go wrong is what comes of an index in
    another process (a file handle that workers share through fork, a `worker_init_fn` that changes the dataset). So the
    samples behind the first indices that its sampler draws are compared, index by content. With as many workers as batches,
    or more, each batch is loaded by a worker of its own; what is the same with the fewest of these is the same with more.
    most: batches of a map-style dataset to compare, at most.
    """
    return _map_samples(loader, counts, most) if _is_map_style(loader) else _iterable_samples(loader, counts)


def _iterable_samples(loader: Any, counts: list[int]) -> dict[str, Any]:
    first = pass_over_iterable(loader, 0, 0, ITERABLE_SAMPLES)
    again = pass_over_iterable(loader, 0, 1, first.samples) if first.ended else first
    compared = equal_places(first, again) if first.ended else []
    reply: dict[str, Any] = {
        "samples": first.samples, "whole": first.ended, "compared": compared, "random": _random(first, compared),
        "differing": [], "repeats": None,
    }  # fmt: skip
    for n in counts if first.ended else counts[-1:]:  # one worker repeats nothing
        found = pass_over_iterable(loader, n, 0, (n + 1) * first.samples)
        same = found.ended and all(found.leaves.get(place) == first.leaves[place] for place in compared)
        if found.samples > first.samples if first.ended else found.repeated_samples > 0 == first.repeated_samples:
            reply["repeats"] = [
                n,
                found.samples,
                found.samples - found.repeated_samples if not first.ended else first.samples,
            ]
            return reply
        if not same or found.samples != first.samples:
            reply["differing"].append(n)
    return reply


def _map_samples(loader: Any, counts: list[int], most: int) -> dict[str, Any]:
    batches, whole = first_batches(loader, MAP_SAMPLES)
    batches, whole = batches[:most], whole and len(batches) <= most
    first = pass_over_indices(loader, 0, 0, batches)
    compared = equal_places(first, pass_over_indices(loader, 0, 1, batches))
    differing, each_its_own = list[int](), 0
    for n in sorted(counts):
        if each_its_own and each_its_own not in differing:
            break
        each_its_own = n if n >= len(batches) else 0
        found = pass_over_indices(loader, n, 0, batches)
        if any(found.leaves.get(place) != first.leaves[place] for place in compared):
            differing.append(n)
    return {
        "samples": first.samples, "batches": len(batches), "whole": whole, "compared": compared,
        "random": _random(first, compared), "differing": differing, "repeats": None,
    }  # fmt: skip


def _random(first: Pass, compared: list[str]) -> list[str]:
    return sorted(place for place in first.leaves if place and place not in compared)


def pass_over_iterable(loader: Any, workers: int, seed: int, samples: int) -> Pass:
    """The samples of a loader's iterable dataset with so many workers, at most so many or for ITERABLE_SECONDS.

    The user's `worker_init_fn` is kept, for it may be what shards the dataset. Raises whatever the dataset raises.
    """
    mine = _loader(loader, workers, loader.dataset, batch_size=None, collate_fn=leaves_of)
    return _read_pass(mine, seed, samples, ITERABLE_SECONDS)


def pass_over_indices(loader: Any, workers: int, seed: int, batches: list[Any]) -> Pass:
    """The samples that a loader's map-style dataset gives for these batches of indices with so many workers.

    Workers hold the user's own dataset, which their `worker_init_fn` may reach into, and send digests instead of samples.
    """
    in_batches = loader.batch_sampler is not None
    own = {"batch_sampler": batches} if in_batches else {"sampler": batches, "batch_size": None}
    mine = _loader(loader, workers, loader.dataset, collate_fn=_digests if in_batches else leaves_of, **own)
    return _read_pass(_with_indices(mine, batches, in_batches), seed)


def _digests(batch: Any) -> list[Leaves]:
    """Of each sample; of the batch as a whole where the dataset's `__getitems__` makes something else than a list."""
    return [leaves_of(sample) for sample in batch] if isinstance(batch, list) else [leaves_of(batch)]


def _with_indices(loader: Any, batches: list[Any], in_batches: bool) -> Iterator[Leaves]:
    """Each sample's digests with that of its index as a part: a loader yields batches in the order of their indices."""
    for indices, found in zip(batches, loader, strict=True):
        samples = found if in_batches else [found]
        of = indices if in_batches and len(indices) == len(found) else [indices] * len(samples)
        for index, leaves in zip(of, samples, strict=True):
            parts = {f"sample.{place}" if place != "sample" else place: leaves[place] for place in leaves if place}
            yield _whole({"index": _digest(index), **parts})


def first_batches(loader: Any, samples: int) -> tuple[list[Any], bool]:
    """Batches of indices as the loader's sampler draws them, up to so many samples, and whether these are all of them."""
    sampler = iter(loader.batch_sampler if loader.batch_sampler is not None else loader.sampler)
    drawn: list[Any] = []
    count = 0
    for batch in sampler:
        if drawn and count >= samples:
            return drawn, False
        drawn.append(batch)
        count += len(batch) if loader.batch_sampler is not None else 1
    return drawn, True


def start_and_stop(loader: Any) -> tuple[float, float, float]:
    """Seconds to start a worker, until the first batch is there, and to stop it. Raises what a worker raises."""
    own: dict[str, Any] = {"collate_fn": loader.collate_fn}
    if loader.batch_sampler is not None and _is_map_style(loader):
        own["batch_sampler"] = list(itertools.islice(loader.batch_sampler, 2))
    else:
        own.update(batch_size=loader.batch_size, drop_last=loader.drop_last)
    mine = _loader(loader, 1, loader.dataset, **own)
    started = time.perf_counter()
    batches = iter(mine)
    forked = time.perf_counter()
    next(batches, None)
    ready = time.perf_counter()
    batches._shutdown_workers()
    return forked - started, ready - forked, time.perf_counter() - ready


def seconds_a_batch(loader: Any, workers: int) -> float | None:
    """Seconds from one batch of so many workers to the next, in the second and third wave of them, when nothing else is done.

    None where an epoch has no two waves, or nobody knows beforehand which batches it has. Raises what a worker raises.
    """
    if loader.batch_sampler is None or not _is_map_style(loader):
        return None
    batches = list(itertools.islice(loader.batch_sampler, WAVES * workers))
    if len(batches) < 2 * workers:
        return None
    mine = _loader(loader, workers, loader.dataset, batch_sampler=batches, collate_fn=loader.collate_fn)
    iterator = iter(mine)
    with contextlib.closing(_Closing(iterator)):
        came = [time.perf_counter() for _ in iterator]
    return (came[-1] - came[workers - 1]) / (len(came) - workers)


def leaves_of(sample: Any) -> Leaves:
    """Digests of the parts of a sample by their place, "0" or "image.1", and of all of it under WHOLE."""
    return _whole({place: _digest(value) for place, value in _leaves(sample, "")})


def _whole(parts: Leaves) -> Leaves:
    return {**parts, WHOLE: hashlib.blake2b(repr(sorted(parts.items())).encode(), digest_size=12).hexdigest()}


def _leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    parts = parts_of(value, of_objects=False)  # an image of Pillow is one thing
    if parts is None:
        yield place or "sample", value
        return
    for name, inner in parts:
        yield from _leaves(inner, f"{place}.{name}" if place else str(name))


def _digest(value: Any) -> str:
    content: bytes
    if type(value).__module__ == "torch" and hasattr(value, "detach"):
        import torch

        flat = value.detach().cpu().reshape(-1).contiguous()
        flat = flat.as_strided(
            flat.shape, (1,)
        )  # of a single element, as of `array[:, np.newaxis]`, any stride is contiguous
        head, content = f"{value.dtype} {tuple(value.shape)}", flat.view(torch.uint8).numpy().tobytes()
    elif hasattr(value, "tobytes"):  # arrays of NumPy, images of Pillow
        head, content = f"{getattr(value, 'dtype', '')} {getattr(value, 'shape', '')}", value.tobytes()
    else:
        head, content = type(value).__name__, repr(value).encode()
    return hashlib.blake2b(head.encode() + content, digest_size=12).hexdigest()


def _read_pass(samples: Iterable[Leaves], seed: int, most: int | None = None, seconds: float = math.inf) -> Pass:
    from perfaudit.target.random_streams import seed_all

    seed_all(seed)
    found = Pass()
    end = time.monotonic() + seconds
    batches = iter(samples)
    with contextlib.closing(_Closing(batches)):
        for leaves in batches:
            found.add(leaves)
            if (most is not None and found.samples >= most) or time.monotonic() > end:
                return found
    found.ended = True
    return found


class _Closing:
    """Lets a loader's workers go at once, if an iterator has any."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    def close(self) -> None:
        if hasattr(self._iterator, "_shutdown_workers"):
            self._iterator._shutdown_workers()


def _loader(like: Any, workers: int, dataset: Any, **own: Any) -> Any:
    """A loader with the user's ways of starting workers, and so many of them."""
    from torch.utils.data import DataLoader

    if workers:
        own.update(multiprocessing_context=like.multiprocessing_context, timeout=WAITING)
    return DataLoader(dataset, num_workers=workers, worker_init_fn=like.worker_init_fn, **own)


def _is_map_style(loader: Any) -> bool:
    from torch.utils.data import IterableDataset

    return not isinstance(loader.dataset, IterableDataset)
