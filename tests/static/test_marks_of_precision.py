"""What in the text of an imported file decides the precision of a training, and what only asks for a type."""

from __future__ import annotations

import pytest

from perfaudit.static.project.precision_marks import marks_of_precision


@pytest.mark.parametrize(
    ("text", "decides"),
    [
        ("bound = 1 if image.dtype in [torch.half, torch.float32, torch.float64] else 255", False),
        ("if x.dtype == torch.float64:\n    raise TypeError(x)", False),
        ("if x.dtype is not torch.float16: fail(x)", False),
        ("if x.dtype == torch.float64:\n    x = x.double()", True),
        ("x = x.to(torch.float64)", True),
        ("optimizer = torch.optim.LBFGS(head.parameters())", True),  # lives on small differences of gradients
        ("with autocast(): model(x)", True),
    ],
)
def test_a_question_of_a_type_decides_nothing(text: str, decides: bool) -> None:
    assert bool(marks_of_precision(text.encode(), "images.py")) is decides
