"""Loops that number epochs, and steps on all the data, of which there are few."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.source import LOOPS, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.evaluation import EVALUATION_NAME
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.step_loops import StepLoop, is_over_written_values

_EPOCH = regex(r"(?<!per_)epoch")  # the number of one: `epoch`, not `step_per_epoch`
_EPOCHS = regex(r"(?<!per_)epochs?$")  # a number of them: `n_epochs`, not `iters_per_epoch`
_FEW_STEPS = 100  # with a wait of some 50 microseconds in each, 5 ms in all


def counts_epochs(loop: Loop) -> bool:
    """Whether a loop numbers epochs (`for epoch in range(100)`): a step loop of this kind trains on one full batch."""
    if not isinstance(loop, ast.For):
        return False
    counted = (
        loop.iter.args if isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) in ("range", "trange") else []
    )
    limits = {last_name(node).lower() for limit in counted for node in walk(limit)}  # not what a bar shows beside it
    return any(_EPOCH.search(last_name(node).lower()) for node in walk(loop.target)) or any(
        _EPOCHS.search(name) for name in limits
    )


def takes_few_long_steps(source: Source, step: StepLoop) -> bool:
    """Whether a step loop numbers epochs, and a wait in each of them is not worth a word.

    That is where an epoch makes its step from several passes, where it ends with an evaluation whose numbers are read in
    any case, where its optimizer reads the loss by itself, and where the epochs written there are few. Any other step on
    the whole data is a step as those on batches are: often a short one, which the wait makes longer.
    """
    if not counts_epochs(step.loop):
        return False
    if _last_epoch(step.loop) < _FEW_STEPS or source.calls("torch.optim.LBFGS"):
        return True
    inside = [node for root in (step.loop, *step.helpers) for part in root.body for node in walk(part)]
    if any(isinstance(node, LOOPS) and not is_over_written_values(node) for node in inside):
        return True
    called = (last_name(node.func) for part in step.loop.body for node in walk(part) if isinstance(node, ast.Call))
    return any(EVALUATION_NAME.search(name.lower()) for name in called)


def _last_epoch(loop: Loop) -> float:
    """The number of epochs where `range(20)` or `range(1, 21)` says it, else infinity."""
    match loop:
        case ast.For(iter=ast.Call(args=[ast.Constant(value=int() as last)] | [_, ast.Constant(value=int() as last)])):
            return last
    return float("inf")
