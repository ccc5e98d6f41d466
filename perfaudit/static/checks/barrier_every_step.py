"""PA709: all processes wait for each other in every training step, beside the exchange of gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import Source
from perfaudit.static.understanding.demonstrations import is_test
from perfaudit.static.understanding.distributed import ddp_calls, wraps_otherwise
from perfaudit.static.understanding.each_time import runs_each_time
from perfaudit.static.understanding.epochs import takes_few_long_steps
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.step_code import StepCode, step_code
from perfaudit.static.understanding.step_loops import step_loops
from perfaudit.static.understanding.values import ABSENT, argument, resolve

_ACCELERATOR = "accelerate.Accelerator"
# What a barrier may be for: a measurement, or files and messages of one process that the others read.
_MEASURES = regex(r"perf_counter|time\.time\(|monotonic\(|elapsed_time|profile|timers?\b|\btic\b|\btoc\b")
_EXCHANGES = regex(r"\.send\(|\.recv\(|isend|irecv|broadcast_object|\brpc\b|torch\.load|store\.(set|get)|gossip")


@check("PA709", ast.Module)
def barrier_every_step(source: Source, module: ast.Module) -> Iterator[Seen]:
    if not source.mentions("barrier") and not source.mentions("wait_for_everyone"):
        return
    if not ddp_calls(source) and not wraps_otherwise(source) and not source.calls(_ACCELERATOR):
        return  # without the exchange of gradients, the barrier may be what keeps the processes together
    for step in step_loops(source):
        code = step_code(source, step)
        if takes_few_long_steps(source, step) or _has_a_use(source, code):
            continue
        for part in code:
            for call in ast.walk(part.root):
                if not isinstance(call, ast.Call) or not _waits_for_all(source, call) or is_test(source, call):
                    continue
                if runs_each_time(source, call, part.root):
                    yield Seen(
                        call,
                        f"`{source.brief(call)}` on every step{part.way} makes all processes wait for the slowest, and with NCCL "
                        "each host for its device",
                        Proposal(
                            "take it out: the exchange of gradients in the backward pass keeps the processes together"
                        ),
                        hot=True,
                    )


def _has_a_use(source: Source, code: tuple[StepCode, ...]) -> bool:
    texts = [source.text_of(part.root) for part in code]
    return any(_MEASURES.search(text) or _EXCHANGES.search(text) for text in texts)


def _waits_for_all(source: Source, call: ast.Call) -> bool:
    """Whether a call is a barrier of all processes, of torch's or of accelerate's."""
    if source.qualified_name(call.func) == "torch.distributed.barrier":
        given = (argument(source, call, "group", 0), argument(source, call, "async_op", 1))
        return all(value is ABSENT for value in given)
    if last_name(call.func) != "wait_for_everyone" or not isinstance(call.func, ast.Attribute):
        return False
    made = resolve(source, call.func.value)
    return isinstance(made, ast.Call) and source.qualified_name(made.func) == _ACCELERATOR
