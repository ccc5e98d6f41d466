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
        ("frequencies = rate * torch.fft.fftfreq(n)[: n // 2]", False),
        ("frequencies = rate * torch.fft.rfftfreq(n)", False),
        ("x = torch.fft.rfft(x) * torch.fft.rfftfreq(n)", True),
        ('parser.add_argument("--use_amplify", type=bool)', False),
        ('parser.add_argument("--use_amp", action="store_true")', True),
    ],
)
def test_a_question_of_a_type_decides_nothing(text: str, decides: bool) -> None:
    assert ("precision" in marks_of_precision(text.encode(), "images.py")) is decides


@pytest.mark.parametrize(
    ("text", "is_on"),
    [
        ('torch.set_float32_matmul_precision("high")', True),
        ("torch.set_float32_matmul_precision('medium')", True),
        ("torch.backends.cuda.matmul.allow_tf32 = True", True),
        ('torch.backends.cuda.matmul.fp32_precision = "tf32"', True),
        ('torch.set_float32_matmul_precision("highest")', False),
        ("torch.backends.cuda.matmul.allow_tf32 = False", False),
        ('# torch.set_float32_matmul_precision("high")', False),
        ("torch.backends.cudnn.allow_tf32 = True", False),  # of convolutions, where it is on anyway
    ],
)
def test_matmuls_that_round_to_tf32_are_on_the_tensor_cores(text: str, is_on: bool) -> None:
    assert ("tf32 on" in marks_of_precision(text.encode(), "set_up.py")) is is_on
    assert marks_of_precision(text.encode(), "test.py") == set()
