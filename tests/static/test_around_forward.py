"""Which statements of a written-out loop are the forward pass and the loss."""

from __future__ import annotations

import pytest

from perfaudit.static import edit
from perfaudit.static.around_forward import Begun, put_forwards_under
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
    found = put_forwards_under(source, [Begun(backward, frozenset({"model"}))], "with cast():")
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
    assert put_forwards_under(source, [Begun(backward, frozenset({"model"}))], "with cast():") is None


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
    found = put_forwards_under(
        source, [Begun(call, frozenset({"G", "D"})) for call in source.calls(".backward")], "with cast():"
    )
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
    backwards = [Begun(call, frozenset({"G", "D"})) for call in source.calls(".backward")]
    assert put_forwards_under(source, backwards, "with cast():") is None


def wrapped(lines: tuple[str, ...], of_number: int = -1, **seen: set[int]) -> str:
    """The text of a loop with what gives the loss under autocast, "" where nothing is written.

    of_number: which of its backward passes ran, -1 for all. seen: lines, the first of the loop being 2.
    """
    source = Source("train.py", loop(*lines))
    calls = source.calls(".backward") if of_number < 0 else [source.calls(".backward")[of_number]]
    names = frozenset() if seen else frozenset({"model"})
    begun = [Begun(call, names, *map(frozenset, seen.values())) for call in calls]
    found = put_forwards_under(source, begun, "with cast():")
    return "" if found is None else edit.apply(source.text, found[0])


SPLIT = ("if scaler is None:", "    loss.backward()", "else:", "    scaler.scale(loss).backward()")


@pytest.mark.parametrize("of_number", [0, 1, -1])
def test_a_backward_pass_in_a_branch_has_its_loss_from_before_the_if(of_number: int) -> None:
    found = wrapped(("out = model(x)", "loss = criterion(out, y)", "optimizer.zero_grad()", *SPLIT), of_number)
    under = ("with cast():", "    out = model(x)", "    loss = criterion(out, y)", "optimizer.zero_grad()")
    assert found == loop(*under, *SPLIT)


@pytest.mark.parametrize(
    ("branch", "is_plain"),
    [
        (("if train:", "    loss.backward()"), True),
        (("if train:", "    optimizer.zero_grad()", "    loss = loss / 4", "    loss.backward()"), True),
        (("if train:", "    loss /= steps", "    loss.backward()"), True),
        (("if train:", "    loss = loss.mean()", "    loss.backward()"), True),
        (("if train:", "    if several:", "        loss = loss.mean()", "    loss.backward()"), False),
        (("if train:", "    if number % 2:", "        loss.backward()"), True),
        (("if a:", "    pass", "elif b:", "    loss.backward()"), True),
        (("if train:", "    loss = loss + penalty(out)", "    loss.backward()"), False),
        (("if train:", "    loss = other", "    loss.backward()"), False),
        (("if train:", "    optimizer.step()", "    loss.backward()"), False),
        (("if model(y).any():", "    loss.backward()"), False),
        (("for _ in range(2):", "    loss.backward()"), False),
        (("with torch.cuda.stream(other):", "    loss.backward()"), False),
    ],
)
def test_only_an_if_is_left_in_which_the_loss_is_scaled_at_most(branch: tuple[str, ...], is_plain: bool) -> None:
    found = wrapped(("loss = criterion(model(x), y)", *branch))
    assert found == (loop("with cast():", "    loss = criterion(model(x), y)", *branch) if is_plain else "")


def test_where_an_autocast_is_off_no_other_one_is_put_around_it() -> None:
    lines = ("with autocast(enabled=amp):", "    loss = criterion(model(x), y)", "loss.backward()")
    source = Source("train.py", loop(*lines))
    begun = [Begun(source.calls(".backward")[0], frozenset({"model"}))]
    assert put_forwards_under(source, begun, "with cast():", {9}) is not None
    assert put_forwards_under(source, begun, "with cast():", {2}) is None


METHODS = ("loss = self.compute_loss(x, y)", "optimizer.zero_grad()", "loss.backward()")


def test_a_loss_that_a_method_computes_is_known_from_where_a_model_was_seen_to_run() -> None:
    assert wrapped(METHODS) == ""
    assert wrapped(METHODS, forwards={2}) == loop("with cast():", f"    {METHODS[0]}", *METHODS[1:])
    assert wrapped(METHODS, forwards={3}) == ""  # nothing behind that line gives the loss
    assert wrapped(METHODS, forwards={2, 4}) == ""  # the backward pass would be under it too


def test_what_has_a_backward_pass_of_its_own_is_left_outside() -> None:
    lines = ("fake = self.generate(x)", "self.update_critic(fake)", "loss = self.judge(fake)", "loss.backward()")
    assert wrapped(lines, forwards={2, 4}, others=set()) == loop(
        "with cast():", *(f"    {each}" for each in lines[:3]), lines[3]
    )
    assert wrapped(lines, forwards={2, 4}, others={3}) == loop(*lines[:2], "with cast():", f"    {lines[2]}", lines[3])
