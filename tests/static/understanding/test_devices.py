"""What names an accelerator."""

from __future__ import annotations

import pytest

from perfaudit.static.source import Source
from perfaudit.static.understanding.devices import uses_accelerator


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = x.cuda()", True),
        ("x = x.to('cuda:0')", True),
        ("x = x.to(f'cuda:{rank}')", True),
        ("x = x.to(args.device)", True),
        ("x = torch.zeros(3, device=device)", True),
        ("from accelerate import Accelerator", True),
        ("device = torch.device('cpu')\nx = x.to(device)", False),
        ("device = 'cpu'\nx = x.to(device)", False),
        ("x = x.to(torch.float16)", False),
        ("x = x.mean()", False),
    ],
)
def test_uses_accelerator(text: str, expected: bool) -> None:
    assert uses_accelerator(Source("t.py", f"import torch\n{text}\n")) is expected
