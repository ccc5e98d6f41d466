"""Which statements of a written-out loop are the forward pass and the loss."""

from __future__ import annotations

import pytest

from perfaudit.static import edit
from perfaudit.static.around_forward import put_forward_under
from perfaudit.static.source import Source


def loop(*lines: str) -> str:
    return "for x, y in loader:\n" + "".join(f"    {line}\n" for line in lines)


PLAIN = ("optimizer.zero_grad()", "out = model(x)", "loss = criterion(out, y)", "loss.backward()")
ONE = ("model.train()", "loss = F.cross_entropy(model(x), y)", "optimizer.zero_grad()", "(loss / 4).backward()")
KEPT = ("out, self.loss = model(x, y)", "model.zero_grad()", "self.loss.backward()")
HANDED = ("loss = compute(model, x, y)", "scaler.scale(loss).backward()")


@pytest.mark.parametrize(
    ("lines", "first", "last"),
    [
        (PLAIN, 1, 2),
        (ONE, 1, 1),
        (HANDED, 0, 0),
        (KEPT, 0, 0),
        (("loss, _ = model.loss(x)", "total += 1", "loss.backward()"), 0, 0),
    ],
)
def test_they_reach_from_the_models_call_to_the_loss(lines: tuple[str, ...], first: int, last: int) -> None:
    source = Source("train.py", loop(*lines))
    [backward] = source.calls(".backward")
    found = put_forward_under(source, backward, {"model"}, "with cast():")
    assert found is not None
    inside = ["with cast():", *(f"    {line}" for line in lines[first : last + 1])]
    assert edit.apply(source.text, found[0]) == loop(*lines[:first], *inside, *lines[last + 1 :])


@pytest.mark.parametrize(
    "lines",
    [
        ("criterion(model(x), y).backward()",),  # the backward pass would be under it too
        ("loss = step(x, y)", "loss.backward()"),  # where the model is called is not to be seen
        ("loss = 0", "out = model(x)", "loss.backward()"),
        ("model.train()", "loss = step(x, y)", "loss.backward()"),
    ],
)
def test_where_the_text_does_not_make_it_plain_nothing_is_written(lines: tuple[str, ...]) -> None:
    source = Source("train.py", loop(*lines))
    [backward] = source.calls(".backward")
    assert put_forward_under(source, backward, {"model"}, "with cast():") is None
