"""Sums kept on the device give what the sums of `.item()` gave, and are left alone where they may not."""

from __future__ import annotations

import pytest

from perfaudit.rules import all_rules
from perfaudit.static import edit
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

TRAINING = """
import torch

def train(model, batches, optimizer, device):
    {start}
    for x, y in batches:
        x, y = x.to(device), y.to(device)
        out = model(x)
        loss = torch.nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {step}
    return {result}
"""


def fixed(text: str) -> str | None:
    """The text after the fixes of PA601; None where it offers advice only or finds nothing."""
    source = Source("train.py", text)
    edits = [e for f in run_checks(source, all_rules(), frozenset(["PA601"])) if f.fix for e in f.fix.edits]
    return edit.apply(text, edits) if edits else None


@pytest.mark.parametrize(
    ("start", "step", "result"),
    [
        ("total = 0.0", "total += loss.item()", "total / len(batches)"),
        ("total = 0", "total += loss.item() * x.size(0)", "total"),
        ("total = 0.0", "total += len(x) * float(loss)", "total"),
        ("total = 0.0", "total += loss.item() / len(batches)", "total"),
        ("right = 0", "right += (out.argmax(1) == y).sum().item()", "right"),
        ("right = 0", "right += int(out.argmax(1).eq(y).sum())", "right / 3"),
        (
            "total, right = 0.0, 0",
            "total += loss.item(); right += torch.sum(out.argmax(1) == y).item()",
            "total, right",
        ),
    ],
)
@pytest.mark.parametrize("batches", [1, 7])
def test_same_sum(start: str, step: str, result: str, batches: int) -> None:
    text = TRAINING.format(start=start, step=step, result=result)
    patched = fixed(text)
    assert patched is not None
    before, after = (run(code, batches) for code in (text, patched))
    assert after == pytest.approx(before, rel=1e-6)
    assert [type(value) for value in listed(after)] == [type(value) for value in listed(before)]


def test_no_batches() -> None:
    text = TRAINING.format(start="total = 0.0", step="total += loss.item()", result="total")
    assert run(str(fixed(text)), batches=0) == run(text, batches=0) == 0.0


def run(code: str, batches: int) -> object:
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(5, 3)
    data = [(torch.randn(4, 5), torch.randint(3, (4,))) for _ in range(batches)]
    names: dict[str, object] = {}
    exec(code, names)
    train = names["train"]
    return train(model, data, torch.optim.SGD(model.parameters(), lr=0.1), "cpu")  # type: ignore[operator]  # from exec


def listed(value: object) -> list[object]:
    return list(value) if isinstance(value, tuple) else [value]


@pytest.mark.parametrize(
    ("start", "step", "result"),
    [
        # It may be anything: a NumPy number cannot take a device tensor.
        ("total = start", "total += loss.item()", "total"),
        ("total = 0.0", "total += loss.item()\n        show(total)", "total"),
        ("total = 0.0", "total += loss.item() * weight", "total"),
        ("total = 0.0", "total -= loss.item()", "total"),
        ("total = 0.0", "total += accuracy(out, y).item()", "total"),  # may be a NumPy number
        ("total = 0.0", "total += loss.item(); total += loss.item()", "total"),  # may have two shapes
        ("total = 0.0", "total += int(loss)", "total"),
        ("total = 0", "total += out.mean().item()", "total"),
        ("right = 0", "right += float((out.argmax(1) == y).sum())", "right"),
        ("global total; total = 0.0", "total += loss.item()", "total"),
        ("total = 0.0", "total += loss.item()\n        def show(): return total", "total"),
        ("total = [0.0]", "total[0] += loss.item()", "total"),
    ],
)
def test_left_alone(start: str, step: str, result: str) -> None:
    assert fixed(TRAINING.format(start=start, step=step, result=result)) is None


def test_start_outside_an_outer_loop() -> None:
    text = """
import torch
total = 0.0
for epoch in range(2):
    for x in loader:
        loss = model(x.to(device)).mean()
        loss.backward()
        optimizer.step()
        total += loss.item()
    {rest}
"""
    assert "    total = float(total)\n    print(total)" in str(fixed(text.format(rest="print(total)")))
    assert "total = float(total)\n    total = 0.0" in str(fixed(text.format(rest="total = 0.0")))
    assert fixed(text.format(rest="total = history[-1]")) is None
