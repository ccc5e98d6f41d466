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

WHOLE = ""  # the leaf that stands for all of a sample
WAITING = 10  # seconds for one batch of a worker; a worker that blocks is a failure with a reason, not a hang

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
    def repeated(self) -> int:
        """Samples that had been yielded before in this pass."""
        whole = self.leaves.get(WHOLE, Counter())
        return whole.total() - len(whole)


def agreed(one: Pass, other: Pass) -> list[str]:
    """Places whose digests are the same multiset in both passes."""
    return sorted(place for place, found in one.leaves.items() if other.leaves.get(place) == found)


def pass_over_iterable(loader: Any, workers: int, seed: int, samples: int, seconds: float) -> Pass:
    """The samples of a loader's iterable dataset with so many workers, at most so many or for so long.

    The user's `worker_init_fn` is kept, for it may be what shards the dataset. Raises whatever the dataset raises.
    """
    mine = _loader(loader, workers, loader.dataset, batch_size=None, collate_fn=leaves_of)
    return _taken(mine, seed, samples, seconds)


def pass_over_indices(loader: Any, workers: int, seed: int, batches: list[Any]) -> Pass:
    """The samples that a loader's map-style dataset gives for these batches of indices with so many workers."""
    own = {"batch_sampler": batches} if loader.batch_sampler is not None else {"sampler": batches, "batch_size": None}
    mine = _loader(loader, workers, _Leaves(loader.dataset), collate_fn=_as_it_is, **own)
    samples = itertools.chain.from_iterable(mine) if loader.batch_sampler is not None else mine
    return _taken(samples, seed)


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


def start_and_stop(loader: Any, workers: int) -> tuple[float, float, float]:
    """Seconds to start so many workers, until the first batch is there, and to stop them. Raises what a worker raises."""
    own: dict[str, Any] = {"collate_fn": loader.collate_fn}
    if loader.batch_sampler is not None and _is_map_style(loader):
        own["batch_sampler"] = list(itertools.islice(loader.batch_sampler, 2))
    else:
        own.update(batch_size=loader.batch_size, drop_last=loader.drop_last)
    mine = _loader(loader, workers, loader.dataset, **own)
    started = time.perf_counter()
    batches = iter(mine)
    forked = time.perf_counter()
    next(batches, None)
    ready = time.perf_counter()
    batches._shutdown_workers()
    return forked - started, ready - forked, time.perf_counter() - ready


def leaves_of(sample: Any) -> Leaves:
    """Digests of the parts of a sample by their place, "0" or "image.1", and of all of it under WHOLE."""
    found = {place: _digest(value) for place, value in _leaves(sample, "")}
    found[WHOLE] = hashlib.blake2b(repr(sorted(found.items())).encode(), digest_size=12).hexdigest()
    return found


def _leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    items: Iterable[tuple[Any, Any]]
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    else:
        yield place or "sample", value
        return
    for name, inner in items:
        yield from _leaves(inner, f"{place}.{name}" if place else str(name))


def _digest(value: Any) -> str:
    content: bytes
    if type(value).__module__ == "torch" and hasattr(value, "detach"):
        import torch

        flat = value.detach().cpu().reshape(-1).contiguous()
        head, content = f"{value.dtype} {tuple(value.shape)}", flat.view(torch.uint8).numpy().tobytes()
    elif hasattr(value, "tobytes"):  # arrays of NumPy, images of Pillow
        head, content = f"{getattr(value, 'dtype', '')} {getattr(value, 'shape', '')}", value.tobytes()
    else:
        head, content = type(value).__name__, repr(value).encode()
    return hashlib.blake2b(head.encode() + content, digest_size=12).hexdigest()


def _taken(samples: Iterable[Leaves], seed: int, most: int | None = None, seconds: float = math.inf) -> Pass:
    from perfaudit.target.training import seed_all

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


class _Leaves:
    """A map-style dataset whose samples are replaced by their digests, in the worker; the index counts as a part."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitem__(self, index: Any) -> Leaves:
        return leaves_of({"index": index, "sample": self.dataset[index]})


def _as_it_is(batch: Any) -> Any:
    return batch
