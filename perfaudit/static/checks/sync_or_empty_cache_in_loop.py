"""PA602: waiting for the device, emptying its cache or collecting garbage on every training step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.context import (
    StepCode,
    last_name,
    runs_each_time,
    runs_often,
    runs_rarely,
    step_code,
    step_loops,
    takes_few_long_steps,
)
from perfaudit.static.understanding.entry import module_classes

DEVICES = ("cuda", "xpu", "mps", "npu", "hpu", "accelerator", "accelerator.memory", "cuda.memory", "xpu.memory")
SYNCHRONIZE = {f"torch.{device}.synchronize" for device in DEVICES}
EMPTY_CACHE = {f"torch.{device}.empty_cache" for device in DEVICES}
_EMPTIES = (
    "gives memory back to the driver, which waits for the device, and asks for it again on the next step",
    "take it out; against fragmentation set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
)
_SELDOM = regex(r"training|eval|test|memory|oom|%", re.IGNORECASE)
STREAMS = {"torch.cuda.current_stream", "torch.cuda.default_stream", "torch.xpu.current_stream"}
TIMER = regex(r"(^|_)(tic|toc)(_|$)|timers?$|stop_?watch")
CLOCKS = {
    "time",
    "perf_counter",
    "perf_counter_ns",
    "time_ns",
    "monotonic",
    "process_time",
    "default_timer",
    "elapsed_time",
}


@check("PA602", ast.Module)
def sync_or_empty_cache_in_loop(source: Source, module: ast.Module) -> Iterator[Seen]:
    if not source.imports_torch:
        return
    for step in step_loops(source):
        if takes_few_long_steps(source, step):
            continue
        code = step_code(source, step)
        is_timed = any(_reads_a_clock(part) for part in code)
        for part in code:
            for call in ast.walk(part.root):
                told = _cost_and_cure(source, call, is_timed) if isinstance(call, ast.Call) else None
                if told is not None and runs_each_time(source, call, part.root):
                    cost, cure = told
                    yield Seen(call, f"`{source.brief(call)}` on every step {cost}", Proposal(cure), hot=True)


@check("PA602", call=tuple(sorted(EMPTY_CACHE)))
def cache_emptied_in_forward(source: Source, call: ast.Call) -> Iterator[Seen]:
    """In a model or loss, whose forward pass the training loop of another file runs."""
    owner = source.enclosing(call, ast.ClassDef)
    if not isinstance(owner, ast.ClassDef) or step_loops(source) or not runs_often(source, call):
        return
    if not any(owner is definition for definition in module_classes(source)) or _is_exceptional(source, call):
        return
    cost, cure = _EMPTIES
    yield Seen(call, f"`{source.brief(call)}` in each forward pass of `{owner.name}` {cost}", Proposal(cure), hot=True)


def _is_exceptional(source: Source, call: ast.Call) -> bool:
    """Whether the call is there for running out of memory, for evaluation, or for every so many steps."""
    for ancestor in source.ancestors(call):
        if isinstance(ancestor, ast.ExceptHandler):
            return True
        if isinstance(ancestor, ast.If) and _SELDOM.search(source.text_of(ancestor.test)):
            return True
        if isinstance(ancestor, FUNCTIONS):
            return runs_rarely(source, call, ancestor)
    return False


def _cost_and_cure(source: Source, call: ast.Call, is_timed: bool) -> tuple[str, str] | None:
    name = source.qualified(call.func)
    if name in SYNCHRONIZE or _is_stream_sync(source, call):
        if is_timed:  # without the sync the clock would measure the launches only
            return None
        return (
            "makes the host wait until the device has nothing left to do",
            "take it out: reading a result waits by itself",
        )
    if name in EMPTY_CACHE:
        return _EMPTIES
    if name == "gc.collect" and not (source.calls("gc.disable") or source.calls("gc.freeze")):
        return "stops the host to look at every Python object", "take it out, or collect every so many steps"
    return None


def _is_stream_sync(source: Source, call: ast.Call) -> bool:
    """Whether the call is `torch.cuda.current_stream().synchronize()`."""
    stream = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "synchronize" else None
    return isinstance(stream, ast.Call) and source.qualified(stream.func) in STREAMS


def _reads_a_clock(code: StepCode) -> bool:
    """Whether a time is taken in this code: by the host's clock, by events of the device, by a timer or its `tic`."""
    for call in ast.walk(code.root):
        if not isinstance(call, ast.Call):
            continue
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        owner = receiver.func if isinstance(receiver, ast.Call) else receiver  # `timers("forward").start()`
        names = (last_name(call.func), last_name(owner) if owner is not None else "")
        if names[0] in CLOCKS or any(TIMER.search(name.lower()) for name in names):
            return True
    return False
