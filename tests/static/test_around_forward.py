"""Which statements of a written-out loop are the forward pass and the loss."""

from __future__ import annotations

import pytest

from perfaudit.static import edit
from perfaudit.static.around_forward import put_forwards_under
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
    found = put_forwards_under(source, [(backward, {"model"})], "with cast():")
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
    assert put_forwards_under(source, [(backward, {"model"})], "with cast():") is None


GAN = (
    ("fake = G(noise)", 1),
    ("g_loss = -D(fake).mean()", 1),
    ("g_opt.zero_grad()", 0),
    ("g_loss.backward()", 0),
    ("g_opt.step()", 0),
    ("requires_grad(D)", 0),
    ("real = D(x)", 2),
    ("d_loss = D(fake.detach()).mean() - real.mean()", 2),
    ("d_loss.backward()", 0),
    ("d_opt.step()", 0),
)
# Losses of both are there before the first backward pass.
ACTOR_CRITIC = (
    ("value, mean = D(x), G(x)", 1),
    ("g_loss = (mean * value.detach()).mean()", 1),
    ("d_loss = (value - y).pow(2).mean()", 1),
    ("g_opt.zero_grad()", 0),
    ("g_loss.backward(retain_graph=True)", 0),
    ("g_opt.step()", 0),
    ("d_opt.zero_grad()", 0),
    ("d_loss.backward()", 0),
)
# The second is in a block of its own, as that of a generator that is updated now and then.
NOW_AND_THEN = (
    ("d_loss = D(G(noise).detach()).mean() - D(x).mean()", 1),
    ("d_loss.backward()", 0),
    ("if step % 5 == 0:", 0),
    ("    g_loss = -D(G(noise)).mean()", 2),
    ("    g_loss.backward()", 0),
)
# What an environment answers is no update.
EPISODE = (
    ("optimizer.step()", 0),
    ("action = G(x)", 1),
    ("env.step(action)", 1),
    ("loss = -action.sum()", 1),
    ("loss.backward()", 0),
)


@pytest.mark.parametrize("lines", [GAN, ACTOR_CRITIC, NOW_AND_THEN, EPISODE])
def test_each_backward_pass_has_its_own(lines: tuple[tuple[str, int], ...]) -> None:
    source = Source("train.py", loop(*(line for line, _ in lines)))
    found = put_forwards_under(source, [(call, {"G", "D"}) for call in source.calls(".backward")], "with cast():")
    assert found is not None
    after, before = [], 0
    for line, part in lines:
        indent = line[: len(line) - len(line.lstrip())]
        after += [f"{indent}with cast():"] if part not in (0, before) else []
        after.append(f"{indent}    {line.lstrip()}" if part else line)
        before = part
    assert edit.apply(source.text, found[0]) == loop(*after)


@pytest.mark.parametrize(
    "lines",
    [
        ("loss = G(x).mean()", "loss.backward()", "D(x).mean().backward()"),
        ("loss = G(x).mean()", "loss.backward()", "other = 2 * y", "other.backward()"),
        ("loss = G(x).mean()", "loss.backward()", "opt.step()", "other.backward()"),
        ("other = D(y)", "loss = other.mean()", "other.backward()", "loss = loss + 1", "loss.backward()"),
    ],
)
def test_one_that_is_not_plain_leaves_all_as_they_are(lines: tuple[str, ...]) -> None:
    source = Source("train.py", loop(*lines))
    backwards = [(call, {"G", "D"}) for call in source.calls(".backward")]
    assert put_forwards_under(source, backwards, "with cast():") is None
