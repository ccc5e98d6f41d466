"""PA111: batches that the training process takes to NumPy and back, between the loader and the device."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import Source
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.demonstrations import is_test
from perfaudit.static.understanding.devices import uses_accelerator
from perfaudit.static.understanding.each_time import runs_each_time
from perfaudit.static.understanding.epochs import takes_few_long_steps
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.step_loops import StepLoop, step_loops

_BACK = {f"torch.{n}" for n in ("from_numpy", "tensor", "as_tensor", "Tensor", "FloatTensor", "DoubleTensor")}
_FIELDS = {"data", "detach", "clone", "float", "permute", "transpose", "contiguous"}


@check("PA111", ast.Module)
def batch_through_numpy(source: Source, module: ast.Module) -> Iterator[Seen]:
    if not source.calls(".numpy") or not source.imports_torch or not uses_accelerator(source):
        return
    for step in step_loops(source):
        if not isinstance(step.loop, ast.For) or takes_few_long_steps(source, step):
            continue
        for left, back in _round_trips(source, step):
            if is_test(source, left) or not runs_each_time(source, left, step.loop):
                continue
            yield Seen(
                left,
                f"`{source.brief(left)}` takes the batch to NumPy and `{source.brief(back)}` brings it back: what is done "
                "between them runs in the training process, while the device waits",
                Proposal(
                    "do it in the dataset or in `collate_fn`, which workers run ahead, or with torch on the device, "
                    "after the batch was moved"
                ),
                (back,),
                hot=True,
            )


def _round_trips(source: Source, step: StepLoop) -> Iterator[tuple[ast.Call, ast.Call]]:
    """`points = points.numpy()` of the loop's own batch, with the call that makes a tensor of the same name again."""
    batch = (
        {n.id for n in ast.walk(step.loop.target) if isinstance(n, ast.Name)}
        if isinstance(step.loop, ast.For)
        else set()
    )
    batch = _names_from_batch(step, batch)
    for statement in step.loop.body:
        for node in ast.walk(statement):
            if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
                continue
            left = node.value
            if not isinstance(left, ast.Call) or not _leaves_torch(left, batch):
                continue
            back = _comes_back(source, step, node, node.targets[0].id)
            if back is not None:
                yield left, back


def _names_from_batch(step: StepLoop, batch: set[str]) -> set[str]:
    """The names of the loop's target, and of what is taken out of it: `points, target = data`."""
    for statement in step.loop.body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, (ast.Name, ast.Subscript)):
            continue
        if batch & {n.id for n in ast.walk(statement.value) if isinstance(n, ast.Name)}:
            batch = batch | {n.id for target in statement.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    return batch


def _leaves_torch(call: ast.Call, batch: set[str]) -> bool:
    """Whether a call is `x.numpy()` of a batch that still lies on the host, through nothing but views of it."""
    if last_name(call.func) != "numpy" or call.args or not isinstance(call.func, ast.Attribute):
        return False
    node = call.func.value
    while isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)):
        if isinstance(node, ast.Subscript):
            node = node.value
            continue
        function = node.func if isinstance(node, ast.Call) else node
        if not isinstance(function, ast.Attribute) or function.attr not in _FIELDS:
            return False
        node = function.value
    return isinstance(node, ast.Name) and node.id in batch


def _comes_back(source: Source, step: StepLoop, left: ast.Assign, name: str) -> ast.Call | None:
    """The first call behind the statement that makes a tensor of the array, before the backward pass."""
    last = max((call.lineno for call in backward_calls(source) if _is_in(call, step)), default=0)
    for call in sorted(
        (c for s in step.loop.body for c in ast.walk(s) if isinstance(c, ast.Call)), key=lambda c: c.lineno
    ):
        if call.lineno <= left.lineno or (last and call.lineno > last):
            continue
        if source.qualified_name(call.func) in _BACK and call.args and _reads(call.args[0], name):
            return call
    return None


def _is_in(call: ast.Call, step: StepLoop) -> bool:
    return step.loop.lineno <= call.lineno <= (step.loop.end_lineno or 0)


def _reads(node: ast.expr, name: str) -> bool:
    while isinstance(node, (ast.Subscript, ast.Attribute, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name) and node.id == name
