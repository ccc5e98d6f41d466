"""Where a sample has the length that batches are padded to, when that cannot be told, and what padding there is."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from perfaudit.target.sample_lengths import SampleLengths, Unclear, find_lengths, lengths_in, padded_sizes

CHANCE = random.Random(3)
LENGTHS = [CHANCE.randrange(5, 60) for _ in range(200)]
OTHERS = [CHANCE.randrange(3, 20) for _ in range(200)]

Collate = Callable[[list[Any]], Any]  # Any: samples and batches of any kind


def tensors(samples: list[Any]) -> Any:
    return pad_sequence([x for x, _ in samples], batch_first=True), torch.tensor([y for _, y in samples])


def time_first(samples: list[Any]) -> Any:
    return pad_sequence([x for x, _ in samples])


def to_eights(samples: list[Any]) -> Any:
    ids = pad_sequence([torch.tensor(each["input_ids"]) for each in samples], batch_first=True)
    return {"input_ids": torch.nn.functional.pad(ids, (0, -ids.shape[1] % 8))}


def to_sixty(samples: list[Any]) -> Any:
    ids, labels = tensors(samples)
    return torch.nn.functional.pad(ids, (0, 60 - ids.shape[1])), labels


def frames(samples: list[Any]) -> Any:
    return torch.stack(
        [torch.nn.functional.pad(x, (0, max(y.shape[1] for y in samples) - x.shape[1])) for x in samples]
    )


def translation(samples: list[Any]) -> Any:
    return tuple(pad_sequence([torch.tensor(each[n]) for each in samples]) for n in ("source", "target"))


PAIRS = [(torch.ones(n), n % 2) for n in LENGTHS]


@pytest.mark.parametrize(
    ("dataset", "collate", "place", "multiple"),
    [
        (PAIRS, tensors, ("[0]", 0), 1),
        (PAIRS, time_first, ("[0]", 0), 1),
        ([{"input_ids": [7] * n, "label": 1} for n in LENGTHS], to_eights, ('["input_ids"]', 0), 8),
        ([torch.ones(4, n) for n in LENGTHS], frames, ("", 1), 1),
        # The longer of two, which takes most to compute.
        (
            [{"source": [1] * n, "target": [1] * m} for n, m in zip(LENGTHS, OTHERS, strict=True)],
            translation,
            ('["source"]', 0),
            1,
        ),
    ],
)
def test_the_length_that_batches_are_padded_to(
    dataset: Any, collate: Collate, place: tuple[str, int], multiple: int
) -> None:
    found = find_lengths(dataset, collate)
    assert (found.place, found.multiple, found.is_whole) == (place, multiple, True)
    assert found.lengths == LENGTHS


class Cropped:
    """Samples of another length whenever they are read."""

    def __init__(self) -> None:
        self.chance = random.Random(0)

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> Any:
        return torch.ones(self.chance.randrange(5, 60)), 1


@pytest.mark.parametrize(
    ("dataset", "collate", "why"),
    [
        ([(torch.ones(8), 1)] * 100, tensors, "samples are all of one length"),
        (PAIRS[:20], tensors, "there are 20 samples, too few"),
        (Cropped(), tensors, "drawn anew each time it is read"),
        (PAIRS, to_sixty, "batches are not padded to their longest sample"),
        (PAIRS, lambda samples: torch.stack([x[:5] for x, _ in samples]), "batches are not padded to their longest"),
        # As long as there are samples: nobody can say which dimension is padded.
        (PAIRS, lambda samples: [x for x, _ in samples], "batches are not padded to their longest"),
    ],
)
def test_what_cannot_be_told_for_certain(dataset: Any, collate: Collate, why: str) -> None:
    with pytest.raises(Unclear, match=why):
        find_lengths(dataset, collate)


def test_of_many_samples_some_are_read() -> None:
    found = find_lengths(PAIRS, tensors, most_seconds=0.0)
    assert (len(found.lengths), found.samples, found.is_whole) == (64, 200, False)
    assert set(found.lengths) <= set(LENGTHS)


def test_padding_is_what_a_batch_holds_beside_its_samples() -> None:
    found = SampleLengths(("", 0), 1, [10, 20, 30, 40])
    assert found.padding([[0, 1], [2, 3]]) == pytest.approx(20 / 120)
    assert found.padding([[0, 3], [1, 2]]) == pytest.approx(40 / 140)
    assert found.padding([[0], [1], [2], [3]]) == found.padding([]) == 0.0
    assert SampleLengths(("", 0), 16, [10, 20]).padding([[0, 1]]) == pytest.approx(34 / 64)


def test_lengths_of_every_kind_of_sample() -> None:
    sample = {"text": "four", "ids": [1, 2, 3], "image": torch.zeros(2, 5), "more": ([1.0] * 4, 7)}
    assert lengths_in(sample) == {
        ('["text"]', 0): 4,
        ('["ids"]', 0): 3,
        ('["image"]', 0): 2,
        ('["image"]', 1): 5,
        ('["more"]', 0): 2,
        ('["more"][0]', 0): 4,
    }


def test_a_dimension_of_a_batch_is_one_beside_that_of_its_samples() -> None:
    batch = {"x": torch.zeros(3, 9), "y": torch.zeros(9, 3, 2), "z": torch.zeros(3)}
    assert padded_sizes(batch, 3) == {('["x"]', 1): 9, ('["y"]', 0): 9, ('["y"]', 2): 2}
