"""PA602: waiting for the device, emptying its cache or collecting garbage on every training step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Function, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.each_time import runs_each_time, runs_in_any_case
from perfaudit.static.understanding.elsewhere import Elsewhere, called_each_step, called_from
from perfaudit.static.understanding.epochs import takes_few_long_steps
from perfaudit.static.understanding.how_often import runs_often
from perfaudit.static.understanding.model_parts import module_classes
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.rarely import runs_rarely
from perfaudit.static.understanding.step_code import StepCode, step_code
from perfaudit.static.understanding.step_loops import step_loops

DEVICES = ("cuda", "xpu", "mps", "npu", "hpu", "accelerator", "accelerator.memory", "cuda.memory", "xpu.memory")
SYNCHRONIZE = {f"torch.{device}.synchronize" for device in DEVICES}
EMPTY_CACHE = {f"torch.{device}.empty_cache" for device in DEVICES}
_EMPTIES = (
    "gives memory back to the driver, which waits for the device, and asks for it again on the next step",
    "take it out; against fragmentation set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
)
_NAMED = regex(r"\bsynchronize\b|\bempty_cache\b|\bcollect\b")
_SELDOM = regex(r"training|eval|test|memory|oom|%", re.IGNORECASE)
STREAMS = {"torch.cuda.current_stream", "torch.cuda.default_stream", "torch.xpu.current_stream"}
TIMER = regex(r"(^|_)(tic|toc)(_|$)|timers?$|stop_?watch", words="tic|toc|timer|watch")
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
        elsewhere = list(_in_other_files(source, code))
        roots = [*(part.root for part in code), *(there.function for there in elsewhere)]
        is_timed = any(_reads_a_clock(root) for root in roots)
        for part in code:
            for call in walk(part.root):
                told = _cost_and_cure(source, call, is_timed) if isinstance(call, ast.Call) else None
                if told is not None and runs_each_time(source, call, part.root):
                    cost, cure = told
                    yield Seen(call, f"`{source.brief(call)}` on every step{part.way} {cost}", Proposal(cure), hot=True)
        yield from _seen_elsewhere(source, elsewhere, is_timed)


def _in_other_files(source: Source, code: tuple[StepCode, ...]) -> Iterator[Elsewhere]:
    """The functions of other files that run on every step, two calls deep."""
    for part in code:
        for there in called_each_step(source, part.root) if part.is_near else ():
            yield there
            if part.caller is None:
                yield from called_from(source, there)


def _seen_elsewhere(source: Source, elsewhere: list[Elsewhere], is_timed: bool) -> Iterator[Seen]:
    """Calls of functions in other files that wait, clear or collect in any case, each such place once."""
    told: set[int] = set()
    for there in elsewhere:
        for call in there.source.nodes(ast.Call) if _NAMED.search(there.source.text) else ():
            if id(call) in told or not any(a is there.function for a in there.source.ancestors(call)):
                continue
            found = _cost_and_cure(there.source, call, is_timed)
            if found is None or not runs_in_any_case(there.source, call, there.function):
                continue
            if there.source.qualified_name(call.func) == "gc.collect" and _collects_by_hand(source):
                continue
            told.add(id(call))
            cost, cure = found
            file = there.source.path
            yield Seen(
                there.outermost.call,
                f"`{source.brief(there.outermost.call)}` on every step {cost}: `{there.source.brief(call)}` in "
                f"`{there.function.name}`, {file} line {call.lineno}{there.way}",
                Proposal(f"in {file}: {cure}"),
                hot=True,
            )


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
    name = source.qualified_name(call.func)
    if name in SYNCHRONIZE or _is_stream_sync(source, call):
        if is_timed:  # without the sync the clock would measure the launches only
            return None
        return (
            "makes the host wait until the device has nothing left to do",
            "take it out: reading a result waits by itself",
        )
    if name in EMPTY_CACHE:
        return _EMPTIES
    if name == "gc.collect" and not _collects_by_hand(source):
        return "stops the host to look at every Python object", "take it out, or collect every so many steps"
    return None


def _collects_by_hand(source: Source) -> bool:
    return bool(source.calls("gc.disable") or source.calls("gc.freeze"))


def _is_stream_sync(source: Source, call: ast.Call) -> bool:
    """Whether the call is `torch.cuda.current_stream().synchronize()`."""
    stream = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "synchronize" else None
    return isinstance(stream, ast.Call) and source.qualified_name(stream.func) in STREAMS


def _reads_a_clock(root: Loop | Function) -> bool:
    """Whether a time is taken in this code: by the host's clock, by events of the device, by a timer or its `tic`."""
    for call in walk(root):
        if not isinstance(call, ast.Call):
            continue
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        owner = receiver.func if isinstance(receiver, ast.Call) else receiver  # `timers("forward").start()`
        names = (last_name(call.func), last_name(owner) if owner is not None else "")
        if names[0] in CLOCKS or any(TIMER.search(name.lower()) for name in names):
            return True
    return False
