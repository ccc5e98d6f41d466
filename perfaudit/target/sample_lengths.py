"""What in a sample has the length to which a loader's batches are padded, by looking at both; and what padding there is.

Only what holds in every batch that was put together for it counts: the longest sample of each gives the batch its size. Child
only; the functions of the user are called, `__getitem__` of the dataset and `collate_fn`.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Place = tuple[str, int]  # how a sample is asked for it, `["input_ids"]`, and the dimension that is meant
Lengths = dict[Place, int]

MOST_PARTS, MOST_DEPTH = 16, 3  # of a sample that are looked at
FEWEST = 32  # samples, of fewer nothing is said
FIRST = 64  # samples, to see what there is in them
BATCHES, OF_BATCH = 12, 3  # put together to see to what they are padded; few samples, so that their longest ones differ
MULTIPLES = (1, 2, 4, 8, 16, 32, 64, 128)  # to which a collation may round a length up
MOST_SAMPLES, MOST_SECONDS = 50_000, 6.0  # of which the lengths are read


class Unclear(Exception):
    """Lengths that cannot be told for certain; the message says why."""


@dataclass(frozen=True, slots=True)
class SampleLengths:
    """The lengths of samples to which batches are padded.

    place: where a sample has it. multiple: to which a batch rounds it up. lengths: of those that were read, in random order where
    these are not all. samples: how many there are. seconds_each: that reading one takes.
    """

    place: Place
    multiple: int
    lengths: list[int] = field(default_factory=list)
    samples: int = 0
    seconds_each: float = 0.0

    @property
    def is_whole(self) -> bool:
        """Whether all samples were read."""
        return len(self.lengths) == self.samples

    def padding(self, batches: Iterable[Sequence[int]]) -> float:
        """The share of padding in these batches of numbers of samples: see `lengths`."""
        held = padded = 0
        for batch in batches:
            own = [self.lengths[number] for number in batch]
            held += sum(own)
            padded += len(own) * _up(max(own), self.multiple)
        return 1 - held / padded if padded else 0.0


def find_lengths(dataset: Any, collate: Any, most_seconds: float = MOST_SECONDS) -> SampleLengths:
    """Where samples have the length that batches are padded to, and the lengths. Raises Unclear, and what the dataset raises."""
    count = len(dataset)
    if count < FEWEST:
        raise Unclear(f"there are {count} samples, too few to tell their lengths")
    chance = random.Random(0)
    first = chance.sample(range(count), min(FIRST, count))
    started = time.perf_counter()
    seen = [lengths_in(dataset[number]) for number in first]
    seconds_each = (time.perf_counter() - started) / len(first)
    places = [place for place in seen[0] if all(place in each for each in seen)]
    varied = [place for place in places if len({each[place] for each in seen}) > 1]
    if not varied:
        raise Unclear("samples are all of one length")
    again = [lengths_in(dataset[number]) for number in first[: OF_BATCH * BATCHES]]
    steady = [p for p in varied if all(one.get(p) == each[p] for one, each in zip(again, seen, strict=False))]
    if not steady:
        raise Unclear("the length of a sample is drawn anew each time it is read")
    found = _padded_to(dataset, collate, steady, first, chance)
    if found is None:
        raise Unclear("batches are not padded to their longest sample")
    place, multiple = found
    numbers = range(count) if count * seconds_each <= most_seconds and count <= MOST_SAMPLES else ()
    if not numbers:
        many = min(count, MOST_SAMPLES, max(FIRST, int(most_seconds / max(seconds_each, 1e-9))))
        numbers = chance.sample(range(count), many)  # type: ignore[assignment]  # a list of numbers is as good as a range
    lengths, ends, started = list[int](), time.perf_counter() + 2 * most_seconds, time.perf_counter()
    for number in numbers:
        lengths.append(lengths_in(dataset[number])[place])
        if len(lengths) >= FIRST and time.perf_counter() > ends:  # they take longer than the first ones did
            break
    return SampleLengths(place, multiple, lengths, count, (time.perf_counter() - started) / len(lengths))


def told_lengths(loader: Any, most_seconds: float = MOST_SECONDS) -> tuple[SampleLengths | None, dict[str, Any]]:
    """What `find_lengths` finds of a loader's samples, and the same as JSON: "why" says why it finds nothing, else "".

    The random streams stand afterwards where they stood.
    """
    from perfaudit.target.load import words_of_error
    from perfaudit.target.random_streams import same_random_streams

    with same_random_streams():
        try:
            found = find_lengths(loader.dataset, loader.collate_fn, most_seconds)
        except Unclear as why:
            return None, {"why": str(why)}
        except Exception as failure:  # whatever the dataset and the collation of the user raise
            return None, {"why": f"reading samples raises {type(failure).__name__}: {words_of_error(failure)}"}
    (accessor, dimension), ordered = found.place, sorted(found.lengths)
    return found, {
        "why": "", "accessor": accessor, "dimension": dimension, "multiple": found.multiple,
        "samples": found.samples, "read": len(ordered),
        "seconds_each": found.seconds_each, "shortest": ordered[0], "middle": ordered[len(ordered) // 2],
        "longest": ordered[-1],
    }  # fmt: skip


def _padded_to(
    dataset: Any, collate: Any, places: Sequence[Place], numbers: Sequence[int], chance: random.Random
) -> tuple[Place, int] | None:
    """The place whose largest length in a batch is a dimension of it, in each batch, and to which multiple that is rounded up.

    Of several, the one with the longest lengths: source and target of a translation, say. None for none.
    """
    fits: dict[tuple[Place, int], set[Place] | None] = {(place, m): None for place in places for m in MULTIPLES}
    sizes: dict[tuple[Place, int], set[int]] = {key: set() for key in fits}
    means: dict[Place, list[int]] = {place: [] for place in places}
    for _ in range(BATCHES):
        drawn = chance.sample(list(numbers), OF_BATCH)
        samples = [dataset[number] for number in drawn]
        own = [lengths_in(sample) for sample in samples]  # before they are put together, which may change them
        batch = padded_sizes(collate(samples), OF_BATCH)
        for (place, multiple), before in fits.items():
            if before is not None and not before:
                continue
            lengths = [each.get(place, 0) for each in own]
            longest = _up(max(lengths), multiple)
            there = {where for where, size in batch.items() if size == longest}
            fits[place, multiple] = there if before is None else before & there
            sizes[place, multiple].add(longest)
            if multiple == 1:
                means[place] += lengths
    certain = [key for key, there in fits.items() if there and len(sizes[key]) > 1]
    by_place: dict[Place, int] = {}
    for place, multiple in certain:
        by_place.setdefault(place, multiple)  # the smallest
    if not by_place:
        return None
    best = max(by_place, key=lambda place: statistics.fmean(means[place]))
    return best, by_place[best]


def lengths_in(sample: Any) -> Lengths:
    """Every length in a sample that one could sort by: of texts, lists of numbers, and the dimensions of tensors and arrays."""
    return dict(_lengths(sample, "", MOST_DEPTH))


def padded_sizes(batch: Any, samples: int) -> Lengths:
    """The dimensions of tensors in a batch of so many samples, of those that have another dimension for the samples."""
    found: Lengths = {}
    for accessor, shape in _shapes(batch, "", MOST_DEPTH):
        if samples in shape:
            of_samples = shape.index(samples)
            found |= {(accessor, d): size for d, size in enumerate(shape) if d != of_samples}
    return found


def _lengths(value: Any, accessor: str, depth: int) -> Iterable[tuple[Place, int]]:
    if (shape := _shape(value)) is not None:
        yield from (((accessor, dimension), size) for dimension, size in enumerate(shape))
        return
    if isinstance(value, (str, bytes, list, tuple)):
        yield (accessor, 0), len(value)
    if depth and not isinstance(value, (str, bytes)) and not _is_numbers(value):
        for name, part in _parts(value):
            yield from _lengths(part, accessor + name, depth - 1)


def _shapes(value: Any, accessor: str, depth: int) -> Iterable[tuple[str, tuple[int, ...]]]:
    if (shape := _shape(value)) is not None:
        yield accessor, shape
    elif depth:
        for name, part in _parts(value):
            yield from _shapes(part, accessor + name, depth - 1)


def _shape(value: Any) -> tuple[int, ...] | None:
    """Of a tensor or an array; None for anything else."""
    shape = getattr(value, "shape", None)
    is_one = hasattr(value, "dtype") and isinstance(shape, tuple) and all(isinstance(size, int) for size in shape)
    return tuple(shape) if is_one and shape is not None else None


def _is_numbers(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], (int, float)) and len(value) > 2


def _parts(value: Any) -> list[tuple[str, Any]]:
    """The first parts of a container, each with how it is asked for."""
    if isinstance(value, Mapping):
        named = [(f'["{key}"]', value[key]) for key in value if isinstance(key, str) and key.isidentifier()]
    elif isinstance(value, (list, tuple)):
        named = [(f"[{number}]", part) for number, part in enumerate(value[:MOST_PARTS])]
    else:
        named = [
            (f".{name}", part) for name, part in getattr(value, "__dict__", {}).items() if not name.startswith("_")
        ]
    return named[:MOST_PARTS]


def _up(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple
