"""How much a batch holds, and how much of it is padding."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from perfaudit.script.batch_contents import contents_of, tokens_of  # noqa: E402

MASK = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0]])


class Strange:
    def numel(self) -> int:
        raise RuntimeError("nobody knows")


@pytest.mark.parametrize(
    ("batch", "contents"),
    [
        ([torch.zeros(4, 3), torch.zeros(4)], (12, 0)),
        ({"input_ids": torch.zeros(2, 4), "attention_mask": MASK}, (5, 3)),
        ([{"input_ids": torch.zeros(2, 4), "attention_mask": MASK}, 7], (5, 3)),
        ({"image": torch.zeros(2, 3, 8, 8), "label": torch.zeros(2)}, (384, 0)),
        (torch.zeros(0), (0, 0)),
        (["a", 3, None, Strange()], (0, 0)),
        (
            {"attention_mask": torch.full((2, 2), 9), "x": torch.zeros(7)},
            (7, 0),
        ),  # no mask: it sums up to more than it has
    ],
)
def test_contents(batch: Any, contents: tuple[int, int]) -> None:
    assert contents_of(batch) == contents


@pytest.mark.parametrize(
    ("batch", "tokens"),
    [
        ({"input_ids": torch.zeros(2, 4), "attention_mask": MASK}, (5, 3)),
        ([7, {"attention_mask": MASK.bool()}], (5, 3)),
        ({"padding_mask": MASK}, None),  # of some it is the padding that is 1
        ({"attention_mask": MASK[None, None]}, None),  # of pairs of tokens
        ({"attention_mask": torch.zeros(2, 4)}, None),
        ([torch.zeros(4, 3), torch.zeros(4)], None),
    ],
)
def test_tokens_are_told_only_where_a_mask_is_certain(batch: Any, tokens: tuple[int, int] | None) -> None:
    assert tokens_of(batch) == tokens
