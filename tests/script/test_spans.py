"""Seconds by phase, on a clock of the test's own."""

from __future__ import annotations

import math

import pytest

from perfaudit.script.spans import PHASES, Spans


@pytest.fixture
def spans() -> Spans:
    return Spans()


def by_name(spans: Spans) -> dict[str, float]:
    return {name: seconds for name, seconds in zip(PHASES, spans.take(), strict=True) if seconds}


def test_a_phase_inside_another_counts_once(spans: Spans) -> None:
    spans.begin("optimizer")  # a closure
    spans.now += 1
    spans.begin("backward")
    spans.now += 4
    spans.end()
    spans.now += 2
    spans.end()
    assert by_name(spans) == {"optimizer": 3.0, "backward": 4.0}
    assert spans.take() == [0.0] * len(PHASES)


def test_the_loss_behind_a_model_is_the_forward_pass(spans: Spans) -> None:
    spans.begin("forward")
    spans.now += 3
    spans.end(is_loss_next=True)
    spans.now += 2
    spans.settle(is_backward=True)
    spans.begin("backward")
    spans.now += 5
    spans.end()
    spans.now += 1
    assert by_name(spans) == {"forward": 5.0, "backward": 5.0, "other": 1.0}


def test_a_model_without_modules_computes_between_batch_and_backward(spans: Spans) -> None:
    spans.now += 1  # logging
    spans.begin("data_wait")
    spans.now += 2
    spans.end()
    spans.hold_back()
    spans.now += 4
    spans.settle(is_backward=True)
    spans.begin("backward")
    spans.now += 5
    spans.end()
    assert by_name(spans) == {"other": 1.0, "data_wait": 2.0, "forward": 4.0, "backward": 5.0}


def test_an_evaluation_is_no_forward_pass_of_the_step(spans: Spans) -> None:
    spans.end(is_loss_next=True)
    spans.now += 1
    spans.settle(is_backward=False)  # gradients are off from here on
    spans.now += 2
    assert by_name(spans) == {"forward": 1.0, "other": 2.0}


def test_an_end_without_a_beginning_is_no_fault(spans: Spans) -> None:
    spans.end()
    spans.now += 1
    assert by_name(spans) == {"other": 1.0}


@pytest.mark.parametrize(("loss", "forward"), [(5, 1.0), (15, 2.0), (25, 4.0), (math.inf, 4.0)])
def test_of_stretches_that_are_held_back_that_of_the_loss_is_the_forward_pass(
    spans: Spans, loss: float, forward: float
) -> None:
    """One ends at node 10, where gradients are set to zero, and one at 20, where a number is read."""
    for node, seconds in ((10, 1), (20, 2)):
        spans.now += seconds
        spans.end_stretch(node)
    spans.now += 4
    spans.settle(is_backward=True, loss=loss)
    assert by_name(spans) == {"forward": forward, "other": 7.0 - forward}


def test_behind_a_number_that_is_read_is_no_loss_of_a_call(spans: Spans) -> None:
    spans.end(is_loss_next=True)
    spans.now += 1
    spans.end_stretch(10)
    spans.now += 2
    spans.settle(is_backward=True, loss=9)  # computed before
    assert by_name(spans) == {"forward": 1.0, "other": 2.0}


@pytest.mark.parametrize("is_closure", [False, True])
def test_gradients_that_are_zeroed_behind_the_loss_are_the_optimizers(spans: Spans, is_closure: bool) -> None:
    """`loss = f(model(x)); optimizer.zero_grad(); loss.backward()`, as most loops have it, or as a closure has."""
    if is_closure:
        spans.begin("optimizer")
        spans.begin("other")
    spans.begin("forward")
    spans.now += 3
    spans.end(is_loss_next=True)
    spans.now += 2
    spans.begin("optimizer")
    spans.now += 8
    spans.end()
    spans.settle(is_backward=True)
    assert by_name(spans) == {"forward": 5.0, "optimizer": 8.0}


def test_what_a_closure_does_besides_is_no_part_of_the_update(spans: Spans) -> None:
    """A trainer's hooks around the model and behind the backward pass; the update itself comes behind the closure."""
    spans.begin("optimizer")
    spans.begin("other")
    spans.now += 7
    spans.begin("forward")
    spans.now += 3
    spans.end(is_loss_next=True)
    spans.now += 2
    spans.settle(is_backward=True)
    spans.begin("backward")
    spans.now += 5
    spans.end()
    spans.now += 6
    spans.end()
    spans.now += 4
    spans.end()
    assert by_name(spans) == {"forward": 5.0, "backward": 5.0, "optimizer": 4.0, "other": 13.0}
