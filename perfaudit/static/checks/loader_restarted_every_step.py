"""PA108: a DataLoader of which every step takes the first batch of a new pass."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.demonstrations import is_test
from perfaudit.static.understanding.each_time import runs_each_time
from perfaudit.static.understanding.epochs import takes_few_long_steps
from perfaudit.static.understanding.loader_workers import has_workers
from perfaudit.static.understanding.loaders import Calls, loaders
from perfaudit.static.understanding.step_code import step_code
from perfaudit.static.understanding.step_loops import step_loops
from perfaudit.static.understanding.values import ABSENT, argument, is_true, resolve

_RANDOM = {f"torch.utils.data.{kind}RandomSampler" for kind in ("", "Subset", "Weighted")}


@check("PA108", ast.Module)
def loader_restarted_every_step(source: Source, module: ast.Module) -> Iterator[Seen]:
    if not source.mentions("DataLoader") or not source.mentions("next"):
        return
    for step in step_loops(source):
        if takes_few_long_steps(source, step):
            continue
        for part in step_code(source, step):
            for call in walk(part.root):
                loader = _loader_of(source, call) if isinstance(call, ast.Call) else None
                if loader is None or is_test(source, call) or not runs_each_time(source, call, part.root):
                    continue
                found = loaders(source, loader)
                cost = _cost(source, found) if found else ""
                if cost:
                    name = source.brief(loader, 30)
                    yield Seen(
                        call,
                        f"`{source.brief(call)}` begins a new pass over the loader on every step{part.way}, which {cost}",
                        Proposal(
                            f"`batches = iter({name})` before the loop and `next(batches)` in it; where that raises "
                            f"StopIteration, `batches = iter({name})` again. Each sample then comes once per pass"
                        ),
                        hot=True,
                    )


def _loader_of(source: Source, call: ast.Call) -> ast.expr | None:
    """`x` of `next(iter(x))`."""
    match call:
        case ast.Call(func=ast.Name(id="next") as outer, args=[ast.Call(func=ast.Name(id="iter") as inner, args=[x])]):
            return None if source.lookup(outer) or source.lookup(inner) else x
    return None


def _cost(source: Source, calls: Calls) -> str:
    """What beginning a pass costs, of whichever of the loaders it is; "" where it is little, or cannot be told."""
    if all(has_workers(source, call) for call in calls):
        if any(argument(source, call, "persistent_workers") is not ABSENT for call in calls):
            return "throws away the batches that its workers have prepared"
        return "starts its workers anew and throws away the batches that they have prepared"
    if all(_draws_an_order(source, call) for call in calls):
        return "draws a new order of all samples for one batch"
    return ""


def _draws_an_order(source: Source, call: ast.Call) -> bool:
    """Whether a pass begins with a random order of the whole dataset."""
    if is_true(source, argument(source, call, "shuffle", 2)):
        return True
    sampler = argument(source, call, "sampler", 3)
    made = resolve(source, sampler) if isinstance(sampler, ast.expr) else None
    return isinstance(made, ast.Call) and source.qualified_name(made.func) in _RANDOM
