"""What a `view` that another layout breaks does to the step in which that is found out."""

from __future__ import annotations

import pytest
import torch

from perfaudit.training.tensor_layout import LostWrite, copies_for_views


def other_layout() -> torch.Tensor:
    return torch.zeros(2, 3, 2, 2).to(memory_format=torch.channels_last)


def test_what_is_written_through_a_view_that_became_a_copy_is_told() -> None:
    tensor = other_layout()
    with pytest.raises(LostWrite, match=r"writes through a `view`.*view size is not compatible"), copies_for_views():
        tensor.view(2, -1)[:, 0] = 1.0
    assert float(tensor.sum()) == 0.0


def test_a_copy_that_is_only_read_is_told_as_the_error_of_the_view() -> None:
    with pytest.raises(RuntimeError, match=r"^view size is not compatible"), copies_for_views():
        total = other_layout().view(2, -1).sum()
    assert float(total) == 0.0


def test_a_write_through_a_view_that_holds_is_no_matter() -> None:
    tensor = torch.zeros(2, 3)
    with copies_for_views():
        tensor.view(-1)[0] = 1.0
        with torch.inference_mode():
            tensor.view(6).add(1.0)
    assert float(tensor.sum()) == 1.0
