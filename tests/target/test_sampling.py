"""Samples taken apart into digests, and passes compared as multisets."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from perfaudit.target import sampling
from perfaudit.target.sampling import WHOLE, Pass, equal_places, first_batches, leaves_of


def test_a_sample_is_taken_apart_by_place() -> None:
    assert set(leaves_of({"image": [1.0, "a"], "label": 3})) == {"image.0", "image.1", "label", WHOLE}
    assert set(leaves_of(5)) == {"sample", WHOLE}


@pytest.mark.slow
def test_equal_contents_have_equal_digests_and_others_do_not() -> None:
    import numpy as np
    import torch

    ones = torch.ones(2, 3)
    variations: list[Any] = [
        ones,
        ones.double(),
        ones.reshape(3, 2),
        ones * 2,
        ones.bfloat16(),
        np.ones((2, 3)),
        1,
        1.0,
        "1",
    ]
    digests = [leaves_of(value)[WHOLE] for value in variations]
    assert len(set(digests)) == len(variations)
    assert leaves_of(torch.ones(3, 2).t())[WHOLE] == digests[0]  # another layout, the same values
    row = torch.from_numpy(np.ones(3)[:, np.newaxis])[0]
    assert leaves_of(row)[WHOLE] == leaves_of(torch.ones(1, dtype=torch.float64))[WHOLE]
    assert leaves_of(torch.tensor(1.0)) == leaves_of(torch.tensor(1.0))  # without dimensions
    assert leaves_of(torch.empty(0)) == leaves_of(torch.empty(0))


def taken(*samples: Any) -> Pass:
    found = Pass()
    for sample in samples:
        found.add(leaves_of(sample))
    return found


def test_passes_agree_whatever_the_order_of_samples() -> None:
    one, other = taken((1, "a"), (2, "b"), (2, "b")), taken((2, "b"), (1, "x"), (2, "b"))
    assert equal_places(one, other) == ["0"]
    assert equal_places(one, taken((2, "b"), (1, "a"), (2, "b"))) == ["", "0", "1"]
    assert equal_places(one, taken((1, "a"), (2, "b"))) == []  # one fewer
    assert (one.samples, one.repeated_samples, other.leaves["0"]) == (3, 1, one.leaves["0"])
    assert isinstance(one.leaves[WHOLE], Counter)


@pytest.mark.parametrize(
    ("counts", "wrong", "asked", "differing"),
    [
        ([2, 3, 4, 9], [], [2, 3], []),  # with three workers each of three batches has one of its own
        ([9, 4], [], [4], []),
        ([2, 4, 9], [2], [2, 4], [2]),
        ([4, 6, 9], [4], [4, 6], [4]),
        ([4, 6, 9], [4, 6, 9], [4, 6, 9], [4, 6, 9]),
    ],
)
def test_workers_without_a_batch_are_not_started_once_more(
    monkeypatch: pytest.MonkeyPatch, counts: list[int], wrong: list[int], asked: list[int], differing: list[int]
) -> None:
    seen: list[int] = []

    def read(loader: object, workers: int, seed: int, batches: list[Any]) -> Pass:
        seen.append(workers)
        return taken((1, "x" if workers in wrong else "a"))

    monkeypatch.setattr(sampling, "first_batches", lambda loader, samples: ([[0], [1], [2]], False))
    monkeypatch.setattr(sampling, "pass_over_indices", read)
    found = sampling._map_samples(None, counts, 3)
    assert (seen, found["differing"]) == ([0, 0, *asked], differing)


@pytest.mark.slow
def test_only_as_many_batches_of_indices_are_drawn_as_are_compared() -> None:
    from torch.utils.data import DataLoader

    loader: Any = DataLoader(range(10), batch_size=4)  # type: ignore[arg-type]
    assert first_batches(loader, 100) == ([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]], True)
    assert first_batches(loader, 5) == ([[0, 1, 2, 3], [4, 5, 6, 7]], False)
    alone: Any = DataLoader(range(3), batch_size=None)  # type: ignore[arg-type]
    assert first_batches(alone, 2) == ([0, 1], False)
